//! When a member stands for election, and the passing of time in general.
//!
//! The engine's own timeout never fires: it would be drawn from a generator nobody seeded. The engine still counts
//! the ticks since a leader was last heard of; here they are compared with a timeout drawn from the member's seed,
//! anew for every attempt and every term, so that two members that got in each other's way part.
//!
//! A member that was told that its leader cannot be reached does not wait for that: the leader's silence counts from
//! then on as one that has lasted, so that whoever asks for its vote is heard, and the members stand one after the other
//! in the order of their numbers. One that is mistaken asks in vain: those who hear the leader do not listen to it.

use types::NodeId;

use super::Group;
use crate::engine::{NOBODY, StateRole};
use crate::event::Action;
use crate::members::ReplicaId;

/// Between two members that stand for election because their leader cannot be reached, and before one of them tries
/// again, ticks.
const TURN_TICKS: usize = 2;

/// Draws timeouts.
#[derive(Clone, Debug)]
pub(super) struct Election {
    state: u64,
    ticks: u32,
    timeout: usize,
    /// Who led before this member stood for election in this term.
    led_before: u64,
    /// The leader cannot be reached, as of the tick that comes.
    hurries: bool,
}

impl Election {
    /// Timeouts between `ticks` and twice that, exclusive.
    pub(super) fn new(seed: u64, ticks: u32) -> Self {
        let mut election = Self { state: seed, ticks, timeout: 0, led_before: NOBODY, hurries: false };
        election.redraw();
        election
    }

    /// The next timeout (splitmix64).
    pub(super) fn redraw(&mut self) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let extra = mixed % u64::from(self.ticks);
        self.timeout = (u64::from(self.ticks) + extra) as usize;
    }

    /// A term began in which nobody was followed yet.
    pub(super) fn forget_leader(&mut self) {
        self.led_before = NOBODY;
    }
}

impl Group {
    pub(super) fn tick(&mut self, out: &mut Vec<Action>) {
        if !self.is_running() {
            return;
        }
        self.engine.tick();
        let patience = self.patience();
        let raft = &self.engine.raft;
        let waited = raft.state != StateRole::Leader && raft.election_elapsed >= patience;
        if waited && raft.promotable() {
            self.campaign(out);
        }
        self.tick_transfers(out);
        self.drive(out);
    }

    /// How many ticks this member waits in the part it has, once. In a hurry, its turn.
    fn patience(&mut self) -> usize {
        if !std::mem::take(&mut self.election.hurries) {
            return self.election.timeout;
        }
        let followed = self.followed_replica();
        let mine = self.me.replica;
        let before = |voter: &crate::members::Member| voter.replica < mine && Some(voter.replica) != followed;
        let turn = TURN_TICKS * self.members.voters().filter(before).count();
        match self.engine.raft.state {
            StateRole::Follower => self.election.timeout.min(self.config.election_ticks as usize + 1 + turn),
            StateRole::PreCandidate => self.election.timeout.min(TURN_TICKS + turn),
            // Votes are on their way, or it leads.
            StateRole::Candidate | StateRole::Leader => self.election.timeout,
        }
    }

    /// The node of whoever leads, or led until this member asked whether it may stand for election.
    #[must_use]
    pub fn followed(&self) -> Option<NodeId> {
        self.node_of(self.followed_replica()?)
    }

    fn followed_replica(&self) -> Option<ReplicaId> {
        let raft = &self.engine.raft;
        let followed = match raft.state {
            StateRole::Follower => raft.leader_id,
            StateRole::PreCandidate => self.election.led_before,
            StateRole::Candidate | StateRole::Leader => NOBODY,
        };
        (followed != NOBODY).then_some(ReplicaId(followed))
    }

    /// The node of [`Group::followed`] cannot be reached.
    pub(super) fn leader_away(&mut self) {
        if self.is_running() && self.followed_replica().is_some() {
            self.election.hurries = true;
            self.miss_leader();
        }
    }

    /// What the leader is owed, it has been given: others may ask for a vote.
    fn miss_leader(&mut self) {
        let raft = &mut self.engine.raft;
        if raft.state == StateRole::Follower {
            raft.election_elapsed = raft.election_elapsed.max(self.config.election_ticks as usize);
        }
    }

    /// Whether the member leads, or heard from a leader within the longest time after which one stands for election.
    #[must_use]
    pub fn hears_leader(&self) -> bool {
        let raft = &self.engine.raft;
        let patience = 2 * self.config.election_ticks as usize;
        self.is_running() && raft.leader_id != NOBODY && raft.election_elapsed < patience
    }

    /// Whether the member can stand for election now.
    ///
    /// Not while a snapshot is being installed: the engine would look for changes of members among entries that the
    /// snapshot replaced. And not while anything is on its way to storage if the member is alone: it would lead with
    /// entries that are not durable, which the engine takes for impossible. Others are safe, because their requests
    /// wait for what came before.
    pub(super) fn can_stand(&self) -> bool {
        !self.snapshots.is_installing() && (self.flights.is_empty() || !self.is_alone())
    }

    /// Asks for votes; a member that is alone wins at once.
    pub(super) fn campaign(&mut self, out: &mut Vec<Action>) {
        if !self.can_stand() {
            return;
        }
        if self.engine.raft.leader_id != NOBODY {
            self.election.led_before = self.engine.raft.leader_id;
        }
        self.engine.raft.election_elapsed = 0;
        self.election.redraw();
        // Refused while a committed change of members waits to be applied: then the next timeout tries again.
        let _ = self.engine.campaign();
        self.drive(out);
    }

    pub(super) fn unreachable(&mut self, node: NodeId, out: &mut Vec<Action>) {
        if let Some((replica, _)) = self.members.of_node(node)
            && self.is_running()
        {
            self.engine.report_unreachable(replica.0);
            if self.followed_replica() == Some(replica) {
                // The tick that comes may be later than the question of another member who noticed as well.
                self.miss_leader();
            }
            self.drive(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_stay_in_range_and_differ() {
        let mut election = Election::new(7, 10);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            election.redraw();
            assert!((10..20).contains(&election.timeout));
            seen.insert(election.timeout);
        }
        assert_eq!(seen.len(), 10);
    }
}
