//! Everything heals: every group that can must finish what it was asked, and nothing may be left that nobody needs.

use raft::ReplicaId;
use types::{NodeId, VnodeId};

use super::world::World;
use crate::disk::Side;
use crate::invariants::{Violation, ensure};

/// How long that may take, microseconds.
const PATIENCE: u64 = 120_000_000;
const STEP: u64 = 250_000;

impl World {
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.say(|| "everything heals".to_owned());
        self.calm_network();
        for id in self.ids() {
            self.node(id).paused_until = 0;
            let has_lost = self.lost.iter().any(|(node, _)| *node == id);
            let has_failed = self.nodes[&id]
                .process
                .as_ref()
                .is_some_and(|process| process.has_failed || !process.is_listed);
            if has_failed || has_lost {
                self.end(id, true);
            }
            self.calm_disk(id);
            self.boot(id)?;
        }
        let deadline = self.now + PATIENCE;
        let wait = |world: &mut Self, what: &str, done: &dyn Fn(&Self, VnodeId) -> bool| {
            world.wait_until(deadline, what, done)
        };
        wait(self, "nobody leads", &|world, group| world.leader(group).is_some())?;
        wait(self, "members are not replaced", &Self::has_its_members)?;
        for group in self.sound() {
            self.last_words(group, deadline)?;
        }
        wait(self, "members do not come to agree", &Self::agrees)?;
        wait(self, "something is left behind", &Self::is_tidy)?;
        wait(self, "something is never answered", &Self::is_quiet)?;
        self.check_room()?;
        for (group, known) in &self.groups {
            let (count, acknowledged) = (known.judge.end().1.count, known.judge.acknowledged_count());
            ensure(count >= acknowledged, "DURABILITY", || {
                format!("{acknowledged} commands of {group} acknowledged, {count} there")
            })?;
        }
        Ok(())
    }

    /// Groups that must go on.
    fn sound(&self) -> Vec<VnodeId> {
        self.groups.iter().filter(|(_, known)| !known.is_doubtful).map(|(group, _)| *group).collect()
    }

    fn wait_until(
        &mut self,
        deadline: u64,
        what: &str,
        done: &dyn Fn(&Self, VnodeId) -> bool,
    ) -> Result<(), Violation> {
        loop {
            let Some(waits) = self.sound().into_iter().find(|group| !done(self, *group)) else {
                return Ok(());
            };
            ensure(self.now < deadline, "LIVENESS", || format!("{what}: {}", self.describe(waits)))?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
    }

    fn leader(&self, group: VnodeId) -> Option<NodeId> {
        let ready = self.nodes.values().filter(|node| node.is_ready(group));
        let term = |node: &&super::node::Node| {
            node.process.as_ref().and_then(|process| process.host.group(group)).map(raft::Group::term)
        };
        ready.max_by_key(term).map(|node| node.id)
    }

    fn has_its_members(&self, group: VnodeId) -> bool {
        let Some(leader) = self.leader(group) else { return false };
        let state = self.nodes[&leader].process.as_ref().and_then(|process| process.host.group(group));
        state.is_some_and(|state| self.is_complete(group, state.members()))
    }

    /// A last command and a last read, so that everybody has something to agree on.
    fn last_words(&mut self, group: VnodeId, deadline: u64) -> Result<(), Violation> {
        let acknowledged = self.known(group).judge.acknowledged_count();
        let reads = self.summary.reads;
        while self.known(group).judge.acknowledged_count() == acknowledged || self.summary.reads == reads {
            ensure(self.now < deadline, "LIVENESS", || {
                format!("nothing is agreed on: {}", self.describe(group))
            })?;
            if let Some(leader) = self.leader(group) {
                self.propose(leader, group)?;
                self.read(leader, group)?;
            }
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    /// Every member has applied everything.
    fn agrees(&self, group: VnodeId) -> bool {
        let judge = &self.groups[&group].judge;
        let (last, _) = judge.end();
        let Some(members) = judge.members() else { return false };
        members.iter().all(|(member, _)| {
            let node = self.nodes.get(&member.node);
            node.is_some_and(|node| {
                self.replica_at(member.node, group) == Some(member.replica)
                    && node.applied(group) >= Some(last)
            })
        })
    }

    fn replica_at(&self, id: NodeId, group: VnodeId) -> Option<ReplicaId> {
        self.nodes.get(&id)?.process.as_ref()?.host.replica(group)
    }

    /// Only members have anything of a group.
    fn is_tidy(&self, group: VnodeId) -> bool {
        let Some(members) = self.groups[&group].judge.members() else { return false };
        self.nodes.values().all(|node| {
            let Some(process) = node.process.as_ref().filter(|process| process.is_listed) else {
                return false;
            };
            let member = members.of_node(node.id).map(|(replica, _)| replica);
            process.host.replica(group) == member
                && (member.is_some() || process.host.stored(group).is_none())
        })
    }

    /// Nothing waits for an answer.
    fn is_quiet(&self, group: VnodeId) -> bool {
        self.nodes.values().filter_map(|node| node.process.as_ref()).all(|process| {
            let part = process.parts.get(&group);
            process.host.requests_waiting() == 0
                && part.is_none_or(|part| part.proposals.is_empty() && part.reads.is_empty())
        })
    }

    /// What is live is small: the log has given old files and snapshots back.
    fn check_room(&self) -> Result<(), Violation> {
        for (id, node) in &self.nodes {
            let Some(process) = &node.process else { continue };
            let gauges = process.host.gauges();
            let live = gauges.entry_bytes + gauges.groups * 150;
            let files = 8 + 4 * live as u64 / self.log_file_bytes;
            let names = node.disk.list(Side::View);
            let count = |part: &str| names.keys().filter(|name| name.contains(part)).count();
            let fits = count(".wal") as u64 <= files && count("snap") <= 2 * gauges.groups + 2;
            ensure(fits || self.summary.flips > 0, "ROOM", || {
                format!("node {id} has {} files for {gauges:?}: {:?}", names.len(), names.keys())
            })?;
        }
        Ok(())
    }

    fn describe(&self, group: VnodeId) -> String {
        let node = |node: &super::node::Node| {
            let process = node.process.as_ref();
            let state = process.map(|process| {
                let host = &process.host;
                let part = process.parts.get(&group);
                let waits = part.map(|part| (part.proposals.len(), part.reads.len()));
                (host.replica(group), host.group(group), host.stored(group), waits, host.requests_waiting())
            });
            format!("{} {state:?} lost {}", node.id, self.lost.contains(&(node.id, group)))
        };
        let nodes: Vec<String> = self.nodes.values().map(node).collect();
        let known = &self.groups[&group];
        format!("{group}, {:?}; {:?}; {}", known.judge.end().0, known.judge.members(), nodes.join("; "))
    }
}
