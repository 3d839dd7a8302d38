//! What people do: they add nodes, drain and remove them, and set a new one in the place of one that lost everything.

use std::collections::{BTreeMap, BTreeSet};

use broker::witness::CLUSTER_GROUP;
use metadata::cluster::{ChangeNode, Command, NodeState};
use raft::Group;
use rand::Rng;
use types::{NodeId, VnodeId};

use super::world::{Happening, World};
use crate::invariants::Violation;

/// What people know.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// Nodes whose disks were told to fail, in which lifetime.
    pub(super) faulty: BTreeMap<NodeId, u64>,
    /// Nodes that lost everything and were not removed yet.
    gone: BTreeSet<NodeId>,
}

impl World {
    /// People look, and look again a little later.
    pub(super) fn operate(&mut self) -> Result<(), Violation> {
        let next = self.rng.random_range(500_000..4_000_000);
        self.later(next, Happening::Operate);
        if self.is_story {
            return Ok(());
        }
        let Some(via) = self.some_ready() else { return Ok(()) };
        let tables = self.process(via).node.cluster_tables();
        let listed: BTreeMap<NodeId, NodeState> = tables.nodes().map(|(id, node)| (id, node.state)).collect();
        let expected = tables.nodes_revision();
        let gone = self.operator.gone.iter().copied().find(|id| listed.contains_key(id));
        if let Some(node) = gone {
            self.say(|| format!("node {node} is taken off the list, because it lost everything"));
            let change = ChangeNode { node, expected };
            return self.propose(via, Command::RemoveNode { change, force: true });
        }
        let draining = listed.iter().find(|(_, state)| **state == NodeState::Draining).map(|(id, _)| *id);
        if let Some(node) = draining {
            if self.is_free(node) {
                let change = ChangeNode { node, expected };
                return self.propose(via, Command::RemoveNode { change, force: false });
            }
            return Ok(());
        }
        self.switch_off(via);
        if self.healing {
            return Ok(());
        }
        let active = listed.values().filter(|state| **state == NodeState::Active).count();
        match self.rng.random_range(0..100) {
            0..20 if self.nodes.len() < self.setup.nodes_max => {
                let id = self.add_node();
                let delay = self.rng.random_range(0..1_000_000);
                self.later(delay, Happening::Boot(id));
            }
            20..35 if active > 1 => {
                let active: Vec<NodeId> = listed
                    .iter()
                    .filter(|(_, state)| **state == NodeState::Active)
                    .map(|(id, _)| *id)
                    .collect();
                let node = active[self.rng.random_range(0..active.len())];
                self.say(|| format!("node {node} is drained"));
                return self.propose(via, Command::DrainNode(ChangeNode { node, expected }));
            }
            35..50 if active > 2 && self.operator.gone.is_empty() && self.is_settled().is_none() => {
                return self.lose_directory();
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn some_ready(&mut self) -> Option<NodeId> {
        let now = self.now;
        let is_ready = |node: &super::node::Node| {
            node.paused_until <= now && node.process.as_ref().is_some_and(|process| process.ready)
        };
        let ready: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| is_ready(node)).map(|(id, _)| *id).collect();
        (!ready.is_empty()).then(|| ready[self.rng.random_range(0..ready.len())])
    }

    pub(super) fn propose(&mut self, via: NodeId, command: Command) -> Result<(), Violation> {
        self.act(via, |node, _, actions| node.propose(&command, actions))
    }

    /// Whoever leads a group in the highest term, and its replica.
    pub(super) fn leader(&self, group: VnodeId) -> Option<(NodeId, &Group)> {
        let replicas = self.nodes.iter().filter_map(|(id, node)| {
            let replica = node.process.as_ref()?.node.replica(group)?;
            replica.is_ready().then_some((*id, replica))
        });
        replicas.max_by_key(|(_, replica)| replica.term())
    }

    /// The groups there are, as the leader of the cluster's has it.
    pub(super) fn groups(&self) -> Vec<VnodeId> {
        self.leader(CLUSTER_GROUP).map_or_else(Vec::new, |(id, _)| self.groups_of(id))
    }

    /// Whether no group has a node for a member.
    fn is_free(&self, node: NodeId) -> bool {
        let groups = self.groups();
        !groups.is_empty()
            && !self.holds_records(node)
            && groups.iter().all(|group| {
                self.leader(*group).is_some_and(|(_, replica)| replica.members().of_node(node).is_none())
            })
    }

    /// A node that was removed and that nobody needs any more is switched off for good.
    fn switch_off(&mut self, via: NodeId) {
        let ids = self.ids();
        for id in ids {
            let is_removed = self.process(via).node.cluster_tables().is_node_removed(id);
            let holds = self.groups().into_iter().any(|group| {
                let process = self.nodes[&id].process.as_ref();
                process.is_some_and(|process| process.node.has_group(group))
            });
            if is_removed && id != via && self.is_free(id) && !holds {
                self.say(|| format!("node {id} was removed and is switched off"));
                self.take_away(id, None);
                self.summary.removed += 1;
            }
        }
    }

    /// A node is gone with its disks; whoever would ask it first asks another.
    fn take_away(&mut self, id: NodeId, heir: Option<NodeId>) {
        self.end(id, true);
        self.nodes.remove(&id);
        let heir = heir.or_else(|| self.nodes.keys().next().copied());
        for (other, node) in &mut self.nodes {
            for seed in &mut node.seeds {
                if let Some(heir) = heir.filter(|heir| heir != other && *seed == id) {
                    *seed = heir;
                }
            }
        }
    }

    /// A directory is gone, and the node comes back as another.
    fn lose_directory(&mut self) -> Result<(), Violation> {
        let ids = self.ids();
        let id = ids[self.chaos.random_range(0..ids.len())];
        if !self.may_lose(id)? {
            return Ok(());
        }
        self.say(|| format!("node {id} loses everything"));
        let heir = self.add_node();
        self.node(heir).seeds = ids.iter().copied().filter(|other| *other != id).collect();
        self.take_away(id, Some(heir));
        self.operator.gone.insert(id);
        self.summary.wiped += 1;
        let delay = self.chaos.random_range(0..1_000_000);
        self.later(delay, Happening::Boot(heir));
        Ok(())
    }
}
