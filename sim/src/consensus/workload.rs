//! What clients and operators ask for.

use bytes::{BufMut, BytesMut};
use raft::{Change, ProposalId, ReadId};
use rand::Rng;
use types::{NodeId, VnodeId};

use super::node::Proposed;
use super::world::{Happening, World};
use crate::invariants::Violation;
use crate::raft::judge::CommandId;

impl World {
    /// Somebody asks for something, and the next one comes a little later.
    pub(super) fn ask(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let pause = if self.rng.random_bool(0.05) { 1_500_000 } else { 60_000 };
        let pause = self.rng.random_range(1000..pause);
        self.later(pause, Happening::Ask);
        let at = self.rng.random_range(0..self.groups.len());
        let group = *self.groups.keys().nth(at).expect("it is below their number");
        let Some(id) = self.whom_to_ask(group) else { return Ok(()) };
        if self.now < self.nodes[&id].paused_until {
            return Ok(());
        }
        if self.change_every > 0 && self.rng.random_range(0..self.change_every) == 0 {
            return self.ask_for_change(id, group);
        }
        match self.rng.random_range(0..100) {
            0..60 => {
                let burst = if self.rng.random_bool(0.1) { self.rng.random_range(1..20) } else { 1 };
                (0..burst).try_for_each(|_| self.propose(id, group))
            }
            60..97 => self.read(id, group),
            _ => {
                let to = self.any_node();
                self.say(|| format!("node {id} is asked to hand {group} over to {to}"));
                self.process(id).host.transfer(group, to);
                self.settle(id)
            }
        }
    }

    /// Most know who leads; some ask anybody.
    fn whom_to_ask(&mut self, group: VnodeId) -> Option<NodeId> {
        let hosts = |node: &&super::node::Node| {
            node.process.as_ref().is_some_and(|process| process.parts.contains_key(&group))
        };
        let hosting: Vec<NodeId> = self.nodes.values().filter(hosts).map(|node| node.id).collect();
        let leads = |id: &NodeId| self.nodes[id].leads(group);
        let leaders: Vec<NodeId> = hosting.iter().copied().filter(leads).collect();
        let list = if leaders.is_empty() || self.rng.random_bool(0.05) { hosting } else { leaders };
        (!list.is_empty()).then(|| list[self.rng.random_range(0..list.len())])
    }

    fn any_node(&mut self) -> NodeId {
        let at = self.rng.random_range(0..self.nodes.len());
        *self.nodes.keys().nth(at).expect("it is below their number")
    }

    pub(super) fn propose(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        self.numbers += 1;
        let (number, command) = (ProposalId(self.numbers), CommandId(self.numbers));
        let mut data = BytesMut::new();
        data.put_u64(command.0);
        data.put_bytes(0, self.rng.random_range(0..60));
        // What was asked for first may have ended the process, or the replica.
        let Some(process) = self.node(id).process.as_mut() else { return Ok(()) };
        let Some(part) = process.parts.get_mut(&group) else { return Ok(()) };
        part.proposals.insert(number, Proposed::Command(command));
        process.host.propose(group, number, data.freeze());
        self.settle(id)
    }

    pub(super) fn read(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        self.numbers += 1;
        let read = ReadId(self.numbers);
        let floor = self.known(group).judge.read_begins();
        let Some(process) = self.node(id).process.as_mut() else { return Ok(()) };
        let Some(part) = process.parts.get_mut(&group) else { return Ok(()) };
        part.reads.insert(read, floor);
        process.host.read(group, read);
        self.settle(id)
    }

    /// An operator adds, promotes or removes somebody.
    fn ask_for_change(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let Some(state) = self.process(id).host.group(group) else { return Ok(()) };
        let members = state.members().clone();
        let node = self.any_node();
        let change = match members.of_node(node) {
            // A member that lost its files is replaced first: another one less may be one too many.
            _ if self.gone(group, &members).is_some() => return Ok(()),
            None => Change::AddLearner(node),
            Some((_, raft::Part::Learner)) if self.rng.random_bool(0.7) => Change::Promote(node),
            Some(_) if members.voters().count() > 2 || self.rng.random_bool(0.2) => Change::Remove(node),
            Some(_) => return Ok(()),
        };
        self.change(id, group, change)
    }
}
