//! Tables of groups this node is no replica of, kept up with those of a node that is.
//!
//! Owns which groups are followed, whom is asked next, and the parts of a snapshot as they arrive. What is asked for
//! comes in the group's order, so tables that are followed are an older state of the group's, never another; what is
//! decided by them is checked again where it is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peer::message::{Follow, FollowReply};
use types::{Instant, NodeId, RaftIndex, Term, VnodeId, limits};

use crate::event::AskId;

/// How long a node that has nothing new waits before it says so.
const WAIT_MS: u32 = 5_000;
/// How long the answer may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Pause before somebody else is asked.
const RETRY_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Following {
    asked: Option<(AskId, NodeId)>,
    /// Who answered last, or is said to know.
    source: Option<NodeId>,
    /// How many were asked in vain.
    turn: usize,
    retry_at: Option<Instant>,
    part: Option<Part>,
    /// The last entry that was looked at: not every one carries a command that the tables count.
    seen: RaftIndex,
}

/// A snapshot as far as it has arrived.
#[derive(Debug)]
struct Part {
    index: RaftIndex,
    total: u64,
    bytes: BytesMut,
}

/// What an answer brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Entries, one for each index from here on; empty ones carry no command.
    Entries(RaftIndex, Vec<(Term, Bytes)>),
    /// The state up to and including an index.
    State(RaftIndex, Bytes),
}

/// Groups that are followed.
#[derive(Debug, Default)]
pub(super) struct Follows {
    groups: BTreeMap<VnodeId, Following>,
    asks: BTreeMap<AskId, (VnodeId, RaftIndex)>,
}

impl Follows {
    /// Follows these groups and no others.
    pub(super) fn set(&mut self, wanted: impl Iterator<Item = VnodeId>) {
        let mut groups = BTreeMap::new();
        for group in wanted {
            groups.insert(group, self.groups.remove(&group).unwrap_or_default());
        }
        self.groups = groups;
    }

    /// The last entry of a group that was looked at; 0 when none was.
    pub(super) fn seen(&self, group: VnodeId) -> RaftIndex {
        self.groups.get(&group).map_or(RaftIndex::ZERO, |group| group.seen)
    }

    /// Groups for which somebody may be asked now.
    pub(super) fn due(&self, now: Instant) -> Vec<VnodeId> {
        let is_due = |group: &Following| group.asked.is_none() && group.retry_at.is_none_or(|at| at <= now);
        self.groups.iter().filter(|(_, group)| is_due(group)).map(|(id, _)| *id).collect()
    }

    /// When somebody may be asked next, if nobody is now.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let waiting = self.groups.values().filter(|group| group.asked.is_none());
        waiting.filter_map(|group| group.retry_at).min()
    }

    /// Asks for what comes at `from`: the node that answered last, else one of the candidates in turn.
    pub(super) fn ask(
        &mut self,
        id: VnodeId,
        from: RaftIndex,
        candidates: &[NodeId],
        ask: AskId,
    ) -> Option<(NodeId, Follow)> {
        let group = self.groups.get_mut(&id)?;
        let in_turn = || candidates.get(group.turn % candidates.len().max(1)).copied();
        let known = group.source.filter(|source| candidates.contains(source));
        let node = known.or_else(in_turn)?;
        group.asked = Some((ask, node));
        self.asks.insert(ask, (id, from));
        let part = group.part.as_ref().map(|part| (part.index, part.bytes.len() as u64));
        Some((node, Follow { vnode: id, from, part, wait_ms: WAIT_MS }))
    }

    /// Takes an answer, `None` when there is none.
    pub(super) fn answered(
        &mut self,
        ask: AskId,
        reply: Option<FollowReply>,
        now: Instant,
    ) -> Option<(VnodeId, News)> {
        let (id, from) = self.asks.remove(&ask)?;
        let group = self.groups.get_mut(&id)?;
        let (_, node) = group.asked.take_if(|(asked, _)| *asked == ask)?;
        match reply {
            Some(FollowReply::Entries(entries)) => {
                group.good(node);
                group.part = None;
                group.seen = group.seen.max(RaftIndex((from.0 + entries.len() as u64).saturating_sub(1)));
                Some((id, News::Entries(from, entries)))
            }
            Some(FollowReply::Part { index, total, offset, bytes }) => {
                group.good(node);
                let state = group.take_part(index, total, offset, &bytes)?;
                group.seen = group.seen.max(index);
                Some((id, News::State(index, state)))
            }
            Some(FollowReply::NotHere { hint }) => {
                group.bad(now);
                group.source = hint.filter(|hint| *hint != node);
                None
            }
            Some(FollowReply::Overloaded) | None => {
                group.bad(now);
                None
            }
        }
    }

    /// A node is known to have something new: it is asked now, and whoever was asked before is not waited for.
    pub(super) fn ask_instead(&mut self, id: VnodeId, node: NodeId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some((ask, _)) = group.asked.take_if(|(_, asked)| *asked != node) {
            self.asks.remove(&ask);
            group.part = None;
        }
        group.source = Some(node);
        group.retry_at = None;
    }

    /// The connection to a node broke.
    pub(super) fn down(&mut self, node: NodeId, now: Instant) {
        let asked = self.groups.values().filter_map(|group| group.asked);
        let lost: Vec<AskId> = asked.filter(|(_, asked)| *asked == node).map(|(ask, _)| ask).collect();
        for ask in lost {
            self.answered(ask, None, now);
        }
    }
}

impl Following {
    fn good(&mut self, node: NodeId) {
        self.source = Some(node);
        self.retry_at = None;
    }

    fn bad(&mut self, now: Instant) {
        self.source = None;
        self.turn = self.turn.wrapping_add(1);
        self.retry_at = Some(now.plus(RETRY_AFTER));
        // Another node's snapshot is another one, also at the same index.
        self.part = None;
    }

    /// Gives the whole once the last part has arrived. A part that does not continue what is there begins anew.
    fn take_part(&mut self, index: RaftIndex, total: u64, offset: u64, bytes: &[u8]) -> Option<Bytes> {
        if total > limits::RAFT_SNAPSHOT_BYTES_MAX as u64 || (bytes.is_empty() && total > 0) {
            self.part = None;
            return None;
        }
        let continues =
            |part: &Part| (part.index, part.total) == (index, total) && part.bytes.len() as u64 == offset;
        if !self.part.as_ref().is_some_and(continues) {
            self.part = (offset == 0).then(|| Part { index, total, bytes: BytesMut::new() });
        }
        let part = self.part.as_mut()?;
        part.bytes.extend_from_slice(bytes);
        if (part.bytes.len() as u64) < total {
            return None;
        }
        let whole = self.part.take()?;
        (whole.bytes.len() as u64 == total).then(|| whole.bytes.freeze())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const GROUP: VnodeId = VnodeId(1);
    const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

    fn follows() -> Follows {
        let mut follows = Follows::default();
        follows.set([GROUP].into_iter());
        follows
    }

    #[test]
    fn one_node_is_asked_until_it_fails_and_then_the_next() {
        let mut follows = follows();
        let now = Instant(0);
        assert_eq!(follows.due(now), [GROUP]);
        let (first, asked) = follows.ask(GROUP, RaftIndex(5), &NODES, AskId(1)).unwrap();
        assert_eq!((first, asked.from, asked.part), (NODES[0], RaftIndex(5), None));
        assert!(follows.due(now).is_empty());
        let entries = vec![(Term(1), Bytes::from_static(b"x"))];
        let news = follows.answered(AskId(1), Some(FollowReply::Entries(entries.clone())), now);
        assert_eq!(news, Some((GROUP, News::Entries(RaftIndex(5), entries))));
        let (again, _) = follows.ask(GROUP, RaftIndex(6), &NODES, AskId(2)).unwrap();
        assert_eq!(again, first);
        follows.down(first, now);
        assert!(follows.due(now).is_empty());
        let later = follows.retry_at().unwrap();
        assert_eq!(follows.due(later), [GROUP]);
        let (other, _) = follows.ask(GROUP, RaftIndex(6), &NODES, AskId(3)).unwrap();
        assert_eq!(other, NODES[1]);
        // The answer that came too late is nobody's.
        assert_eq!(follows.answered(AskId(2), Some(FollowReply::Entries(Vec::new())), later), None);
    }

    #[test]
    fn whoever_has_something_new_is_asked_although_another_was() {
        let mut follows = follows();
        let now = Instant(0);
        let (first, _) = follows.ask(GROUP, RaftIndex(5), &NODES, AskId(1)).unwrap();
        assert_eq!(first, NODES[0]);
        follows.ask_instead(GROUP, NODES[0]);
        assert!(follows.due(now).is_empty(), "it is asked already");
        follows.ask_instead(GROUP, NODES[1]);
        assert_eq!(follows.due(now), [GROUP]);
        let (second, _) = follows.ask(GROUP, RaftIndex(5), &NODES, AskId(2)).unwrap();
        assert_eq!(second, NODES[1]);
        let entries = || Some(FollowReply::Entries(vec![(Term(1), Bytes::from_static(b"x"))]));
        assert_eq!(follows.answered(AskId(1), entries(), now), None);
        assert!(follows.answered(AskId(2), entries(), now).is_some());
    }

    #[test]
    fn a_snapshot_arrives_in_parts_and_counts_as_a_whole() {
        let mut follows = follows();
        let part = |offset, bytes: &'static [u8]| {
            let bytes = Bytes::from_static(bytes);
            Some(FollowReply::Part { index: RaftIndex(9), total: 5, offset, bytes })
        };
        let mut take = |ask, reply| {
            let (_, asked) = follows.ask(GROUP, RaftIndex(1), &NODES, AskId(ask)).unwrap();
            (asked.part, follows.answered(AskId(ask), reply, Instant(0)))
        };
        assert_eq!(take(1, part(0, b"ab")), (None, None));
        // One that leaves a gap is not taken, and what was there is gone.
        assert_eq!(take(2, part(3, b"de")), (Some((RaftIndex(9), 2)), None));
        assert_eq!(take(3, part(0, b"abc")), (None, None));
        let state = News::State(RaftIndex(9), Bytes::from_static(b"abcde"));
        assert_eq!(take(4, part(3, b"de")), (Some((RaftIndex(9), 3)), Some((GROUP, state))));
        assert_eq!(take(5, part(0, b"abcdef")).1, None);
    }
}
