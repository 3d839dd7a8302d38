//! What other nodes ask of the groups this node has.
//!
//! Owns which proposal is whose, followers that wait for something new, and the snapshots that are being handed out.
//! Bounded: a node that asks for more than a few things at a time is told that there is too much to do.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use types::{Instant, NodeId, RaftIndex, VnodeId, limits};

use crate::event::CallId;

/// Numbers of proposals made for others; this node's own are below.
const FOR_OTHERS: u64 = 1 << 63;
/// Bytes of entries in one answer, if it is not a single entry.
pub(super) const ENTRIES_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a snapshot in one answer.
pub(super) const PART_BYTES: usize = 256 * 1024;
/// How long a snapshot is kept for a follower that does not ask for its next part.
const SNAPSHOT_KEPT: Duration = Duration::from_secs(30);
/// Longest wait of a follower.
const WAIT_MS_MAX: u32 = 30_000;

/// A call of another node.
pub(super) type Caller = (NodeId, CallId);

#[derive(Debug)]
struct Parked {
    caller: Caller,
    from: RaftIndex,
    until: Instant,
}

#[derive(Debug)]
struct Kept {
    index: RaftIndex,
    state: Bytes,
    used_at: Instant,
}

/// What others wait for.
#[derive(Debug, Default)]
pub(super) struct Served {
    proposals: BTreeMap<u64, Caller>,
    reads: BTreeMap<u64, Caller>,
    next: u64,
    followers: BTreeMap<VnodeId, Vec<Parked>>,
    parked: usize,
    snapshots: BTreeMap<VnodeId, Kept>,
}

impl Served {
    /// A number for a proposal of another node; `None` when there are too many.
    pub(super) fn propose(&mut self, caller: Caller) -> Option<u64> {
        if self.proposals.len() >= limits::RAFT_PROPOSALS_MAX {
            return None;
        }
        let number = FOR_OTHERS | self.next;
        self.next += 1;
        self.proposals.insert(number, caller);
        Some(number)
    }

    /// Who made a proposal, if another node did.
    pub(super) fn proposer(&mut self, number: u64) -> Option<Caller> {
        if number < FOR_OTHERS { None } else { self.proposals.remove(&number) }
    }

    /// A number for a read of another node; `None` when there are too many.
    pub(super) fn read(&mut self, caller: Caller) -> Option<u64> {
        if self.reads.len() >= limits::RAFT_READS_MAX {
            return None;
        }
        let number = FOR_OTHERS | self.next;
        self.next += 1;
        self.reads.insert(number, caller);
        Some(number)
    }

    /// Who asked for a read, if another node did.
    pub(super) fn reader(&mut self, number: u64) -> Option<Caller> {
        self.reads.remove(&number)
    }

    /// Lets a follower wait for the entry at `from`; `false` when too many do.
    pub(super) fn park(
        &mut self,
        group: VnodeId,
        caller: Caller,
        from: RaftIndex,
        wait_ms: u32,
        now: Instant,
    ) -> bool {
        if self.parked >= limits::FOLLOWERS_MAX {
            return false;
        }
        self.parked += 1;
        let until = now.plus(Duration::from_millis(u64::from(wait_ms.min(WAIT_MS_MAX))));
        self.followers.entry(group).or_default().push(Parked { caller, from, until });
        true
    }

    /// Followers for whom there is something new in a group.
    pub(super) fn wake(&mut self, group: VnodeId, applied: RaftIndex) -> Vec<(Caller, RaftIndex)> {
        self.take(|id, parked| id == group && parked.from <= applied).into_iter().map(|(_, p)| p).collect()
    }

    /// Followers that have waited long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Caller> {
        self.snapshots.retain(|_, kept| kept.used_at.plus(SNAPSHOT_KEPT) > now);
        self.take(|_, parked| parked.until <= now).into_iter().map(|(_, (caller, _))| caller).collect()
    }

    /// Followers of a group that is not here any more.
    pub(super) fn take_all(&mut self, group: VnodeId) -> Vec<Caller> {
        self.snapshots.remove(&group);
        self.take(|id, _| id == group).into_iter().map(|(_, (caller, _))| caller).collect()
    }

    /// A node is gone, and whatever it waited for.
    pub(super) fn down(&mut self, node: NodeId) {
        self.proposals.retain(|_, (asked, _)| *asked != node);
        self.reads.retain(|_, (asked, _)| *asked != node);
        self.take(|_, parked| parked.caller.0 == node);
    }

    fn take(&mut self, wanted: impl Fn(VnodeId, &Parked) -> bool) -> Vec<(VnodeId, (Caller, RaftIndex))> {
        let mut taken = Vec::new();
        for (group, followers) in &mut self.followers {
            let (gone, stay) =
                std::mem::take(followers).into_iter().partition(|parked| wanted(*group, parked));
            *followers = stay;
            let gone: Vec<Parked> = gone;
            taken.extend(gone.into_iter().map(|parked| (*group, (parked.caller, parked.from))));
        }
        self.followers.retain(|_, followers| !followers.is_empty());
        self.parked -= taken.len();
        taken
    }

    /// When a follower has waited long enough next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.followers.values().flatten().map(|parked| parked.until).min()
    }

    /// A snapshot that is being handed out.
    pub(super) fn snapshot(&mut self, group: VnodeId, index: RaftIndex, now: Instant) -> Option<Bytes> {
        let kept = self.snapshots.get_mut(&group).filter(|kept| kept.index == index)?;
        kept.used_at = now;
        Some(kept.state.clone())
    }

    pub(super) fn keep(&mut self, group: VnodeId, index: RaftIndex, state: Bytes, now: Instant) {
        self.snapshots.insert(group, Kept { index, state, used_at: now });
    }

    /// The last entry of the snapshot that is being handed out.
    pub(super) fn kept_index(&self, group: VnodeId) -> Option<RaftIndex> {
        self.snapshots.get(&group).map(|kept| kept.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: VnodeId = VnodeId(1);
    const CALLER: Caller = (NodeId(1), CallId(1));
    const OTHER: Caller = (NodeId(2), CallId(1));

    #[test]
    fn a_follower_waits_for_its_entry_or_its_time() {
        let (mut served, now) = (Served::default(), Instant(0));
        assert!(served.park(GROUP, CALLER, RaftIndex(5), 100, now));
        assert!(served.park(GROUP, OTHER, RaftIndex(7), 200, now));
        assert_eq!(served.wake(GROUP, RaftIndex(4)), []);
        assert_eq!(served.wake(VnodeId(2), RaftIndex(9)), []);
        assert_eq!(served.wake(GROUP, RaftIndex(5)), [(CALLER, RaftIndex(5))]);
        let due = served.next_due().into_iter().flat_map(|at| served.take_due(at)).collect::<Vec<_>>();
        assert_eq!((due, served.parked, served.next_due()), (vec![OTHER], 0, None));
    }

    #[test]
    fn a_node_that_is_gone_waits_for_nothing() {
        let (mut served, now) = (Served::default(), Instant(0));
        let (one, other) = (served.propose(CALLER), served.propose(OTHER));
        assert!(served.park(GROUP, CALLER, RaftIndex(5), 100, now));
        served.down(CALLER.0);
        assert_eq!((served.parked, served.take_all(GROUP)), (0, Vec::new()));
        assert_eq!(one.and_then(|number| served.proposer(number)), None);
        assert_eq!(other.and_then(|number| served.proposer(number)), Some(OTHER));
        assert_eq!(served.proposer(3), None);
    }

    #[test]
    fn followers_are_bounded() {
        let mut served = Served::default();
        let park = |served: &mut Served| served.park(GROUP, CALLER, RaftIndex(5), 100, Instant(0));
        assert!((0..limits::FOLLOWERS_MAX).all(|_| park(&mut served)));
        assert!(!park(&mut served));
    }
}
