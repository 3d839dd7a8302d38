//! What the tables say of segments, looked at with every entry that is applied anywhere for the first time.
//!
//! - INV-7: each segment of a range starts where the one before it ended; INV-13: only the last may be active;
//! - INV-12, INV-18: a segment starts where it always did, and what its seal recorded never changes;
//! - INV-19: when a seal is first seen, so many disks hold everything below its end that any later loss within the
//!   promise leaves one; INV-29: a copy that joins a sealed segment is complete on its disk by then; INV-31: the copies
//!   that stay when one leaves are as good as those there were.

use std::collections::BTreeMap;

use metadata::vnode::{Sealed, Segment, SegmentState, Vnode};
use types::{NodeId, Offset, RaftIndex, SegmentId, VnodeId};

use crate::cluster::world::World;
use crate::invariants::{Violation, ensure, inv_07, inv_12, inv_13, inv_18};

/// What was seen of a segment.
#[derive(Clone, Debug)]
struct Seen {
    start: Offset,
    replicas: Vec<NodeId>,
    sealed: Option<Sealed>,
}

/// What was seen of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    segments: BTreeMap<SegmentId, Seen>,
    newest: BTreeMap<VnodeId, RaftIndex>,
}

impl Known {
    /// Where a segment is sealed.
    pub(super) fn end_of(&self, segment: SegmentId) -> Option<Offset> {
        let seen = self.segments.get(&segment)?;
        seen.sealed.map(|sealed| seen.start.plus(sealed.length))
    }

    /// Whom a segment was listed with last; nobody when it never was.
    pub(super) fn replicas_of(&self, segment: SegmentId) -> &[NodeId] {
        self.segments.get(&segment).map_or(&[], |seen| &seen.replicas)
    }
}

/// A change to be judged by the disks.
enum Change {
    Sealed(SegmentId, Segment),
    Joined(SegmentId, Segment, Vec<NodeId>),
    /// With whom it was listed before.
    Left(SegmentId, Segment, Vec<NodeId>),
}

impl World {
    /// Looks at the tables of a vnode on a node that is further than any was before.
    pub(in crate::cluster) fn look_at_segments(
        &mut self,
        id: NodeId,
        group: VnodeId,
    ) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        let Some(tables) = process.node.vnode_tables(group) else { return Ok(()) };
        let newest = self.records.known.newest.entry(group).or_default();
        if tables.applied() <= *newest {
            return Ok(());
        }
        *newest = tables.applied();
        follow_each_other(tables)?;
        let mut changes = Vec::new();
        for (segment, listed) in tables.segments() {
            let sealed = match listed.state {
                SegmentState::Active => None,
                SegmentState::Sealed(sealed) => Some(sealed),
            };
            let seen = Seen { start: listed.start, replicas: listed.replicas.clone(), sealed };
            let Some(before) = self.records.known.segments.insert(segment, seen) else {
                // Sealed before anybody looked: by a command that was applied with others at once.
                changes.extend(sealed.map(|_| Change::Sealed(segment, listed.clone())));
                continue;
            };
            inv_12::same_start(segment, before.start, listed.start)?;
            if before.sealed.is_some() {
                inv_18::unchanged(segment, before.sealed == sealed)?;
            } else if sealed.is_some() {
                changes.push(Change::Sealed(segment, listed.clone()));
            }
            let joined = listed.replicas.iter().filter(|node| !before.replicas.contains(node));
            let joined: Vec<NodeId> = joined.copied().collect();
            if !joined.is_empty() {
                changes.push(Change::Joined(segment, listed.clone(), joined));
            }
            if before.replicas.iter().any(|node| !listed.replicas.contains(node)) {
                changes.push(Change::Left(segment, listed.clone(), before.replicas));
            }
        }
        for change in changes {
            match change {
                Change::Sealed(segment, listed) => self.audit_seal(segment, &listed)?,
                Change::Joined(segment, listed, nodes) => self.audit_joined(segment, &listed, &nodes)?,
                Change::Left(segment, listed, before) => self.audit_left(segment, &listed, &before)?,
            }
        }
        Ok(())
    }
}

fn follow_each_other(tables: &Vnode) -> Result<(), Violation> {
    for (topic, _) in tables.topics() {
        for (range, listed) in tables.ranges_of(topic) {
            let mut end = None;
            let mut active = None;
            for (segment, listed) in tables.segments_of(range) {
                if let Some(end) = end {
                    inv_07::follows(segment, listed.start, end)?;
                }
                inv_13::one_active(segment, active)?;
                end = listed.end();
                active = active.or_else(|| listed.is_active().then_some(segment));
                let mut distinct = listed.replicas.clone();
                distinct.sort_unstable();
                distinct.dedup();
                let is_set = distinct.len() == listed.replicas.len() && !distinct.is_empty();
                ensure(is_set, "INV-29", || format!("{segment} is held by {:?}", listed.replicas))?;
            }
            let ends = active.is_none() && end.is_some_and(|end| end != listed.sealed_end);
            ensure(!ends, "INV-7", || {
                format!("{range:?} ends at {}, its last segment at {end:?}", listed.sealed_end)
            })?;
        }
    }
    Ok(())
}
