//! What there is to know of a vnode, as plain lists: what the naive machine holds, and what can be read from
//! the real one.

use super::*;

/// Width of every topic's keyspace here.
pub(super) const BITS: u8 = 4;
/// Its number of places.
pub(super) const PLACES: usize = 1 << BITS;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Naive {
    /// In the order of ids.
    pub(super) topics: Vec<NaiveTopic>,
    pub(super) fences: BTreeMap<TopicId, MigrationId>,
    pub(super) arc: Share,
    pub(super) ring_version: u64,
    pub(super) lease: FenceToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NaiveTopic {
    pub(super) id: TopicId,
    pub(super) name: Vec<u8>,
    pub(super) sealed: bool,
    pub(super) policy: Option<Vec<u8>>,
    pub(super) arrived_by: Option<MigrationId>,
    /// By number.
    pub(super) ranges: Vec<NaiveRange>,
    /// In the order of names.
    pub(super) groups: Vec<NaiveGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NaiveRange {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) state: RangeState,
    pub(super) parents: Vec<u64>,
    pub(super) next_segment: u64,
    pub(super) sealed_end: u64,
    pub(super) load_splits: u8,
    /// By number.
    pub(super) segments: Vec<(u64, Segment)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NaiveGroup {
    pub(super) name: Vec<u8>,
    pub(super) at: u64,
    /// Range and next offset.
    pub(super) places: [Option<(u64, u64)>; PLACES],
}

/// What the machine must answer; an extracted topic as what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Reply(Reply),
    Extracted(Option<NaiveTopic>),
}

impl NaiveTopic {
    /// Everything a range came from, itself not included.
    pub(super) fn ancestors(&self, seq: u64) -> Vec<u64> {
        let mut found: Vec<u64> = Vec::new();
        let mut todo = self.ranges[usize::try_from(seq).unwrap()].parents.clone();
        while let Some(next) = todo.pop() {
            if !found.contains(&next) {
                found.push(next);
                todo.extend(&self.ranges[usize::try_from(next).unwrap()].parents);
            }
        }
        found
    }

    pub(super) fn range_mut(&mut self, seq: RangeSeq) -> Option<&mut NaiveRange> {
        self.ranges.get_mut(usize::try_from(seq.0).ok()?)
    }

    pub(super) fn add(&mut self, (start, end): (u64, u64), parents: Vec<u64>, load_splits: u8) -> RangeId {
        let (next_segment, sealed_end, segments) = (0, 0, Vec::new());
        let state = RangeState::Active;
        self.ranges.push(NaiveRange {
            start,
            end,
            state,
            parents,
            next_segment,
            sealed_end,
            load_splits,
            segments,
        });
        RangeId { topic: self.id, seq: RangeSeq(self.ranges.len() as u64 - 1) }
    }
}

impl NaiveRange {
    pub(super) fn has_active_segment(&self) -> bool {
        self.segments.iter().any(|(_, segment)| segment.state == SegmentState::Active)
    }
}

/// Everything the reads of a vnode tell, asked for one by one.
pub(super) fn observe(vnode: &Vnode) -> Naive {
    let mut topics: Vec<NaiveTopic> = vnode.topics().map(|(id, _)| observe_topic(vnode, id)).collect();
    topics.sort_by_key(|topic| topic.id);
    Naive {
        topics,
        fences: vnode.migrating().collect(),
        arc: vnode.arc(),
        ring_version: vnode.ring_version(),
        lease: vnode.lease(),
    }
}

pub(super) fn observe_topic(vnode: &Vnode, id: TopicId) -> NaiveTopic {
    let topic = vnode.topic(id).unwrap();
    NaiveTopic {
        id,
        name: topic.name.as_str().as_bytes().to_vec(),
        sealed: topic.state == TopicState::Sealed,
        policy: topic.policy.as_ref().map(|name| name.as_str().as_bytes().to_vec()),
        arrived_by: topic.arrived_by,
        ranges: vnode.ranges_of(id).map(|(id, _)| observe_range(vnode, id)).collect(),
        groups: vnode.groups_of(id).map(|group| observe_group(vnode, id, group)).collect(),
    }
}

/// What an export says, read from a vnode that has nothing else.
pub(super) fn observe_export(export: &Export) -> NaiveTopic {
    let mut vnode = Vnode::default();
    vnode.tables.absorb(export.tables.clone());
    observe_topic(&vnode, export.topic().0)
}

fn observe_range(vnode: &Vnode, id: RangeId) -> NaiveRange {
    let range = vnode.range(id).unwrap();
    NaiveRange {
        start: range.span.start(),
        end: range.span.end(),
        state: range.state,
        parents: range.parents.iter().map(|seq| seq.0).collect(),
        next_segment: range.next_segment_seq.0,
        sealed_end: range.sealed_end.0,
        load_splits: range.load_splits,
        segments: vnode.segments_of(id).map(|(id, segment)| (id.seq.0, segment.clone())).collect(),
    }
}

fn observe_group(vnode: &Vnode, topic: TopicId, group: &GroupName) -> NaiveGroup {
    let mut places = [None; PLACES];
    for tile in vnode.positions(topic, group) {
        for place in tile.span.start()..tile.span.end() {
            let before = places[usize::try_from(place).unwrap()].replace((tile.range.0, tile.next.0));
            assert_eq!(before, None, "tiles overlap");
        }
    }
    let at = vnode.committed_at(topic, group).unwrap().0;
    NaiveGroup { name: group.as_bytes().to_vec(), at, places }
}
