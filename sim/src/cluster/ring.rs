//! The ring changes: what people wish for, and the judgement of what moves.
//!
//! Judged on the furthest tables of each vnode that anybody has shown so far:
//! - INV-46: a topic that leaves a vnode is on another; INV-47: topics are created where they belong, and no place of
//!   the ring is two vnodes' at once;
//! - C-5: whenever no change is under way every vnode has the arc of the ring, and every topic is where the ring says;
//! - no node removes a copy that the tables list.

use std::collections::BTreeMap;

use broker::witness::CLUSTER_GROUP;
use metadata::vnode::{Share, Vnode};
use rand::Rng;
use types::keyspace::KeyHash;
use types::{NodeId, RaftIndex, RingArc, TopicId, VnodeId};

use super::client::Op;
use super::world::World;
use crate::invariants::{Violation, ensure, inv_46, inv_47};

/// Most vnodes anybody wishes for.
const VNODES_MAX: u32 = 5;

/// A vnode as it was seen furthest.
#[derive(Debug, Default)]
struct Seen {
    applied: RaftIndex,
    share: Share,
    ring_version: u64,
    /// With their names.
    topics: BTreeMap<TopicId, String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Moves {
    vnodes: BTreeMap<VnodeId, Seen>,
    /// How far the cluster's tables were seen, and how many vnodes the ring had most.
    cluster: RaftIndex,
    vnodes_most: usize,
    /// Changes of the ring that were seen to be over.
    pub(super) changes: u64,
    was_pending: bool,
}

impl Moves {
    fn is_elsewhere(&self, topic: TopicId, left: VnodeId) -> bool {
        self.vnodes.iter().any(|(vnode, seen)| *vnode != left && seen.topics.contains_key(&topic))
    }

    fn arc(&self, vnode: VnodeId) -> Option<RingArc> {
        match self.vnodes.get(&vnode)?.share {
            Share::Arc(arc) => Some(arc),
            Share::Whole | Share::Nothing => None,
        }
    }
}

impl World {
    /// Somebody wants another number of vnodes. Whoever leads the cluster's group is asked as often as not.
    pub(super) fn wish_for_vnodes(&mut self) -> Result<(), Violation> {
        let leader = self.leader(CLUSTER_GROUP).map(|(id, _)| id);
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.process.is_some()).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let anybody = ids[self.rng.random_range(0..ids.len())];
        let id = leader.filter(|_| self.rng.random_bool(0.8)).unwrap_or(anybody);
        if self.now < self.nodes[&id].paused_until {
            return Ok(());
        }
        let to = self.rng.random_range(1..=VNODES_MAX);
        self.request(id, Op::Reshard(to))
    }

    /// Looks at a group's tables on a node, which have changed.
    pub(super) fn look_at_moves(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        if group == CLUSTER_GROUP { self.look_at_ring(id) } else { self.look_at_topics(id, group) }
    }

    fn look_at_topics(&mut self, id: NodeId, vnode: VnodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        let Some(tables) = process.node.vnode_tables(vnode) else { return Ok(()) };
        let before = self.moves.vnodes.remove(&vnode).unwrap_or_default();
        if tables.applied() <= before.applied {
            self.moves.vnodes.insert(vnode, before);
            return Ok(());
        }
        let named = |(topic, row): (TopicId, &metadata::vnode::Topic)| (topic, row.name.as_str().to_owned());
        let now = Seen {
            applied: tables.applied(),
            share: tables.arc(),
            ring_version: tables.ring_version(),
            topics: tables.topics().map(named).collect(),
        };
        // Of tables that come as a whole the share at each creation is not known.
        let same_share = before.share == now.share && before.ring_version == now.ring_version;
        for (topic, name) in now.topics.iter().filter(|(topic, _)| !before.topics.contains_key(topic)) {
            let is_created = tables.topic(*topic).is_some_and(|row| row.arrived_by.is_none());
            if is_created && same_share {
                let place = KeyHash::Xxh32.of(name.as_bytes());
                inv_47::created_inside(name, place, vnode, now.share, self.moves.vnodes_most)?;
            }
        }
        let gone: Vec<(TopicId, String)> =
            before.topics.into_iter().filter(|(topic, _)| !now.topics.contains_key(topic)).collect();
        self.moves.vnodes.insert(vnode, now);
        for (topic, name) in gone {
            let is_doomed = self.model.topics.get(&name).is_some_and(|topic| topic.is_doomed);
            let is_elsewhere = is_doomed || self.moves.is_elsewhere(topic, vnode);
            inv_46::still_somewhere(&name, vnode, is_elsewhere)?;
        }
        if let Some(arc) = self.moves.arc(vnode) {
            for other in self.moves.vnodes.keys().filter(|other| **other != vnode) {
                if let Some(other_arc) = self.moves.arc(*other) {
                    inv_47::apart((vnode, arc), (*other, other_arc))?;
                }
            }
        }
        Ok(())
    }

    fn look_at_ring(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        let tables = process.node.cluster_tables();
        let Some(topology) = tables.topology().filter(|_| tables.applied() > self.moves.cluster) else {
            return Ok(());
        };
        let was_pending = std::mem::replace(&mut self.moves.was_pending, topology.pending.is_some());
        self.moves.cluster = tables.applied();
        self.moves.vnodes_most = self.moves.vnodes_most.max(topology.ring.len());
        self.moves.changes += u64::from(was_pending && topology.pending.is_none());
        if topology.pending.is_some() {
            return Ok(());
        }
        for (vnode, arc) in topology.ring.arcs() {
            let Some(seen) = self.moves.vnodes.get(&vnode) else { continue };
            // Told nothing yet, which it is before anybody serves.
            let is_first = seen.share == Share::Whole;
            ensure(is_first || seen.share == Share::Arc(arc), "C-5", || {
                format!("no change is under way, and vnode {vnode} has {:?} and not {arc:?}", seen.share)
            })?;
            let stray = seen.topics.values().find(|name| !arc.covers(KeyHash::Xxh32.of(name.as_bytes())));
            ensure(stray.is_none(), "C-5", || {
                format!("no change is under way, and vnode {vnode} has {stray:?}, outside {arc:?}")
            })?;
        }
        let strays = self.moves.vnodes.iter().filter(|(vnode, _)| topology.ring.token(**vnode).is_none());
        for (vnode, seen) in strays {
            ensure(seen.topics.is_empty(), "C-5", || {
                format!("vnode {vnode} left the ring with {:?}", seen.topics)
            })?;
        }
        Ok(())
    }

    /// No node is about to remove a copy that the furthest tables list.
    pub(super) fn look_at_removals(&self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        for segment in process.node.removals() {
            let tables = |vnode: VnodeId| -> Option<&Vnode> {
                let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
                let tables = processes.filter_map(|process| process.node.vnode_tables(vnode));
                tables.max_by_key(|tables| tables.applied())
            };
            let listed = self.moves.vnodes.keys().find(|vnode| {
                tables(**vnode).is_some_and(|tables| {
                    tables.segment(segment).is_some_and(|listed| listed.replicas.contains(&id))
                })
            });
            ensure(listed.is_none(), "INV-46", || {
                format!("node {id} removes its copy of {segment:?}, which vnode {listed:?} lists")
            })?;
        }
        Ok(())
    }

    /// A node serves, so every vnode of a ring of several was told what is its own.
    pub(super) fn ready_is_told(&self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        let Some(topology) = process.node.cluster_tables().topology() else {
            return Err(Violation::new("INV-47", format!("node {id} serves before there is a ring")));
        };
        let untold = topology
            .ring
            .iter()
            .find(|(vnode, _)| self.moves.vnodes.get(vnode).is_none_or(|seen| seen.share == Share::Whole));
        ensure(topology.ring.len() == 1 || untold.is_none(), "INV-47", || {
            format!("node {id} serves before vnode {untold:?} was told what is its own")
        })
    }

    /// What keeps the vnodes from being those of the ring, on every node; `None` when nothing does.
    pub(super) fn ring_unsettled(&self) -> Option<String> {
        let (leader, _) = self.leader(CLUSTER_GROUP)?;
        let topology = self.nodes[&leader].process.as_ref()?.node.cluster_tables().topology()?;
        let gone =
            (0..topology.next_vnode.0).map(VnodeId).filter(|vnode| topology.ring.token(*vnode).is_none());
        for vnode in gone {
            let has = |node: &super::node::Node| {
                node.process.as_ref().is_some_and(|process| process.node.has_group(vnode))
            };
            if let Some((id, _)) = self.nodes.iter().find(|(_, node)| has(node)) {
                return Some(format!("node {id} has vnode {vnode}, which left the ring"));
            }
        }
        None
    }
}
