//! The tables of every group on every node, compared.
//!
//! - INV-45: at equal index they are equal, on members and on those that only follow; no view goes back in a process;
//! - C-2, C-6, C-9, C-10: along the log fences, ring versions and incarnations never decrease, tokens do not move;
//! - C-1: a fence is one node's;
//! - C-13: what only the leader of a vnode decides is decided by whoever leads in the term of its entry;
//! - C-7: no voter leaves before whoever comes can be reached ([`super::voters`]);
//! - who leads: one in each term; a replica's number is one node's;
//! - `Ready` comes after a leader was there, and with everything that was acknowledged before the process began.

use std::collections::{BTreeMap, BTreeSet};

use broker::witness::{CLUSTER_GROUP, Effect};
use metadata::cluster::Cluster;
use raft::{ReplicaId, Role};
use types::{FenceToken, Incarnation, NodeId, RaftIndex, Term, VnodeId};

use super::node::Node;
use super::world::World;
use crate::invariants::{Violation, c_13, ensure, inv_45, inv_49};

/// What must only grow along the cluster's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    fence: FenceToken,
    holder: Option<NodeId>,
    ring_version: Option<u64>,
    tokens: BTreeMap<VnodeId, u32>,
    incarnations: BTreeMap<NodeId, Incarnation>,
}

#[derive(Debug, Default)]
struct Known {
    states: BTreeMap<RaftIndex, u64>,
    facts: BTreeMap<RaftIndex, Facts>,
    leaders: BTreeMap<Term, (NodeId, u64)>,
    replicas: BTreeMap<ReplicaId, NodeId>,
    acknowledged: RaftIndex,
    /// When somebody led last.
    led_at: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Views {
    groups: BTreeMap<VnodeId, Known>,
    fences: BTreeMap<FenceToken, NodeId>,
}

impl Views {
    /// How far each group was when the last change was acknowledged.
    pub(super) fn acknowledged(&self) -> BTreeMap<VnodeId, RaftIndex> {
        self.groups.iter().map(|(group, known)| (*group, known.acknowledged)).collect()
    }

    pub(super) fn acknowledge(&mut self, group: VnodeId, index: RaftIndex) {
        let known = self.groups.entry(group).or_default();
        known.acknowledged = known.acknowledged.max(index);
    }

    /// The highest term somebody led in.
    pub(super) fn last_term(&self, group: VnodeId) -> Term {
        let known = self.groups.get(&group);
        known.and_then(|known| known.leaders.keys().next_back().copied()).unwrap_or_default()
    }
}

impl World {
    /// The groups a node knows of.
    pub(super) fn groups_of(&self, id: NodeId) -> Vec<VnodeId> {
        let process = self.nodes.get(&id).and_then(|node| node.process.as_ref());
        let topology = process.and_then(|process| process.node.cluster_tables().topology());
        let vnodes: Vec<VnodeId> = topology.map_or_else(Vec::new, |topology| {
            topology.placements.keys().copied().chain(topology.coming().map(|(vnode, _)| vnode)).collect()
        });
        std::iter::once(CLUSTER_GROUP).chain(vnodes).collect()
    }

    /// How far a node's tables of a group are.
    pub(super) fn applied(&self, id: NodeId, group: VnodeId) -> Option<RaftIndex> {
        let node = &self.nodes.get(&id)?.process.as_ref()?.node;
        if group == CLUSTER_GROUP {
            return Some(node.cluster_tables().applied());
        }
        node.vnode_tables(group).map(metadata::vnode::Vnode::applied)
    }

    /// Looks at a node that has just done something.
    pub(super) fn look(&mut self, id: NodeId) -> Result<(), Violation> {
        // A node may have a group without knowing the ring.
        let known: BTreeSet<VnodeId> = self.views.groups.keys().copied().chain(self.groups_of(id)).collect();
        for group in known {
            self.look_at_tables(id, group)?;
            self.look_at_replica(id, group)?;
        }
        self.look_at_effects(id)?;
        self.look_at_removals(id)?;
        let now = self.clock(id);
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        if let Some(fence) = process.node.held_fence(now) {
            let holder = *self.views.fences.entry(fence).or_insert(id);
            ensure(holder == id, "C-1", || format!("{holder} and {id} hold the lease under {fence:?}"))?;
            let held = |(other, node): (&NodeId, &Node)| {
                Some((*other, node.process.as_ref()?.node.held_fence(self.clock(*other))?))
            };
            inv_49::alone((id, fence), self.nodes.iter().filter_map(held))?;
        }
        Ok(())
    }

    fn look_at_tables(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let Some(applied) = self.applied(id, group) else { return Ok(()) };
        let process = self.process(id);
        let before = process.seen.insert(group, applied);
        if before == Some(applied) || applied == RaftIndex::ZERO {
            return Ok(());
        }
        ensure(before.is_none_or(|before| before < applied), "VIEW", || {
            format!("the tables of {group} on node {id} go back from {before:?} to {applied}")
        })?;
        self.look_at_moves(id, group)?;
        if let Some(tables) = self.process(id).node.vnode_tables(group) {
            c_13::refused(tables.topics().map(|(_, topic)| topic.name.as_str()))?;
        }
        let process = self.process(id);
        let hash = if group == CLUSTER_GROUP {
            process.node.cluster_tables().state_hash()
        } else {
            process.node.vnode_tables(group).map_or(0, metadata::vnode::Vnode::state_hash)
        };
        let facts = (group == CLUSTER_GROUP).then(|| facts(process.node.cluster_tables()));
        if group == CLUSTER_GROUP {
            let process = self.nodes[&id].process.as_ref();
            process.map_or(Ok(()), |process| self.probes.judge(process.node.cluster_tables()))?;
        }
        self.note(hash);
        self.summary.compared += 1;
        let known = self.views.groups.entry(group).or_default();
        if let Some(other) = known.states.insert(applied, hash) {
            return inv_45::equal(id, applied, hash, other);
        }
        let Some(facts) = facts else { return self.look_at_segments(id, group) };
        if let Some((_, earlier)) = known.facts.range(..applied).next_back() {
            grows(earlier, &facts)?;
        }
        if let Some((_, later)) = known.facts.range(applied..).next() {
            grows(&facts, later)?;
        }
        known.facts.insert(applied, facts);
        Ok(())
    }

    /// What only leaders of vnodes decide was applied.
    fn look_at_effects(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else {
            return Ok(());
        };
        for Effect { group, index, term, node } in process.node.take_led() {
            let known = self.views.groups.get(&group);
            let led = known.and_then(|known| known.leaders.get(&term)).map(|(led, _)| *led);
            c_13::by_leader((group, index, term), node, led)?;
            self.summary.led += 1;
        }
        Ok(())
    }

    fn look_at_replica(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let life = self.nodes[&id].life;
        let process = self.process(id);
        let Some(replica) = process.node.replica(group) else {
            process.leads.remove(&group);
            return Ok(());
        };
        let (number, term, leads, is_ready) =
            (replica.replica(), replica.term(), replica.role() == Role::Leader, replica.is_ready());
        let begins = if leads {
            process.leads.insert(group)
        } else {
            process.leads.remove(&group);
            false
        };
        let now = self.now;
        let known = self.views.groups.entry(group).or_default();
        let holder = *known.replicas.entry(number).or_insert(id);
        ensure(holder == id, "HOST", || format!("{holder} and {id} are both {number:?} of {group}"))?;
        if is_ready {
            known.led_at = now;
            self.look_at_voters(id, group)?;
        }
        let known = self.views.groups.entry(group).or_default();
        if begins {
            let other = known.leaders.insert(term, (id, life));
            ensure(other.is_none_or(|other| other == (id, life)), "ELECTION", || {
                format!("{id} leads {group} in {term:?}, and so did {other:?}")
            })?;
            self.summary.elections += 1;
            self.say(|| format!("node {id} leads {group} in {term:?}"));
        }
        Ok(())
    }

    /// A node says that it serves.
    pub(super) fn is_ready(&mut self, id: NodeId) -> Result<(), Violation> {
        self.say(|| format!("node {id} is ready"));
        self.process(id).ready = true;
        // What it has just applied is looked at first.
        self.look(id)?;
        self.ready_is_told(id)?;
        for group in self.groups_of(id) {
            let applied = self.applied(id, group).unwrap_or_default();
            let process = &self.nodes[&id].process;
            let Some(process) = process else { return Ok(()) };
            let floor = process.floors.get(&group).copied().unwrap_or_default();
            ensure(applied >= floor, "READY", || {
                format!(
                    "node {id} serves with {group} at {applied}; {floor} was acknowledged before it began"
                )
            })?;
            // A vnode on its way onto the ring may have nothing yet, not even a leader.
            let topology = process.node.cluster_tables().topology();
            if topology.and_then(|topology| topology.coming()).is_some_and(|(vnode, _)| vnode == group) {
                continue;
            }
            let leads = process.node.replica(group).is_some_and(raft::Group::is_ready);
            let led_at = self.views.groups.get(&group).map_or(0, |known| known.led_at);
            ensure(leads || led_at >= process.began, "READY", || {
                format!("node {id} serves, and nobody has led {group} since it began")
            })?;
        }
        Ok(())
    }
}

fn facts(tables: &Cluster) -> Facts {
    let topology = tables.topology();
    Facts {
        fence: tables.lease().fence,
        holder: tables.lease().holder,
        ring_version: topology.map(|topology| topology.version),
        tokens: topology.map_or_else(BTreeMap::new, |topology| topology.ring.iter().collect()),
        incarnations: tables.nodes().map(|(id, node)| (id, node.incarnation)).collect(),
    }
}

/// What is true later along the log, as far as it follows from what was true before.
fn grows(before: &Facts, after: &Facts) -> Result<(), Violation> {
    ensure(before.fence <= after.fence, "C-2", || format!("{before:?} and then {after:?}"))?;
    let passes = before.fence == after.fence
        && before.holder.is_some_and(|holder| after.holder.is_some_and(|other| other != holder));
    ensure(!passes, "C-2", || format!("the lease passes under one fence: {before:?} and then {after:?}"))?;
    ensure(before.ring_version <= after.ring_version, "C-6", || format!("{before:?} and then {after:?}"))?;
    for (vnode, token) in &before.tokens {
        let moved = after.tokens.get(vnode).is_some_and(|other| other != token);
        ensure(!moved, "C-6", || format!("the token of {vnode} moves: {before:?} and then {after:?}"))?;
    }
    for (node, incarnation) in &before.incarnations {
        let sinks = after.incarnations.get(node).is_some_and(|other| other < incarnation);
        ensure(!sinks, "C-9", || format!("node {node} is younger: {before:?} and then {after:?}"))?;
    }
    Ok(())
}
