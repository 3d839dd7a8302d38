//! What people look at: every topic in a line, and one topic in full.
//!
//! Both are read from the tables whenever they are asked for, in time proportional to what they describe.
//! Which of it is shown to whom is the caller's business.

use std::collections::BTreeMap;

use types::{GroupName, KeySpan, RangeId, RangeSeq, SegmentSeq, TopicId, TopicName};

use super::range::Ranges;
use super::{RangeState, Segment, SegmentState, TopicState, Vnode};
use crate::cluster::PolicyName;

/// One topic in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOverview {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Whether it takes records.
    pub state: TopicState,
    /// Number of positions of its keyspace.
    pub keyspace_size: u64,
    /// The policy it points at.
    pub policy: Option<PolicyName>,
    /// All its ranges, those that were replaced included.
    pub range_count: usize,
    /// Those that take records.
    pub active_range_count: usize,
    /// All segments of all its ranges.
    pub segment_count: usize,
    /// Those that take records.
    pub active_segment_count: usize,
    /// Bytes of its sealed segments; an active one counts nothing yet.
    pub total_bytes: u64,
    /// Groups that have a position on it, in byte order.
    pub groups: Vec<GroupName>,
}

/// One topic in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDetail {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// In the order of their numbers.
    pub ranges: Vec<RangeDetail>,
}

/// One range of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDetail {
    /// Its number.
    pub seq: RangeSeq,
    /// Its slice of the keyspace.
    pub span: KeySpan,
    /// Whether it takes records, and whether others took its place.
    pub state: RangeState,
    /// How many ranges it came from.
    pub ancestor_count: usize,
    /// In the order of their offsets.
    pub segments: Vec<SegmentDetail>,
}

/// One segment of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDetail {
    /// Its number.
    pub seq: SegmentSeq,
    /// What is recorded of it.
    pub segment: Segment,
}

impl Vnode {
    /// Every topic, in the byte order of names.
    #[must_use]
    pub fn overview(&self) -> Vec<TopicOverview> {
        let overview = |(id, topic): (TopicId, &super::Topic)| {
            let segments = || self.tables.segments.of_topic(id).map(|(_, segment)| segment);
            let bytes = |segment: &Segment| match segment.state {
                SegmentState::Active => 0,
                SegmentState::Sealed(sealed) => sealed.byte_size,
            };
            TopicOverview {
                id,
                name: topic.name.clone(),
                state: topic.state,
                keyspace_size: topic.keyspace.size(),
                policy: topic.policy.clone(),
                range_count: self.ranges_of(id).count(),
                active_range_count: match topic.state {
                    TopicState::Active => self.tables.ranges.leaf_count(id),
                    TopicState::Sealed => 0,
                },
                segment_count: segments().count(),
                active_segment_count: segments().filter(|segment| segment.is_active()).count(),
                // Sizes are as proposed: a senseless one must not stop anybody.
                total_bytes: segments().map(bytes).fold(0, u64::saturating_add),
                groups: self.groups_of(id).cloned().collect(),
            }
        };
        self.topics().map(overview).collect()
    }

    /// One topic; `None` for an unknown one.
    #[must_use]
    pub fn topic_detail(&self, id: TopicId) -> Option<TopicDetail> {
        let topic = self.topic(id)?;
        let counts = ancestor_counts(&self.tables.ranges, id);
        let segments = |range| {
            let segment = |(id, segment): (types::SegmentId, &Segment)| SegmentDetail {
                seq: id.seq,
                segment: segment.clone(),
            };
            self.segments_of(range).map(segment).collect()
        };
        let ranges = self.ranges_of(id).map(|(id, range)| RangeDetail {
            seq: id.seq,
            span: range.span,
            state: range.state,
            ancestor_count: counts[&id.seq],
            segments: segments(id),
        });
        Some(TopicDetail { id, name: topic.name.clone(), ranges: ranges.collect() })
    }
}

/// The number of distinct ancestors of every range of a topic, without walking each one's whole past.
fn ancestor_counts(ranges: &Ranges, topic: TopicId) -> BTreeMap<RangeSeq, usize> {
    let mut counts = BTreeMap::new();
    for (id, range) in ranges.of_topic(topic) {
        let count = match range.parents[..] {
            [] => 0,
            [parent] => counts[&parent] + 1,
            [low, high, ..] => counts[&low] + only_of_second(ranges, topic, low, high) + 2,
        };
        counts.insert(id.seq, count);
    }
    counts
}

/// How many ranges are ancestors of `b` and not of `a`.
///
/// Walks both pasts at once, latest range first, and stops where they have become one: behind the splits that
/// the merge of `a` and `b` undoes. So all merges of a topic together look at each range a few times only.
fn only_of_second(ranges: &Ranges, topic: TopicId, a: RangeSeq, b: RangeSeq) -> usize {
    let mut walk = Walk::default();
    let parents = |seq| ranges.parents(RangeId { topic, seq }).map(|(id, _)| id.seq);
    walk.add(parents(a), Past { of_a: true, of_b: false });
    walk.add(parents(b), Past { of_a: false, of_b: true });
    let mut count = 0;
    while walk.one_sided > 0 {
        let (seq, past) = walk.pop();
        count += usize::from(past.is_one_sided() && past.of_b);
        walk.add(parents(seq), past);
    }
    count
}

/// Whose ancestor a range is.
#[derive(Clone, Copy, Default)]
struct Past {
    of_a: bool,
    of_b: bool,
}

impl Past {
    fn is_one_sided(self) -> bool {
        self.of_a != self.of_b
    }
}

/// Ancestors still to look at. Children have higher numbers than their parents, so whose ancestor the highest
/// one is, is known completely.
#[derive(Default)]
struct Walk {
    open: BTreeMap<RangeSeq, Past>,
    one_sided: usize,
}

impl Walk {
    fn add(&mut self, seqs: impl Iterator<Item = RangeSeq>, past: Past) {
        for seq in seqs {
            let known = self.open.entry(seq).or_default();
            self.one_sided -= usize::from(known.is_one_sided());
            known.of_a |= past.of_a;
            known.of_b |= past.of_b;
            self.one_sided += usize::from(known.is_one_sided());
        }
    }

    fn pop(&mut self) -> (RangeSeq, Past) {
        let (seq, past) = self.open.pop_last().expect("some are one-sided");
        self.one_sided -= usize::from(past.is_one_sided());
        (seq, past)
    }
}
