//! A cursor at a time.
//!
//! Follows every key's history to the first record appended at or after the time. Append times never decrease
//! along it, so whole segments and ranges are stepped over by when they ended, and only the segment that holds
//! the time is asked. One question to a copy at a time, and before it, where another node takes the records, one for
//! how far they may be read.

use std::collections::BTreeMap;

use bytes::Bytes;
use metadata::vnode::Segment;
use storage::store;
use types::cursor::{Cursor, Tile};
use types::{NodeId, Offset, RangeId, SegmentId, TopicId, WallTime, limits};
use wire::Reason;

use crate::action::{Notice, Reply};
use crate::auth::{Operation, Session};
use crate::copies::{CopyAnswer, unreadable};
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
    /// It is told of everything that was acknowledged before its turn.
    turn: u64,
    /// Copies that have failed the question on its way.
    tried: Vec<NodeId>,
}

/// Searches under way, by request.
pub(crate) type Seeks = BTreeMap<RequestId, Seek>;

/// Where a slice goes on.
enum Next {
    Found(Tile),
    /// Only the copy knows.
    Ask(Tile, SegmentId),
    /// Only its primary knows where the range ends.
    Look(Tile, RangeId),
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
        let (at, turn) = (WallTime(at_ms), self.watches.turn());
        let mut seek = Seek { topic, at, found: Vec::new(), left: Vec::new(), turn, tried: Vec::new() };
        match at_ms {
            0 => seek.found = beginning,
            u64::MAX => seek.left = self.leaves(topic),
            _ => seek.left = beginning,
        }
        self.seek_on(id, seek);
    }

    /// Every range that a reader at the end stands in.
    fn leaves(&self, topic: TopicId) -> Vec<Tile> {
        let leaves = self.core.meta.of(topic).leaf_ranges_of(topic);
        leaves.map(|(id, range)| Tile { range: id.seq, span: range.span, next: Offset::ZERO }).collect()
    }

    fn seek_on(&mut self, id: RequestId, mut seek: Seek) {
        while let Some(tile) = seek.left.pop() {
            match self.seek_step(&seek, tile) {
                Next::Found(tile) => seek.found.push(tile),
                Next::Later(tiles) => seek.left.extend(tiles),
                Next::Ask(tile, segment) => {
                    let own = self.core.config.node;
                    let holder = self.next_holder(segment, tile.next, &[]).unwrap_or(own);
                    seek.left.push(tile);
                    return self.seek_ask(id, seek, holder, segment);
                }
                Next::Look(tile, range) => {
                    seek.left.push(tile);
                    if !self.look_for_seek(id, range) {
                        return self.core.reply(id, Reply::Failed(Reason::Unavailable));
                    }
                    self.seeks.insert(id, seek);
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

    fn seek_ask(&mut self, id: RequestId, seek: Seek, holder: NodeId, segment: SegmentId) {
        let at = seek.at;
        self.seeks.insert(id, seek);
        self.ask_copy(holder, Owner::Seek { id, segment }, store::Request::SeekTime { segment, at });
    }

    /// The primary of a range told how far it may be read, or did not.
    pub(crate) fn seek_looked(&mut self, id: RequestId, told: bool) {
        let Some(seek) = self.seeks.remove(&id) else { return };
        if told {
            self.seek_on(id, seek);
        } else {
            self.core.reply(id, Reply::Failed(Reason::Unavailable));
        }
    }

    fn seek_step(&self, seek: &Seek, tile: Tile) -> Next {
        let vnode = self.core.meta.of(seek.topic);
        let range = RangeId { topic: seek.topic, seq: tile.range };
        if let Some((active, _)) = self.active_elsewhere(range)
            && !self.watches.is_known_since(active, seek.turn)
        {
            return Next::Look(tile, range);
        }
        // Nobody may be told where the range ends before that is known.
        let active = vnode.active_segment(range).map(|(_, active)| active.start.max(tile.next));
        if active.is_some_and(|from| self.place(range, from) == Place::Unknown) {
            return Next::Look(tile, range);
        }
        if seek.at == WallTime(u64::MAX) {
            return Next::Found(Tile { next: self.end_of(range), ..tile });
        }
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

    /// A copy answered, or did not.
    pub(crate) fn seek_answered(
        &mut self,
        holder: NodeId,
        id: RequestId,
        segment: SegmentId,
        answer: CopyAnswer,
    ) {
        let error = match answer.or_failed() {
            store::Reply::Sought(offset) => return self.sought(id, segment, Ok(offset)),
            store::Reply::Failed(error) => error,
            reply @ (store::Reply::Created
            | store::Reply::Appended { .. }
            | store::Reply::Read(_)
            | store::Reply::Fenced(_)
            | store::Reply::Sealed(_)
            | store::Reply::Rebuilt(_)
            | store::Reply::Latched
            | store::Reply::Verified(_)
            | store::Reply::Deleted
            | store::Reply::Inspected(_)) => unreadable(format!("not what was asked for: {reply:?}")),
        };
        let Some(mut seek) = self.seeks.remove(&id) else { return };
        seek.tried.push(holder);
        let from = seek.left.last().map_or(Offset::ZERO, |tile| tile.next);
        match self.next_holder(segment, from, &seek.tried) {
            Some(next) => self.seek_ask(id, seek, next, segment),
            None => {
                self.seeks.insert(id, seek);
                self.sought(id, segment, Err(error));
            }
        }
    }

    fn sought(&mut self, id: RequestId, segment: SegmentId, result: Result<Offset, store::Error>) {
        let Some(mut seek) = self.seeks.remove(&id) else { return };
        seek.tried.clear();
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
            Some(_) => seek.found.push(Tile { next: offset, ..tile }),
            // What the copy holds further is not committed and may come to nothing.
            None => {
                let next = self.known_end(segment.range).map_or(offset, |end| offset.min(end)).max(tile.next);
                seek.found.push(Tile { next, ..tile });
            }
        }
        self.seek_on(id, seek);
    }
}
