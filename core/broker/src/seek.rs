//! A cursor at a time.
//!
//! Follows every key's history to the first record appended at or after the time. Append times never decrease
//! along it, so whole segments and ranges are stepped over by when they ended, and only the segment that holds
//! the time is asked. One question to the store at a time.

use std::collections::BTreeMap;

use bytes::Bytes;
use metadata::vnode::Segment;
use storage::store;
use types::cursor::{Cursor, Tile};
use types::{Offset, RangeId, SegmentId, TopicId, WallTime, limits};
use wire::Reason;

use crate::action::{Notice, Reply};
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::node::{Node, Owner};
use crate::reading::Place;
use crate::tiles;

/// A search under way.
#[derive(Debug)]
pub(crate) struct Seek {
    topic: TopicId,
    at: WallTime,
    /// Slices whose place is found.
    found: Vec<Tile>,
    /// Slices whose place lies at or after this one.
    left: Vec<Tile>,
}

/// Searches under way, by request.
pub(crate) type Seeks = BTreeMap<RequestId, Seek>;

/// Where a slice goes on.
enum Next {
    Found(Tile),
    /// Only the copy knows.
    Ask(Tile, SegmentId),
    /// Everything of the range is earlier, and others took its place.
    Later(Vec<Tile>),
}

impl Node {
    /// Answers with a cursor at the first record appended at or after a time.
    pub(crate) fn seek_time(&mut self, id: RequestId, session: &Session, topic: Option<&Bytes>, at_ms: u64) {
        let name = topic.map(|topic| &topic[..]).unwrap_or_default();
        if !self.may(session, Operation::Consume, name) {
            return self.core.reply(id, Reply::Failed(Reason::PermissionDenied));
        }
        let Some(topic) = topic.and_then(|name| self.topic(name)) else {
            return self.core.reply(id, Reply::Failed(Reason::NoSuchTopic));
        };
        let whole = self.core.meta.of(topic).whole_of(topic);
        let beginning = tiles::start(&[], &[], whole.as_slice());
        let mut seek = Seek { topic, at: WallTime(at_ms), found: Vec::new(), left: Vec::new() };
        match at_ms {
            0 => seek.found = beginning,
            u64::MAX => seek.found = self.ends(topic),
            _ => seek.left = beginning,
        }
        self.seek_on(id, seek);
    }

    /// The end of every current range, as far as this node knows.
    fn ends(&self, topic: TopicId) -> Vec<Tile> {
        let leaves = self.core.meta.of(topic).leaf_ranges_of(topic);
        leaves.map(|(id, range)| Tile { range: id.seq, span: range.span, next: self.end_of(id) }).collect()
    }

    fn seek_on(&mut self, id: RequestId, mut seek: Seek) {
        while let Some(tile) = seek.left.pop() {
            match self.seek_step(&seek, tile) {
                Next::Found(tile) => seek.found.push(tile),
                Next::Later(tiles) => seek.left.extend(tiles),
                Next::Ask(tile, segment) => {
                    let at = seek.at;
                    seek.left.push(tile);
                    self.seeks.insert(id, seek);
                    self.core.ask(Owner::Seek { id, segment }, store::Request::SeekTime { segment, at });
                    return;
                }
            }
        }
        let mut tiles = seek.found;
        tiles.sort_unstable_by_key(|tile| tile.span.start());
        let tiles = tiles::coalesce(tiles);
        let reply = if tiles.len() <= limits::CURSOR_TILES_MAX {
            Reply::Sought(Cursor { topic: seek.topic, member: None, tiles }.encode())
        } else {
            Reply::Failed(Reason::InternalError)
        };
        self.core.reply(id, reply);
    }

    fn seek_step(&self, seek: &Seek, tile: Tile) -> Next {
        let vnode = self.core.meta.of(seek.topic);
        let range = RangeId { topic: seek.topic, seq: tile.range };
        // One that holds nothing is not asked: its copy may never have been made.
        let holds = |segment: &Segment| {
            let from = tile.next.max(segment.start);
            segment.end().map_or_else(|| self.place(range, from) != Place::End, |end| end > from)
        };
        // A segment's seal is not earlier than its last append.
        let maybe = vnode.segments_of(range).find(|(_, segment)| {
            holds(segment) && segment.sealed_at().is_none_or(|sealed| sealed >= seek.at)
        });
        if let Some((segment, listed)) = maybe {
            return Next::Ask(Tile { next: tile.next.max(listed.start), ..tile }, segment);
        }
        let end = Tile { next: self.end_of(range), ..tile };
        let mut one = vec![end];
        // Each side of a merge goes on for itself: what it finds is the same place.
        match tiles::move_on(vnode, seek.topic, &mut one, 0, |_| true) {
            Some(_) => Next::Later(one),
            None => Next::Found(end),
        }
    }

    /// The store answered where a time lies in a segment.
    pub(crate) fn sought(&mut self, id: RequestId, segment: SegmentId, result: Result<Offset, store::Error>) {
        let Some(mut seek) = self.seeks.remove(&id) else { return };
        let Some(tile) = seek.left.pop() else { return };
        let offset = match result {
            Ok(offset) => offset,
            // It was sealed empty and removed, or its topic was: what follows is looked at instead.
            Err(store::Error::NoSuchSegment) if !self.core.meta.lists(segment) => {
                seek.left.push(tile);
                return self.seek_on(id, seek);
            }
            // Nothing is wrong: it works when less is waiting.
            Err(store::Error::Overloaded) => return self.core.reply(id, Reply::Failed(Reason::Overloaded)),
            Err(error) => {
                let (offset, detail) = (tile.next, error.to_string());
                self.core.notice(Notice::ReadFailed { segment, offset, detail });
                return self.core.reply(id, Reply::Failed(Reason::Storage));
            }
        };
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let end = listed.and_then(Segment::end);
        // The active segment's end is the end of the data: what is appended next is later.
        match end {
            Some(end) if offset >= end => seek.left.push(Tile { next: end, ..tile }),
            Some(_) | None => seek.found.push(Tile { next: offset, ..tile }),
        }
        self.seek_on(id, seek);
    }
}
