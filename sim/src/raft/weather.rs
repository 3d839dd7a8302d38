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
        let id = self.victim();
        match self.chaos.random_range(0..100) {
            0..15 => {}
            15..30 => self.isolate(id),
            30..40 => self.split(),
            40..48 => self.cut_some(),
            48..60 => self.bad_network(),
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
        self.heal_links();
        let network = &mut self.network;
        (network.loss, network.twice, network.delay, network.stray) = (0.0, 0.0, 3000, 0);
    }

    fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    fn cut(&mut self, a: NodeId, b: NodeId, both_ways: bool) {
        self.network.cut.insert((a, b));
        if both_ways {
            self.network.cut.insert((b, a));
        }
    }

    fn isolate(&mut self, id: NodeId) {
        self.network.holds = self.chaos.random_bool(0.5);
        let (in_and_out, only_in) = (self.chaos.random_bool(0.6), self.chaos.random_bool(0.5));
        self.say(|| format!("node {id} is cut off, both ways {in_and_out}"));
        for other in self.ids().into_iter().filter(|other| *other != id) {
            let (from, to) = if only_in { (other, id) } else { (id, other) };
            self.cut(from, to, in_and_out);
        }
    }

    fn split(&mut self) {
        self.network.holds = self.chaos.random_bool(0.5);
        let side: Vec<NodeId> = self.ids().into_iter().filter(|_| self.chaos.random_bool(0.5)).collect();
        self.say(|| format!("{side:?} are cut off from the others"));
        for a in &side {
            for b in self.ids().into_iter().filter(|b| !side.contains(b)) {
                self.cut(*a, b, true);
            }
        }
    }

    /// Some links only: two that do not hear each other both hear a third.
    fn cut_some(&mut self) {
        self.network.holds = self.chaos.random_bool(0.5);
        for a in self.ids() {
            for b in self.ids() {
                if a != b && self.chaos.random_bool(0.2) {
                    let both_ways = self.chaos.random_bool(0.5);
                    self.say(|| format!("{a} to {b} is cut, both ways {both_ways}"));
                    self.cut(a, b, both_ways);
                }
            }
        }
    }

    fn bad_network(&mut self) {
        let network = &mut self.network;
        network.loss = self.chaos.random_range(0.0..0.3);
        network.twice = self.chaos.random_range(0.0..0.3);
        network.delay = [1000, 30_000, 300_000][self.chaos.random_range(0..3)];
        network.stray = [0, 500_000, 6_000_000][self.chaos.random_range(0..3)];
        let (loss, delay) = (network.loss, network.delay);
        self.say(|| format!("bad network, loss {loss:.2}, delay {delay}"));
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
