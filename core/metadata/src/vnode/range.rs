//! Ranges: slices of a topic's keyspace, which of them can be read and written, and who came from whom.
//!
//! Owns the table and its derived indexes. How ranges are replaced is `split_merge`'s.
//!
//! Invariants:
//! - the leaves of a topic tile its keyspace;
//! - a range is a leaf exactly while it has no children, and then active exactly while its topic is;
//! - the indexes equal what a scan of the table gives; they are never part of a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use types::{KeySpan, Keyspace, Offset, Position, RangeId, RangeSeq, SegmentSeq, TopicId};

/// A contiguous slice of a topic's keyspace with its own order of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The slice.
    pub span: KeySpan,
    /// Whether it takes records, and whether others took its place.
    pub state: RangeState,
    /// The ranges it took the place of, in the order of their spans: none for a root, one after a split, two
    /// after a merge. Never changes.
    pub parents: Vec<RangeSeq>,
    /// Number of the next segment; only grows.
    pub next_segment_seq: SegmentSeq,
    /// Exclusive end of the last sealed segment; survives its removal.
    pub sealed_end: Offset,
    /// How many splits that led here were asked for by nobody: so many merges may undo them the same way.
    pub load_splits: u8,
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
        Self::new(keyspace.whole(), Vec::new())
    }

    pub(super) fn new(span: KeySpan, parents: Vec<RangeSeq>) -> Self {
        Self {
            span,
            state: RangeState::Active,
            parents,
            next_segment_seq: SegmentSeq(0),
            sealed_end: Offset::ZERO,
            load_splits: 0,
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

/// The table, and what is derived from it. Ids sort by topic first, so "ranges of a topic" needs no index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    by_id: BTreeMap<RangeId, Range>,
    /// The leaves of each topic by the start of their span.
    leaves: BTreeMap<TopicId, BTreeMap<u64, RangeSeq>>,
    /// Who took a range's place, in the order of their spans.
    children: BTreeMap<RangeId, Vec<RangeSeq>>,
}

fn all_of(topic: TopicId) -> std::ops::RangeInclusive<RangeId> {
    RangeId { topic, seq: RangeSeq(0) }..=RangeId { topic, seq: RangeSeq(u64::MAX) }
}

impl Ranges {
    pub(super) fn get(&self, id: RangeId) -> Option<&Range> {
        self.by_id.get(&id)
    }

    /// For everything but the span, the parents, and whether it is a leaf.
    pub(super) fn get_mut(&mut self, id: RangeId) -> Option<&mut Range> {
        self.by_id.get_mut(&id)
    }

    /// Adds a range that was not there, after its parents and, where it has one, after its lower sibling.
    pub(super) fn insert(&mut self, id: RangeId, range: Range) {
        if range.is_leaf() {
            self.leaves.entry(id.topic).or_default().insert(range.span.start(), id.seq);
        }
        for seq in &range.parents {
            self.children.entry(RangeId { topic: id.topic, seq: *seq }).or_default().push(id.seq);
        }
        self.by_id.insert(id, range);
    }

    /// Makes room for the ranges that take its place. The caller adds them in the same transition.
    pub(super) fn replace(&mut self, id: RangeId) {
        let range = self.by_id.get_mut(&id).expect("the caller looked it up");
        range.state = RangeState::Replaced;
        let leaves = self.leaves.get_mut(&id.topic).expect("a topic has leaves");
        leaves.remove(&range.span.start());
    }

    /// Ends every active range of a topic.
    pub(super) fn seal_topic(&mut self, topic: TopicId) {
        for (_, range) in self.by_id.range_mut(all_of(topic)) {
            if range.state == RangeState::Active {
                range.state = RangeState::Sealed;
            }
        }
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        let ids: Vec<RangeId> = self.of_topic(topic).map(|(id, _)| id).collect();
        for id in ids {
            self.by_id.remove(&id);
            self.children.remove(&id);
        }
        self.leaves.remove(&topic);
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RangeId, &Range)> {
        self.by_id.iter().map(|(id, range)| (*id, range))
    }

    /// Those behind `after`, in the order of ids.
    pub(super) fn after(&self, after: Option<RangeId>) -> impl Iterator<Item = (RangeId, &Range)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(id, range)| (*id, range))
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// In the order of their numbers.
    pub(super) fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.by_id.range(all_of(topic)).map(|(id, range)| (*id, range))
    }

    /// In the order of their spans.
    pub(super) fn leaves(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        let seqs = self.leaves.get(&topic).into_iter().flat_map(BTreeMap::values);
        seqs.map(move |seq| self.entry(RangeId { topic, seq: *seq }))
    }

    pub(super) fn leaf_count(&self, topic: TopicId) -> usize {
        self.leaves.get(&topic).map_or(0, BTreeMap::len)
    }

    pub(super) fn leaf_count_of_all(&self) -> usize {
        self.leaves.values().map(BTreeMap::len).sum()
    }

    /// The leaf that owns a position.
    pub(super) fn leaf_at(&self, topic: TopicId, position: Position) -> Option<(RangeId, &Range)> {
        let (_, seq) = self.leaves.get(&topic)?.range(..=u64::from(position.0)).next_back()?;
        Some(self.entry(RangeId { topic, seq: *seq })).filter(|(_, range)| range.span.contains(position))
    }

    pub(super) fn children(&self, id: RangeId) -> &[RangeSeq] {
        self.children.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The direct parents of a range; none for an unknown one.
    pub(super) fn parents(&self, id: RangeId) -> impl Iterator<Item = (RangeId, &Range)> {
        let seqs = self.by_id.get(&id).into_iter().flat_map(|range| &range.parents);
        seqs.map(move |seq| self.entry(RangeId { topic: id.topic, seq: *seq }))
    }

    /// Everything a range came from, nearest first in no promised order, each once. A range whose `go_on` is
    /// false is given, and its own parents are not looked at.
    pub(super) fn ancestors(
        &self,
        id: RangeId,
        go_on: impl Fn(&Range) -> bool,
    ) -> impl Iterator<Item = (RangeId, &Range)> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<(RangeId, &Range)> = self.parents(id).collect();
        std::iter::from_fn(move || {
            loop {
                let (id, range) = open.pop()?;
                if seen.insert(id) {
                    if go_on(range) {
                        open.extend(self.parents(id));
                    }
                    return Some((id, range));
                }
            }
        })
    }

    fn entry(&self, id: RangeId) -> (RangeId, &Range) {
        (id, self.by_id.get(&id).expect("the indexes name ranges of the table"))
    }
}
