//! What clients and operators ask for.

use bytes::{BufMut, BytesMut};
use raft::{Change, Event, ProposalId, ReadId, Role};
use rand::Rng;
use types::NodeId;

use super::judge::CommandId;
use super::member::Proposed;
use super::world::{Happening, World};
use crate::invariants::Violation;

impl World {
    /// Somebody asks for something, and the next one comes a little later.
    pub(super) fn ask(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let pause = if self.rng.random_bool(0.05) { 1_500_000 } else { 60_000 };
        let pause = self.rng.random_range(1000..pause);
        self.later(pause, Happening::Ask);
        let Some(id) = self.whom_to_ask() else { return Ok(()) };
        if self.now < self.nodes[&id].paused_until {
            return Ok(());
        }
        if self.change_every > 0 && self.rng.random_range(0..self.change_every) == 0 {
            return self.ask_for_change(id);
        }
        match self.rng.random_range(0..100) {
            0..55 => {
                let burst = if self.rng.random_bool(0.1) { self.rng.random_range(1..20) } else { 1 };
                (0..burst).try_for_each(|_| self.propose(id))
            }
            55..97 => self.read(id),
            _ => {
                let to = self.any_node();
                self.say(|| format!("node {id} is asked to hand over to {to}"));
                self.step(id, Event::Transfer { to })
            }
        }
    }

    /// Most know who leads; some ask anybody, and some an old leader.
    fn whom_to_ask(&mut self) -> Option<NodeId> {
        let leaders: Vec<NodeId> =
            self.nodes.values().filter(|node| node.leads()).map(|node| node.id).collect();
        let running: Vec<NodeId> =
            self.nodes.values().filter(|node| node.process.is_some()).map(|node| node.id).collect();
        let list = if leaders.is_empty() || self.rng.random_bool(0.05) { running } else { leaders };
        (!list.is_empty()).then(|| list[self.rng.random_range(0..list.len())])
    }

    pub(super) fn any_node(&mut self) -> NodeId {
        let at = self.rng.random_range(0..self.nodes.len());
        *self.nodes.keys().nth(at).expect("it is below their number")
    }

    pub(super) fn propose(&mut self, id: NodeId) -> Result<(), Violation> {
        self.numbers += 1;
        let (number, command) = (ProposalId(self.numbers), CommandId(self.numbers));
        let mut data = BytesMut::new();
        data.put_u64(command.0);
        data.put_bytes(0, self.rng.random_range(0..60));
        if self.nodes[&id].process.is_none() {
            return Ok(());
        }
        self.process(id).proposals.insert(number, Proposed::Command(command));
        self.step(id, Event::Propose { id: number, data: data.freeze() })
    }

    pub(super) fn read(&mut self, id: NodeId) -> Result<(), Violation> {
        self.numbers += 1;
        let read = ReadId(self.numbers);
        let floor = self.judge.read_begins();
        self.process(id).reads.insert(read, floor);
        self.step(id, Event::Read { id: read })
    }

    /// An operator adds, promotes or removes somebody.
    fn ask_for_change(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = &self.nodes[&id].process else { return Ok(()) };
        let members = process.group.members().clone();
        let lost: Vec<NodeId> = self.nodes.values().filter(|node| node.is_lost).map(|node| node.id).collect();
        let node = self.any_node();
        let change = match (members.of_node(node), lost.first()) {
            // A member that lost its files is replaced first.
            (_, Some(lost)) if members.of_node(*lost).is_some() => Change::Remove(*lost),
            (_, Some(lost)) => Change::AddLearner(*lost),
            (None, None) => Change::AddLearner(node),
            (Some((_, raft::Part::Learner)), None) if self.rng.random_bool(0.8) => Change::Promote(node),
            (Some(_), None) if members.voters().count() > 2 || self.rng.random_bool(0.2) => {
                Change::Remove(node)
            }
            (Some(_), None) => return Ok(()),
        };
        self.change(id, change)
    }

    pub(super) fn change(&mut self, id: NodeId, change: Change) -> Result<(), Violation> {
        self.numbers += 1;
        let number = ProposalId(self.numbers);
        self.say(|| format!("node {id} is asked for {change:?}"));
        self.changing += 1;
        self.process(id).proposals.insert(number, Proposed::Change(change));
        self.step(id, Event::Reconfigure { id: number, change })
    }

    /// A change was answered; nobody will ever know what became of others.
    pub(super) fn finish_change(&mut self, proposed: Proposed) {
        if let Proposed::Change(_) = proposed {
            self.changing -= 1;
        }
    }

    /// Replicas that left forget the group when a leader says that they may.
    pub(super) fn clean_up(&mut self) -> Result<(), Violation> {
        let groups =
            || self.nodes.values().filter_map(|node| node.process.as_ref()).map(|process| &process.group);
        let may_forget = |node: &&super::member::Node| {
            let replica = node.replica.filter(|_| node.process.is_some());
            replica.is_some_and(|replica| groups().any(|group| group.may_forget(replica)))
        };
        let left: Vec<NodeId> = self.nodes.values().filter(may_forget).map(|node| node.id).collect();
        left.into_iter().try_for_each(|id| self.forget(id))
    }

    /// A member leads, is ready, and everybody can hear it.
    pub(super) fn ready_leader(&self) -> Option<NodeId> {
        let ready = |node: &&super::member::Node| {
            node.process
                .as_ref()
                .is_some_and(|process| process.group.is_ready() && process.group.role() == Role::Leader)
        };
        let leaders = self.nodes.values().filter(ready);
        leaders
            .max_by_key(|node| node.process.as_ref().map(|process| process.group.term()))
            .map(|node| node.id)
    }
}
