//! What goes wrong, and for how long.

use membership::Event;
use rand::Rng;
use types::NodeId;

use super::node::address;
use super::world::{Happening, World};
use crate::invariants::Violation;

impl World {
    /// Some faults end and others begin.
    pub(super) fn change_weather(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let next = self.chaos.random_range(100_000..5_000_000);
        self.later(next, Happening::Weather);
        if self.chaos.random_bool(0.6) {
            self.calm_network();
        }
        let id = self.somebody();
        match self.chaos.random_range(0..100) {
            0..10 => {}
            10..22 => self.isolate(id),
            22..32 => self.split(),
            32..42 => self.cut_some(),
            42..58 => self.bad_network(),
            58..74 => self.restart(id),
            74..78 => {
                for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                    self.restart(id);
                }
            }
            78..90 => self.pause(id),
            90..96 => {
                self.step(id, Event::Leave)?;
                self.restart(id);
            }
            _ => {
                self.end(id);
                self.nodes.get_mut(&id).expect("nodes are never removed").is_gone = self.may_lose(id);
            }
        }
        Ok(())
    }

    /// Somebody must stay, and a seed, or nobody finds anybody.
    fn may_lose(&self, id: NodeId) -> bool {
        let staying = self.nodes.values().filter(|node| !node.is_gone).count();
        staying > 2 && !self.seeds.contains(&id)
    }

    pub(super) fn calm_network(&mut self) {
        self.network.cut.clear();
        let network = &mut self.network;
        (network.loss, network.twice, network.delay, network.stray) = (0.0, 0.0, 3000, 0);
    }

    fn others(&self, id: NodeId) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|other| *other != id).collect()
    }

    fn isolate(&mut self, id: NodeId) {
        let (inwards, outwards) = match self.chaos.random_range(0..3) {
            0 => (true, true),
            1 => (true, false),
            _ => (false, true),
        };
        self.say(|| format!("node {id} is cut off, inwards {inwards}, outwards {outwards}"));
        for other in self.others(id) {
            if inwards {
                self.network.cut.insert((other, id));
            }
            if outwards {
                self.network.cut.insert((id, other));
            }
        }
    }

    fn split(&mut self) {
        let left: Vec<NodeId> = self
            .nodes
            .keys()
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|_| self.chaos.random())
            .collect();
        self.say(|| format!("{left:?} are cut off"));
        for a in self.nodes.keys() {
            for b in self.nodes.keys() {
                if left.contains(a) != left.contains(b) {
                    self.network.cut.insert((*a, *b));
                }
            }
        }
    }

    fn cut_some(&mut self) {
        let chance = self.chaos.random_range(0.05..0.6);
        for a in self.nodes.keys() {
            for b in self.nodes.keys() {
                if self.chaos.random_bool(chance) {
                    self.network.cut.insert((*a, *b));
                }
            }
        }
    }

    fn bad_network(&mut self) {
        self.network.loss = self.chaos.random_range(0.0..0.4);
        self.network.twice = self.chaos.random_range(0.0..0.2);
        self.network.delay = [3000, 50_000, 400_000][self.chaos.random_range(0..3)];
        self.network.stray = if self.chaos.random() { self.chaos.random_range(1..20_000_000) } else { 0 };
    }

    /// Ends a process; the next one may be elsewhere, and its clock may have been set.
    fn restart(&mut self, id: NodeId) {
        self.end(id);
        let moves = self.chaos.random_bool(0.2);
        let steps = self.chaos.random_bool(0.3);
        let step = self.chaos.random_range(-5000..5000);
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        if moves {
            node.moved += 1;
            node.address = address(id.0 >> 64, node.moved);
        }
        if steps {
            node.clock_off += step;
        }
        let delay = if self.chaos.random() {
            self.chaos.random_range(1000..1_000_000)
        } else {
            self.chaos.random_range(1_000_000..30_000_000)
        };
        self.later(delay, Happening::Boot(id));
    }

    fn pause(&mut self, id: NodeId) {
        let until = self.now + self.chaos.random_range(100_000..15_000_000);
        self.say(|| format!("node {id} stands still until {until}"));
        self.nodes.get_mut(&id).expect("nodes are never removed").paused_until = until;
    }
}
