//! Copies that nobody lists: found at the start, and every removal of a copy.
//!
//! Owns which copies may go, and that those that have to go do. A crash between a removal's entry and the removal
//! itself, or a disk that fails while it is under way, leaves a copy that no metadata lists. Does not decide that a
//! topic or a segment ends.
//!
//! Invariants:
//! - ids decide: a copy goes only when the topic with its id does not list it;
//! - nothing is looked for before every entry that was ever acknowledged has been applied, and a copy is made only
//!   after its registration was: so no entry that is still to come can list what is found here;
//! - metadata that is damaged, missing, or of a later version than this build has leads here never: the node stops
//!   or does not serve;
//! - metadata that is *older* than a copy (a range's next segment is still to come, and its copy is here) is not
//!   believed about any: the node does not serve, and a person is told. A topic it has never heard of is not told
//!   from one that was removed: whoever may put older metadata back has copies told of, not removed;
//! - what cannot be known to be ours is left alone: a copy without a readable `copy.meta` is never removed.

use std::collections::BTreeSet;
use std::time::Duration;

use metadata::vnode::Vnode;
use storage::store::{self, Status};
use types::{Instant, SegmentId};

use crate::action::{Notice, Stop};
use crate::config::Sweep;
use crate::node::{Node, Owner};
use crate::planted::Bug;

/// Removals under way at one time, so that the end of a large topic does not hold up appends.
const REMOVALS_MAX: usize = 64;
/// Pause before removals that failed are tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest pause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Names told.
const NAMES_MAX: usize = 10;

/// Copies that go.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// Not asked for yet, or to be asked for again.
    waiting: BTreeSet<SegmentId>,
    /// Removals under way.
    under_way: usize,
    /// Until when nothing more is asked for.
    pub(crate) retry_at: Option<Instant>,
    /// Rounds that failed in a row.
    failures: u32,
}

/// What metadata says to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A topic lists it.
    Listed,
    /// Its topic or its segment was removed.
    Removed,
    /// It was never registered: the metadata is older than the copy.
    Unheard,
    /// Nobody can say whose it is.
    Unreadable,
}

impl Node {
    /// Copies of which metadata says this.
    fn judged(&self, wanted: Verdict) -> impl Iterator<Item = SegmentId> {
        let meta = &self.core.meta;
        let judge = move |segment: SegmentId, status| verdict(meta.of(segment.range.topic), segment, status);
        self.core.copies().filter(move |(id, status)| judge(*id, *status) == wanted).map(|(id, _)| id)
    }

    /// Why the metadata cannot be what was here last, if it cannot: it does not know of copies that were made only
    /// after it had been told of them.
    pub(crate) fn outdated(&self) -> Option<Stop> {
        let unheard: Vec<SegmentId> = self.judged(Verdict::Unheard).collect();
        let stop = Stop::Outdated { copies: unheard.len(), names: names(unheard.iter()) };
        (!unheard.is_empty()).then_some(stop)
    }

    /// Removes what an earlier lifetime left and nobody lists. When everything is recovered, once.
    pub(crate) fn sweep_orphans(&mut self) {
        let sweep = self.core.config.orphans;
        if sweep == Sweep::Off || self.core.config.has_bug(Bug::KeepOrphans) {
            return;
        }
        let mut removed: BTreeSet<SegmentId> = self.judged(Verdict::Removed).collect();
        if removed.is_empty() {
            return;
        }
        let removing = sweep == Sweep::Delete;
        let (copies, names) = (removed.len(), names(removed.iter()));
        self.core.notice(Notice::OrphansFound { copies, names, removing });
        if removing {
            self.orphans.waiting.append(&mut removed);
            self.remove_more();
        }
    }

    /// Removes a copy that nobody lists any more.
    pub(crate) fn remove_copy(&mut self, segment: SegmentId) {
        self.orphans.waiting.insert(segment);
        self.remove_more();
    }

    /// Asks for removals, a bounded number at a time.
    pub(crate) fn remove_more(&mut self) {
        if self.orphans.retry_at.is_some_and(|at| at > self.core.now) {
            return;
        }
        self.orphans.retry_at = None;
        while self.orphans.under_way < REMOVALS_MAX
            && let Some(segment) = self.orphans.waiting.pop_first()
        {
            self.orphans.under_way += 1;
            // Behind whatever the store still does with the copy.
            self.core.ask(Owner::Delete(segment), store::Request::Delete { segment });
        }
    }

    /// The store removed a copy, or could not.
    pub(crate) fn copy_removed(&mut self, segment: SegmentId, result: Result<(), store::Error>) {
        self.orphans.under_way -= 1;
        match result {
            Ok(()) => self.orphans.failures = 0,
            // Its `copy.meta` does not say that it is ours.
            Err(error @ store::Error::Damaged(_)) => self.removal_failed(segment, &error),
            Err(error) => {
                self.orphans.waiting.insert(segment);
                // Of those that were under way together the first one speaks for all.
                if self.orphans.retry_at.is_none() {
                    self.orphans.failures = self.orphans.failures.saturating_add(1);
                    let pause = RETRY_AFTER.saturating_mul(self.orphans.failures).min(RETRY_AFTER_MAX);
                    self.orphans.retry_at = Some(self.core.now.plus(pause));
                    // What stays as it is is told ever more rarely.
                    if self.orphans.failures.is_power_of_two() {
                        self.removal_failed(segment, &error);
                    }
                }
            }
        }
        self.remove_more();
    }

    fn removal_failed(&mut self, segment: SegmentId, error: &store::Error) {
        self.core.notice(Notice::CopyLeft { segment, detail: error.to_string() });
    }

    /// Copies that are here and that no topic lists, those on their way out included.
    pub(crate) fn unlisted_copies(&self) -> usize {
        let is_listed =
            |segment: SegmentId| self.core.meta.of(segment.range.topic).segment(segment).is_some();
        self.core.copies().filter(|(segment, _)| !is_listed(*segment)).count()
    }
}

fn verdict(vnode: &Vnode, segment: SegmentId, status: Status) -> Verdict {
    if vnode.segment(segment).is_some() {
        return Verdict::Listed;
    }
    match status {
        Status::Unreadable => return Verdict::Unreadable,
        // One that could not be read yet is asked about once it can be: the store lets the removal wait.
        Status::Here(_) | Status::Creating | Status::Unread | Status::Deleting => {}
    }
    match vnode.range(segment.range) {
        Some(range) if segment.seq >= range.next_segment_seq => Verdict::Unheard,
        // A range is never removed but with its topic, and the ids of topics are never used again.
        None if vnode.topic(segment.range.topic).is_some() => Verdict::Unheard,
        Some(_) | None => Verdict::Removed,
    }
}

fn names<'a>(segments: impl Iterator<Item = &'a SegmentId>) -> Vec<String> {
    segments.take(NAMES_MAX).map(ToString::to_string).collect()
}
