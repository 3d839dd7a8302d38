//! What goes wrong, and for how long.

use broker::Event;
use rand::Rng;
use storage::disk::ErrorKind;
use types::NodeId;

use super::world::{Happening, World};
use crate::disk::{Chance, Class, Found, Injection, NODE_BYTES, Side};
use crate::invariants::Violation;

/// How far clocks step.
const CLOCK_STEP_MS: i64 = 4 * 3_600_000;

impl World {
    /// Some faults end and others begin.
    pub(super) fn change_weather(&mut self) {
        if self.healing || self.is_story {
            return;
        }
        let next = self.chaos.random_range(300_000..6_000_000);
        self.later(next, Happening::Weather);
        if self.chaos.random_bool(0.7) {
            self.calm_network();
        }
        let (id, ids) = (self.victim(), self.ids());
        match self.chaos.random_range(0..100) {
            0..18 => {}
            18..30 => {
                self.network.links.isolate(&mut self.chaos, &ids, id);
                self.notice_cuts();
            }
            30..37 => {
                self.network.links.split(&mut self.chaos, &ids);
                self.notice_cuts();
            }
            37..46 => {
                self.network.links.cut_some(&mut self.chaos, &ids);
                self.notice_cuts();
            }
            46..50 => {
                let times = self.chaos.random_range(4..20);
                self.flap(times);
            }
            50..58 => {
                self.network.links.worsen(&mut self.chaos);
            }
            58..66 => self.crash(id),
            66..70 => {
                let life = self.nodes[&id].life;
                self.later(1, Happening::Leave((id, life)));
            }
            70..75 => ids.into_iter().for_each(|id| self.crash(id)),
            75..83 => self.pause(id),
            83..90 => {
                let skew: i64 = self.chaos.random_range(-CLOCK_STEP_MS..CLOCK_STEP_MS);
                self.say(|| format!("the clock of node {id} is set {skew} ms off"));
                self.node(id).skew_ms = skew;
            }
            _ => self.break_disk(id),
        }
    }

    /// Links are cut and carry again, every few hundred milliseconds.
    pub(super) fn flap(&mut self, left: u32) {
        if self.healing {
            return;
        }
        self.calm_network();
        if left == 0 {
            return;
        }
        if left.is_multiple_of(2) {
            let ids = self.ids();
            self.network.links.cut_some(&mut self.chaos, &ids);
            self.notice_cuts();
        }
        let next = self.chaos.random_range(100_000..1_200_000);
        self.later(next, Happening::Flap(left - 1));
    }

    /// Whoever leads something as often as not: that is where it hurts.
    fn victim(&mut self) -> NodeId {
        let leads =
            |node: &super::node::Node| node.process.as_ref().is_some_and(|process| !process.leads.is_empty());
        let leaders: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| leads(node)).map(|(id, _)| *id).collect();
        let list = if leaders.is_empty() || self.chaos.random_bool(0.5) { self.ids() } else { leaders };
        list[self.chaos.random_range(0..list.len())]
    }

    fn crash(&mut self, id: NodeId) {
        let with_power = self.chaos.random_bool(0.8);
        self.end(id, with_power);
        self.calm_disks(id);
        let delay = [600_000, 600_000, 8_000_000, 25_000_000][self.chaos.random_range(0..4)];
        let delay = self.chaos.random_range(0..delay);
        self.later(delay, Happening::Boot(id));
    }

    /// A node is asked to hand over what it leads, as before an orderly restart.
    pub(super) fn leave(&mut self, id: NodeId) -> Result<(), Violation> {
        let life = self.nodes[&id].life;
        if std::mem::replace(&mut self.process(id).is_leaving, true) {
            return Ok(());
        }
        self.say(|| format!("node {id} is to leave"));
        self.summary.leaves += 1;
        self.later(5_000_000, Happening::Gone((id, life)));
        self.step(id, Event::Leave)
    }

    /// It has handed over, or nobody waits for it any longer, and comes back soon.
    pub(super) fn gone(&mut self, id: NodeId) {
        self.end(id, false);
        self.calm_disks(id);
        let delay = self.chaos.random_range(0..2_000_000);
        self.later(delay, Happening::Boot(id));
    }

    fn pause(&mut self, id: NodeId) {
        let until = self.now + self.chaos.random_range(200_000..6_000_000);
        self.say(|| format!("node {id} stands still until {until}"));
        self.node(id).paused_until = until;
    }

    /// Steps fail, or the volume of the metadata is full, until somebody restarts the node.
    fn break_disk(&mut self, id: NodeId) {
        let kind = self.chaos.random_range(0..4);
        let room = self.chaos.random_range(0..8000);
        let skip = self.chaos.random_range(0..20);
        let classes = [Class::Write, Class::Sync, Class::SyncDir, Class::Name, Class::Open];
        let class = classes[self.chaos.random_range(0..classes.len())];
        let life = self.nodes[&id].life;
        if self.nodes[&id].process.is_none() {
            return;
        }
        self.say(|| format!("the disk of node {id} fails: {kind} {class:?}"));
        self.operator.faulty.insert(id, life);
        let disk = &mut self.node(id).disks[1];
        match kind {
            0 | 1 => {
                let bytes = |found: &Found| match found {
                    Found::Dir => 0,
                    Found::File(bytes) => *bytes,
                };
                let used: u64 = disk.list(Side::View).values().map(|found| bytes(found) + NODE_BYTES).sum();
                disk.faults_mut().capacity_bytes = Some(used + room);
            }
            2 => disk.faults_mut().write_error = Chance::one_in(60),
            _ => disk.inject(Injection { skip, ..Injection::next(class, ErrorKind::Io) }),
        }
        let delay = self.chaos.random_range(500_000..8_000_000);
        self.later(delay, Happening::Restart((id, life)));
    }
}
