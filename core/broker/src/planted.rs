//! Bugs that can be put in on purpose, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

use storage::format::batch::Batch;
use storage::store::{self, Extent};
use types::RangeId;

use crate::action::{Cause, Reply};
use crate::cut::Piece;
use crate::node::{Node, Owner};
use crate::produce;
use crate::segments::{InFlight, Open, Range, State};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A produce is acknowledged when its append was handed to the store, not when the store says so.
    AckEarly,
    /// Readers get records from memory that are not durable yet.
    ReadUncommitted,
    /// A segment of an earlier process lifetime goes on taking appends.
    ResumeSegment,
    /// A full segment is sealed where its committed end was when it filled, not where it is once drained.
    SealShort,
    /// Positions are acknowledged before the metadata has them.
    LoseCommit,
    /// A reader that comes to a segment's first record steps over it.
    SkipAtBoundary,
    /// A produce that is acknowledged while its segment drains is answered a second time.
    AnswerTwice,
    /// Whatever the store answers is taken for the oldest append on its way (seed 2900 of the first run: one that
    /// finds the store full is answered before older ones).
    AnswerOldest,
    /// The metadata takes what it has handed to its log for durable.
    PersistEarly,
    /// Whoever waits for records is not told of some.
    ForgetWake,
    /// A read that fails is taken for the end of the data.
    ErrorIsEnd,
    /// An append that failed leaves its segment as it was.
    IgnoreFailure,
    /// A failed login is answered before it is counted.
    CountLate,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 13] = [
        Self::AckEarly,
        Self::ReadUncommitted,
        Self::ResumeSegment,
        Self::SealShort,
        Self::LoseCommit,
        Self::SkipAtBoundary,
        Self::AnswerTwice,
        Self::AnswerOldest,
        Self::PersistEarly,
        Self::ForgetWake,
        Self::ErrorIsEnd,
        Self::IgnoreFailure,
        Self::CountLate,
    ];
}

/// What the bugs do, so that the code they sit in stays readable. Nothing happens without one.
impl Node {
    /// An append is about to be handed to the store.
    pub(crate) fn plant_before_append(&mut self, id: RangeId, batch: &Batch) {
        let early = self.core.config.has_bug(Bug::AckEarly);
        let dirty = self.core.config.has_bug(Bug::ReadUncommitted);
        let Some(Range { state: State::Open(open), .. }) = self.ranges.get_mut(&id) else { return };
        let Some(append) = open.in_flight.back().copied() else { return };
        if dirty && let Ok(piece) = Piece::of(batch, batch.header.base_offset) {
            open.committed_end = open.appended_end;
            self.reads.keep(open.segment, piece);
        }
        if early {
            self.produced(append.id, append.bytes, Ok(append.count));
        }
    }

    /// An append was answered.
    pub(crate) fn plant_after_answer(
        &mut self,
        id: RangeId,
        append: &InFlight,
        result: Result<u32, produce::Error>,
    ) {
        let drains = self.ranges.get(&id).is_some_and(|range| matches!(range.state, State::Ending(_)));
        if let Ok(count) = result
            && drains
            && self.core.config.has_bug(Bug::AnswerTwice)
        {
            self.core.reply(append.id, Reply::Stored(count));
        }
    }

    /// A leftover is about to be fenced; `true` when it is looked at instead.
    pub(crate) fn plant_before_fence(&mut self, id: RangeId) -> bool {
        let Some(Range { state: State::Ending(ending), .. }) = self.ranges.get(&id) else { return false };
        let (segment, restarted) = (ending.segment, ending.cause == Cause::Restart);
        let planted = restarted && self.core.config.has_bug(Bug::ResumeSegment);
        if planted {
            self.core.ask(Owner::Inspect(id), store::Request::Inspect { segment });
        }
        planted
    }

    /// A leftover was looked at; `true` when it goes on as if nothing had happened.
    pub(crate) fn plant_resume(&mut self, id: RangeId, extent: Extent) -> bool {
        let planted = self.core.config.has_bug(Bug::ResumeSegment);
        let Some(range) = self.ranges.get_mut(&id) else { return false };
        let State::Ending(ending) = &range.state else { return false };
        if !planted || extent.state != store::State::Active || ending.cause != Cause::Restart {
            return false;
        }
        range.state = State::Open(Open {
            segment: ending.segment,
            seed: storage::format::batch::Seed::of(ending.segment),
            base: extent.base,
            appended_end: extent.end,
            committed_end: extent.end,
            bytes: extent.bytes,
            opened_at: self.core.now,
            in_flight: std::collections::VecDeque::new(),
        });
        self.append_waiting(id);
        true
    }
}
