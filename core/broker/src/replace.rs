//! Ranges that others take the place of: splits, merges, and topics that end.
//!
//! Owns the requests to split and merge, what becomes of the requests that wait for a range which takes no more
//! records, and the ranges that wait until their ancestors have ended.
//!
//! The fence has two layers. Metadata replaces the range first, so nothing is routed to it any more. Then its
//! active segment is drained, sealed and recorded, and only after that may a child get its first segment: a
//! child never takes a record while an ancestor could still take one (INV-11).
//!
//! Invariants:
//! - a request that was not given an offset yet follows its keys to the children, ahead of any later request;
//! - only ranges below the replaced one wait; nothing else in the topic does.

use bytes::Bytes;
use metadata::vnode::RangeState;
use types::{RangeId, RangeSeq};
use wire::Reason;

use crate::action::{Cause, Notice, Reply};
use crate::auth::Session;
use crate::ending::{Ending, Step};
use crate::event::RequestId;
use crate::meta;
use crate::node::Node;
use crate::planted::Bug;
use crate::produce;
use crate::segments::State;

impl Node {
    /// Proposes a split; answered when metadata has decided.
    pub(crate) fn split_range(
        &mut self,
        id: RequestId,
        session: &Session,
        topic: Option<&Bytes>,
        range: u64,
    ) {
        match self.admin_topic(session, topic) {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(topic) => self.core.split_range(id, RangeId { topic, seq: RangeSeq(range) }),
        }
    }

    /// Proposes a merge; answered when metadata has decided.
    pub(crate) fn merge_ranges(
        &mut self,
        id: RequestId,
        session: &Session,
        topic: Option<&Bytes>,
        ranges: [u64; 2],
    ) {
        match self.admin_topic(session, topic) {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(topic) => {
                let ranges = ranges.map(|seq| RangeId { topic, seq: RangeSeq(seq) });
                self.core.merge_ranges(id, ranges);
            }
        }
    }

    /// Metadata decided on a split.
    pub(crate) fn range_split(
        &mut self,
        id: RequestId,
        range: RangeId,
        result: Result<(RangeId, RangeId), meta::Error>,
    ) {
        match result {
            Err(error) => self.core.reply(id, Reply::Failed(reason(error))),
            Ok((left, right)) => {
                self.core.reply(id, Reply::Split { left: left.seq.0, right: right.seq.0 });
                self.core.notice(Notice::RangeReplaced { range });
                self.retire(range);
                self.ranges_changed(range);
            }
        }
    }

    /// Metadata decided on a merge.
    pub(crate) fn ranges_merged(
        &mut self,
        id: RequestId,
        ranges: [RangeId; 2],
        result: Result<RangeId, meta::Error>,
    ) {
        match result {
            Err(error) => self.core.reply(id, Reply::Failed(reason(error))),
            Ok(child) => {
                self.core.reply(id, Reply::Merged { child: child.seq.0 });
                for range in ranges {
                    self.core.notice(Notice::RangeReplaced { range });
                    self.retire(range);
                }
                self.ranges_changed(child);
            }
        }
    }

    /// Members get their share of the new ranges, and readers move on to them.
    pub(crate) fn ranges_changed(&mut self, range: RangeId) {
        self.reassign_topic(range.topic);
        if let Some(name) = self.topic_name(range.topic).filter(|_| !self.plant_silence()) {
            self.wake(&name, None);
        }
    }

    /// A range takes no more records: what waits for it goes where its keys are now, or is refused.
    pub(crate) fn retire(&mut self, id: RangeId) {
        self.end_replaced(id);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if matches!(range.state, State::Blocked) {
            range.state = State::Idle;
            self.blocked.remove(&id);
        }
        let Some(range) = self.ranges.get_mut(&id) else { return };
        for request in std::mem::take(&mut range.waiting) {
            if self.core.config.has_bug(Bug::ForgetWaiting) {
                continue;
            }
            self.append_again(id, request);
        }
    }

    /// Sees to it that the active segment of a range ends, if the range takes no more records. Repeating it
    /// changes nothing.
    pub(crate) fn end_replaced(&mut self, id: RangeId) {
        let listed = self.core.meta.of(id.topic).range(id);
        if listed.is_none_or(|range| range.state == RangeState::Active) {
            return;
        }
        let Some(range) = self.ranges.get(&id) else { return };
        match &range.state {
            State::Open(_) => {
                self.drain(id, Cause::Replaced);
                self.drained(id);
            }
            State::Stale { .. } => self.end_stale(id),
            State::Unmade { segment, base, .. } => {
                let ending = Ending::new(*segment, *base, Cause::Replaced, Step::Fencing);
                self.end(id, ending);
            }
            // A segment that is being made is ended once it is there.
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Creating { .. }
            | State::Ending(_)
            | State::Stopped => {}
        }
    }

    /// Whether the active segment of a range is another node's to end.
    pub(crate) fn is_elsewhere(&self, id: RangeId) -> bool {
        let active = self.core.meta.of(id.topic).active_segment(id);
        active.is_some_and(|(_, listed)| listed.replicas.first() != Some(&self.core.config.node))
    }

    /// Whether the active segment of a range does not end for now.
    pub(crate) fn cannot_end(&self, id: RangeId) -> bool {
        self.ranges.get(&id).is_none_or(|range| match &range.state {
            State::Stopped => true,
            State::Ending(ending) => ending.is_stuck(),
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Open(_)
            | State::Stale { .. } => false,
        })
    }

    /// A segment ended for good: whoever waited for that goes on.
    pub(crate) fn ancestor_ended(&mut self, id: RangeId) {
        for waiting in self.blocked_in(id) {
            self.open_next(waiting);
        }
    }

    /// A segment ended for good: readers at the end of a range that was split or merged can leave it now, and those
    /// of them who read the other side of a merge come on by that too.
    pub(crate) fn wake_past(&mut self, id: RangeId) {
        let listed = self.core.meta.of(id.topic).range(id);
        if listed.is_some_and(|range| range.state == RangeState::Replaced)
            && !self.plant_silence()
            && let Some(topic) = self.ranges.get(&id).map(|range| range.topic.clone())
        {
            self.wake(&topic, Some(id));
        }
    }

    /// A segment does not end for now: whoever waits for that is refused and may try again.
    pub(crate) fn ancestor_stuck(&mut self, id: RangeId) {
        for waiting in self.blocked_in(id) {
            if self.core.meta.of(waiting.topic).open_ancestors_of(waiting).contains(&id) {
                self.unblock(waiting, produce::Error::Storage);
            }
        }
    }

    fn blocked_in(&self, id: RangeId) -> Vec<RangeId> {
        let all = RangeId { topic: id.topic, seq: RangeSeq(0) }..=RangeId {
            topic: id.topic,
            seq: RangeSeq(u64::MAX),
        };
        self.blocked.range(all).copied().collect()
    }

    /// Answers everybody who waits for a blocked range.
    pub(crate) fn unblock(&mut self, id: RangeId, error: produce::Error) {
        self.blocked.remove(&id);
        if let Some(range) = self.ranges.get_mut(&id) {
            range.state = State::Idle;
            range.paused_at = None;
        }
        self.refuse_waiting(id, error);
    }
}

fn reason(error: meta::Error) -> Reason {
    match error {
        meta::Error::NoSuchTopic => Reason::NoSuchTopic,
        meta::Error::NoSuchRange => Reason::NoSuchRange,
        meta::Error::Sealed => Reason::Sealed,
        meta::Error::CannotSplit => Reason::CannotSplit,
        meta::Error::NotBuddies => Reason::NotBuddies,
        meta::Error::TooManyRanges => Reason::TooManyRanges,
        meta::Error::Unknown => Reason::Timeout,
        meta::Error::Unavailable => Reason::Unavailable,
        meta::Error::Migrating => Reason::Migrating,
        meta::Error::AlreadyExists
        | meta::Error::InvalidTopicName
        | meta::Error::TooManyGroups
        | meta::Error::InsufficientDomains
        | meta::Error::Refused => Reason::InternalError,
    }
}
