//! Where a name lives: topic to ranges, ranges to the segment that holds an offset.
//!
//! Owns nothing but a cache of names, checked against the metadata on every use. The metadata decides.
//!
//! Which range takes which record is `place`'s business.

use std::collections::BTreeSet;

use bytes::Bytes;
use metadata::vnode::{SegmentState, Topic};
use placement::rank::{Item, rank};
use types::cursor::Tile;
use types::{NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, TopicName, WallTime};

use crate::node::Node;
use crate::planted::Bug;
use crate::reading::Place;
use crate::segments::{Range, State};

/// Why a record has no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unrouted {
    /// There is no such topic.
    #[error("no such topic")]
    NoSuchTopic,
    /// The topic takes no more records.
    #[error("no active range")]
    NoActiveRange,
    /// The range they were placed in became part of a larger one, which may be sent other records of their request.
    #[error("the range was merged")]
    Merged,
}

/// Who takes the records of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primary {
    /// This node.
    Here,
    /// Another one, whether or not it can be reached.
    At(NodeId),
    /// Nobody, before something changes elsewhere.
    Nobody,
}

impl Node {
    /// Who takes the records of a range that takes records: the node that its active segment was registered for, and
    /// without one the node that shall be.
    pub(crate) fn primary_of(&self, id: RangeId) -> Primary {
        let known = self.ranges.get(&id);
        if known.is_some_and(Range::is_at_work) {
            return Primary::Here;
        }
        if known.is_some_and(Range::is_others_to_end) {
            return Primary::Nobody;
        }
        let own = self.core.config.node;
        let vnode = self.core.meta.of(id.topic);
        let active = vnode.active_segment(id).and_then(|(_, listed)| listed.replicas.first().copied());
        let primary = active.unwrap_or_else(|| self.candidate(id));
        if primary != own {
            return Primary::At(primary);
        }
        // The segment of an ancestor is another node's to end.
        let waits = active.is_none()
            && vnode.open_ancestors_of(id).into_iter().any(|ancestor| self.is_elsewhere(ancestor));
        if waits { Primary::Nobody } else { Primary::Here }
    }

    /// Who shall open the next segment of a range: the same answer on every node that sees the same nodes.
    pub(crate) fn candidate(&self, id: RangeId) -> NodeId {
        let own = self.core.config.node;
        let item = Item::Segment(SegmentId { range: id, seq: SegmentSeq(0) });
        rank(item, &self.core.able_nodes()).first().copied().unwrap_or(own)
    }

    /// The topic of that name. A name that could not exist is an unknown topic.
    pub(crate) fn topic(&mut self, name: &Bytes) -> Option<TopicId> {
        if let Some(&id) = self.topics.get(name) {
            if is_named(self.core.meta.of(id).topic(id), name) {
                return Some(id);
            }
            self.topics.remove(name);
        }
        let (id, _) = self.core.meta.topic_by_name(&TopicName::new(name).ok()?)?;
        // Copied: the key must not keep alive the buffer that the request arrived in.
        self.topics.insert(Bytes::copy_from_slice(name), id);
        Some(id)
    }

    /// The same with the name, in bytes that are kept anyway.
    pub(crate) fn topic_entry(&mut self, name: &Bytes) -> Option<(Bytes, TopicId)> {
        self.topic(name)?;
        self.topics.get_key_value(name).map(|(name, id)| (name.clone(), *id))
    }

    /// Makes a range known to this node that takes records.
    pub(crate) fn know_range(&mut self, id: RangeId) {
        if self.ranges.contains_key(&id) {
            return;
        }
        let Some(name) = self.topic_name(id.topic) else { return };
        let appended_at = self.last_time(id);
        self.ranges.insert(id, Range::new(name, State::Idle, appended_at));
    }

    /// A lower bound for the time of the first record of a range whose ancestors have ended: a child's records are
    /// later than its parents', seeking by time relies on it. The search ends at ranges that hold records, which are
    /// later than their own ancestors'.
    pub(crate) fn time_before(&self, id: RangeId) -> WallTime {
        let vnode = self.core.meta.of(id.topic);
        let (mut time, mut seen, mut next) = (WallTime(0), BTreeSet::new(), vec![id.seq]);
        while let Some(range) = next.pop().and_then(|seq| vnode.range(RangeId { topic: id.topic, seq })) {
            for seq in &range.parents {
                let parent = RangeId { topic: id.topic, seq: *seq };
                if seen.insert(*seq) {
                    time = time.max(self.last_time(parent));
                    let holds =
                        vnode.segments_of(parent).any(|(_, segment)| segment.end() > Some(segment.start));
                    next.extend((!holds).then_some(*seq));
                }
            }
        }
        time
    }

    /// A lower bound for the time of whatever a range takes next, by what it holds itself.
    pub(crate) fn last_time(&self, id: RangeId) -> WallTime {
        // Others may have taken its records since.
        let known = self.ranges.get(&id).map(|range| range.appended_at).unwrap_or_default();
        // One that was registered and took nothing may have been opened by a clock that had stepped back.
        let last =
            self.core.meta.of(id.topic).segments_of(id).rev().take(2).map(|(_, segment)| {
                match segment.state {
                    SegmentState::Active => segment.opened_at,
                    SegmentState::Sealed(sealed) => sealed.at,
                }
            });
        last.max().unwrap_or_default().max(known)
    }

    /// Exclusive end of what may be read of a range with an active segment; `None` when only its copy knows, or another
    /// node.
    pub(crate) fn known_end(&self, id: RangeId) -> Option<Offset> {
        let (segment, active) = self.core.meta.of(id.topic).active_segment(id)?;
        if active.replicas.first() == Some(&self.core.config.node) {
            return self.ranges.get(&id).and_then(Range::committed_end);
        }
        self.watches.end_of(segment)
    }

    /// Exclusive end of what may be read of a range, as far as this node knows.
    pub(crate) fn end_of(&self, id: RangeId) -> Offset {
        let vnode = self.core.meta.of(id.topic);
        match (vnode.active_segment(id), vnode.range(id)) {
            (Some((_, active)), _) => self.known_end(id).unwrap_or(active.start),
            (None, Some(range)) => range.sealed_end,
            (None, None) => Offset::ZERO,
        }
    }

    /// Whether the tiles of a cursor are ones this cluster issues for the topic.
    pub(crate) fn knows_tiles(&self, topic: TopicId, tiles: &[Tile]) -> bool {
        let range = |seq: RangeSeq| self.core.meta.of(topic).range(RangeId { topic, seq });
        tiles.iter().all(|tile| range(tile.range).is_some_and(|range| range.span.covers(tile.span)))
    }

    /// Where the record of an offset is, or the next one that is still there.
    pub(crate) fn place(&self, range: RangeId, offset: Offset) -> Place {
        let Some((segment, listed)) = self.core.meta.of(range.topic).segment_at(range, offset) else {
            return Place::End;
        };
        let from = offset.max(listed.start);
        let skips = self.core.config.has_bug(Bug::SkipAtBoundary);
        let at_boundary = from == listed.start && from > Offset::ZERO;
        let from = if skips && at_boundary { from.plus(1) } else { from };
        let state = self.ranges.get(&range).map(|range| &range.state);
        let own = listed.replicas.first() == Some(&self.core.config.node);
        let (end, known) = match (listed.end(), state) {
            (Some(end), _) => (Some(end), true),
            (None, _) if !own && self.core.config.has_bug(Bug::ReadPastCommitted) => (None, false),
            // What its primary has told of it.
            (None, _) if !own => match self.watches.end_of(segment) {
                Some(end) => (Some(end), true),
                None => return Place::Unknown,
            },
            // Nobody may take the end of an undamaged beginning for the end of the data.
            (None, Some(State::Stopped)) => (None, true),
            // It is registered, which this node is about to hear, and holds nothing yet.
            (None, Some(State::Registering)) => (Some(listed.start), true),
            (None, Some(_)) => {
                let end = self.ranges.get(&range).and_then(Range::committed_end);
                if end.is_none() && listed.replicas.len() > 1 {
                    // What an earlier process left here may not be on a quorum.
                    return Place::Unknown;
                }
                (end, end.is_some())
            }
            (None, None) if listed.replicas.len() > 1 => return Place::Unknown,
            (None, None) => (None, false),
        };
        let end = self.plant_end(range, end);
        if end.is_some_and(|end| from >= end) { Place::End } else { Place::Segment { segment, from, known } }
    }
}

fn is_named(topic: Option<&Topic>, name: &[u8]) -> bool {
    topic.is_some_and(|topic| topic.name.as_str().as_bytes() == name)
}
