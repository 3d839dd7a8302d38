//! Copies that nobody lists: found now and then, and every removal of a copy.
//!
//! Owns which copies may go, and that those that have to go do. A crash between a removal's entry and the removal
//! itself, or a disk that fails while it is under way, leaves a copy that no metadata lists. Does not decide that a
//! topic or a segment ends.
//!
//! Invariants:
//! - ids decide: a copy goes only when the topic with its id does not list it;
//! - nothing is looked for before every entry that was ever acknowledged has been applied, and a copy is made only
//!   after its registration was: so no entry that is still to come can list what is found here;
//! - in one pass the copies are listed first, then every vnode of one unchanged ring says how far the tables have to
//!   be, and only then is compared. If one is silent, or topics are on their way between two, none goes;
//! - a copy goes only after so many passes in a row found it unlisted, and after this process has known it unlisted
//!   for so long;
//! - metadata that is damaged, missing, or of a later version than this build has leads here never: the node stops
//!   or does not serve;
//! - metadata that is *older* than a copy (a range's next segment is still to come, and its copy is here) is not
//!   believed about any: the node does not serve, and a person is told. A topic it has never heard of is not told
//!   from one that was removed: whoever may put older metadata back has copies told of, not removed;
//! - what cannot be known to be ours is left alone: a copy without a readable `copy.meta` is never removed.
//!
//! A copy that is listed and not this node's any more is not looked for here: whoever moved it removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::vnode::Vnode;
use storage::store::{self, Status};
use types::{Instant, SegmentId, VnodeId};

use crate::action::{Notice, Stop};
use crate::config::Sweep;
use crate::meta::{CLUSTER, Purpose};
use crate::node::{Node, Owner};
use crate::planted::Bug;
use crate::upkeep;

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
    under_way: BTreeSet<SegmentId>,
    /// Until when nothing more is asked for.
    pub(crate) retry_at: Option<Instant>,
    /// Rounds that failed in a row.
    failures: u32,
    /// Removals that a pass asked for.
    swept: BTreeSet<SegmentId>,
    pass: Pass,
    /// Copies that no topic listed at the last pass.
    seen: BTreeMap<SegmentId, Sighting>,
    /// The last pass was given up, which was told.
    held: bool,
}

/// The search for what an earlier lifetime or a lost removal left.
#[derive(Debug, Default)]
struct Pass {
    /// When the next one begins; there once the node serves.
    due: Option<Instant>,
    /// It is being learnt whether the tables are up to date: about these copies, by this ring.
    asking: Option<(BTreeSet<SegmentId>, Option<u64>)>,
}

/// A copy that nobody lists.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    since: Instant,
    passes: u32,
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

impl Orphans {
    /// Copies that are to be removed.
    #[cfg(feature = "planted")]
    pub(crate) fn waiting(&self) -> impl Iterator<Item = SegmentId> {
        self.waiting.iter().copied()
    }
}

impl Node {
    /// Copies of which metadata says this.
    fn judged(&self, wanted: Verdict) -> impl Iterator<Item = SegmentId> {
        let meta = &self.core.meta;
        let judge = move |segment: SegmentId, status| verdict(meta.of(segment.range.topic), segment, status);
        self.core.copies().filter(move |(id, status)| judge(*id, *status) == wanted).map(|(id, _)| id)
    }

    /// Copies that nobody lists and that nobody is removing.
    fn unexplained(&self) -> impl Iterator<Item = SegmentId> {
        let Orphans { waiting, under_way, .. } = &self.orphans;
        self.judged(Verdict::Removed).filter(|id| !waiting.contains(id) && !under_way.contains(id))
    }

    /// Why the metadata cannot be what was here last, if it cannot: it does not know of copies that were made only
    /// after it had been told of them.
    pub(crate) fn outdated(&self) -> Option<Stop> {
        let unheard: Vec<SegmentId> = self.judged(Verdict::Unheard).collect();
        let stop = Stop::Outdated { copies: unheard.len(), names: names(unheard.iter()) };
        (!unheard.is_empty()).then_some(stop)
    }

    /// Begins a pass when one is due.
    pub(crate) fn keep_orphans(&mut self) {
        let now = self.core.now;
        let off = self.core.config.orphans == Sweep::Off || self.core.config.has_bug(Bug::KeepOrphans);
        if off || !self.serves() || self.orphans.pass.asking.is_some() {
            return;
        }
        let due = *self.orphans.pass.due.get_or_insert(now);
        if due > now {
            return;
        }
        self.orphans.pass.due = Some(now.plus(self.core.config.orphan_sweep.every));
        let removed: BTreeSet<SegmentId> = self.unexplained().collect();
        if removed.is_empty() {
            return self.orphans.seen.clear();
        }
        if self.core.config.has_bug(Bug::SweepCached) {
            return self.sweep(&removed);
        }
        let topology = self.core.meta.cluster().topology();
        let vnodes: Vec<VnodeId> =
            topology.into_iter().flat_map(|ring| ring.placements.keys().copied()).collect();
        self.orphans.pass.asking = Some((removed, topology.map(|ring| ring.version)));
        self.core.confirm(Purpose::Orphans, std::iter::once(CLUSTER).chain(vnodes));
    }

    /// When the next pass begins.
    pub(crate) fn next_orphans(&self) -> Option<Instant> {
        self.orphans.pass.due.filter(|_| self.orphans.pass.asking.is_none())
    }

    /// The tables are known to be up to date, or it cannot be learnt whether they are.
    pub(crate) fn orphans_confirmed(&mut self, confirmed: bool) {
        let Some((asked, version)) = self.orphans.pass.asking.take() else { return };
        let topology = self.core.meta.cluster().topology();
        let detail = if !confirmed {
            "not every vnode answered"
        } else if topology.map(|ring| ring.version) != version {
            "the ring changed meanwhile"
        } else if topology.is_some_and(|ring| ring.pending.is_some()) {
            "the ring is being changed"
        } else if !self.core.meta.covers_ring() {
            "topics are on their way between two vnodes"
        } else {
            self.orphans.held = false;
            return self.sweep(&asked);
        };
        if !std::mem::replace(&mut self.orphans.held, true) {
            self.core.upkeep(upkeep::Notice::OrphanSweepSkipped { detail });
        }
    }

    /// Tells of what nobody lists and removes what has been so for long enough.
    fn sweep(&mut self, asked: &BTreeSet<SegmentId>) {
        let (now, rules) = (self.core.now, self.core.config.orphan_sweep.clone());
        let unlisted: BTreeSet<SegmentId> =
            self.unexplained().filter(|segment| asked.contains(segment)).collect();
        let known = std::mem::take(&mut self.orphans.seen);
        let is_new = unlisted.iter().any(|segment| !known.contains_key(segment));
        let removing = self.core.config.orphans == Sweep::Delete;
        if is_new {
            let (copies, names) = (unlisted.len(), names(unlisted.iter()));
            self.core.notice(Notice::OrphansFound { copies, names, removing });
        }
        let sighting = |segment: &SegmentId| {
            let before = known.get(segment).copied().unwrap_or(Sighting { since: now, passes: 0 });
            Sighting { passes: before.passes.saturating_add(1), ..before }
        };
        let mut seen: Vec<(SegmentId, Sighting)> =
            unlisted.iter().map(|segment| (*segment, sighting(segment))).collect();
        seen.sort_by_key(|(segment, sighting)| (sighting.since, *segment));
        seen.truncate(rules.tracked_max.max(1));
        let hasty = self.core.config.has_bug(Bug::SweepAtFirstSight);
        let is_due = |(_, sighting): &&(SegmentId, Sighting)| {
            (sighting.passes >= rules.sightings && now.since(sighting.since) >= rules.min_age) || hasty
        };
        if removing {
            let due: Vec<SegmentId> = seen
                .iter()
                .filter(is_due)
                .take(rules.removals_max.max(1))
                .map(|(segment, _)| *segment)
                .collect();
            self.orphans.swept.extend(&due);
            self.orphans.waiting.extend(due);
        }
        self.orphans.seen = seen.into_iter().collect();
        self.remove_more();
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
        while self.orphans.under_way.len() < REMOVALS_MAX
            && let Some(segment) = self.orphans.waiting.pop_first()
        {
            self.orphans.under_way.insert(segment);
            // Behind whatever the store still does with the copy.
            self.core.ask(Owner::Delete(segment), store::Request::Delete { segment });
        }
    }

    /// The store removed a copy, or could not.
    pub(crate) fn copy_removed(&mut self, segment: SegmentId, result: Result<(), store::Error>) {
        self.orphans.under_way.remove(&segment);
        match result {
            Ok(()) => {
                self.orphans.failures = 0;
                self.orphans.seen.remove(&segment);
                self.scrub.forget(segment);
                if self.orphans.swept.remove(&segment) {
                    self.core.upkeep(upkeep::Notice::OrphanRemoved { segment });
                }
            }
            // Its `copy.meta` does not say that it is ours.
            Err(error @ store::Error::Damaged(_)) => {
                self.orphans.swept.remove(&segment);
                self.removal_failed(segment, &error);
            }
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
        // A removal that began and failed is asked for again.
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
