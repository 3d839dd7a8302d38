//! Everything heals: the group must finish what it was asked, and everybody must come to agree.

use raft::Change;
use types::NodeId;

use super::world::World;
use crate::invariants::{Violation, ensure};

/// How long that may take, microseconds.
const PATIENCE: u64 = 60_000_000;
const STEP: u64 = 250_000;

impl World {
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.say(|| "everything heals".to_owned());
        self.calm_network();
        self.slow.clear();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            let node = self.nodes.get_mut(&id).expect("nodes are never removed");
            node.paused_until = 0;
            if node.store.is_broken {
                self.end(id, true)?;
            }
            self.is_down.remove(&id);
            self.boot(id)?;
        }
        let deadline = self.now + PATIENCE;
        let leader = self.wait_for_leader(deadline)?;
        self.replace_lost(leader, deadline)?;
        let leader = self.wait_for_leader(deadline)?;
        self.last_words(leader, deadline)?;
        self.wait_until(deadline, "members do not come to agree", Self::agree)?;
        self.wait_until(deadline, "something is never answered", Self::is_quiet)?;
        let (_, machine) = self.judge.end();
        ensure(machine.count >= self.judge.acknowledged_count(), "DURABILITY", || {
            format!("{} commands acknowledged, {} there", self.judge.acknowledged_count(), machine.count)
        })
    }

    fn wait_until(
        &mut self,
        deadline: u64,
        what: &str,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        while !done(self) {
            ensure(self.now < deadline, "LIVENESS", || format!("{what}: {}", self.describe()))?;
            self.clean_up()?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    fn wait_for_leader(&mut self, deadline: u64) -> Result<NodeId, Violation> {
        self.wait_until(deadline, "nobody leads", |world| world.ready_leader().is_some())?;
        Ok(self.ready_leader().expect("it was waited for"))
    }

    /// An operator replaces the member whose files are gone.
    fn replace_lost(&mut self, leader: NodeId, deadline: u64) -> Result<(), Violation> {
        let lost = self.nodes.values().find(|node| node.is_lost).map(|node| node.id);
        let Some(lost) = lost else { return Ok(()) };
        let mut leader = leader;
        loop {
            let members = self.process(leader).group.members();
            if members.of_node(lost).is_none() {
                return Ok(());
            }
            self.change(leader, Change::Remove(lost))?;
            let until = self.now + STEP;
            self.run_until(until)?;
            leader = self.wait_for_leader(deadline)?;
            ensure(self.now < deadline, "LIVENESS", || "a lost member cannot be removed".to_owned())?;
        }
    }

    /// A last command and a last read, so that everybody has something to agree on.
    fn last_words(&mut self, leader: NodeId, deadline: u64) -> Result<(), Violation> {
        let acknowledged = self.judge.acknowledged_count();
        let reads = self.summary.reads;
        let mut leader = leader;
        while self.judge.acknowledged_count() == acknowledged || self.summary.reads == reads {
            ensure(self.now < deadline, "LIVENESS", || format!("nothing is agreed on: {}", self.describe()))?;
            self.propose(leader)?;
            self.read(leader)?;
            let until = self.now + STEP;
            self.run_until(until)?;
            leader = self.wait_for_leader(deadline)?;
        }
        Ok(())
    }

    /// Every member has applied everything.
    fn agree(&self) -> bool {
        let (last, _) = self.judge.end();
        let Some(members) = self.judge.members() else {
            return self.founders.iter().all(|id| self.applied_at(*id) >= last);
        };
        members.iter().all(|(member, _)| {
            let node = &self.nodes[&member.node];
            node.is_lost || (node.replica == Some(member.replica) && self.applied_at(member.node) >= last)
        })
    }

    /// Nothing waits for an answer and nothing is on its way to a disk.
    fn is_quiet(&self) -> bool {
        self.nodes.values().all(|node| {
            let asked = node
                .process
                .as_ref()
                .is_some_and(|process| !process.proposals.is_empty() || !process.reads.is_empty());
            !asked && node.store.is_idle()
        })
    }

    fn describe(&self) -> String {
        let node = |node: &super::member::Node| {
            let group = node.process.as_ref().map(|process| &process.group);
            let waits = node.process.as_ref().map(|process| (process.proposals.len(), process.reads.len()));
            format!("{} {group:?} waits {waits:?} lost {}", node.id, node.is_lost)
        };
        let nodes: Vec<String> = self.nodes.values().map(node).collect();
        format!("{:?}; {:?}; {}", self.judge.end().0, self.judge.members(), nodes.join("; "))
    }
}
