//! Where a name lives: topic to ranges, ranges to the segment that holds an offset.
//!
//! Owns nothing but a cache of names, checked against the metadata on every use. The metadata decides.
//!
//! A topic has one range until ranges split; every answer here is already shaped for more.

use bytes::Bytes;
use metadata::vnode::{SegmentState, Topic};
use types::cursor::Tile;
use types::{Offset, RangeId, RangeSeq, TopicId, TopicName, WallTime};

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
}

impl Node {
    /// The topic of that name. A name that could not exist is an unknown topic.
    pub(crate) fn topic(&mut self, name: &Bytes) -> Option<TopicId> {
        let vnode = self.core.meta.vnode();
        if let Some(&id) = self.topics.get(name) {
            if is_named(vnode.topic(id), name) {
                return Some(id);
            }
            self.topics.remove(name);
        }
        let (id, _) = vnode.topic_by_name(&TopicName::new(name).ok()?)?;
        // Copied: the key must not keep alive the buffer that the request arrived in.
        self.topics.insert(Bytes::copy_from_slice(name), id);
        Some(id)
    }

    /// The same with the name, in bytes that are kept anyway.
    pub(crate) fn topic_entry(&mut self, name: &Bytes) -> Option<(Bytes, TopicId)> {
        self.topic(name)?;
        self.topics.get_key_value(name).map(|(name, id)| (name.clone(), *id))
    }

    /// The range that takes the records of a request, known to this node from now on.
    pub(crate) fn route(&mut self, name: &Bytes) -> Result<RangeId, Unrouted> {
        let topic = self.topic(name).ok_or(Unrouted::NoSuchTopic)?;
        let vnode = self.core.meta.vnode();
        let (id, _) = vnode.active_ranges_of(topic).next().ok_or(Unrouted::NoActiveRange)?;
        self.ranges.entry(id).or_insert_with(|| {
            let last = vnode.segments_of(id).next_back();
            let appended_at = last.map_or(WallTime(0), |(_, segment)| match segment.state {
                SegmentState::Active => segment.opened_at,
                SegmentState::Sealed(sealed) => sealed.at,
            });
            Range::new(Bytes::copy_from_slice(name), State::Idle, appended_at)
        });
        Ok(id)
    }

    /// One tile for each range a reader of the topic reads, at its beginning; sorted by span.
    pub(crate) fn leaf_tiles(&self, topic: TopicId) -> Vec<Tile> {
        let leaves = self.core.meta.vnode().leaf_ranges_of(topic);
        let tile = |(id, range): (RangeId, &metadata::vnode::Range)| Tile {
            range: id.seq,
            span: range.span,
            next: Offset::ZERO,
        };
        let mut tiles: Vec<Tile> = leaves.map(tile).collect();
        tiles.sort_unstable_by_key(|tile| tile.span.start());
        tiles
    }

    /// Whether the tiles of a cursor are ones this cluster issues for the topic.
    pub(crate) fn knows_tiles(&self, topic: TopicId, tiles: &[Tile]) -> bool {
        let leaf = |seq: RangeSeq| self.core.meta.vnode().range(RangeId { topic, seq });
        tiles.iter().all(|tile| leaf(tile.range).is_some_and(|range| range.span == tile.span))
    }

    /// Where the record of an offset is, or the next one that is still there.
    pub(crate) fn place(&self, range: RangeId, offset: Offset) -> Place {
        let Some((segment, listed)) = self.core.meta.vnode().segment_at(range, offset) else {
            return Place::End;
        };
        let from = offset.max(listed.start);
        let skips = self.core.config.has_bug(Bug::SkipAtBoundary);
        let at_boundary = from == listed.start && from > Offset::ZERO;
        let from = if skips && at_boundary { from.plus(1) } else { from };
        let state = self.ranges.get(&range).map(|range| &range.state);
        let (end, known) = match (listed.end(), state) {
            (Some(end), _) => (Some(end), true),
            // Nobody may take the end of an undamaged beginning for the end of the data.
            (None, Some(State::Stopped)) => (None, true),
            (None, Some(_)) => {
                let end = self.ranges.get(&range).and_then(Range::committed_end);
                (end, end.is_some())
            }
            (None, None) => (None, false),
        };
        if end.is_some_and(|end| from >= end) { Place::End } else { Place::Segment { segment, from, known } }
    }
}

fn is_named(topic: Option<&Topic>, name: &[u8]) -> bool {
    topic.is_some_and(|topic| topic.name.as_str().as_bytes() == name)
}
