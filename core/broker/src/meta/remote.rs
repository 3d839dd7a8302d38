//! Proposals to groups that another node leads.
//!
//! Owns finding the leader, asking it, and giving up. That a proposal was recorded is heard of when the tables here
//! come to its entry; whoever leads only says that it took it, or did not.
//!
//! Invariants:
//! - a proposal is given to one leader at a time, and to another only when the one before certainly did nothing;
//! - what is not decided when its time is over is told as unknown, or as not recorded if it was never given to anybody.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use peer::message::{Propose, ProposeReply};
use types::{Instant, NodeId, RaftIndex, VnodeId};

use crate::event::AskId;

/// How long a proposal may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one leader may take to answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Pause before somebody else is asked, when nobody knows who leads.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A proposal: its group and its number.
pub(super) type Key = (VnodeId, u64);

#[derive(Debug)]
struct Held {
    entry: Bytes,
    until: Instant,
    stage: Stage,
    /// Nobody is asked before.
    retry_at: Instant,
    /// How many were asked in vain.
    turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody has it.
    Idle,
    /// This leader was asked.
    Asked(NodeId),
    /// A leader recorded it there: the tables come to it before long.
    Recorded(RaftIndex),
}

/// What became of a proposal without its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    NotRecorded,
    Unknown,
}

/// Proposals on their way.
#[derive(Debug, Default)]
pub(super) struct Remote {
    held: BTreeMap<Key, Held>,
    asks: BTreeMap<AskId, Key>,
    /// Who leads, as others said last.
    hints: BTreeMap<VnodeId, NodeId>,
}

impl Remote {
    pub(super) fn hold(&mut self, key: Key, entry: Bytes, now: Instant) {
        self.held.insert(
            key,
            Held { entry, until: now.plus(PATIENCE), stage: Stage::Idle, retry_at: now, turn: 0 },
        );
    }

    /// The entry was applied, or its fate is known otherwise.
    pub(super) fn release(&mut self, key: Key) {
        self.held.remove(&key);
    }

    /// Proposals nobody has, of which somebody may be asked now.
    pub(super) fn idle(&self, now: Instant) -> Vec<Key> {
        let is_idle = |held: &Held| held.stage == Stage::Idle && held.retry_at <= now;
        self.held.iter().filter(|(_, held)| is_idle(held)).map(|(key, _)| *key).collect()
    }

    /// Whom to ask when nobody is known to lead: the candidates in turn.
    pub(super) fn in_turn(&self, key: Key, candidates: &[NodeId]) -> Option<NodeId> {
        let turn = self.held.get(&key)?.turn;
        candidates.get(turn % candidates.len().max(1)).copied()
    }

    /// Gives up asking a leader: what is recorded here goes into the group's own log.
    pub(super) fn take(&mut self, key: Key) -> Option<Bytes> {
        self.held.remove(&key).map(|held| held.entry)
    }

    pub(super) fn hint(&self, group: VnodeId) -> Option<NodeId> {
        self.hints.get(&group).copied()
    }

    pub(super) fn set_hint(&mut self, group: VnodeId, leader: Option<NodeId>) {
        match leader {
            Some(leader) => drop(self.hints.insert(group, leader)),
            None => drop(self.hints.remove(&group)),
        }
    }

    /// Asks a node to record a proposal that nobody has.
    pub(super) fn ask(&mut self, key: Key, leader: NodeId, ask: AskId) -> Option<Propose> {
        let held = self.held.get_mut(&key).filter(|held| held.stage == Stage::Idle)?;
        held.stage = Stage::Asked(leader);
        self.asks.insert(ask, key);
        Some(Propose { vnode: key.0, fence: None, command: held.entry.clone() })
    }

    /// Which group a proposal is of that was asked for, and whom was asked.
    pub(super) fn asked(&self, ask: AskId) -> Option<(VnodeId, NodeId)> {
        let key = self.asks.get(&ask)?;
        match self.held.get(key)?.stage {
            Stage::Asked(node) => Some((key.0, node)),
            Stage::Idle | Stage::Recorded(_) => None,
        }
    }

    /// The answer to an ask, `None` when there is none; with the proposal when its fate is known by that.
    pub(super) fn answered(
        &mut self,
        ask: AskId,
        reply: Option<&ProposeReply>,
        now: Instant,
    ) -> Option<(Key, Verdict)> {
        let key = self.asks.remove(&ask)?;
        let held = self.held.get_mut(&key)?;
        let Stage::Asked(asked) = held.stage else { return None };
        match reply {
            Some(ProposeReply::Applied { index, .. }) => {
                held.stage = Stage::Recorded(*index);
                None
            }
            Some(ProposeReply::NotLeader { hint }) => {
                let hint = hint.filter(|hint| *hint != asked);
                held.stage = Stage::Idle;
                held.turn = held.turn.wrapping_add(1);
                // Two that take each other for the leader are not asked back and forth without a pause either.
                if hint.is_none() || held.turn % 3 == 0 {
                    held.retry_at = now.plus(RETRY_AFTER);
                }
                self.set_hint(key.0, hint);
                None
            }
            Some(ProposeReply::Refused(_)) => Some((key, Verdict::NotRecorded)),
            Some(ProposeReply::Unknown) | None => Some((key, Verdict::Unknown)),
        }
    }

    /// The connection to a node broke.
    pub(super) fn down(&mut self, node: NodeId, now: Instant) -> Vec<(Key, Verdict)> {
        self.hints.retain(|_, leader| *leader != node);
        let is_there = |key: &Key| self.held.get(key).is_some_and(|held| held.stage == Stage::Asked(node));
        let lost: Vec<AskId> =
            self.asks.iter().filter(|(_, key)| is_there(key)).map(|(ask, _)| *ask).collect();
        lost.into_iter().filter_map(|ask| self.answered(ask, None, now)).collect()
    }

    /// Proposals whose time is over.
    pub(super) fn overdue(&self, now: Instant) -> Vec<(Key, Verdict)> {
        let verdict = |stage| if stage == Stage::Idle { Verdict::NotRecorded } else { Verdict::Unknown };
        let due = self.held.iter().filter(|(_, held)| held.until <= now);
        due.map(|(key, held)| (*key, verdict(held.stage))).collect()
    }

    /// Proposals to a group, with their entries, that were recorded no later than that.
    pub(super) fn recorded(&self, group: VnodeId, until: RaftIndex) -> Vec<(Key, Bytes)> {
        let of_group = self.held.range((group, 0)..=(group, u64::MAX));
        let is_recorded = |held: &Held| matches!(held.stage, Stage::Recorded(at) if at <= until);
        of_group.filter(|(_, held)| is_recorded(held)).map(|(key, held)| (*key, held.entry.clone())).collect()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use peer::message::ProposeRefusal;

    const KEY: Key = (VnodeId(1), 7);
    const LEADER: NodeId = NodeId(3);

    fn asked() -> Remote {
        let mut remote = Remote::default();
        remote.hold(KEY, Bytes::from_static(b"x"), Instant(0));
        assert_eq!(remote.idle(Instant(0)), [KEY]);
        assert_eq!(remote.ask(KEY, LEADER, AskId(1)).unwrap().command, "x");
        assert!(remote.idle(Instant(0)).is_empty() && remote.ask(KEY, LEADER, AskId(2)).is_none());
        remote
    }

    #[test]
    fn only_a_leader_that_did_nothing_makes_room_for_another() {
        let mut remote = asked();
        let other = NodeId(4);
        assert_eq!(
            remote.answered(AskId(1), Some(&ProposeReply::NotLeader { hint: Some(other) }), Instant(0)),
            None
        );
        assert_eq!((remote.idle(Instant(0)), remote.hint(KEY.0)), (vec![KEY], Some(other)));
        let refused = ProposeReply::Refused(ProposeRefusal::Overloaded);
        assert_eq!(asked().answered(AskId(1), Some(&refused), Instant(0)), Some((KEY, Verdict::NotRecorded)));
        assert_eq!(
            asked().answered(AskId(1), Some(&ProposeReply::Unknown), Instant(0)),
            Some((KEY, Verdict::Unknown))
        );
        assert_eq!(asked().answered(AskId(1), None, Instant(0)), Some((KEY, Verdict::Unknown)));
        assert_eq!(asked().down(LEADER, Instant(0)), [(KEY, Verdict::Unknown)]);
        assert_eq!(asked().down(other, Instant(0)), []);
    }

    #[test]
    fn while_nobody_is_known_to_lead_candidates_are_asked_in_turn_and_with_pauses() {
        let mut remote = asked();
        let candidates = [LEADER, NodeId(4)];
        assert_eq!(remote.in_turn(KEY, &candidates), Some(LEADER));
        assert_eq!(
            remote.answered(AskId(1), Some(&ProposeReply::NotLeader { hint: None }), Instant(0)),
            None
        );
        assert!(remote.idle(Instant(0)).is_empty());
        assert_eq!(remote.idle(Instant(0).plus(RETRY_AFTER)), [KEY]);
        assert_eq!(remote.in_turn(KEY, &candidates), Some(NodeId(4)));
        assert_eq!(remote.in_turn(KEY, &[]), None);
    }

    #[test]
    fn what_is_late_was_recorded_or_not_as_far_as_is_known() {
        let late = Instant(0).plus(PATIENCE);
        let mut remote = Remote::default();
        remote.hold(KEY, Bytes::new(), Instant(0));
        assert_eq!(remote.overdue(late), [(KEY, Verdict::NotRecorded)]);
        let mut remote = asked();
        assert_eq!(remote.overdue(late), [(KEY, Verdict::Unknown)]);
        let applied = ProposeReply::Applied { index: RaftIndex(1), reply: Bytes::new() };
        assert_eq!(remote.answered(AskId(1), Some(&applied), Instant(0)), None);
        // It is in the log: that the connection breaks changes nothing.
        assert_eq!(remote.down(LEADER, Instant(0)), []);
        assert_eq!(remote.recorded(KEY.0, RaftIndex(0)), []);
        assert_eq!(remote.recorded(KEY.0, RaftIndex(1)), [(KEY, Bytes::from_static(b"x"))]);
        assert_eq!(remote.recorded(VnodeId(0), RaftIndex(1)), []);
        remote.release(KEY);
        assert!(remote.is_empty());
    }
}
