//! What happens to the disks that records are on, and to single copies while their node is stopped.
//!
//! Never more than what the promise survives (INV-3): of a segment that takes records as many copies stay intact as a
//! seal asks for, of a sealed one a complete copy. What a copy lacks because of this file is excused until it was found
//! whole again.

use metadata::vnode::Segment;
use rand::Rng;
use storage::disk::ErrorKind;
use storage::segment::layout;
use types::quorum::seal_count;
use types::{NodeId, SegmentId};

use super::audit::Disks;
use crate::cluster::world::{Happening, World};
use crate::disk::{Chance, Class, Found, Injection, NODE_BYTES, Side};
use crate::invariants::Violation;

/// What is done to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Its directory is gone.
    Remove,
    /// A bit of one of its files is another.
    Flip,
    /// Its log ends earlier.
    Cut,
}

impl World {
    /// Something goes wrong with a disk or a copy.
    pub(super) fn harm_something(&mut self) -> Result<(), Violation> {
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.process.is_some()).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[self.records.rng.random_range(0..ids.len())];
        if self.records.rng.random_bool(0.5) {
            self.break_data_disk(id);
            return Ok(());
        }
        self.harm_copy(id)
    }

    /// The volume of records is full, slow, or fails, until somebody restarts the node.
    fn break_data_disk(&mut self, id: NodeId) {
        let life = self.nodes[&id].life;
        let rng = &mut self.records.rng;
        let kind = rng.random_range(0..6);
        let room = rng.random_range(0..6000);
        let skip = rng.random_range(0..20);
        let classes = [Class::Write, Class::Sync, Class::SyncDir, Class::Name, Class::Open, Class::Read];
        let class = classes[rng.random_range(0..classes.len())];
        let slow = std::time::Duration::from_millis([60, 400, 2000][rng.random_range(0..3)]);
        let delay = rng.random_range(500_000..10_000_000);
        self.say(|| format!("the volume of records of node {id} fails: {kind} {class:?} {slow:?}"));
        self.operator.faulty.insert(id, life);
        let disk = &mut self.node(id).disks[0];
        match kind {
            0 => {
                let bytes = |found: &Found| match found {
                    Found::Dir => 0,
                    Found::File(bytes) => *bytes,
                };
                let used: u64 = disk.list(Side::View).values().map(|found| bytes(found) + NODE_BYTES).sum();
                disk.faults_mut().capacity_bytes = Some(used + room);
            }
            1 => disk.faults_mut().write_error = Chance::one_in(40),
            2 => disk.faults_mut().read_error = Chance::one_in(20),
            3 | 4 => {
                disk.faults_mut().slow = Chance::one_in(3);
                disk.faults_mut().slow_max = slow;
            }
            _ => disk.inject(Injection { skip, ..Injection::next(class, ErrorKind::Io) }),
        }
        self.later(delay, Happening::Restart((id, life)));
    }

    /// A node stops, one of its copies is harmed, and it starts again.
    fn harm_copy(&mut self, id: NodeId) -> Result<(), Violation> {
        let disks = self.disks()?;
        let harms = [Harm::Remove, Harm::Flip, Harm::Cut];
        let mut may = Vec::new();
        for topic in &self.records.topics {
            let Some(tables) = self.tables_of(topic) else { continue };
            for (segment, listed) in tables.segments().filter(|(_, listed)| listed.replicas.contains(&id)) {
                let is_held = disks.get(&id).is_some_and(|disk| disk.contains_key(&segment));
                for harm in harms {
                    // Which end a segment that takes records has, only its copies know.
                    let may_not = listed.is_active() && harm != Harm::Remove;
                    if is_held && !may_not && self.may_spare(id, segment, listed, &disks) {
                        may.push((segment, harm));
                    }
                }
            }
        }
        if may.is_empty() {
            return Ok(());
        }
        let (segment, harm) = may[self.records.rng.random_range(0..may.len())];
        let with_power = self.records.rng.random_bool(0.5);
        self.end(id, with_power);
        self.calm_disks(id);
        self.say(|| format!("the copy of {segment} on node {id} is harmed: {harm:?}"));
        let cut = self.records.rng.random_range(0..100);
        let dir = layout::dir(segment).as_str().to_owned();
        let disk = &mut self.node(id).disks[0];
        let inside = format!("{dir}/");
        match harm {
            Harm::Remove => disk.uproot(&dir),
            Harm::Flip => {
                disk.flip_random_durable(|path| path.starts_with(&inside));
            }
            Harm::Cut => {
                let files = disk.list(Side::View).into_iter();
                let mut logs =
                    files.filter(|(path, _)| path.strip_prefix(&inside).is_some_and(layout::is_log));
                if let Some((path, Found::File(len))) = logs.next() {
                    disk.cut_file(&path, usize::try_from(len * cut / 100).unwrap_or(0));
                }
            }
        }
        self.records.harmed.insert((id, segment));
        self.summary.damaged += 1;
        let delay = self.records.rng.random_range(0..3_000_000);
        self.later(delay, Happening::Boot(id));
        Ok(())
    }

    /// Whether a segment survives it when a copy is lost with certainty.
    fn may_spare(&self, id: NodeId, segment: SegmentId, listed: &Segment, disks: &Disks) -> bool {
        let others = listed.replicas.iter().filter(|other| **other != id);
        let intact = others.filter(|other| {
            let held = disks.get(*other).and_then(|disk| disk.get(&segment));
            let is_enough = |end| held.is_some_and(|held| held.extent.end >= end);
            held.is_some_and(|held| held.is_intact())
                && match listed.end() {
                    Some(end) => is_enough(end),
                    None => !self.records.harmed.contains(&(**other, segment)),
                }
        });
        match listed.end() {
            Some(_) => intact.count() >= 1,
            None => intact.count() >= seal_count(listed.replicas.len()),
        }
    }

    /// Whether some segment is listed with a node, as whoever is furthest has it.
    pub(in crate::cluster) fn holds_records(&self, id: NodeId) -> bool {
        self.records.is_on()
            && self
                .furthest_tables()
                .into_iter()
                .any(|tables| tables.segments().any(|(_, listed)| listed.replicas.contains(&id)))
    }

    /// Whether all that a node holds survives its loss.
    pub(in crate::cluster) fn may_lose(&self, id: NodeId) -> Result<bool, Violation> {
        if !self.records.is_on() {
            return Ok(true);
        }
        let disks = self.disks()?;
        for node in self.nodes.values() {
            let Some(process) = &node.process else { continue };
            let topology = process.node.cluster_tables().topology();
            let vnodes = topology.map_or_else(Vec::new, |topology| topology.placements.keys().collect());
            for tables in vnodes.into_iter().filter_map(|vnode| process.node.vnode_tables(*vnode)) {
                let mut segments = tables.segments().filter(|(_, listed)| listed.replicas.contains(&id));
                if segments.any(|(segment, listed)| !self.may_spare(id, segment, listed, &disks)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
