//! What is on disks at moments that matter, whatever anybody says.
//!
//! - INV-1, INV-2: when a client is told that a record is stored, so many disks hold it that all power may go;
//! - INV-8, INV-9: two copies of a segment hold the same batches where both hold any, without a gap;
//! - INV-19, INV-29: see [`super::tables`];
//! - INV-15: copies that were fenced, or a primary that sealed its own, chose where a segment ends;
//! - INV-32: a copy that was whole and is listed is given up only beside another whole one;
//! - INV-34, INV-35: in the end each sealed segment is on as many nodes as it shall be, whole, the same on each.
//!
//! A disk that was damaged on purpose is excused for the copies that were damaged.

use std::collections::{BTreeMap, BTreeSet};

use metadata::vnode::{Segment, Vnode};
use rand::Rng;
use storage::store::State;
use types::quorum::{ack_count, seal_count};
use types::{Epoch, NodeId, SegmentId, TopicName, VnodeId};

use super::model::{Name, shown};
use super::platter::{self, Held};
use crate::cluster::world::World;
use crate::disk::SimDisk;
use crate::invariants::inv_15::Fenced;
use crate::invariants::{
    Violation, inv_01, inv_08, inv_15, inv_19, inv_29, inv_30, inv_31, inv_32, inv_33, inv_34, inv_35,
};

/// What every node's disk holds.
pub(super) type Disks = BTreeMap<NodeId, BTreeMap<SegmentId, Held>>;

impl World {
    /// What would be left if all power went now.
    pub(super) fn disks(&self) -> Result<Disks, Violation> {
        let held = |(id, disk): (NodeId, &SimDisk)| Ok((id, platter::held(disk)?));
        self.nodes.iter().map(|(id, node)| held((*id, &node.disks[0]))).collect()
    }

    /// The tables of the vnode that owns a topic, of whoever is furthest there.
    pub(super) fn tables_of(&self, topic: &str) -> Option<&Vnode> {
        let name = TopicName::new(topic.as_bytes()).ok()?;
        // A topic that moves is on two of them for a while.
        let lists = |tables: &&Vnode| tables.topic_by_name(&name).is_some() && tables.owns(&name);
        self.furthest_tables().into_iter().find(lists)
    }

    /// The tables of every vnode, of whoever is furthest there.
    pub(super) fn furthest_tables(&self) -> Vec<&Vnode> {
        let mut furthest: BTreeMap<VnodeId, &Vnode> = BTreeMap::new();
        for (id, node) in &self.nodes {
            let Some(process) = &node.process else { continue };
            for group in self.groups_of(*id) {
                let Some(tables) = process.node.vnode_tables(group) else { continue };
                let known = furthest.entry(group).or_insert(tables);
                if known.applied() < tables.applied() {
                    *known = tables;
                }
            }
        }
        furthest.into_values().collect()
    }

    /// Some acknowledgements are looked up on the disks.
    pub(super) fn audit_acknowledged(&mut self, request: u64) -> Result<(), Violation> {
        let Some(mix) = self.records.mix else { return Ok(()) };
        if !self.records.rng.random_ratio(1, mix.audits) {
            return Ok(());
        }
        let disks = self.disks()?;
        alike(&disks)?;
        self.forgive(&disks);
        self.look_for_losses(&disks)?;
        let held = holders(&disks)?;
        let nobody = BTreeMap::new();
        let count = u32::try_from(self.records.model.count(request)).unwrap_or(u32::MAX);
        for index in 0..count {
            let name = (request, index);
            let found = held.get(&name).unwrap_or(&nobody);
            let enough = found.iter().any(|(segment, nodes)| {
                let replicas = self.records.known.replicas_of(*segment);
                let gone = replicas.iter().filter(|id| self.is_excused(**id, *segment));
                !replicas.is_empty() && nodes.len() + gone.count() >= ack_count(replicas.len())
            });
            inv_01::on_a_quorum(shown(name), enough, || format!("{found:?}"))?;
        }
        self.summary.audits += 1;
        Ok(())
    }

    /// Whether a copy may lack what it should hold: its node lost everything, or it was damaged on purpose.
    pub(super) fn is_excused(&self, id: NodeId, segment: SegmentId) -> bool {
        !self.nodes.contains_key(&id) || self.records.harmed.contains(&(id, segment))
    }

    /// A copy that was damaged is as it shall be again.
    fn forgive(&mut self, disks: &Disks) {
        let known = &self.records.known;
        self.records.harmed.retain(|(id, segment)| {
            let held = disks.get(id).and_then(|disk| disk.get(segment));
            let end = known.end_of(*segment);
            let is_whole = |held: &Held| held.is_intact() && end == Some(held.extent.end);
            !held.is_some_and(is_whole)
        });
    }

    /// Whatever was whole when the disks were looked at last, and is listed, still is.
    fn look_for_losses(&mut self, disks: &Disks) -> Result<(), Violation> {
        let mut whole: BTreeMap<SegmentId, BTreeSet<NodeId>> = BTreeMap::new();
        for (id, disk) in disks {
            for (segment, held) in disk {
                let end = self.records.known.end_of(*segment);
                if held.is_intact() && end.is_some_and(|end| held.extent.end >= end) {
                    whole.entry(*segment).or_default().insert(*id);
                }
            }
        }
        let first = |segment: SegmentId| self.records.known.replicas_of(segment).first().copied();
        let nobody = BTreeSet::new();
        for (segment, (nodes, first_then)) in &self.records.whole {
            let now = whole.get(segment).unwrap_or(&nobody);
            let listed = self.records.known.replicas_of(*segment);
            let lost =
                nodes.difference(now).filter(|id| listed.contains(id) && !self.is_excused(**id, *segment));
            for id in lost {
                // What a device or a bit took out of service is not given up by anybody yet.
                let held = disks.get(id).and_then(|disk| disk.get(segment));
                if held.is_some_and(|held| !held.is_intact() && !held.extent.rebuilding) {
                    continue;
                }
                // Deleted since with its topic, or expired: then nobody has to have it.
                if !self.is_listed(*segment) {
                    continue;
                }
                let others = listed.iter().filter(|other| now.contains(other)).count();
                let is_first = *first_then == Some(*id) && first(*segment) == Some(*id);
                inv_32::given_up(*segment, *id, others, is_first)?;
            }
        }
        self.records.whole =
            whole.into_iter().map(|(segment, nodes)| (segment, (nodes, first(segment)))).collect();
        Ok(())
    }

    /// Whether the tables of whoever is furthest list a segment.
    fn is_listed(&self, segment: SegmentId) -> bool {
        self.furthest_tables().into_iter().any(|tables| tables.segment(segment).is_some())
    }

    /// A seal was recorded.
    pub(super) fn audit_seal(&mut self, segment: SegmentId, listed: &Segment) -> Result<(), Violation> {
        if self.records.mix.is_none() {
            return Ok(());
        }
        // What never took a record needs no copy.
        let Some(end) = listed.end().filter(|end| *end > listed.start) else { return Ok(()) };
        let all = listed.replicas.len();
        let needed = seal_count(all);
        let (mut whole, mut sound, mut fenced, mut by_primary) = (0, 0, 0, false);
        for (at, id) in listed.replicas.iter().enumerate() {
            let disk = self.nodes.get(id).map(|node| platter::held(&node.disks[0])).transpose()?;
            let held = disk.as_ref().and_then(|disk| disk.get(&segment));
            let is_excused = self.is_excused(*id, segment);
            let is_intact = held.is_some_and(Held::is_intact);
            let is_ended = |held: &Held| held.extent.epoch > Epoch(1) || held.extent.state == State::Sealed;
            let is_fenced = held.is_some_and(is_ended);
            let is_sealed = |held: &Held| held.extent.state == State::Sealed && held.extent.end == end;
            whole +=
                usize::from((is_intact && held.is_some_and(|held| held.extent.end >= end)) || is_excused);
            sound += usize::from((is_intact && is_fenced) || is_excused);
            fenced += usize::from(is_fenced || is_excused);
            by_primary |= at == 0 && held.is_some_and(is_sealed);
        }
        self.summary.audits += 1;
        inv_15::chosen(segment, end, Fenced { sound, fenced, all, needed, by_primary })?;
        inv_19::held(segment, end, whole, needed)
    }

    /// Copies were taken into the set of a sealed segment.
    pub(super) fn audit_joined(
        &mut self,
        segment: SegmentId,
        listed: &Segment,
        joined: &[NodeId],
    ) -> Result<(), Violation> {
        if self.records.mix.is_none() {
            return Ok(());
        }
        let Some(end) = listed.end() else { return Ok(()) };
        for id in joined {
            let Some(node) = self.nodes.get(id) else { continue };
            let held = platter::held(&node.disks[0])?;
            let held = held.get(&segment);
            let is_whole = held.is_some_and(|held| held.is_intact() && held.extent.end == end);
            if self.is_excused(*id, segment) {
                continue;
            }
            inv_30::counted(segment, *id, held.map(|held| &held.extent))?;
            inv_29::complete(segment, *id, is_whole)?;
            inv_33::sealed(segment, *id, held.map(|held| &held.extent), end)?;
        }
        Ok(())
    }

    /// Copies were taken out of the set of a sealed segment.
    pub(super) fn audit_left(
        &mut self,
        segment: SegmentId,
        listed: &Segment,
        before: &[NodeId],
    ) -> Result<(), Violation> {
        let Some(end) = listed.end().filter(|_| self.records.is_on()) else { return Ok(()) };
        let whole = |ids: &[NodeId]| {
            let mut whole = 0;
            for node in ids.iter().filter_map(|id| self.nodes.get(id)) {
                let held = platter::held(&node.disks[0])?;
                let is_whole = |held: &Held| held.is_intact() && held.extent.end >= end;
                whole += usize::from(held.get(&segment).is_some_and(is_whole));
            }
            Ok(whole)
        };
        inv_31::not_fewer(segment, whole(before)?.min(listed.replicas.len()), whole(&listed.replicas)?)
    }

    /// What is wrong with the copies of sealed segments, `None` when nothing is.
    pub(super) fn unsettled(&self, factor: usize) -> Result<Option<String>, Violation> {
        let disks = self.disks()?;
        alike(&disks)?;
        let wanted = factor.min(self.nodes.len());
        for topic in &self.records.topics {
            let Some(tables) = self.tables_of(topic) else { continue };
            for (segment, listed) in tables.segments() {
                let Some(end) = listed.end() else { continue };
                if let Some(short) = inv_34::short(segment, &listed.replicas, wanted) {
                    return Ok(Some(short));
                }
                for id in &listed.replicas {
                    let held = disks.get(id).and_then(|disk| disk.get(&segment));
                    if let Some(what) = inv_35::settled(held.map(|held| &held.extent), end) {
                        let (replicas, harmed) = (&listed.replicas, &self.records.harmed);
                        let harmed = harmed.contains(&(*id, segment));
                        return Ok(Some(format!(
                            "{segment} of {replicas:?} on node {id}, sealed at {end}, harmed {harmed}: {what}"
                        )));
                    }
                    if held.is_some_and(|held| held.is_damaged) {
                        return Ok(Some(format!("{segment} on node {id} is damaged")));
                    }
                }
            }
        }
        Ok(self.orphan(&disks))
    }

    /// A copy on a node that no tables list there.
    fn orphan(&self, disks: &Disks) -> Option<String> {
        let tables = self.furthest_tables();
        let is_listed = |id: NodeId, segment: SegmentId| {
            let mut listed = tables.iter().filter_map(|tables| tables.segment(segment));
            listed.any(|listed| listed.replicas.contains(&id))
        };
        let mut copies = disks.iter().flat_map(|(id, disk)| disk.keys().map(|segment| (*id, *segment)));
        let (id, segment) = copies.find(|(id, segment)| !is_listed(*id, *segment))?;
        Some(format!("nobody lists {segment} on node {id}"))
    }
}

/// Who holds which record, in which segments.
fn holders(disks: &Disks) -> Result<BTreeMap<Name, BTreeMap<SegmentId, BTreeSet<NodeId>>>, Violation> {
    let mut all: BTreeMap<Name, BTreeMap<SegmentId, BTreeSet<NodeId>>> = BTreeMap::new();
    for (id, disk) in disks {
        // What is being made anew does not count, whatever it holds.
        for (segment, held) in disk.iter().filter(|(_, held)| !held.extent.rebuilding) {
            for name in held.names()? {
                all.entry(name).or_default().entry(*segment).or_default().insert(*id);
            }
        }
    }
    Ok(all)
}

/// Judges all copies against each other.
fn alike(disks: &Disks) -> Result<(), Violation> {
    let mut first: BTreeMap<SegmentId, (NodeId, &Held)> = BTreeMap::new();
    for (id, disk) in disks {
        for (segment, held) in disk {
            inv_08::gapless(*segment, *id, held.extent.base, &held.batches)?;
            if let Some((other, before)) = first.get(segment) {
                inv_08::same(*segment, (*other, &before.batches), (*id, &held.batches))?;
            }
            let is_longer =
                first.get(segment).is_none_or(|(_, other)| other.batches.len() < held.batches.len());
            if is_longer {
                first.insert(*segment, (*id, held));
            }
        }
    }
    Ok(())
}
