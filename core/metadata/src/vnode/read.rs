//! What can be read from a vnode. Reads are functions of the state; they are never entries of the log.

use types::{
    GroupName, KeySpan, Offset, Position, RaftIndex, RangeId, RangeSeq, SegmentId, TopicId, TopicName,
    WallTime,
};

use super::{Range, RangeState, Segment, Tile, Topic, TopicState, Vnode};
use crate::machine::{self, Version};

impl Vnode {
    /// Index of the last entry applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied
    }

    /// The version the group went on to and this build does not have. Entries behind that switch are not applied
    /// by this process: a later build has to take over.
    #[must_use]
    pub fn beyond_build(&self) -> Option<Version> {
        self.beyond
    }

    /// The effective version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The topic of that name.
    #[must_use]
    pub fn topic_by_name(&self, name: &TopicName) -> Option<(TopicId, &Topic)> {
        let id = self.tables.topics.id_of(name)?;
        self.tables.topics.get(id).map(|topic| (id, topic))
    }

    /// The topic with that id.
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.tables.topics.get(id)
    }

    /// Every topic, in the byte order of names.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.tables.topics.by_name()
    }

    /// Number of topics; at most [`types::limits::TOPICS_MAX`].
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.tables.topics.len()
    }

    /// One range.
    #[must_use]
    pub fn range(&self, id: RangeId) -> Option<&Range> {
        self.tables.ranges.get(id)
    }

    /// Every range of a topic, in the order of their numbers; none for an unknown topic.
    pub fn ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.tables.ranges.of_topic(topic)
    }

    /// Every range of every topic behind one, in the order of ids; from the first when there is none before.
    pub fn ranges_after(&self, after: Option<RangeId>) -> impl Iterator<Item = (RangeId, &Range)> {
        self.tables.ranges.after(after)
    }

    /// The ranges that take records, in the order of their spans; none when the topic is sealed.
    pub fn active_ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        let takes_records = self.topic(topic).is_some_and(|topic| topic.state == TopicState::Active);
        takes_records.then(|| self.leaf_ranges_of(topic)).into_iter().flatten()
    }

    /// The ranges readers read: nobody's ancestors. In the order of their spans, which tile the keyspace, also
    /// of a sealed topic.
    pub fn leaf_ranges_of(&self, topic: TopicId) -> impl Iterator<Item = (RangeId, &Range)> {
        self.tables.ranges.leaves(topic)
    }

    /// Leaf ranges of all topics. Takes time in proportion to the topics.
    #[must_use]
    pub fn leaf_count(&self) -> usize {
        self.tables.ranges.leaf_count_of_all()
    }

    /// The ranges that took a range's place, in the order of their spans: two after a split, one after a merge,
    /// none for a leaf.
    #[must_use]
    pub fn children_of(&self, id: RangeId) -> &[RangeSeq] {
        self.tables.ranges.children(id)
    }

    /// How many ranges a range came from, each counted once. Takes time in proportion to the answer.
    #[must_use]
    pub fn ancestor_count(&self, id: RangeId) -> usize {
        self.tables.ranges.ancestors(id, |_| true).count()
    }

    /// The active range that owns a position of the topic's keyspace; none when the topic is sealed.
    #[must_use]
    pub fn active_range_at(&self, topic: TopicId, position: Position) -> Option<(RangeId, &Range)> {
        self.tables.ranges.leaf_at(topic, position).filter(|(_, range)| range.state == RangeState::Active)
    }

    /// The ancestors of a range whose active segments must be sealed before it may have its first segment, each
    /// once, in no promised order.
    #[must_use]
    pub fn open_ancestors_of(&self, id: RangeId) -> Vec<RangeId> {
        self.tables.open_ancestors_of(id)
    }

    /// One segment.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.tables.segments.get(id)
    }

    /// Every segment of every topic, in the order of ids: which copies may exist on disk.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.tables.segments.iter()
    }

    /// The ids of all segments, in order.
    pub fn segment_ids(&self) -> impl Iterator<Item = SegmentId> {
        self.segments().map(|(id, _)| id)
    }

    /// The segments of a range, in the order of their offsets.
    pub fn segments_of(&self, range: RangeId) -> impl DoubleEndedIterator<Item = (SegmentId, &Segment)> {
        self.tables.segments.of_range(range)
    }

    /// The range's active segment.
    #[must_use]
    pub fn active_segment(&self, range: RangeId) -> Option<(SegmentId, &Segment)> {
        self.tables.segments.active(range)
    }

    /// Where a reader of `range` that stands at `offset` goes on: the segment that holds the offset, or the
    /// first later one when the records in between were removed; `None` at the end of what is listed.
    #[must_use]
    pub fn segment_at(&self, range: RangeId, offset: Offset) -> Option<(SegmentId, &Segment)> {
        self.tables.segments.at_or_after(range, offset)
    }

    /// A group's position on a topic: sorted, disjoint, empty when it never committed.
    #[must_use]
    pub fn positions(&self, topic: TopicId, group: &GroupName) -> &[Tile] {
        self.tables.positions.get(topic, group).map_or(&[], |standing| &standing.tiles)
    }

    /// When a group last committed a position on a topic, by the clocks of those who proposed it; `None` when
    /// it never did.
    #[must_use]
    pub fn committed_at(&self, topic: TopicId, group: &GroupName) -> Option<WallTime> {
        self.tables.positions.get(topic, group).map(|standing| standing.committed_at)
    }

    /// Groups that committed a position on a topic, in byte order.
    pub fn groups_of(&self, topic: TopicId) -> impl Iterator<Item = &GroupName> {
        self.tables.positions.groups(topic)
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
