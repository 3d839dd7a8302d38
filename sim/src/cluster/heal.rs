//! Everything heals: every group must have its members, every node everything, and nobody may wait.

use std::collections::{BTreeMap, BTreeSet};

use broker::witness::CLUSTER_GROUP;
use metadata::cluster::NodeState;
use raft::Part;
use types::{NodeId, VnodeId};

use super::client::Op;
use super::world::World;
use crate::invariants::{Violation, ensure};

/// How long that may take, microseconds.
const PATIENCE: u64 = 180_000_000;
const STEP: u64 = 250_000;

impl World {
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.say(|| "everything heals".to_owned());
        self.calm_network();
        for id in self.ids() {
            self.node(id).paused_until = self.node(id).paused_until.min(self.now);
            let is_hopeless = self.nodes[&id].process.as_ref().is_some_and(|process| process.is_hopeless);
            // What a disk failed to do may be told of only later.
            let life = self.nodes[&id].life;
            if is_hopeless || self.operator.faulty.get(&id) == Some(&life) {
                self.end(id, true);
            }
            self.calm_disks(id);
            self.boot(id)?;
        }
        let began = self.now;
        self.wait(|world| world.is_settled())?;
        self.last_words()?;
        self.heal_records()?;
        self.wait(|world| world.is_settled())?;
        self.wait(|world| (!world.clients.is_quiet()).then(|| world.clients.shown()))?;
        self.summary.healing = self.now - began;
        // A member that fell silent is told of until its session ends, to a new coordinator too.
        self.wait(|world| world.coordinating())?;
        self.nothing_is_parked()?;
        self.check_everything()
    }

    /// Lets time pass until nothing is missing.
    pub(super) fn wait(&mut self, missing: impl Fn(&Self) -> Option<String>) -> Result<(), Violation> {
        let deadline = self.now + PATIENCE;
        while let Some(what) = missing(self) {
            ensure(self.now < deadline, "LIVENESS", || format!("{what}: {}", self.describe()))?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    /// What keeps the cluster from being whole; `None` when nothing does.
    pub(super) fn is_settled(&self) -> Option<String> {
        if let Some(id) = self
            .nodes
            .iter()
            .find(|(_, node)| !node.process.as_ref().is_some_and(|process| process.ready))
            .map(|(id, _)| *id)
        {
            return Some(format!("node {id} does not serve"));
        }
        let Some((leader, _)) = self.leader(CLUSTER_GROUP) else {
            return Some("nobody leads the cluster's group".to_owned());
        };
        let tables = self.nodes[&leader].process.as_ref()?.node.cluster_tables();
        let listed: BTreeMap<NodeId, NodeState> = tables.nodes().map(|(id, node)| (id, node.state)).collect();
        let other =
            listed.iter().find(|(id, state)| **state != NodeState::Active || !self.nodes.contains_key(id));
        if let Some((id, state)) = other {
            return Some(format!("node {id} is {state:?}"));
        }
        let unlisted = self.nodes.keys().find(|id| !listed.contains_key(id));
        if let Some(id) = unlisted {
            return Some(format!("node {id} is not listed"));
        }
        let Some(topology) = tables.topology() else { return Some("there is no ring".to_owned()) };
        if topology.pending.is_some() {
            return Some("the ring changes".to_owned());
        }
        let missing = self.members_missing(CLUSTER_GROUP, None, cluster_members(listed.len()));
        let of_vnode = |(vnode, placed): (&VnodeId, &Vec<NodeId>)| {
            let wanted = self.setup.vnode_replicas.min(listed.len());
            self.members_missing(*vnode, Some(placed.iter().copied().collect()), wanted)
        };
        missing.or_else(|| topology.placements.iter().find_map(of_vnode)).or_else(|| self.ring_unsettled())
    }

    /// What a group lacks.
    fn members_missing(
        &self,
        group: VnodeId,
        placed: Option<BTreeSet<NodeId>>,
        wanted: usize,
    ) -> Option<String> {
        let Some((leader, replica)) = self.leader(group) else {
            return Some(format!("nobody leads {group}"));
        };
        let members: BTreeSet<NodeId> = replica.members().iter().map(|(member, _)| member.node).collect();
        if let Some((learner, _)) = replica.members().iter().find(|(_, part)| *part == Part::Learner) {
            return Some(format!("{learner:?} of {group} does not vote"));
        }
        if members.len() != wanted || placed.as_ref().is_some_and(|placed| *placed != members) {
            return Some(format!("{group} has {members:?}, {wanted} of {placed:?} are wanted"));
        }
        // Tables that nothing was applied to need not be there.
        let applied = |id: NodeId| self.applied(id, group).unwrap_or_default();
        let most = applied(leader);
        for (id, node) in &self.nodes {
            let has = node.process.as_ref().is_some_and(|process| process.node.has_group(group));
            if has != members.contains(id) {
                return Some(format!("node {id} has {group}: {has}, and its members are {members:?}"));
            }
            if applied(*id) != most {
                return Some(format!("node {id} is at {} of {group}, its leader at {most}", applied(*id)));
            }
        }
        None
    }

    /// Every node takes changes and knows of them; one that is told that nobody knows asks for another.
    fn last_words(&mut self) -> Result<(), Violation> {
        for id in self.ids() {
            for of_topic in [true, false] {
                let (began, before) = (self.now, self.summary.acknowledged);
                while self.summary.acknowledged == before {
                    ensure(self.now < began + 40_000_000, "LIVENESS", || {
                        format!("node {id} takes no changes: {}", self.describe())
                    })?;
                    let number = self.number();
                    let topic = Op::Create(format!("t{number}"));
                    self.request(id, if of_topic { topic } else { Op::CreateUser(format!("u{number}")) })?;
                    let until = self.now + 4 * STEP;
                    self.run_until(until)?;
                }
            }
        }
        Ok(())
    }

    /// A node that has members of groups.
    fn coordinating(&self) -> Option<String> {
        let of = |(id, node): (&NodeId, &super::node::Node)| {
            Some((*id, node.process.as_ref()?.node.gauges().groups))
        };
        let (id, groups) = self.nodes.iter().filter_map(of).find(|(_, groups)| *groups != (0, 0))?;
        Some(format!("everybody has left, and node {id} coordinates {groups:?}"))
    }

    /// No node keeps anything of a request when every client has its answer.
    fn nothing_is_parked(&self) -> Result<(), Violation> {
        for (id, node) in &self.nodes {
            let Some(process) = &node.process else { continue };
            let gauges = process.node.gauges();
            let (produces, parked, streams) = (gauges.produces, gauges.parked, gauges.streams);
            ensure((produces, parked, streams) == ((0, 0), 0, 0), "INV-5", || {
                format!(
                    "every client was answered, and node {id} has {produces:?} produces, {parked} parked, {streams} streams"
                )
            })?;
        }
        Ok(())
    }

    fn check_everything(&self) -> Result<(), Violation> {
        for node in self.nodes.values() {
            let Some(process) = &node.process else { continue };
            let cluster = process.node.cluster_tables();
            let Some(topology) = cluster.topology() else { continue };
            let vnodes = topology.placements.keys();
            let vnodes =
                vnodes.filter_map(|vnode| Some((*vnode, process.node.vnode_tables(*vnode)?))).collect();
            self.model.check(cluster, &vnodes)?;
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> String {
        let group = |id: NodeId, group: VnodeId| {
            let process = self.nodes[&id].process.as_ref()?;
            let replica = process.node.replica(group);
            let told = replica.map(|replica| {
                let members: Vec<_> =
                    replica.members().iter().map(|(member, part)| (member.node, part)).collect();
                (replica.role(), replica.term(), replica.commit(), replica.applied(), members)
            });
            Some(format!(
                "{group} has {} at {:?} {told:?}",
                process.node.has_group(group),
                self.applied(id, group)
            ))
        };
        let node = |id: NodeId| {
            let process = self.nodes[&id].process.as_ref();
            let up = process.map(|process| process.up.keys().collect::<Vec<_>>());
            let groups: Vec<_> = self.groups_of(id).into_iter().filter_map(|of| group(id, of)).collect();
            let ready = process.is_some_and(|process| process.ready);
            format!("node {id} ready {ready} up {up:?} {}", groups.join(", "))
        };
        let nodes: Vec<String> = self.nodes.keys().map(|id| node(*id)).collect();
        nodes.join("; ")
    }
}

/// Members of the cluster's group among so many nodes.
pub(super) fn cluster_members(nodes: usize) -> usize {
    match nodes {
        0..=2 => nodes,
        3 | 4 => 3,
        _ => 5,
    }
}
