//! Topics, ranges, segments and positions as one value: a vnode has all its topics' rows in one, an export has
//! one topic's.
//!
//! ```text
//! tables   = topics ranges segments positions           each count:u32 and its rows
//! ```
//!
//! Rows stand in the order of their keys, strictly increasing, and a decoder takes nothing else, so equal
//! tables give equal bytes. Derived indexes are not part of it. What is checked besides is that the rows make
//! sense together, so that no later command meets a broken table.

use bytes::BytesMut;
use types::codec::{Reader, Writer};
use types::{RangeId, TopicId};

use super::overlay::is_canonical;
use super::position::Positions;
use super::range::{RangeState, Ranges};
use super::segment::{Segment, Segments};
use super::snapshot::{Ascending, Error};
use super::topic::{TopicState, Topics};
use super::{Range, rows};

/// The rows of some topics, and what is derived from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) topics: Topics,
    pub(super) ranges: Ranges,
    pub(super) segments: Segments,
    pub(super) positions: Positions,
}

impl Tables {
    /// The rows of one topic; none for an unknown one.
    pub(super) fn copy_topic(&self, id: TopicId) -> Self {
        let mut copy = Self::default();
        if let Some(topic) = self.topics.get(id) {
            assert!(copy.topics.insert(id, topic.clone()), "the copy was empty");
        }
        for (id, range) in self.ranges.of_topic(id) {
            copy.ranges.insert(id, range.clone());
        }
        for (id, segment) in self.segments.of_topic(id) {
            copy.segments.insert(id, segment.clone());
        }
        copy.positions.copy_topic(&self.positions, id);
        copy
    }

    /// Adds rows of topics whose ids and names are not here yet.
    pub(super) fn absorb(&mut self, other: Self) {
        for (id, topic) in other.topics.iter() {
            assert!(self.topics.insert(id, topic.clone()), "the caller looked up both the id and the name");
        }
        for (id, range) in other.ranges.iter() {
            self.ranges.insert(id, range.clone());
        }
        for (id, segment) in other.segments.iter() {
            self.segments.insert(id, segment.clone());
        }
        for (id, _) in other.topics.iter() {
            self.positions.copy_topic(&other.positions, id);
        }
    }

    /// Forgets a topic, its ranges and its positions; gives its segments, in the order of their ids.
    pub(super) fn remove_topic(&mut self, id: TopicId) -> Vec<(types::SegmentId, Segment)> {
        self.topics.remove(id);
        self.ranges.remove_topic(id);
        self.positions.remove_topic(id);
        self.segments.remove_topic(id)
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_count(self.topics.len());
        for (id, topic) in self.topics.iter() {
            rows::put_topic(out, id, topic);
        }
        out.put_count(self.ranges.len());
        for (id, range) in self.ranges.iter() {
            rows::put_range(out, id, range);
        }
        out.put_count(self.segments.len());
        for (id, segment) in self.segments.iter() {
            rows::put_segment(out, id, segment);
        }
        out.put_count(self.positions.iter().count());
        for (topic, group, standing) in self.positions.iter() {
            rows::put_position(out, topic, group, standing);
        }
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let mut tables = Self::default();
        tables.decode_topics(reader)?;
        tables.decode_ranges(reader)?;
        tables.decode_segments(reader)?;
        tables.decode_positions(reader)?;
        Ok(tables)
    }

    fn decode_topics(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(rows::TOPIC_BYTES_MIN)? {
            let (id, topic) = rows::topic(reader)?;
            order.check(id)?;
            if !self.topics.insert(id, topic) {
                return Err(Error::Inconsistent("two topics have one name"));
            }
        }
        Ok(())
    }

    fn decode_ranges(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(rows::RANGE_BYTES_MIN)? {
            let (id, range) = rows::range(reader)?;
            order.check(id)?;
            self.check_range(id, &range)?;
            self.ranges.insert(id, range);
        }
        // Ranges are never forgotten one by one, so every number given out is there.
        let whole = |(id, topic): (TopicId, &super::Topic)| {
            self.ranges.of_topic(id).count() as u64 == topic.next_range_seq.0
        };
        if !self.topics.iter().all(whole) {
            return Err(Error::Inconsistent("ranges of a topic are missing"));
        }
        let replaced = |(id, range): (RangeId, &Range)| self.is_replaced_rightly(id, range);
        if !self.ranges.iter().all(replaced) {
            return Err(Error::Inconsistent("a range was not replaced by what covers it"));
        }
        Ok(())
    }

    /// What can be said of a range before those that took its place were read.
    fn check_range(&self, id: RangeId, range: &Range) -> Result<(), Error> {
        let topic = self.topics.get(id.topic).ok_or(Error::Inconsistent("a range has no topic"))?;
        // Parents are older than their children, so each was read before.
        let parent = |at: usize| {
            let parent = self.ranges.get(RangeId { topic: id.topic, seq: range.parents[at] })?;
            (parent.state == RangeState::Replaced).then_some(parent.span)
        };
        let fits = match range.parents.len() {
            0 => id.seq.0 == 0 && range.span == topic.keyspace.whole(),
            1 => parent(0)
                .and_then(types::KeySpan::split)
                .is_some_and(|(low, high)| range.span == low || range.span == high),
            2 => parent(0)
                .zip(parent(1))
                .is_some_and(|(low, high)| low.start() < high.start() && low.merge(high) == Some(range.span)),
            _ => false,
        };
        let state = match range.state {
            RangeState::Active => topic.state == TopicState::Active,
            RangeState::Sealed => topic.state == TopicState::Sealed,
            RangeState::Replaced => true,
        };
        if fits && state { Ok(()) } else { Err(Error::Inconsistent("a range does not fit its topic")) }
    }

    /// Whether a range that was replaced has the two halves of it for children, or one that was merged from
    /// it. That a leaf has none was seen at the children.
    fn is_replaced_rightly(&self, id: RangeId, range: &Range) -> bool {
        let child = |seq| self.ranges.get(RangeId { topic: id.topic, seq });
        match self.ranges.children(id) {
            [] => range.is_leaf(),
            [merged] => child(*merged).is_some_and(|merged| merged.parents.len() == 2),
            [low, high] => child(*low)
                .zip(child(*high))
                .is_some_and(|(low, high)| low.parents.len() == 1 && low.span.start() < high.span.start()),
            _ => false,
        }
    }

    fn decode_segments(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        let mut last: Option<(RangeId, Option<types::Offset>)> = None;
        for _ in 0..reader.count(rows::SEGMENT_BYTES_MIN)? {
            let (id, segment) = rows::segment(reader)?;
            order.check(id)?;
            let range = self.ranges.get(id.range).ok_or(Error::Inconsistent("a segment has no range"))?;
            let follows = match last {
                Some((range, end)) if range == id.range => end == Some(segment.start),
                Some(_) | None => self.ends_rightly(last),
            };
            if !follows || id.seq >= range.next_segment_seq {
                return Err(Error::Inconsistent("a segment does not fit its range"));
            }
            last = Some((id.range, segment.goes_on()));
            if segment.is_active() && segment.start != range.sealed_end {
                return Err(Error::Inconsistent("an active segment does not start where its range ends"));
            }
            self.segments.insert(id, segment);
        }
        if self.ends_rightly(last) {
            Ok(())
        } else {
            Err(Error::Inconsistent("a range does not end where its last segment does"))
        }
    }

    /// Whether the last segment of a range ends where the range does; one that is active has no end.
    fn ends_rightly(&self, last: Option<(RangeId, Option<types::Offset>)>) -> bool {
        let Some((range, Some(end))) = last else { return true };
        self.ranges.get(range).is_some_and(|range| range.sealed_end == end)
    }

    fn decode_positions(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(rows::POSITION_BYTES_MIN)? {
            let (topic, group, standing) = rows::position(reader)?;
            order.check((topic, group.clone()))?;
            if !self.is_position(topic, &standing.tiles) || !is_canonical(&standing.tiles) {
                return Err(Error::Inconsistent("a position does not fit its topic"));
            }
            self.positions.set(topic, group, standing);
        }
        Ok(())
    }
}
