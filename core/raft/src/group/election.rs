//! When a member stands for election, and the passing of time in general.
//!
//! The engine's own timeout never fires: it would be drawn from a generator nobody seeded. The engine still counts
//! the ticks since a leader was last heard of; here they are compared with a timeout drawn from the member's seed,
//! anew for every attempt and every term, so that two members that got in each other's way part.

use types::NodeId;

use super::Group;
use crate::engine::{NOBODY, StateRole};
use crate::event::Action;

/// Draws timeouts.
#[derive(Clone, Debug)]
pub(super) struct Election {
    state: u64,
    ticks: u32,
    timeout: usize,
}

impl Election {
    /// Timeouts between `ticks` and twice that, exclusive.
    pub(super) fn new(seed: u64, ticks: u32) -> Self {
        let mut election = Self { state: seed, ticks, timeout: 0 };
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
}

impl Group {
    pub(super) fn tick(&mut self, out: &mut Vec<Action>) {
        if !self.is_running() {
            return;
        }
        self.engine.tick();
        let raft = &self.engine.raft;
        let waited = raft.state != StateRole::Leader && raft.election_elapsed >= self.election.timeout;
        if waited && raft.promotable() {
            self.campaign(out);
        }
        self.tick_transfers(out);
        self.drive(out);
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
