//! What a cluster does for its groups: whoever leads one sees to its members, and replicas that hear nobody ask.

use raft::{Change, Members, Part, ProposalId};
use rand::Rng;
use types::{NodeId, VnodeId};

use super::node::Proposed;
use super::world::{Happening, World};
use crate::invariants::Violation;

impl World {
    pub(super) fn drive(&mut self) -> Result<(), Violation> {
        let next = self.rng.random_range(300_000..1_500_000);
        self.later(next, Happening::Drive);
        let ids = self.ids();
        for id in ids.iter().copied() {
            if self.now < self.nodes[&id].paused_until {
                continue;
            }
            for group in self.groups.keys().copied().collect::<Vec<_>>() {
                let is_busy = !self.healing && self.rng.random_bool(0.5);
                if self.nodes[&id].is_ready(group) && !is_busy {
                    self.see_to(id, group)?;
                }
            }
            if self.rng.random_bool(0.3)
                && let Some(process) = self.node(id).process.as_mut().filter(|process| process.is_listed)
            {
                process.host.ask_around(&ids);
                self.settle(id)?;
            }
        }
        Ok(())
    }

    /// One step towards the members a group should have.
    fn see_to(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let Some(state) = self.process(id).host.group(group) else { return Ok(()) };
        let members = state.members().clone();
        match self.next_change(group, &members) {
            Some(change) => self.change(id, group, change),
            None => Ok(()),
        }
    }

    fn next_change(&mut self, group: VnodeId, members: &Members) -> Option<Change> {
        if let Some(gone) = self.gone(group, members) {
            return Some(Change::Remove(gone));
        }
        if let Some((learner, _)) = members.iter().find(|(_, part)| *part == Part::Learner) {
            return Some(Change::Promote(learner.node));
        }
        let others: Vec<NodeId> =
            self.ids().into_iter().filter(|node| members.of_node(*node).is_none()).collect();
        let wants_more = members.len() < self.groups[&group].wanted && !others.is_empty();
        wants_more.then(|| Change::AddLearner(others[self.rng.random_range(0..others.len())]))
    }

    /// A member whose files are gone.
    pub(super) fn gone(&self, group: VnodeId, members: &Members) -> Option<NodeId> {
        let is_gone = |node: NodeId| !self.nodes.contains_key(&node) || self.lost.contains(&(node, group));
        members.iter().map(|(member, _)| member.node).find(|node| is_gone(*node))
    }

    /// Nothing is to be done for a group's members any more.
    pub(super) fn is_complete(&self, group: VnodeId, members: &Members) -> bool {
        members.iter().all(|(_, part)| part == Part::Voter)
            && self.gone(group, members).is_none()
            && members.len() >= self.groups[&group].wanted.min(self.nodes.len())
    }

    pub(super) fn change(&mut self, id: NodeId, group: VnodeId, change: Change) -> Result<(), Violation> {
        let term = self.process(id).host.group(group).map(raft::Group::term).unwrap_or_default();
        self.numbers += 1;
        let number = ProposalId(self.numbers);
        let Some(part) = self.process(id).parts.get_mut(&group) else { return Ok(()) };
        part.proposals.insert(number, Proposed::Change(change));
        self.say(|| format!("node {id} is asked for {change:?} of {group}"));
        self.known(group).changing.insert(number.0, term);
        self.process(id).host.reconfigure(group, number, change);
        self.settle(id)
    }

    /// A founder is told of its group; again whenever it starts.
    pub(super) fn found(&mut self, group: VnodeId, id: NodeId) -> Result<(), Violation> {
        let founders = self.groups[&group].founders.clone();
        let process = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut());
        match process.filter(|process| process.is_listed) {
            Some(process) => process.host.found_group(group, &founders),
            None => {
                if self.nodes.contains_key(&id) {
                    self.later(500_000, Happening::Found(group, id));
                }
                return Ok(());
            }
        }
        self.settle(id)
    }

    /// Whatever became of what it was told before.
    pub(super) fn found_late(&mut self, id: NodeId) {
        let groups = self.groups.iter().filter(|(_, known)| known.founders.contains(&id));
        for group in groups.map(|(group, _)| *group).collect::<Vec<_>>() {
            let delay = self.rng.random_range(0..1_500_000);
            self.later(delay, Happening::Found(group, id));
        }
    }
}
