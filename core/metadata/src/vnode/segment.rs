//! Segments: who holds which run of a range's records, and where each run ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use types::{NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use super::range::{Range, RangeState};
use super::tables::Tables;
use super::{Refusal, Removed, Reply};

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
    /// Offsets behind its end that may have been acknowledged and that no copy has: its only one was damaged. The range
    /// goes on behind them.
    pub lost: u64,
    /// When, by the proposer's clock.
    pub at: WallTime,
}

/// Arguments of [`Command::RegisterSegment`](super::Command::RegisterSegment).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterSegment {
    /// The range's `next_segment_seq`.
    pub segment: SegmentId,
    /// The range's `sealed_end`.
    pub start: Offset,
    /// Who holds it; the first is the primary.
    pub replicas: Vec<NodeId>,
    /// The proposer's clock, for the age roll.
    pub opened_at: WallTime,
}

/// Arguments of [`Command::SealSegment`](super::Command::SealSegment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealSegment {
    /// Which segment.
    pub segment: SegmentId,
    /// Records in it.
    pub length: u64,
    /// Bytes of its frames.
    pub byte_size: u64,
    /// Offsets behind them that may have been acknowledged and are gone.
    pub lost: u64,
    /// The proposer's clock, for retention.
    pub sealed_at: WallTime,
}

/// Arguments of [`Command::SetSegmentReplicas`](super::Command::SetSegmentReplicas).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSegmentReplicas {
    /// Which segment; sealed.
    pub segment: SegmentId,
    /// The replicas the new set was worked out from, in their order.
    pub expected: Vec<NodeId>,
    /// Who holds it from now on.
    pub replicas: Vec<NodeId>,
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

    /// Where its range goes on: behind its end and what is lost behind that; `None` while it is active.
    #[must_use]
    pub fn goes_on(&self) -> Option<Offset> {
        Some(self.end()?.plus(self.lost()))
    }

    /// Offsets behind its end that may have been acknowledged and that no copy has.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match self.state {
            SegmentState::Active => 0,
            SegmentState::Sealed(sealed) => sealed.lost,
        }
    }

    /// When it was sealed, by the proposer's clock; `None` while it is active.
    #[must_use]
    pub fn sealed_at(&self) -> Option<WallTime> {
        match self.state {
            SegmentState::Active => None,
            SegmentState::Sealed(sealed) => Some(sealed.at),
        }
    }

    /// Bytes of its frames once it is sealed; 0 while it is active.
    #[must_use]
    pub fn sealed_bytes(&self) -> u64 {
        match self.state {
            SegmentState::Active => 0,
            SegmentState::Sealed(sealed) => sealed.byte_size,
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

    /// In the order of ids.
    pub(super) fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let first = SegmentId { range: RangeId { topic, seq: RangeSeq(0) }, seq: SegmentSeq(0) };
        let last = SegmentId { range: RangeId { topic, seq: RangeSeq(u64::MAX) }, seq: SEQ_MAX };
        self.by_id.range(first..=last).map(|(id, segment)| (*id, segment))
    }

    /// The last one, when it is active: only the last can be.
    pub(super) fn active(&self, range: RangeId) -> Option<(SegmentId, &Segment)> {
        self.of_range(range).next_back().filter(|(_, segment)| segment.is_active())
    }

    /// The segment that holds `offset`, or the first later one that holds anything.
    pub(super) fn at_or_after(&self, range: RangeId, offset: Offset) -> Option<(SegmentId, &Segment)> {
        let (first, here) = ((range, Offset::ZERO, SegmentSeq(0)), (range, offset, SEQ_MAX));
        let last = (range, Offset(u64::MAX), SEQ_MAX);
        let holds = |(_, segment): &(SegmentId, &Segment)| {
            segment.end().is_none_or(|end| end > offset.max(segment.start))
        };
        let entry = |&(range, _, seq): &(RangeId, Offset, SegmentSeq)| {
            let id = SegmentId { range, seq };
            (id, &self.by_id[&id])
        };
        // Of those that start at or before it only the last can hold it, and it alone of its start is not empty.
        let before = self.by_start.range(first..=here).next_back().map(entry).filter(holds);
        let after = || self.by_start.range((Excluded(here), Included(last))).map(entry).find(holds);
        before.or_else(after)
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
        let ids: Vec<SegmentId> = self.of_topic(topic).map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id).map(|segment| (id, segment))).collect()
    }
}

pub(super) fn is_replica_set(replicas: &[NodeId]) -> bool {
    let distinct: BTreeSet<&NodeId> = replicas.iter().collect();
    !replicas.is_empty() && replicas.len() <= REPLICAS_MAX && distinct.len() == replicas.len()
}

impl Tables {
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
        if self.segments.active(id.range).is_some() || !self.open_ancestors_of(id.range).is_empty() {
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

    /// The ancestors whose active segments must be sealed before the range may have its first segment. Their
    /// late appends must be impossible before a descendant takes a record, or a key's order would depend on
    /// which of the two a reader sees first.
    ///
    /// Whoever ever had a segment passed this test when it got its first, and ancestors get no more: so the
    /// search ends at ranges that had one, usually the direct parents.
    pub(super) fn open_ancestors_of(&self, id: RangeId) -> Vec<RangeId> {
        let never_written = |range: &Range| range.next_segment_seq == SegmentSeq(0);
        if !self.ranges.get(id).is_some_and(never_written) {
            return Vec::new();
        }
        let ancestors = self.ranges.ancestors(id, never_written);
        ancestors.map(|(id, _)| id).filter(|id| self.segments.active(*id).is_some()).collect()
    }

    pub(super) fn seal_segment(&mut self, seal: SealSegment) -> Result<Reply, Refusal> {
        let segment = self.segments.by_id.get_mut(&seal.segment).ok_or(Refusal::NoSuchSegment)?;
        match segment.state {
            // A repeat by a proposer that did not hear the first answer; the recorded time holds.
            SegmentState::Sealed(Sealed { length, byte_size, lost, at: _ })
                if (length, byte_size, lost) == (seal.length, seal.byte_size, seal.lost) =>
            {
                return Ok(Reply::SegmentSealed);
            }
            SegmentState::Sealed(_) => return Err(Refusal::AlreadySealed),
            SegmentState::Active => {}
        }
        let SealSegment { length, byte_size, lost, sealed_at: at, .. } = seal;
        let end = segment.start.checked_add(length).and_then(|end| end.checked_add(lost));
        let end = end.ok_or(Refusal::InvalidLength)?;
        segment.state = SegmentState::Sealed(Sealed { length, byte_size, lost, at });
        let range = self.ranges.get_mut(seal.segment.range).expect("a segment's range exists");
        range.sealed_end = end;
        Ok(Reply::SegmentSealed)
    }

    pub(super) fn delete_segment(&mut self, id: SegmentId) -> Result<Reply, Refusal> {
        let segment = self.segments.get(id).ok_or(Refusal::NoSuchSegment)?;
        let end = segment.goes_on().ok_or(Refusal::SegmentActive)?;
        let is_oldest = self.segments.of_range(id.range).next().is_some_and(|(first, _)| first == id);
        if !is_oldest && end != segment.start {
            return Err(Refusal::SegmentNotOldest);
        }
        let segment = self.segments.remove(id).expect("looked up above");
        Ok(Reply::SegmentDeleted(Removed { segment: id, replicas: segment.replicas }))
    }

    pub(super) fn set_segment_replicas(&mut self, set: SetSegmentReplicas) -> Result<Reply, Refusal> {
        let segment = self.segments.by_id.get_mut(&set.segment).ok_or(Refusal::NoSuchSegment)?;
        if !is_replica_set(&set.replicas) {
            return Err(Refusal::InvalidReplicaSet);
        }
        // The copies of an active segment are who may acknowledge its records: losing one seals it instead.
        if segment.is_active() {
            return Err(Refusal::SegmentActive);
        }
        if segment.replicas != set.expected {
            return Err(Refusal::StaleReplicaSet);
        }
        segment.replicas = set.replicas;
        Ok(Reply::ReplicasSet)
    }
}
