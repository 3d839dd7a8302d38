//! Ranges: slices of a topic's keyspace, their ancestors, and where their records end.

use std::collections::BTreeMap;

use types::{KeySpan, Keyspace, Offset, Position, RangeId, RangeSeq, SegmentSeq, TopicId};

/// A contiguous slice of a topic's keyspace with its own order of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The slice.
    pub span: KeySpan,
    /// Whether it takes records, and whether others took its place.
    pub state: RangeState,
    /// All ancestors, each after all of its own, without repeats. Never changes.
    pub parents: Vec<RangeSeq>,
    /// Number of the next segment; only grows.
    pub next_segment_seq: SegmentSeq,
    /// Exclusive end of the last sealed segment; survives its removal.
    pub sealed_end: Offset,
}

/// What may be done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    /// Takes records.
    Active,
    /// Takes none because its topic was sealed; nobody's ancestor.
    Sealed,
    /// Takes none because it was split or merged: an ancestor of the ranges that took its place.
    Replaced,
}

impl Range {
    pub(super) fn root(keyspace: Keyspace) -> Self {
        Self {
            span: keyspace.whole(),
            state: RangeState::Active,
            parents: Vec::new(),
            next_segment_seq: SegmentSeq(0),
            sealed_end: Offset::ZERO,
        }
    }

    /// Whether readers read it as a range of its own: it is nobody's ancestor.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        match self.state {
            RangeState::Active | RangeState::Sealed => true,
            RangeState::Replaced => false,
        }
    }
}

/// The table. Ids sort by topic first, so "ranges of a topic" needs no index of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    by_id: BTreeMap<RangeId, Range>,
}

fn all_of(topic: TopicId) -> std::ops::RangeInclusive<RangeId> {
    RangeId { topic, seq: RangeSeq(0) }..=RangeId { topic, seq: RangeSeq(u64::MAX) }
}

impl Ranges {
    pub(super) fn get(&self, id: RangeId) -> Option<&Range> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RangeId) -> Option<&mut Range> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: RangeId, range: Range) {
        self.by_id.insert(id, range);
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RangeId, &Range)> {
        self.by_id.iter().map(|(id, range)| (*id, range))
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// In the order of their numbers.
    pub(super) fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.by_id.range(all_of(topic)).map(|(id, range)| (*id, range))
    }

    pub(super) fn of_topic_mut(&mut self, topic: TopicId) -> impl Iterator<Item = &mut Range> {
        self.by_id.range_mut(all_of(topic)).map(|(_, range)| range)
    }

    /// The active range that owns a position.
    pub(super) fn active_at(&self, topic: TopicId, position: Position) -> Option<(RangeId, &Range)> {
        self.of_topic(topic).find(|(_, r)| r.state == RangeState::Active && r.span.contains(position))
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        let ids: Vec<RangeId> = self.of_topic(topic).map(|(id, _)| id).collect();
        for id in ids {
            self.by_id.remove(&id);
        }
    }
}
