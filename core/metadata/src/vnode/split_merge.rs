//! Ranges that take the place of others: splits and merges.
//!
//! Both are purely logical: no segment is moved, and no position either, because a tile names the range it
//! stands in and that range stays readable. The parents stop taking records in the same transition in which
//! their children start to, so no state has both; that a broker's late append is refused as well is the
//! fence of the data plane, and `register_segment` keeps a child closed until that is done.

use types::{RangeId, RangeSeq, TopicId, limits};

use super::range::{Range, RangeState};
use super::tables::Tables;
use super::{Refusal, Reply};

/// Who wants ranges to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A person.
    Asked,
    /// Nobody: a range took much, or little.
    ByLoad,
}

impl Wish {
    /// How many merges may undo what led to a child of a split of a range that so many led to.
    fn split_from(self, before: u8) -> u8 {
        match self {
            Self::Asked => 0,
            Self::ByLoad => before.saturating_add(1),
        }
    }

    /// The same of a merge of two; `None` when a person wanted one of them as it is.
    fn merged_from(self, [a, b]: [u8; 2]) -> Option<u8> {
        match self {
            Self::Asked => Some(0),
            Self::ByLoad => a.min(b).checked_sub(1),
        }
    }
}

impl Tables {
    pub(super) fn split_range(&mut self, id: RangeId, wish: Wish) -> Result<Reply, Refusal> {
        let range = self.open_range(id)?;
        let load_splits = wish.split_from(range.load_splits);
        let (low, high) = range.span.split().ok_or(Refusal::CannotSplit)?;
        self.check_room(id.topic, 2, 1)?;
        self.ranges.replace(id);
        let half = |span| Range { load_splits, ..Range::new(span, vec![id.seq]) };
        let left = self.add_range(id.topic, half(low));
        let right = self.add_range(id.topic, half(high));
        Ok(Reply::RangeSplit { left, right })
    }

    pub(super) fn merge_ranges(&mut self, a: RangeId, b: RangeId, wish: Wish) -> Result<Reply, Refusal> {
        let (range_a, range_b) = (self.open_range(a)?, self.open_range(b)?);
        let (span_a, span_b) = (range_a.span, range_b.span);
        let load_splits = wish.merged_from([range_a.load_splits, range_b.load_splits]);
        if a.topic != b.topic {
            return Err(Refusal::DifferentTopic);
        }
        let span = span_a.merge(span_b).ok_or(Refusal::NotBuddies)?;
        let load_splits = load_splits.ok_or(Refusal::NotBuddies)?;
        self.check_room(a.topic, 1, 0)?;
        let (low, high) = if span_a.start() < span_b.start() { (a, b) } else { (b, a) };
        self.ranges.replace(low);
        self.ranges.replace(high);
        let child = Range { load_splits, ..Range::new(span, vec![low.seq, high.seq]) };
        let child = self.add_range(a.topic, child);
        Ok(Reply::RangesMerged { child })
    }

    /// A range that takes records.
    fn open_range(&self, id: RangeId) -> Result<&Range, Refusal> {
        let range = self.ranges.get(id).ok_or(Refusal::NoSuchRange)?;
        match range.state {
            RangeState::Active => Ok(range),
            RangeState::Sealed | RangeState::Replaced => Err(Refusal::Sealed),
        }
    }

    /// Whether the topic may have `more` ranges in its life and `active` more at one time.
    fn check_room(&self, id: TopicId, more: u64, active: usize) -> Result<(), Refusal> {
        let topic = self.topics.get(id).expect("a range's topic exists");
        let total = topic.next_range_seq.0.saturating_add(more);
        let leaves = self.ranges.leaf_count(id) + active;
        let fits =
            total <= limits::RANGES_PER_TOPIC_MAX as u64 && leaves <= limits::ACTIVE_RANGES_PER_TOPIC_MAX;
        if fits { Ok(()) } else { Err(Refusal::TooManyRanges) }
    }

    fn add_range(&mut self, topic: TopicId, range: Range) -> RangeId {
        let next = &mut self.topics.get_mut(topic).expect("the caller looked it up").next_range_seq;
        let id = RangeId { topic, seq: *next };
        *next = RangeSeq(next.0 + 1);
        self.ranges.insert(id, range);
        id
    }
}
