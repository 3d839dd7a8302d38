//! What goes wrong, and for how long.

use rand::Rng;
use types::NodeId;

use super::store::Store;
use super::world::{Happening, World};
use crate::invariants::Violation;

impl World {
    /// Some faults end and others begin.
    pub(super) fn change_weather(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let next = self.chaos.random_range(100_000..3_000_000);
        self.later(next, Happening::Weather);
        if self.chaos.random_bool(0.7) {
            self.calm_network();
        }
        if self.chaos.random_bool(0.5) {
            self.slow.clear();
        }
        self.clean_up()?;
        let (id, ids) = (self.victim(), self.ids());
        match self.chaos.random_range(0..100) {
            0..15 => {}
            15..30 => self.network.isolate(&mut self.chaos, &ids, id),
            30..40 => self.network.split(&mut self.chaos, &ids),
            40..48 => self.network.cut_some(&mut self.chaos, &ids),
            48..60 => self.network.worsen(&mut self.chaos),
            60..74 => return self.crash(id),
            74..79 => return self.crash_all(),
            79..88 => self.pause(id),
            88..94 => {
                let factor = self.chaos.random_range(5..200);
                self.slow.insert(id, factor);
            }
            94..97 => self.break_disk(id),
            _ => return self.lose_disk(id),
        }
        self.say(|| format!("network now: {:?}", self.network));
        Ok(())
    }

    /// A leader as often as not: that is where it hurts.
    fn victim(&mut self) -> NodeId {
        let leaders: Vec<NodeId> =
            self.nodes.values().filter(|node| node.leads()).map(|node| node.id).collect();
        if !leaders.is_empty() && self.chaos.random_bool(0.5) {
            return leaders[self.chaos.random_range(0..leaders.len())];
        }
        let at = self.chaos.random_range(0..self.nodes.len());
        *self.nodes.keys().nth(at).expect("it is below their number")
    }

    pub(super) fn calm_network(&mut self) {
        let arrivals = self.network.calm(&mut self.chaos, self.now);
        self.arrive(arrivals);
    }

    fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    fn crash(&mut self, id: NodeId) -> Result<(), Violation> {
        let with_power = self.chaos.random_bool(0.7);
        self.end(id, with_power)?;
        self.switch_on_later(id);
        Ok(())
    }

    fn crash_all(&mut self) -> Result<(), Violation> {
        for id in self.ids() {
            self.crash(id)?;
        }
        Ok(())
    }

    fn switch_on_later(&mut self, id: NodeId) {
        self.is_down.insert(id);
        let long = self.chaos.random_bool(0.2);
        let delay = self.chaos.random_range(0..if long { 8_000_000 } else { 600_000 });
        self.later(delay, Happening::Boot(id));
    }

    fn pause(&mut self, id: NodeId) {
        let until = self.now + self.chaos.random_range(200_000..4_000_000);
        self.say(|| format!("node {id} stands still until {until}"));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.paused_until = until;
        }
    }

    /// Nothing is written any more; somebody restarts the node after a while.
    fn break_disk(&mut self, id: NodeId) {
        self.say(|| format!("the disk of node {id} fails"));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.store.is_broken = true;
        }
        let delay = self.chaos.random_range(500_000..3_000_000);
        self.later(delay, Happening::Restart(id));
    }

    pub(super) fn restart(&mut self, id: NodeId) -> Result<(), Violation> {
        if self.nodes[&id].store.is_broken {
            self.end(id, true)?;
            self.boot(id)?;
        }
        Ok(())
    }

    /// A node loses what it held of the group. At most one at a time, and only where enough others are left: more
    /// would be more than any group survives.
    fn lose_disk(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(members) = self.judge.members().cloned() else { return Ok(()) };
        // Enough by any list of members that may be in force: changes on their way could make it another.
        let enough = self.change_every > 0 && members.voters().count() >= 3 && self.changing == 0;
        let any_lost = self.nodes.values().any(|node| node.is_lost);
        let is_voter = members.of_node(id).is_some_and(|(_, part)| part == raft::Part::Voter);
        if !enough || any_lost || !is_voter || self.lost_before {
            return Ok(());
        }
        self.lost_before = true;
        self.say(|| format!("node {id} loses its files"));
        self.end(id, true)?;
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.store = Store::default();
        (node.is_founder, node.is_lost) = (false, true);
        Ok(())
    }
}
