//! What can be read from a vnode. Reads are functions of the state; they are never entries of the log.

use types::{GroupName, KeySpan, Offset, Position, RaftIndex, RangeId, SegmentId, TopicId, TopicName};

use super::{Range, RangeState, Segment, Tile, Topic, Vnode};
use crate::machine::{self, Version};

impl Vnode {
    /// Index of the last entry applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied
    }

    /// The effective version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The topic of that name.
    #[must_use]
    pub fn topic_by_name(&self, name: &TopicName) -> Option<(TopicId, &Topic)> {
        let id = self.topics.id_of(name)?;
        self.topics.get(id).map(|topic| (id, topic))
    }

    /// The topic with that id.
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(id)
    }

    /// Every topic, in the byte order of names.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.topics.by_name()
    }

    /// Number of topics; at most [`types::limits::TOPICS_MAX`].
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// One range.
    #[must_use]
    pub fn range(&self, id: RangeId) -> Option<&Range> {
        self.ranges.get(id)
    }

    /// Every range of a topic, in the order of their numbers; none for an unknown topic.
    pub fn ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.ranges.of_topic(topic)
    }

    /// The ranges that take records, in the order of their numbers.
    pub fn active_ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.ranges_of(topic).filter(|(_, range)| range.state == RangeState::Active)
    }

    /// The ranges readers read: nobody's ancestors. They tile the keyspace, also of a sealed topic.
    pub fn leaf_ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.ranges_of(topic).filter(|(_, range)| range.is_leaf())
    }

    /// The active range that owns a position of the topic's keyspace; none when the topic is sealed.
    #[must_use]
    pub fn active_range_at(&self, topic: TopicId, position: Position) -> Option<(RangeId, &Range)> {
        self.ranges.active_at(topic, position)
    }

    /// One segment.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id)
    }

    /// Every segment of every topic, in the order of ids: which copies may exist on disk.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.segments.iter()
    }

    /// The segments of a range, in the order of their offsets.
    pub fn segments_of(&self, range: RangeId) -> impl DoubleEndedIterator<Item = (SegmentId, &Segment)> {
        self.segments.of_range(range)
    }

    /// The range's active segment.
    #[must_use]
    pub fn active_segment(&self, range: RangeId) -> Option<(SegmentId, &Segment)> {
        self.segments.active(range)
    }

    /// Where a reader of `range` that stands at `offset` goes on: the segment that holds the offset, or the
    /// first later one when the records in between were removed; `None` at the end of what is listed.
    #[must_use]
    pub fn segment_at(&self, range: RangeId, offset: Offset) -> Option<(SegmentId, &Segment)> {
        let holds = |segment: &Segment| segment.end().is_none_or(|end| offset < end);
        if let Some(found) = self.segments.at(range, offset).filter(|(_, segment)| holds(segment)) {
            return Some(found);
        }
        let later = |(_, segment): &(SegmentId, &Segment)| {
            segment.start > offset && segment.end() != Some(segment.start)
        };
        self.segments.of_range(range).find(later)
    }

    /// A group's position on a topic: sorted, disjoint, empty when it never committed.
    #[must_use]
    pub fn positions(&self, topic: TopicId, group: &GroupName) -> &[Tile] {
        self.positions.get(topic, group)
    }

    /// Groups that committed a position on a topic, in byte order.
    pub fn groups_of(&self, topic: TopicId) -> impl Iterator<Item = &GroupName> {
        self.positions.groups(topic)
    }

    /// The slice a topic's ranges tile; `None` for an unknown topic.
    #[must_use]
    pub fn whole_of(&self, topic: TopicId) -> Option<KeySpan> {
        self.topic(topic).map(|topic| topic.keyspace.whole())
    }

    /// Digest of the canonical encoding, for comparing members at the same applied index.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        machine::digest(&self.encode_snapshot())
    }
}
