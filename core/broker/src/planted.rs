//! Bugs that can be put in on purpose, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

use metadata::vnode::RangeState;
use storage::format::batch::Batch;
use storage::store::{self, Extent};
use types::cursor::Tile;
use types::{Offset, RangeId, RangeSeq};

use crate::action::{Cause, Reply};
use crate::config::Config;
use crate::cut::Piece;
use crate::node::{Node, Owner};
use crate::produce::{self, Asker};
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
    /// A split or merge seals a parent while appends to it are still on their way.
    SplitEarly,
    /// A split or merge forgets the requests that wait for a parent.
    ForgetWaiting,
    /// A reader that has drained one side of a merge leaves the rest of the other.
    MergeOneSide,
    /// Whoever is responsible for a slice of a range gets all of its records.
    ReadSiblings,
    /// The place of a record without a key is worked out from the reader's slice, not from its range's.
    KeylessElsewhere,
    /// A reader leaves a split or merged range before its last record.
    LeaveEarly,
    /// A stream is pushed to whatever credit it has.
    IgnoreCredit,
    /// A member's cursor moves what is somebody else's by now.
    CommitForOthers,
    /// Whoever waits in a parent does not hear of its children and their records.
    DeafToChildren,
    /// A request over several ranges is acknowledged although a part of it failed.
    ForgetFailedPart,
    /// What a member that leaves had is given to nobody.
    LeaveOwnerless,
    /// A child's records begin at whatever the clock says, though its parent's are later.
    TimeGoesBack,
    /// A member leaves although a stream that reads as it is open.
    LeaveStreaming,
    /// The long polls of a member that leaves go on and bring it back.
    ComeBack,
    /// While one range cannot end its segment, none of its topic takes records.
    HoldAll,
    /// A stream's next push is made before its last one was written.
    PushAhead,
    /// A stream outlives its connection.
    KeepStreams,
    /// Copies that a crash left behind a removal stay for ever.
    KeepOrphans,
    /// Between nodes: tables that are followed go on behind an entry that was missed.
    FollowPastGap,
    /// Between nodes: whoever knows who leads a group says how far others have to be, as if it led.
    HintReads,
    /// Between nodes: tables are taken for complete as they were stored, without asking a leader.
    FreshUnasked,
    /// Between nodes: a proposal is made again when nobody knows what became of it.
    ResendUnknown,
    /// Between nodes: a member that has no vote yet counts as one that has.
    CountLearner,
    /// Between nodes: an entry answers whoever waits under its number, whoever proposed it.
    HearForeign,
    /// Between copies: what another node is primary of is read as far as its copy goes, committed or not.
    ReadPastCommitted,
    /// Between nodes: a change of the ring is made under the fence that the tables show when it is sent.
    AnyFence,
    /// Between nodes: a lease is taken for over as soon as it is seen.
    TakeLease,
    /// Between nodes: a node that was started again says what is listed of it beside what it is.
    KeepAttributes,
    /// Between nodes: a node serves before the vnodes were told what is theirs.
    ReadyUncovered,
    /// Between copies: records are acknowledged as soon as the primary has them.
    AckUnreplicated,
    /// Between copies: the primary's copy stands for a follower's, too.
    CountPrimaryTwice,
    /// Between copies: a copy that was made in the place of another counts as if it were that. Found by its story alone.
    CountRebuilding,
    /// Between copies: a segment ends where the copy ends that reaches least far, not furthest.
    SealShortest,
    /// Between copies: a copy that is not there counts like one that never held anything. Found by its story alone.
    CountNothing,
    /// Between copies: a copy that is brought to the length of its segment loses more than it has too much.
    TrimBelowSeal,
    /// Between copies: a copy goes before the tables say that others hold its segment.
    DeleteBeforeCommit,
    /// Between copies: a copy that is out of service counts when a segment ends.
    CountLatched,
    /// Between copies: copies that nobody lists are looked for by the tables as they are here, however old they are.
    SweepCached,
    /// Between nodes: a topic that its vnode gave away, and that was not seen at another yet, is taken for deleted.
    GoneUnderway,
    /// Between nodes: while the ring changes, topics are removed before they were copied.
    RemoveUncopied,
    /// Repetitions: whoever begins a segment takes it that no producer was ever heard of.
    ForgetProducers,
    /// Repetitions: a range that came from a split or merge knows nothing of what its ancestors have.
    ForgetParents,
    /// Repetitions: what is beyond what is remembered is taken for new.
    AcceptForgotten,
    /// Repetitions: one is acknowledged before what it repeats is stored.
    EchoEarly,
    /// Repetitions: what was in flight when a segment ended short of it counts as stored.
    KeepUnstored,
    /// Repetitions: records without a key go wherever it is their turn, each time anew.
    KeylessByTurn,
    /// Repetitions: two parts of one request that a merge brings to one range are appended one after the other.
    JoinParts,
    /// Between nodes: what a vnode's leader decides is done although it did not lead any more when it was recorded.
    AnyTerm,
    /// Between nodes: whoever led a vnode goes on deciding for it.
    ActUnled,
    /// Between nodes: members that are to go leave before those that come have a vote.
    ShrinkFirst,
    /// Upkeep: copies of a segment that is to expire are removed before the metadata has forgotten it.
    RemoveFirst,
    /// Upkeep: a topic whose policy is not defined is taken for one without a policy.
    ExpireUnresolved,
    /// Upkeep: a copy that nobody lists goes as soon as it is seen, however briefly it has been so.
    SweepAtFirstSight,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 66] = [
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
        Self::SplitEarly,
        Self::ForgetWaiting,
        Self::MergeOneSide,
        Self::ReadSiblings,
        Self::KeylessElsewhere,
        Self::LeaveEarly,
        Self::IgnoreCredit,
        Self::CommitForOthers,
        Self::DeafToChildren,
        Self::ForgetFailedPart,
        Self::LeaveOwnerless,
        Self::TimeGoesBack,
        Self::LeaveStreaming,
        Self::ComeBack,
        Self::HoldAll,
        Self::PushAhead,
        Self::KeepStreams,
        Self::KeepOrphans,
        Self::FollowPastGap,
        Self::HintReads,
        Self::FreshUnasked,
        Self::ResendUnknown,
        Self::CountLearner,
        Self::HearForeign,
        Self::ReadPastCommitted,
        Self::AnyFence,
        Self::TakeLease,
        Self::KeepAttributes,
        Self::ReadyUncovered,
        Self::AckUnreplicated,
        Self::CountPrimaryTwice,
        Self::CountRebuilding,
        Self::SealShortest,
        Self::CountNothing,
        Self::TrimBelowSeal,
        Self::DeleteBeforeCommit,
        Self::CountLatched,
        Self::SweepCached,
        Self::GoneUnderway,
        Self::RemoveUncopied,
        Self::ForgetProducers,
        Self::ForgetParents,
        Self::AcceptForgotten,
        Self::EchoEarly,
        Self::KeepUnstored,
        Self::KeylessByTurn,
        Self::JoinParts,
        Self::AnyTerm,
        Self::ActUnled,
        Self::ShrinkFirst,
        Self::RemoveFirst,
        Self::ExpireUnresolved,
        Self::SweepAtFirstSight,
    ];
}

/// The bug that was put in, for whoever does not see the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted")]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg_attr(not(feature = "planted"), expect(unused_variables, reason = "the same call in both builds"))]
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            #[cfg(feature = "planted")]
            bug: config.bug,
        }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// No bug can be put in in this build.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn has(self, _: Bug) -> bool {
        false
    }
}

/// What the bugs do, so that the code they sit in stays readable. Nothing happens without one.
impl Node {
    /// An append is about to be handed to the store.
    pub(crate) fn plant_before_append(&mut self, id: RangeId, batch: &Batch) {
        let early = self.core.config.has_bug(Bug::AckEarly);
        let dirty = self.core.config.has_bug(Bug::ReadUncommitted);
        let Some(Range { state: State::Open(open), .. }) = self.ranges.get_mut(&id) else { return };
        let Some(append) = open.in_flight.back().cloned() else { return };
        if dirty && let Ok(piece) = Piece::of(batch, batch.header.base_offset) {
            open.committed_end = open.appended_end;
            self.reads.keep(open.segment, piece);
        }
        if early {
            self.produced(append.asker, append.bytes, Ok(append.count));
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
            append.asker.client().into_iter().for_each(|id| self.core.reply(id, Reply::Stored(count)));
        }
    }

    /// A leftover is about to be fenced; `true` when it is looked at instead.
    pub(crate) fn plant_before_fence(&mut self, id: RangeId) -> bool {
        let Some(Range { state: State::Ending(ending), .. }) = self.ranges.get(&id) else { return false };
        let (segment, restarted) = (ending.segment, ending.cause == Cause::Restart);
        let planted = restarted && self.core.config.has_bug(Bug::ResumeSegment);
        if planted {
            self.core.ask(Owner::Inspect(segment), store::Request::Inspect { segment });
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

    /// A part of a request has its outcome.
    pub(crate) fn plant_before_settle(
        &self,
        asker: Asker,
        result: Result<u32, produce::Error>,
    ) -> Result<u32, produce::Error> {
        let planted = self.core.config.has_bug(Bug::ForgetFailedPart) && self.load.is_parted(asker);
        if planted { Ok(0) } else { result }
    }

    /// Whether a range takes no records because another of its topic cannot end its segment.
    pub(crate) fn plant_held(&self, id: RangeId) -> bool {
        let stuck = |range: &Range| matches!(&range.state, State::Ending(ending) if ending.is_stuck());
        let first = RangeId { topic: id.topic, seq: RangeSeq(0) };
        let mut siblings = self.ranges.range(first..).take_while(|(other, _)| other.topic == id.topic);
        self.core.config.has_bug(Bug::HoldAll) && siblings.any(|(_, range)| stuck(range))
    }

    /// Where a reader of a range finds nothing more, when that is known.
    pub(crate) fn plant_end(&self, range: RangeId, end: Option<Offset>) -> Option<Offset> {
        let planted = self.core.config.has_bug(Bug::LeaveEarly);
        let replaced = |range: &metadata::vnode::Range| range.state == RangeState::Replaced;
        if planted && self.core.meta.of(range.topic).range(range).is_some_and(replaced) {
            return end.map(|end| Offset(end.0.saturating_sub(1)));
        }
        end
    }

    /// Whether readers are not told that ranges were replaced.
    pub(crate) fn plant_silence(&self) -> bool {
        self.core.config.has_bug(Bug::DeafToChildren)
    }

    /// Whether a waiting reader does not look, although something happened in a range.
    pub(crate) fn plant_deafness(&self, tiles: &[Tile], range: Option<RangeId>) -> bool {
        let stands = |range: RangeId| tiles.iter().any(|tile| tile.range == range.seq);
        self.core.config.has_bug(Bug::DeafToChildren) && !range.is_none_or(stands)
    }
}
