//! Segments: who holds which run of a range's records, and where each run ended.

use std::collections::{BTreeMap, BTreeSet};

use types::{NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use super::range::RangeState;
use super::{Refusal, RegisterSegment, Removed, Reply, SealSegment, Vnode};

/// Most replicas of one segment.
pub const REPLICAS_MAX: usize = 255;

/// A run of records of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first record.
    pub start: Offset,
    /// Who holds it; the first is the primary while it is active. At least one, all different.
    pub replicas: Vec<NodeId>,
    /// When it was registered, by the proposer's clock.
    pub opened_at: WallTime,
    /// Whether it ended.
    pub state: SegmentState,
}

/// Whether a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// It takes records; its end is known to its replicas only.
    Active,
    /// It ended for good.
    Sealed(Sealed),
}

/// What sealing recorded; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Records in it.
    pub length: u64,
    /// Bytes of its frames.
    pub byte_size: u64,
    /// When, by the proposer's clock.
    pub at: WallTime,
}

impl Segment {
    /// Exclusive end; `None` while it is active.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        match self.state {
            SegmentState::Active => None,
            SegmentState::Sealed(sealed) => Some(self.start.plus(sealed.length)),
        }
    }

    /// Whether it takes records.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.end().is_none()
    }
}

/// The table, and the derived index of segments by the offset they start at.
///
/// Ids sort by topic and range, so "segments of a range" needs no index; "the segment that holds an offset"
/// does, because numbers may be missing where empty segments were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segments {
    by_id: BTreeMap<SegmentId, Segment>,
    by_start: BTreeSet<(RangeId, Offset, SegmentSeq)>,
}

const SEQ_MAX: SegmentSeq = SegmentSeq(u64::MAX);

fn all_of(range: RangeId) -> std::ops::RangeInclusive<SegmentId> {
    SegmentId { range, seq: SegmentSeq(0) }..=SegmentId { range, seq: SEQ_MAX }
}

impl Segments {
    pub(super) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.by_id.get(&id)
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.by_id.iter().map(|(id, segment)| (*id, segment))
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// In the order of their numbers, which is the order of their offsets.
    pub(super) fn of_range(&self, range: RangeId) -> impl DoubleEndedIterator<Item = (SegmentId, &Segment)> {
        self.by_id.range(all_of(range)).map(|(id, segment)| (*id, segment))
    }

    /// The last one, when it is active: only the last can be.
    pub(super) fn active(&self, range: RangeId) -> Option<(SegmentId, &Segment)> {
        self.of_range(range).next_back().filter(|(_, segment)| segment.is_active())
    }

    /// The last segment that starts at or before `offset`.
    pub(super) fn at(&self, range: RangeId, offset: Offset) -> Option<(SegmentId, &Segment)> {
        let upto = (range, offset, SEQ_MAX);
        let first = (range, Offset::ZERO, SegmentSeq(0));
        let (_, _, seq) = *self.by_start.range(first..=upto).next_back()?;
        let id = SegmentId { range, seq };
        Some((id, &self.by_id[&id]))
    }

    pub(super) fn insert(&mut self, id: SegmentId, segment: Segment) {
        self.by_start.insert((id.range, segment.start, id.seq));
        self.by_id.insert(id, segment);
    }

    fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.by_id.remove(&id)?;
        self.by_start.remove(&(id.range, segment.start, id.seq));
        Some(segment)
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) -> Vec<(SegmentId, Segment)> {
        let first = SegmentId { range: RangeId { topic, seq: RangeSeq(0) }, seq: SegmentSeq(0) };
        let last = SegmentId { range: RangeId { topic, seq: RangeSeq(u64::MAX) }, seq: SEQ_MAX };
        let ids: Vec<SegmentId> = self.by_id.range(first..=last).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id).map(|segment| (id, segment))).collect()
    }
}

pub(super) fn is_replica_set(replicas: &[NodeId]) -> bool {
    let distinct: BTreeSet<&NodeId> = replicas.iter().collect();
    !replicas.is_empty() && replicas.len() <= REPLICAS_MAX && distinct.len() == replicas.len()
}

impl Vnode {
    pub(super) fn register_segment(&mut self, register: RegisterSegment) -> Result<Reply, Refusal> {
        let id = register.segment;
        if self.segments.get(id).is_some() {
            return Err(Refusal::SegmentExists);
        }
        let range = self.ranges.get(id.range).ok_or(Refusal::NoSuchRange)?;
        if range.state != RangeState::Active {
            return Err(Refusal::Sealed);
        }
        if id.seq != range.next_segment_seq || id.seq == SEQ_MAX {
            return Err(Refusal::InvalidSegmentId);
        }
        if !is_replica_set(&register.replicas) {
            return Err(Refusal::InvalidReplicaSet);
        }
        // An ancestor's late appends must be impossible before a descendant takes its first record, or a
        // key's order would depend on which of the two a reader sees first.
        let ancestors = range.parents.iter().map(|seq| RangeId { topic: id.range.topic, seq: *seq });
        if ancestors.chain([id.range]).any(|range| self.segments.active(range).is_some()) {
            return Err(Refusal::RangeHasActiveSegment);
        }
        if register.start != range.sealed_end {
            return Err(Refusal::OffsetMismatch);
        }
        let range = self.ranges.get_mut(id.range).expect("looked up above");
        range.next_segment_seq = SegmentSeq(id.seq.0 + 1);
        let RegisterSegment { start, replicas, opened_at, .. } = register;
        self.segments.insert(id, Segment { start, replicas, opened_at, state: SegmentState::Active });
        Ok(Reply::SegmentRegistered)
    }

    pub(super) fn seal_segment(&mut self, seal: SealSegment) -> Result<Reply, Refusal> {
        let segment = self.segments.by_id.get_mut(&seal.segment).ok_or(Refusal::NoSuchSegment)?;
        match segment.state {
            // A repeat by a proposer that did not hear the first answer; the recorded time holds.
            SegmentState::Sealed(s) if s.length == seal.length && s.byte_size == seal.byte_size => {
                return Ok(Reply::SegmentSealed);
            }
            SegmentState::Sealed(_) => return Err(Refusal::AlreadySealed),
            SegmentState::Active => {}
        }
        let end = segment.start.checked_add(seal.length).ok_or(Refusal::InvalidLength)?;
        let SealSegment { length, byte_size, sealed_at: at, .. } = seal;
        segment.state = SegmentState::Sealed(Sealed { length, byte_size, at });
        let range = self.ranges.get_mut(seal.segment.range).expect("a segment's range exists");
        range.sealed_end = end;
        Ok(Reply::SegmentSealed)
    }

    pub(super) fn delete_segment(&mut self, id: SegmentId) -> Result<Reply, Refusal> {
        let segment = self.segments.get(id).ok_or(Refusal::NoSuchSegment)?;
        let end = segment.end().ok_or(Refusal::SegmentActive)?;
        let is_oldest = self.segments.of_range(id.range).next().is_some_and(|(first, _)| first == id);
        if !is_oldest && end != segment.start {
            return Err(Refusal::SegmentNotOldest);
        }
        let segment = self.segments.remove(id).expect("looked up above");
        Ok(Reply::SegmentDeleted(Removed { segment: id, replicas: segment.replicas }))
    }
}
