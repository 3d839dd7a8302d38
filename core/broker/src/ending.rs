//! How an active segment ends: drained, fenced, sealed, recorded in metadata.
//!
//! Owns the one procedure behind a size roll, a failed append and a restart. Every step is retried from the
//! fence until it is done or the copy turns out to be out of service; running it twice is harmless, because
//! a fence and a seal that exist already are found and adopted.
//!
//! Invariants:
//! - The length recorded in metadata is the copy's durable end after it stopped taking appends, so it covers
//!   everything acknowledged.
//! - A segment of an earlier process lifetime is never appended to: it comes here first.
//! - A copy that is out of service is not sealed: where its acknowledged records end is not known. What comes of a segment
//!   that has no other is in `loss`.
//! - What was sent to other copies and cannot be ended from here is ended by `healing`, which asks all of them.
//!
//! ```text
//! size, age, split  Draining ───────────▶ Sealing ─▶ Recording
//! failure           Draining ─▶ Fencing ─▶ Sealing ─▶ Recording
//! restart                       Fencing ─▶ Sealing ─▶ Recording
//! damage, one copy  Fencing ─▶ Verifying ────────────▶ Recording
//! several copies    (Draining) ─▶ Handed ─▶ the tables say so
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use metadata::vnode::{SealSegment, Segment};
use storage::store::{self, Extent};
use types::{Epoch, Offset, RangeId, SegmentId, WallTime};

use crate::action::{Cause, Notice};
use crate::followers::Crew;
use crate::meta;
use crate::node::{Node, Owner};
use crate::planted::Bug;
use crate::produce;
use crate::segments::{EPOCH_FIRST, InFlight, Open, RETRY_AFTER, Range, State};

/// Leftovers of earlier lifetimes being ended at one time, so that a start with many does not swamp the store.
const RESTARTS_MAX: usize = 64;

/// How long producers wait for somebody else to end a segment.
const HANDED_MAX: Duration = Duration::from_secs(10);
/// Longest pause before another try.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// A segment on its way to being sealed.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) segment: SegmentId,
    pub(crate) base: Offset,
    pub(crate) cause: Cause,
    pub(crate) step: Step,
    /// Appends still on their way; only while draining.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Exclusive end of what may be read; `None` after a restart, when only the copy knows.
    pub(crate) committed_end: Option<Offset>,
    /// Offsets behind its end that its only copy lost, once that was worked out.
    pub(crate) lost: Option<u64>,
    /// Epoch of the fence.
    epoch: Epoch,
    /// Whether it counts against [`RESTARTS_MAX`].
    counted: bool,
    /// Times it got stuck.
    tries: u32,
}

/// What an ending waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The appends in flight. `failed` tells whether one of them was refused.
    Draining { failed: bool },
    /// The fence.
    Fencing,
    /// The copy's seal.
    Sealing,
    /// The only copy, out of service, is read through.
    Verifying,
    /// The seal in metadata.
    Recording(Extent),
    /// A second try; `Node::retries` says when.
    Stuck,
    /// Somebody else's work; it is seen in the tables when it is done.
    Handed {
        /// That takes longer than producers are to wait.
        overdue: bool,
    },
}

impl Ending {
    pub(crate) fn new(segment: SegmentId, base: Offset, cause: Cause, step: Step) -> Self {
        Self {
            segment,
            base,
            cause,
            step,
            in_flight: VecDeque::new(),
            committed_end: None,
            lost: None,
            epoch: EPOCH_FIRST.next(),
            counted: false,
            tries: 0,
        }
    }

    /// Whether a produce should be refused rather than wait.
    pub(crate) fn is_stuck(&self) -> bool {
        match self.step {
            Step::Stuck | Step::Handed { overdue: true } => true,
            Step::Draining { .. }
            | Step::Fencing
            | Step::Sealing
            | Step::Verifying
            | Step::Recording(_)
            | Step::Handed { overdue: false } => false,
        }
    }

    /// Times it got stuck.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether it is ended by whoever asks all copies.
    pub(crate) fn is_others_to_end(&self) -> bool {
        matches!(self.step, Step::Handed { .. })
    }
}

impl Node {
    /// A range whose segment ends, and the latest time of its records.
    pub(crate) fn ending(&mut self, id: RangeId) -> Option<(&mut Ending, &mut WallTime)> {
        let range = self.ranges.get_mut(&id)?;
        match &mut range.state {
            State::Ending(ending) => Some((ending, &mut range.appended_at)),
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Open(_)
            | State::Stale { .. }
            | State::Stopped => None,
        }
    }

    /// Starts an ending that has nothing in flight at the fence.
    pub(crate) fn end(&mut self, id: RangeId, ending: Ending) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Ending(ending);
        self.fence(id);
    }

    /// Stops giving out offsets of an open segment; the rest follows when nothing is in flight.
    pub(crate) fn drain(&mut self, id: RangeId, cause: Cause) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Open(open) = std::mem::replace(&mut range.state, State::Idle) else {
            unreachable!("only an open segment is drained")
        };
        let Open { segment, base, committed_end, in_flight, .. } = open;
        if let Some(crew) = &mut range.crew {
            crew.since = self.core.now;
        }
        let failed = cause == Cause::Failure;
        let ending = Ending::new(segment, base, cause, Step::Draining { failed });
        range.state = State::Ending(Ending { in_flight, committed_end: Some(committed_end), ..ending });
    }

    /// An append was refused: nothing more may go to this segment.
    pub(crate) fn append_failed(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        match &mut range.state {
            State::Open(_) => self.drain(id, Cause::Failure),
            State::Ending(ending) => {
                ending.cause = Cause::Failure;
                ending.step = Step::Draining { failed: true };
            }
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => {}
        }
    }

    /// Goes on once nothing is in flight.
    pub(crate) fn drained(&mut self, id: RangeId) {
        let early = self.core.config.has_bug(Bug::SplitEarly);
        let Some((ending, _)) = self.ending(id) else { return };
        let Step::Draining { failed } = ending.step else { return };
        let waits = !(early && ending.cause == Cause::Replaced);
        if waits && !ending.in_flight.is_empty() {
            return;
        }
        let crew = self.ranges.get(&id).and_then(|range| range.crew.as_deref());
        if waits && crew.is_some_and(|crew| !crew.primary.is_settled()) {
            return;
        }
        let Some((ending, _)) = self.ending(id) else { return };
        if failed {
            return self.fence(id);
        }
        let end = ending.committed_end.unwrap_or(ending.base);
        self.seal_copy(id, end);
    }

    fn fence(&mut self, id: RangeId) {
        let Some((ending, _)) = self.ending(id) else { return };
        ending.step = Step::Fencing;
        let segment = ending.segment;
        if self.plant_before_fence(id) {
            return;
        }
        let listed = self.core.meta.of(id.topic).segment(segment);
        if listed.is_some_and(|listed| listed.replicas.len() > 1) {
            return self.leave_to_healing(id);
        }
        let Some((ending, _)) = self.ending(id) else { return };
        let request = store::Request::Fence { segment, epoch: ending.epoch };
        self.core.ask(Owner::Fence(segment), request);
    }

    /// Leaves the segment to whoever asks all copies where it ends.
    fn leave_to_healing(&mut self, id: RangeId) {
        let until = self.core.now.plus(HANDED_MAX);
        let Some((ending, _)) = self.ending(id) else { return };
        let overdue = matches!(ending.step, Step::Handed { .. });
        ending.step = Step::Handed { overdue };
        let (segment, cause) = (ending.segment, ending.cause);
        if self.recorded_after_all(id, segment) {
            return;
        }
        self.retries.insert((until, id));
        self.seal_segment(segment, cause);
    }

    /// A segment takes nothing more, and this node cannot end it by itself.
    pub(crate) fn abandon(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        match &mut range.state {
            State::Open(_) => self.drain(id, Cause::Failure),
            State::Creating { segment, base } => {
                let ending = Ending::new(*segment, *base, Cause::Failure, Step::Fencing);
                range.state = State::Ending(Ending { committed_end: Some(ending.base), ..ending });
            }
            State::Ending(Ending { step: Step::Draining { .. }, .. }) => {}
            // It is on its way.
            State::Ending(_)
            | State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Stale { .. }
            | State::Stopped => return,
        }
        self.leave_to_healing(id);
    }

    /// Producers wait no longer for a segment that others are to end.
    fn overdue(&mut self, id: RangeId) {
        self.restart_done(id);
        self.refuse_waiting(id, produce::Error::Unavailable);
        self.ancestor_stuck(id);
        self.end_more_stale();
    }

    /// The copy answered the fence.
    pub(crate) fn fenced(&mut self, segment: SegmentId, result: Result<Extent, store::Error>) {
        let id = segment.range;
        let Some(ending) = self.asking(segment) else { return };
        let base = ending.base;
        match result {
            Ok(extent) => self.adopt(id, extent),
            // A fence of an earlier try, under a later epoch than this node remembers.
            Err(store::Error::Fenced { epoch }) if epoch > ending.epoch => {
                ending.epoch = epoch;
                self.fence(id);
            }
            Err(store::Error::Sealed { .. }) => {
                self.core.ask(Owner::Inspect(segment), store::Request::Inspect { segment });
            }
            // Its registration committed and the process ended before the copy was made.
            Err(store::Error::NoSuchSegment) => {
                self.core.notice(Notice::SegmentMissing { segment });
                let (epoch, state) = (EPOCH_FIRST, store::State::Sealed);
                let rebuilding = false;
                self.record(
                    id,
                    Extent { base, end: base, bytes: 0, epoch, last_append: None, rebuilding, state },
                );
            }
            Err(store::Error::Latched(reason)) => self.stop_range(id, &format!("{reason:?}")),
            Err(store::Error::Damaged(damage)) => self.stop_range(id, &format!("{damage:?}")),
            Err(error) => self.stuck(id, &error.to_string()),
        }
    }

    /// The ending of a segment that waits for its copy's answer.
    fn asking(&mut self, segment: SegmentId) -> Option<&mut Ending> {
        let (ending, _) = self.ending(segment.range)?;
        let asks = matches!(ending.step, Step::Fencing | Step::Sealing);
        (asks && ending.segment == segment).then_some(ending)
    }

    /// The copy was looked at, which was sealed already.
    pub(crate) fn inspected(&mut self, segment: SegmentId, extent: Extent) {
        if self.asking(segment).is_some() {
            self.adopt(segment.range, extent);
        }
    }

    /// Where the copy stands, once it takes no more appends under this primary's epoch.
    fn adopt(&mut self, id: RangeId, extent: Extent) {
        if self.plant_resume(id, extent) {
            return;
        }
        let Some((_, appended_at)) = self.ending(id) else { return };
        match extent.state {
            store::State::Latched(reason) => self.stop_range(id, &format!("{reason:?}")),
            store::State::Active | store::State::Stopped(_) | store::State::Sealed => {
                // The range's clock goes on from there, whatever the wall clock says after a restart.
                *appended_at = (*appended_at).max(extent.last_append.unwrap_or_default());
                if extent.state == store::State::Sealed {
                    self.record(id, extent);
                } else {
                    self.seal_copy(id, extent.end);
                }
            }
        }
    }

    fn seal_copy(&mut self, id: RangeId, end: Offset) {
        let wall = self.core.wall;
        let Some((ending, appended_at)) = self.ending(id) else { return };
        ending.step = Step::Sealing;
        *appended_at = (*appended_at).max(wall);
        let segment = ending.segment;
        let request = store::Request::Seal { segment, end, at: *appended_at };
        self.core.ask(Owner::Seal(segment), request);
    }

    /// The copy is sealed, or not.
    pub(crate) fn sealed(&mut self, segment: SegmentId, result: Result<Extent, store::Error>) {
        let id = segment.range;
        if self.asking(segment).is_none() {
            return;
        }
        match result {
            Ok(extent) => self.record(id, extent),
            Err(store::Error::Latched(reason)) => self.stop_range(id, &format!("{reason:?}")),
            Err(store::Error::Damaged(damage)) => self.stop_range(id, &format!("{damage:?}")),
            // An append that failed may have moved the end: the fence tells where it is.
            Err(error) => self.stuck(id, &error.to_string()),
        }
    }

    /// Has the end recorded.
    pub(crate) fn record(&mut self, id: RangeId, extent: Extent) {
        let wall = self.core.wall;
        let Some((ending, appended_at)) = self.ending(id) else { return };
        ending.step = Step::Recording(extent);
        ending.committed_end = Some(extent.end);
        *appended_at = (*appended_at).max(wall);
        let (segment, lost, at) = (ending.segment, ending.lost.unwrap_or_default(), *appended_at);
        let topic = self.ranges.get(&id).map(|range| range.topic.clone());
        let length = extent.end.since(extent.base);
        let seal = SealSegment { segment, length, byte_size: extent.bytes, lost, sealed_at: at };
        self.core.seal_segment(id, seal);
        // After a restart or a failure the end may lie past what readers were told.
        if let Some(topic) = topic {
            self.wake(&topic, Some(id));
        }
    }

    /// The seal is in metadata, or not.
    pub(crate) fn recorded(&mut self, id: RangeId, result: Result<(), meta::Error>) {
        let Some((ending, _)) = self.ending(id) else { return };
        let Step::Recording(extent) = ending.step else { return };
        let (segment, cause) = (ending.segment, ending.cause);
        let over = self.core.meta.of(id.topic).segment(segment).is_none_or(|listed| !listed.is_active());
        match result {
            // Of an earlier one, when it is not.
            Ok(()) if !over => {}
            Ok(()) => {
                self.core.notice(Notice::SegmentSealed { segment, end: extent.end, cause });
                self.loss_recorded(segment);
                self.drop_empty(segment);
                let at = self.ranges.get(&id).map(|range| range.appended_at).unwrap_or_default();
                self.dismiss(id, Some((extent.end, at)));
                self.ended(id, Ok(extent.end));
            }
            Err(error) => self.stuck(id, &error.to_string()),
        }
    }

    /// The tables say that a segment ended: whatever this node was doing about it is over. `false` when that was
    /// nothing.
    pub(crate) fn recorded_after_all(&mut self, id: RangeId, segment: SegmentId) -> bool {
        let vnode = self.core.meta.of(id.topic);
        let (listed, topmost) = (vnode.segment(segment), vnode.range(id).map(|listed| listed.sealed_end));
        let Some(range) = self.ranges.get_mut(&id) else { return false };
        let Some(base) = range.segment().filter(|own| *own == segment).and(range.segment_base()) else {
            return false;
        };
        let is_listed = listed.is_some();
        let stored = match (listed.map(Segment::end), topmost) {
            (Some(Some(end)), _) => Ok(end),
            (Some(None), _) | (None, None) => return false,
            // It ended and was deleted, which is what becomes of one that holds nothing: the range ends where it began.
            (None, Some(end)) if end == base => Ok(end),
            // Others followed it: nobody can say any more what was in it.
            (None, Some(_)) => Err(Offset(u64::MAX)),
        };
        let (step, cause) = match &mut range.state {
            State::Ending(ending) => (ending.step, ending.cause),
            State::Open(_) => {
                self.drain(id, Cause::Failure);
                (Step::Handed { overdue: false }, Cause::Failure)
            }
            State::Creating { .. } | State::Unmade { .. } | State::Stale { .. } => {
                self.stale.remove(&id);
                range.state = State::Ending(Ending::new(segment, base, Cause::Restart, Step::Fencing));
                (Step::Handed { overdue: false }, Cause::Restart)
            }
            State::Idle | State::Blocked | State::Registering | State::Stopped => return false,
        };
        // Who ended it tells of it and sees to the rest.
        if let (Step::Recording(_), true, Ok(end)) = (step, is_listed, stored) {
            self.core.notice(Notice::SegmentSealed { segment, end, cause });
            self.loss_recorded(segment);
            self.drop_empty(segment);
        }
        self.ended(id, stored);
        true
    }

    /// One that ended with nothing in it and lost nothing is listed no longer.
    fn drop_empty(&mut self, segment: SegmentId) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        if listed.is_some_and(|listed| listed.goes_on() == Some(listed.start)) {
            self.core.delete_segment(segment);
        }
    }

    /// The segment is over, wherever that was decided: what lies below its end is stored, and nothing else is. `Err`
    /// when what lies below it may be stored or not.
    fn ended(&mut self, id: RangeId, stored: Result<Offset, Offset>) {
        self.restart_done(id);
        let in_flight = self.ending(id).map(|(ending, _)| std::mem::take(&mut ending.in_flight));
        let crew = self.ranges.get(&id).and_then(|range| range.crew.as_deref());
        let is_quorum = crew.is_none_or(Crew::ends_on_a_quorum);
        self.dismiss(id, None);
        let stored = stored.and_then(|end| if is_quorum { Ok(end) } else { Err(end) });
        self.settle_in_flight(id, in_flight.unwrap_or_default(), stored);
        self.reopen(id);
        self.ancestor_ended(id);
        self.wake_past(id);
        self.end_more_stale();
    }

    /// Tries again later; meanwhile the range refuses.
    fn stuck(&mut self, id: RangeId, detail: &str) {
        let now = self.core.now;
        let Some((ending, _)) = self.ending(id) else { return };
        ending.step = Step::Stuck;
        ending.tries = ending.tries.saturating_add(1);
        let (segment, tries) = (ending.segment, ending.tries);
        let until = now.plus((RETRY_AFTER * tries).min(RETRY_AFTER_MAX));
        // What stays as it is is told ever more rarely.
        if tries.is_power_of_two() {
            self.core.notice(Notice::SegmentStuck { segment, detail: detail.to_owned() });
        }
        self.retries.insert((until, id));
        self.restart_done(id);
        self.refuse_waiting(id, produce::Error::Storage);
        self.ancestor_stuck(id);
        self.end_more_stale();
    }

    /// Takes up what is due.
    pub(crate) fn retry_endings(&mut self) {
        let now = self.core.now;
        while let Some(&(at, id)) = self.retries.first()
            && at <= now
        {
            self.retries.pop_first();
            let Some((ending, _)) = self.ending(id) else { continue };
            let (segment, step) = (ending.segment, ending.step);
            match step {
                Step::Stuck if self.recorded_after_all(id, segment) => {}
                Step::Stuck => self.fence(id),
                Step::Handed { overdue } => {
                    self.leave_to_healing(id);
                    if !overdue {
                        self.overdue(id);
                    }
                }
                Step::Draining { .. }
                | Step::Fencing
                | Step::Sealing
                | Step::Verifying
                | Step::Recording(_) => {}
            }
        }
    }

    fn stop_range(&mut self, id: RangeId, detail: &str) {
        if self.ranges.get(&id).is_some_and(|range| range.crew.is_some()) {
            // The other copies say where it ends.
            return self.leave_to_healing(id);
        }
        self.look_for_loss(id, detail);
    }

    /// Nobody but a person can do anything.
    pub(crate) fn stop_for_good(&mut self, id: RangeId, detail: &str) {
        self.restart_done(id);
        if let Some(range) = self.ranges.get_mut(&id) {
            range.state = State::Stopped;
        }
        self.core.notice(Notice::RangeStopped { range: id, detail: detail.to_owned() });
        self.ancestor_stuck(id);
        self.refuse_waiting(id, produce::Error::Storage);
        self.end_more_stale();
    }

    /// Begins with the leftovers of earlier lifetimes, a bounded number at a time.
    pub(crate) fn end_more_stale(&mut self) {
        while self.restarts < RESTARTS_MAX
            && let Some(id) = self.stale.pop_first()
        {
            self.end_stale(id);
        }
    }

    /// Ends one leftover now.
    pub(crate) fn end_stale(&mut self, id: RangeId) {
        self.stale.remove(&id);
        let Some(Range { state: State::Stale { segment, base }, .. }) = self.ranges.get(&id) else { return };
        let mut ending = Ending::new(*segment, *base, Cause::Restart, Step::Fencing);
        ending.counted = true;
        self.restarts += 1;
        self.end(id, ending);
    }

    pub(crate) fn restart_done(&mut self, id: RangeId) {
        if let Some((ending, _)) = self.ending(id)
            && std::mem::take(&mut ending.counted)
        {
            self.restarts -= 1;
        }
    }
}
