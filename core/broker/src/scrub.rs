//! Sealed copies are read through now and then, so that damage is found while there is still another copy.
//!
//! Owns which copy is verified when, and what was found. Repairs nothing: whoever does takes what is listed here and
//! asks for another look when it is done. Copies that take appends are not looked at, copies that are not here are not
//! missed here, and one that is out of service is known to be damaged already.
//!
//! Invariants:
//! - a copy is whole only if every frame of it is intact *and* it holds as many records and bytes as the metadata says;
//! - nothing is deleted, truncated or taken out of service because of what was found;
//! - one copy is verified at a time, and over time no more bytes are read in a second than the settings allow;
//! - every sealed copy has its turn before any has another; one that a read failed on comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::vnode::SegmentState;
use storage::store::{self, Report, State, Status};
use types::{Instant, SegmentId};

use crate::node::{Node, Owner};
use crate::upkeep::{Notice, Scrubbed};

/// Copies that a read failed on and that wait for their turn.
const FIRST_MAX: usize = 1024;
/// Findings remembered; of more than that it is only counted that there are.
const FINDINGS_MAX: usize = 10_000;

/// How far the rotation is, and what it found.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// When the next pass begins; there once the node serves.
    due: Option<Instant>,
    /// Copies left in this pass.
    left: usize,
    /// Nothing is read before.
    pace_at: Instant,
    /// The copy whose turn it was last.
    last: Option<SegmentId>,
    /// Copies whose turn comes before anybody else's.
    first: BTreeSet<SegmentId>,
    /// The copy being verified.
    busy: Option<SegmentId>,
    findings: BTreeMap<SegmentId, String>,
}

impl Scrub {
    /// Copies that are here and are not whole, with what is wrong, in the order of their ids.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = (SegmentId, &str)> {
        self.findings.iter().map(|(segment, finding)| (*segment, finding.as_str()))
    }

    /// What is wrong with a copy, if something was found.
    #[cfg(test)]
    pub(crate) fn finding(&self, segment: SegmentId) -> Option<&str> {
        self.findings.get(&segment).map(String::as_str)
    }

    /// A copy is gone, and what was found with it.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.findings.remove(&segment);
        self.first.remove(&segment);
    }
}

impl Node {
    /// Verifies the next copy when it is time to.
    pub(crate) fn keep_scrub(&mut self) {
        let now = self.core.now;
        if !self.serves() || self.scrub.busy.is_some() {
            return;
        }
        if let Some(every) = self.core.config.scrub.every {
            let due = *self.scrub.due.get_or_insert(now.plus(every));
            if due <= now {
                self.scrub.due = Some(now.plus(every));
                self.scrub.left = self.core.config.scrub.copies_per_pass;
            }
        }
        if self.scrub.pace_at > now {
            return;
        }
        let next = self.next_first().or_else(|| self.next_in_turn());
        if let Some(segment) = next {
            self.scrub.busy = Some(segment);
            self.core.ask(Owner::Scrub(segment), store::Request::Verify { segment });
        }
    }

    /// When there is something to do about it next.
    pub(crate) fn next_scrub(&self) -> Option<Instant> {
        if !self.serves() || self.scrub.busy.is_some() {
            return None;
        }
        let waits = self.scrub.left > 0 || !self.scrub.first.is_empty();
        [self.scrub.due, waits.then_some(self.scrub.pace_at)].into_iter().flatten().min()
    }

    /// Gives a copy its turn before anybody else's: a read failed on it, or somebody has mended it.
    pub(crate) fn scrub_first(&mut self, segment: SegmentId) {
        if self.scrub.first.len() < FIRST_MAX && self.can_verify(segment) {
            self.scrub.first.insert(segment);
        }
    }

    fn next_first(&mut self) -> Option<SegmentId> {
        while let Some(segment) = self.scrub.first.pop_first() {
            if self.can_verify(segment) {
                return Some(segment);
            }
        }
        None
    }

    /// Whether a sealed copy is here that is not known to be out of service.
    fn can_verify(&self, segment: SegmentId) -> bool {
        self.core.copy(segment).is_some_and(is_sealed) && self.sealed_extent(segment).is_some()
    }

    fn next_in_turn(&mut self) -> Option<SegmentId> {
        if self.scrub.left == 0 {
            return None;
        }
        let sealed = |(segment, status): (SegmentId, Status)| {
            (is_sealed(status) && self.sealed_extent(segment).is_some()).then_some(segment)
        };
        let last = self.scrub.last;
        let later = |segment: &SegmentId| last.is_none_or(|last| *segment > last);
        let next = self.core.copies().filter_map(sealed).find(later);
        let next = next.or_else(|| self.core.copies().filter_map(sealed).next());
        self.scrub.left -= 1;
        if next.is_none() {
            self.scrub.left = 0;
        }
        self.scrub.last = next;
        next
    }

    /// Records and bytes that a copy must hold, when its segment is sealed.
    fn sealed_extent(&self, segment: SegmentId) -> Option<(u64, u64)> {
        match self.core.meta.of(segment.range.topic).segment(segment)?.state {
            SegmentState::Active => None,
            SegmentState::Sealed(sealed) => Some((sealed.length, sealed.byte_size)),
        }
    }

    /// A copy was read through, or could not be.
    pub(crate) fn scrubbed(&mut self, segment: SegmentId, result: Result<Report, store::Error>) {
        self.scrub.busy = None;
        let Some((records, bytes)) = self.sealed_extent(segment) else {
            return self.scrub.forget(segment);
        };
        let read = result.as_ref().map_or(bytes, |report| report.bytes);
        let rate = self.core.config.scrub.bytes_per_second.max(1);
        // Rounded up, so that a slow rate is never none.
        let micros = (u128::from(read) * 1_000_000).div_ceil(u128::from(rate));
        let pause = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        self.scrub.pace_at = self.core.now.plus(pause);
        let finding = match result {
            Ok(Report { damage: Some(damage), .. }) => {
                Some(format!("{:?} at position {} (offset {})", damage.class, damage.position, damage.offset))
            }
            Ok(report) if (report.records, report.bytes) == (records, bytes) => None,
            Ok(report) => Some(format!(
                "it holds {} records in {} bytes of {records} in {bytes}",
                report.records, report.bytes
            )),
            // It went meanwhile, or there is too much to do: nothing was learnt.
            Err(store::Error::NoSuchSegment | store::Error::Overloaded) => {
                return self.core.upkeep(Notice::Scrubbed { segment, result: Scrubbed::Skipped });
            }
            Err(error) => Some(error.to_string()),
        };
        match finding {
            None => self.found_whole(segment),
            Some(finding) => self.found_damaged(segment, finding),
        }
    }

    fn found_whole(&mut self, segment: SegmentId) {
        let was_damaged = self.scrub.findings.remove(&segment).is_some();
        let result = if was_damaged { Scrubbed::Repaired } else { Scrubbed::Verified };
        self.core.upkeep(Notice::Scrubbed { segment, result });
    }

    fn found_damaged(&mut self, segment: SegmentId, finding: String) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let alone = listed.is_none_or(|listed| listed.replicas.len() < 2);
        // What this copy still holds may be the most that anybody has.
        let result = if alone { Scrubbed::Unrepairable } else { Scrubbed::Damaged };
        let known = self.scrub.findings.contains_key(&segment);
        self.core.upkeep(Notice::Scrubbed { segment, result });
        if known || self.scrub.findings.len() < FINDINGS_MAX {
            self.scrub.findings.insert(segment, finding.clone());
        }
        if !known {
            self.core.upkeep(Notice::CopyDamaged { segment, detail: finding, alone });
        }
    }
}

/// Whether a copy is one that can be verified against what the metadata says.
fn is_sealed(status: Status) -> bool {
    match status {
        Status::Here(extent) => match extent.state {
            State::Sealed => true,
            State::Active | State::Stopped(_) | State::Latched(_) => false,
        },
        Status::Creating | Status::Unread | Status::Unreadable | Status::Deleting => false,
    }
}
