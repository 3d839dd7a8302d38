//! What goes wrong, and for how long.

use consensus::{Action, Host};
use rand::Rng;
use storage::disk::{Disk, ErrorKind};
use types::{NodeId, VnodeId, quorum};

use super::world::{Happening, World};
use crate::disk::{Chance, Class, Faults, Found, Injection, NODE_BYTES, NameLoss, Side};
use crate::invariants::{Violation, ensure};

/// Disk steps after which a start that should have ended is called a livelock.
const STEPS_MAX: usize = 100_000;

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
        let (id, ids) = (self.victim(), self.ids());
        match self.chaos.random_range(0..100) {
            0..12 => {}
            12..24 => self.links.isolate(&mut self.chaos, &ids, id),
            24..32 => self.links.split(&mut self.chaos, &ids),
            32..40 => self.links.cut_some(&mut self.chaos, &ids),
            40..50 => self.links.worsen(&mut self.chaos),
            50..64 => self.crash(id),
            64..70 => ids.into_iter().for_each(|id| self.crash(id)),
            70..77 => self.pause(id),
            77..86 => self.break_disk(id),
            86..93 => return self.rot(id),
            _ => self.lose_files(id),
        }
        Ok(())
    }

    /// Whoever leads something as often as not: that is where it hurts.
    fn victim(&mut self) -> NodeId {
        let leads = |node: &&super::node::Node| self.groups.keys().any(|group| node.leads(*group));
        let leaders: Vec<NodeId> = self.nodes.values().filter(leads).map(|node| node.id).collect();
        let list = if leaders.is_empty() || self.chaos.random_bool(0.5) { self.ids() } else { leaders };
        list[self.chaos.random_range(0..list.len())]
    }

    pub(super) fn calm_network(&mut self) {
        let arrivals = self.links.calm(&mut self.chaos, self.now);
        self.arrive(arrivals);
    }

    fn crash(&mut self, id: NodeId) {
        let with_power = self.chaos.random_bool(0.8);
        self.end(id, with_power);
        self.calm_disk(id);
        let long = self.chaos.random_bool(0.2);
        let delay = self.chaos.random_range(0..if long { 8_000_000 } else { 600_000 });
        self.later(delay, Happening::Boot(id));
    }

    fn pause(&mut self, id: NodeId) {
        let until = self.now + self.chaos.random_range(200_000..4_000_000);
        self.say(|| format!("node {id} stands still until {until}"));
        self.node(id).paused_until = until;
    }

    /// Steps fail, or the volume is full, until somebody restarts the node.
    fn break_disk(&mut self, id: NodeId) {
        let room = self.chaos.random_range(0..8000);
        let kind = self.chaos.random_range(0..4);
        let classes = [Class::Write, Class::Sync, Class::SyncDir, Class::Name, Class::Open, Class::Read];
        let class = classes[self.chaos.random_range(0..classes.len())];
        let skip = self.chaos.random_range(0..20);
        let names = if self.chaos.random_bool(0.5) { NameLoss::Independent } else { NameLoss::Prefix };
        self.say(|| format!("the disk of node {id} fails: {kind} {class:?}"));
        let node = self.node(id);
        node.is_faulty = true;
        node.disk.faults_mut().names = names;
        let life = node.life;
        match kind {
            0 => {
                let bytes = |found: &Found| match found {
                    Found::Dir => 0,
                    Found::File(bytes) => *bytes,
                };
                let used: u64 =
                    node.disk.list(Side::View).values().map(|found| bytes(found) + NODE_BYTES).sum();
                node.disk.faults_mut().capacity_bytes = Some(used + room);
            }
            1 => node.disk.faults_mut().write_error = Chance::one_in(60),
            _ => node.disk.inject(Injection { skip, ..Injection::next(class, ErrorKind::Io) }),
        }
        let delay = self.chaos.random_range(500_000..5_000_000);
        self.later(delay, Happening::Restart(id, life));
    }

    pub(super) fn calm_disk(&mut self, id: NodeId) {
        let node = self.node(id);
        node.disk.clear_injections();
        let names = node.disk.faults_mut().names;
        *node.disk.faults_mut() = Faults { names, ..Faults::none() };
    }

    /// Somebody sees to a node with a bad disk; sometimes only the disk had to be seen to.
    pub(super) fn restart(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let Some(node) = self.nodes.get(&id) else { return Ok(()) };
        let Some(process) = node.process.as_ref().filter(|_| node.life == life) else { return Ok(()) };
        let must_end = process.has_failed || !process.is_listed;
        if must_end || self.chaos.random_bool(0.5) {
            let with_power = self.chaos.random_bool(0.7);
            self.end(id, with_power);
        }
        self.calm_disk(id);
        self.boot(id)
    }

    /// Whether a node may lose files now: one at a time, and only where its groups survive it, but for some runs.
    fn may_hurt(&mut self, id: NodeId) -> bool {
        let any_hurt = !self.lost.is_empty() || self.nodes.values().any(|node| node.is_rotten);
        if any_hurt || self.change_every == 0 {
            return false;
        }
        let endangered: Vec<VnodeId> =
            self.groups.keys().copied().filter(|group| self.endangers(id, *group)).collect();
        if !endangered.is_empty() && !self.is_ruthless {
            return false;
        }
        endangered.into_iter().for_each(|group| self.known(group).is_doubtful = true);
        true
    }

    /// Whether a group may not go on without what a node holds of it: by its members, when it is known who they are.
    fn endangers(&self, id: NodeId, group: VnodeId) -> bool {
        let known = &self.groups[&group];
        let voters: Vec<NodeId> = match known.judge.members() {
            Some(members) => members.voters().map(|voter| voter.node).collect(),
            None => known.founders.clone(),
        };
        // Some of the others may be gone and not replaced yet, or not know yet that these are the members: until they
        // do, they need the votes of those before.
        let knows = |id: &NodeId| match (known.judge.members(), self.nodes.get(id)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(members), Some(node)) => {
                let host = node.process.as_ref().map(|process| &process.host);
                host.and_then(|host| host.group(group)).is_some_and(|state| state.members() == members)
            }
        };
        let others = voters.iter().filter(|node| **node != id && knows(node)).count();
        let is_unsettled = !known.changing.is_empty() && known.founders.len() > 1;
        let is_concerned = voters.contains(&id) || is_unsettled;
        is_concerned && (is_unsettled || others < quorum::ack_count(voters.len()))
    }

    /// Bits flip that a later flush testifies to: nothing of them may be missed silently.
    fn rot(&mut self, id: NodeId) -> Result<(), Violation> {
        if !self.may_hurt(id) {
            return Ok(());
        }
        self.end(id, true);
        self.calm_disk(id);
        self.rest(id)?;
        for _ in 0..self.chaos.random_range(1..4) {
            if let Some(flip) = self.node(id).disk.flip_random_durable(|_| true) {
                self.summary.flips += 1;
                self.say(|| format!("node {id} rots: {flip:?}"));
                self.node(id).is_rotten = true;
            }
        }
        self.boot(id)
    }

    /// A process that starts, does nothing, and ends: what was written last is testified to.
    fn rest(&mut self, id: NodeId) -> Result<(), Violation> {
        self.node(id).life += 1;
        let config = self.host_config(id);
        let mut host = Host::new(config);
        host.start();
        let disk = &mut self.node(id).disk;
        let mut marks = 3;
        for _ in 0..STEPS_MAX {
            while let Some(action) = host.next_action() {
                match action {
                    Action::Disk(job) => disk.submit(job),
                    Action::Stop(stop) => {
                        return Err(Violation::new("RECOVERY", format!("node {id} does not start: {stop}")));
                    }
                    _ => {}
                }
            }
            if let Some(completion) = disk.ready() {
                host.complete(completion);
            } else if disk.step().is_none() {
                if marks == 0 {
                    break;
                }
                marks -= 1;
                host.mark();
            }
        }
        let is_idle = self.nodes[&id].disk.outstanding() == 0;
        self.node(id).disk.kill();
        ensure(is_idle, "LIVENESS", || format!("node {id} never comes to rest"))
    }

    /// The directory is gone, and the node comes back as another.
    fn lose_files(&mut self, id: NodeId) {
        if self.may_hurt(id) {
            self.replace_node(id);
        }
    }

    pub(super) fn replace_node(&mut self, id: NodeId) {
        self.end(id, true);
        self.nodes.remove(&id);
        self.lost.retain(|(node, _)| *node != id);
        self.summary.wiped += 1;
        let other = self.add_node();
        self.say(|| format!("node {id} lost its files and is {other} now"));
        let delay = self.chaos.random_range(0..600_000);
        self.later(delay, Happening::Boot(other));
    }
}
