//! Collecting records for one reader: range by range, segment by segment, read by read.
//!
//! Owns what a running reader has gathered and where it stands, the reads asked of the store, and the rests of
//! batches that were read but not wanted yet. Does not decide where a reader
//! starts or whether it waits. How positions move through splits and merges is said in `tiles`, what is read before
//! a reader comes to it in `ahead`.
//!
//! Invariants:
//! - only committed records are given out;
//! - a position moves past a record only with that record given out;
//! - a failed read never looks like the end of the data: the range's position stays and the fetch fails
//!   unless other ranges gave records;
//! - fetches that want the same place share one read;
//! - a reader takes from its ranges in their order, whatever is read of the next ones meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metadata::vnode::RangeState;
use storage::format::batch::Batch;
use storage::store;
use types::cursor::{Cursor, CursorMember, FIXED_TOKEN_BYTES_MAX, TILE_TOKEN_BYTES_MAX, Tile};
use types::{GroupName, Instant, KeySpan, Offset, RangeId, RangeSeq, SegmentId, TopicId, limits};

use crate::action::{Fetched, Notice, Run};
use crate::ahead::Ahead;
use crate::cut::{Filter, Piece, Room, Selected};
use crate::event::{ConnectionId, Fetch, RequestId};
use crate::fetch;
use crate::groups;
use crate::holders::{Tried, Unread};
use crate::node::Node;
use crate::planted::Bug;
use crate::rests::Rests;
use crate::segments::Range;
use crate::tiles;

/// Bytes of a response that are neither records nor cursor: envelope, counts, with room to spare.
const OVERHEAD_BYTES: usize = 128;
/// Bytes of a response's form that come with each run of records.
const RUN_BYTES: usize = 20;
/// Tiles looked at for each range that is to be read ahead: most tiles of a wide topic have nothing to read.
const LOOKS_PER_READ: usize = 8;

/// A reader that is collecting.
#[derive(Debug)]
pub(crate) struct Reading {
    topic: Bytes,
    id: TopicId,
    group: Option<GroupName>,
    /// It had a position when it began.
    positioned: bool,
    /// Sorted and disjoint.
    tiles: Vec<Tile>,
    /// Index of the tile being read.
    turn: usize,
    /// Positions of the keyspace not looked at in this pass; the tile being read is one of them.
    left: u64,
    count_max: u32,
    count: u32,
    bytes_max: usize,
    bytes: usize,
    /// Bytes of batches that were walked for the records of a slice.
    filtered: u64,
    /// Ranges read at one time: more with each range whose read did not fill the reader.
    reads: usize,
    /// The range of its last read.
    asked: Option<RangeId>,
    runs: Vec<Run>,
    failed: Option<fetch::Error>,
    /// Ranges that could not be read when it came to them last.
    lost: BTreeSet<RangeSeq>,
    /// Its turn, when it must be given everything that was acknowledged before it came: it does not wait for it.
    fresh: Option<u64>,
    pub(crate) purpose: Purpose,
}

/// Whom the records are for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A fetch that may wait until then.
    Fetch { deadline: Instant, member: Option<Box<Membered>> },
    /// The stream that this request opened, for a member's share or everything.
    Stream { member: Option<CursorMember> },
}

/// What a member's fetch must know when its share changes while it waits.
#[derive(Debug)]
pub(crate) struct Membered {
    pub(crate) key: groups::Key,
    pub(crate) cursor: CursorMember,
    /// To begin again with another share.
    pub(crate) request: Fetch,
}

/// What a reader may be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) count: u32,
    /// Largest body of a response.
    pub(crate) frame_bytes: usize,
}

impl Reading {
    /// A reader that stands at `tiles` and begins with the `turn`-th of them.
    pub(crate) fn new(
        (topic, id): (Bytes, TopicId),
        tiles: Vec<Tile>,
        turn: usize,
        most: Most,
        purpose: Purpose,
    ) -> Self {
        let cursor = FIXED_TOKEN_BYTES_MAX + tiles.len() * TILE_TOKEN_BYTES_MAX;
        let mut reading = Self {
            topic,
            id,
            group: None,
            positioned: tiles.iter().any(|tile| tile.range > RangeSeq(0) || tile.next > Offset::ZERO),
            turn: turn % tiles.len().max(1),
            left: 0,
            tiles,
            count_max: most.count,
            count: 0,
            bytes_max: most.frame_bytes.saturating_sub(OVERHEAD_BYTES + cursor),
            bytes: 0,
            filtered: 0,
            reads: 1,
            asked: None,
            runs: Vec::new(),
            failed: None,
            lost: BTreeSet::new(),
            fresh: None,
            purpose,
        };
        reading.look_everywhere();
        reading
    }

    /// Begins another pass: over what lies in `span`, or over everything.
    pub(crate) fn look_again(&mut self, span: Option<KeySpan>) {
        self.failed = None;
        let Some(span) = span else { return self.look_everywhere() };
        let indices = tiles::overlapping(&self.tiles, span);
        self.left = self.tiles[indices.clone()].iter().map(|tile| tile.span.size()).sum();
        if self.left > 0 {
            self.turn = indices.start;
        }
    }

    fn look_everywhere(&mut self) {
        self.left = self.tiles.iter().map(|tile| tile.span.size()).sum();
    }

    pub(crate) fn topic(&self) -> Bytes {
        self.topic.clone()
    }

    /// The same for a group, with members or without.
    pub(crate) fn for_group(self, group: Option<GroupName>) -> Self {
        Self { group, ..self }
    }

    pub(crate) fn group(&self) -> Option<&GroupName> {
        self.group.as_ref()
    }

    /// Whether it had a position when it began.
    pub(crate) fn is_positioned(&self) -> bool {
        self.positioned
    }

    pub(crate) fn id(&self) -> TopicId {
        self.id
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A reader that does not wait: it is given everything that was acknowledged before its turn.
    pub(crate) fn at_once(self, turn: u64) -> Self {
        Self { fresh: Some(turn), ..self }
    }

    /// Why a range could not be read.
    pub(crate) fn failed(&self) -> Option<fetch::Error> {
        let is_lost = |tile: &Tile| self.lost.contains(&tile.range);
        let lost = !self.lost.is_empty() && self.tiles.iter().any(is_lost);
        self.failed.or(lost.then_some(fetch::Error::Unavailable))
    }

    /// Whether it has looked at so much for nothing that the client should hear how far it came.
    pub(crate) fn is_tired(&self) -> bool {
        match self.purpose {
            Purpose::Fetch { .. } => self.filtered > limits::FETCH_FILTERED_BYTES_MAX,
            Purpose::Stream { .. } => false,
        }
    }

    /// Where the reader stands.
    pub(crate) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The records, where to go on, and where the reader stands; `None` when no cursor can say that.
    pub(crate) fn into_fetched(self) -> Option<(Fetched, Vec<Tile>)> {
        let member = match self.purpose {
            Purpose::Fetch { member: Some(membered), .. } => Some(membered.cursor),
            Purpose::Stream { member } => member,
            Purpose::Fetch { member: None, .. } => None,
        };
        let tiles = tiles::coalesce(self.tiles);
        if tiles.len() > limits::CURSOR_TILES_MAX {
            return None;
        }
        let cursor = Cursor { topic: self.id, member, tiles };
        let fetched = Fetched { count: self.count, runs: self.runs, cursor: cursor.encode() };
        Some((fetched, cursor.tiles))
    }

    fn room(&self) -> Room {
        Room {
            count: self.count_max - self.count,
            bytes: self.bytes_max.saturating_sub(self.bytes),
            at_least_one: self.count == 0,
        }
    }

    /// The range to read next, `None` when all are done or nothing more fits.
    fn current(&self) -> Option<(RangeId, Tile)> {
        let full = self.count >= self.count_max || (self.bytes >= self.bytes_max && self.count > 0);
        let more = self.left > 0 && !full && !(self.is_tired() && self.count == 0);
        let tile = *self.tiles.get(self.turn)?;
        more.then_some((RangeId { topic: self.id, seq: tile.range }, tile))
    }

    /// Takes note that it waits for a read of `range`; gives how many further ranges may be read beside it.
    fn asks(&mut self, range: RangeId) -> usize {
        // The first read of a reader may be all it needs, and more of the same range is no reason to look further.
        if self.asked.is_some_and(|asked| asked != range) {
            self.reads = (self.reads * 2).min(limits::READS_AHEAD_PER_READER_MAX);
        }
        self.asked = Some(range);
        self.reads - 1
    }

    /// The tiles that come after the one being read in this pass, in order.
    fn next_tiles(&self) -> impl Iterator<Item = (RangeId, Tile)> + '_ {
        let mut left = self.left.saturating_sub(self.tiles.get(self.turn).map_or(0, |tile| tile.span.size()));
        let count = self.tiles.len();
        let after = (1..count).map(move |step| self.tiles[(self.turn + step) % count]);
        after.map_while(move |tile| {
            let more = left > 0;
            left = left.saturating_sub(tile.span.size());
            more.then_some((RangeId { topic: self.id, seq: tile.range }, tile))
        })
    }

    fn move_to(&mut self, next: Offset) {
        self.tiles[self.turn].next = next;
    }

    /// Leaves the range being read where it is.
    fn give_up(&mut self, error: fetch::Error) {
        self.failed = Some(error);
        self.next_tile();
    }

    fn next_tile(&mut self) {
        self.left = self.left.saturating_sub(self.tiles[self.turn].span.size());
        self.turn = (self.turn + 1) % self.tiles.len();
    }

    /// Other ranges took the place of the one being read, and of those up to `new`.
    fn moved_on(&mut self, new: std::ops::Range<usize>) {
        // What of them was looked at before in this pass is looked at again: it is another range now.
        let size: u64 = self.tiles[new.clone()].iter().map(|tile| tile.span.size()).sum();
        let whole: u64 = self.tiles.iter().map(|tile| tile.span.size()).sum();
        self.turn = new.start;
        self.left = (self.left + size).min(whole);
    }

    /// Takes what fits of a piece that starts at the current position; gives back the rest.
    fn take(&mut self, piece: Piece, filter: Option<&Filter>) -> Result<Piece, crate::cut::Mangled> {
        let rest = match filter {
            None => {
                let (taken, rest) = piece.take(self.room())?;
                self.keep(taken);
                rest
            }
            Some(filter) => {
                let before = piece.records.len();
                let Selected { runs, rest } = piece.select(self.room(), filter)?;
                self.filtered += (before - rest.records.len()) as u64;
                runs.into_iter().for_each(|run| self.keep(run));
                rest
            }
        };
        self.move_to(rest.first);
        if rest.count > 0 {
            // Something did not fit: the response is full.
            self.left = 0;
        }
        Ok(rest)
    }

    fn keep(&mut self, taken: Piece) {
        if taken.count > 0 {
            let Piece { records, count, append_time, .. } = taken;
            self.count += count;
            self.bytes += records.len() + RUN_BYTES;
            self.runs.push(Run { records, count, append_time });
        }
    }
}

/// Where the record of an offset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing is committed there yet.
    End,
    /// In this segment, at this offset (later than asked for when older records are gone).
    Segment {
        /// Which one.
        segment: SegmentId,
        /// Where to read.
        from: Offset,
        /// Whether the metadata or this node vouch for a record there.
        known: bool,
    },
    /// In a segment of which this node does not know how far it may be read.
    Unknown,
}

/// Reads in flight, and the rests of batches.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    running: BTreeMap<RequestId, Reading>,
    /// Who waits for which read.
    asked: BTreeMap<(SegmentId, Offset), Vec<RequestId>>,
    ahead: Ahead,
    rests: Rests,
    pub(crate) tried: Tried,
}

impl Reads {
    /// A connection is gone: what is read for it is for nobody, and must not come to wait.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        let first = RequestId { connection, number: 0 };
        let last = RequestId { connection, number: u64::MAX };
        let ids: Vec<RequestId> = self.running.range(first..=last).map(|(id, _)| *id).collect();
        for id in ids {
            self.running.remove(&id);
        }
    }

    /// Keeps a reader that waits for something else than a read.
    pub(crate) fn wait(&mut self, id: RequestId, reading: Reading) {
        self.running.insert(id, reading);
    }

    /// The reader that has waited; `None` when it is gone.
    pub(crate) fn resume(&mut self, id: RequestId) -> Option<Reading> {
        self.running.remove(&id)
    }

    /// Whether somebody waits for a read.
    pub(crate) fn is_wanted(&self, key: (SegmentId, Offset)) -> bool {
        self.asked.get(&key).is_some_and(|ids| !ids.is_empty())
    }

    /// Serves a batch from memory; only a planted bug does that before the store vouches for it.
    pub(crate) fn keep(&mut self, segment: SegmentId, piece: Piece) {
        self.rests.put(segment, piece);
    }
}

impl Node {
    /// Collects until the fetch is full, at the end, or has to wait for the disk.
    pub(crate) fn read_on(&mut self, id: RequestId, mut reading: Reading) {
        while let Some((range, tile)) = reading.current() {
            reading.lost.remove(&range.seq);
            if self.is_at_open_end(range, tile.next) {
                reading.next_tile();
                continue;
            }
            match self.place(range, tile.next) {
                Place::Unknown => match self.look_first(id, range, reading) {
                    None => return,
                    Some(back) => {
                        reading = back;
                        self.pass_lost(range, &mut reading);
                    }
                },
                Place::End if self.has_to_look(&reading, range) => {
                    match self.look_first(id, range, reading) {
                        None => return,
                        Some(back) => {
                            reading = back;
                            self.pass_lost(range, &mut reading);
                        }
                    }
                }
                Place::End => {
                    if reading.fresh.is_none() {
                        self.poll(range);
                    }
                    if let Some(end) = self.end_of_gone(range, tile.next) {
                        self.skipped(&reading, tile, end);
                        reading.move_to(end);
                    }
                    self.at_end(&mut reading);
                }
                Place::Segment { segment, from, .. } => {
                    if from > tile.next {
                        self.skipped(&reading, tile, from);
                    }
                    reading.move_to(from);
                    let Some(piece) = self.reads.rests.take(segment, from) else {
                        let Some(batches) = self.reads.ahead.take((segment, from)) else {
                            return self.ask_read(id, reading, segment, from);
                        };
                        self.take_batches(&mut reading, segment, from, &batches);
                        continue;
                    };
                    let filter = self.filter(range, tile);
                    match reading.take(piece, filter.as_ref()) {
                        Ok(rest) => self.reads.rests.put(segment, rest),
                        Err(mangled) => self.read_failed(&mut reading, segment, from, &mangled.to_string()),
                    }
                }
            }
        }
        self.read_done(id, reading);
    }

    /// Whether a reader that does not wait has to be told of what was acknowledged before it came.
    fn has_to_look(&self, reading: &Reading, range: RangeId) -> bool {
        let Some(turn) = reading.fresh else { return false };
        let elsewhere = self.active_elsewhere(range);
        elsewhere.is_some_and(|(segment, _)| !self.watches.is_known_since(segment, turn))
    }

    /// A range cannot be read for now: the reader goes on with the next, and has not seen this one.
    pub(crate) fn pass_lost(&mut self, range: RangeId, reading: &mut Reading) {
        if reading.current().is_some_and(|(current, _)| current == range) {
            reading.lost.insert(range.seq);
            reading.next_tile();
            self.lost(range);
        }
    }

    /// Whether a range takes records and the reader has seen all. Asked first, because in a wide topic nearly
    /// every tile of a reader is there.
    fn is_at_open_end(&self, range: RangeId, next: Offset) -> bool {
        self.ranges.get(&range).and_then(Range::open_end) == Some(next)
    }

    /// Nothing more is committed where the reader stands: it moves on to the ranges that took the place, if the
    /// range takes no more records, and otherwise to its next tile.
    fn at_end(&self, reading: &mut Reading) {
        let (vnode, topic, turn) = (self.core.meta.of(reading.id), reading.id, reading.turn);
        let drained = |tile: Tile| self.is_drained(RangeId { topic, seq: tile.range }, tile.next);
        if !drained(reading.tiles[turn]) {
            return reading.next_tile();
        }
        let one_side = self.core.config.has_bug(Bug::MergeOneSide);
        match tiles::move_on(vnode, topic, &mut reading.tiles, turn, |tile| one_side || drained(tile)) {
            Some(new) => reading.moved_on(new),
            None => reading.next_tile(),
        }
    }

    /// Whether a range will never hold a record at or after `next`.
    fn is_drained(&self, range: RangeId, next: Offset) -> bool {
        let vnode = self.core.meta.of(range.topic);
        vnode.range(range).is_some_and(|listed| listed.state == RangeState::Replaced)
            && vnode.active_segment(range).is_none()
            && self.place(range, next) == Place::End
    }

    /// Which records of the tile's range are the reader's; `None` when all are.
    fn filter(&self, range: RangeId, tile: Tile) -> Option<Filter> {
        let vnode = self.core.meta.of(range.topic);
        let (topic, whole) = (vnode.topic(range.topic)?, vnode.range(range)?.span);
        let (keyspace, hash) = (topic.keyspace, topic.key_hash);
        if self.core.config.has_bug(Bug::ReadSiblings) {
            return None;
        }
        let elsewhere = self.core.config.has_bug(Bug::KeylessElsewhere);
        let stored = if elsewhere { tile.span } else { whole };
        (tile.span != whole).then_some(Filter { wanted: tile.span, stored, keyspace, hash })
    }

    fn ask_read(&mut self, id: RequestId, mut reading: Reading, segment: SegmentId, from: Offset) {
        let further = reading.asks(segment.range);
        let is_new = !self.reads.asked.contains_key(&(segment, from));
        self.reads.asked.entry((segment, from)).or_default().push(id);
        if is_new {
            self.ask_store(segment, from, limits::READ_WINDOW_BYTES);
        }
        self.read_ahead(&reading, further);
        self.reads.running.insert(id, reading);
    }

    /// Asks for what a reader wants next, in so many further ranges.
    fn read_ahead(&mut self, reading: &Reading, further: usize) {
        let (mut left, mut looks) = (further, further * LOOKS_PER_READ);
        for (range, tile) in reading.next_tiles() {
            let mut next = vec![(range, tile.next)];
            while let Some((range, offset)) = next.pop() {
                if left == 0 || looks == 0 || !self.reads.ahead.has_room() {
                    return;
                }
                looks -= 1;
                if self.is_at_open_end(range, offset) {
                    continue;
                }
                match self.place(range, offset) {
                    Place::Segment { segment, from, .. } => {
                        left -= 1;
                        self.ask_ahead(segment, from);
                    }
                    Place::Unknown => {
                        left -= 1;
                        self.look(range);
                    }
                    // The reader will go on with those that took its place, the lower first.
                    Place::End => next.extend(self.halves_of(range, offset, tile.span).into_iter().rev()),
                }
            }
        }
    }

    /// Where a reader of `span` goes on that is at the end of a range: in its halves, if it was split.
    fn halves_of(&self, range: RangeId, offset: Offset, span: KeySpan) -> Vec<(RangeId, Offset)> {
        let vnode = self.core.meta.of(range.topic);
        let children = vnode.children_of(range);
        if children.len() < 2 || !self.is_drained(range, offset) {
            return Vec::new();
        }
        let ids = children.iter().map(|seq| RangeId { topic: range.topic, seq: *seq });
        let wanted = |id: &RangeId| {
            vnode.range(*id).is_some_and(|half| half.span.covers(span) || span.covers(half.span))
        };
        ids.filter(wanted).map(|id| (id, Offset::ZERO)).collect()
    }

    fn ask_ahead(&mut self, segment: SegmentId, from: Offset) {
        let key = (segment, from);
        if !self.reads.asked.contains_key(&key) && !self.reads.ahead.holds(key) {
            self.reads.asked.insert(key, Vec::new());
            self.reads.ahead.asked(key);
            self.ask_store(segment, from, limits::READ_AHEAD_BYTES);
        }
    }

    /// A read has its outcome: everybody who waits for it goes on.
    pub(crate) fn read(&mut self, segment: SegmentId, from: Offset, result: Result<Vec<Batch>, Unread>) {
        let ids = self.reads.asked.remove(&(segment, from)).unwrap_or_default();
        if self.reads.ahead.answered((segment, from)) && ids.is_empty() {
            // Whoever comes to what could not be read asks again, and is told.
            return self.keep_ahead(segment, from, result.unwrap_or_default());
        }
        for id in ids {
            let Some(mut reading) = self.reads.running.remove(&id) else { continue };
            match &result {
                Ok(batches) => self.take_batches(&mut reading, segment, from, batches),
                Err(Unread::Store(store::Error::EndOfData { .. })) => {
                    self.end_of_copy(&mut reading, segment, from)
                }
                // It was sealed empty and removed, or its topic was: the place is another one by now.
                Err(Unread::Store(store::Error::NoSuchSegment)) if !self.core.meta.lists(segment) => {}
                // Nothing is wrong: it works when less is waiting.
                Err(Unread::Store(store::Error::Overloaded)) => reading.give_up(fetch::Error::Overloaded),
                Err(_) if self.core.config.has_bug(Bug::ErrorIsEnd) => reading.next_tile(),
                Err(Unread::Unavailable) => self.pass_lost(segment.range, &mut reading),
                Err(Unread::Store(error)) => {
                    self.read_failed(&mut reading, segment, from, &error.to_string());
                }
            }
            self.read_on(id, reading);
        }
    }

    /// Keeps what was read before a reader came to it, if all of it is committed.
    fn keep_ahead(&mut self, segment: SegmentId, from: Offset, batches: Vec<Batch>) {
        let Some(last) = batches.last() else { return };
        let place = self.place(segment.range, last.header.base_offset.max(from));
        if matches!(place, Place::Segment { segment: at, .. } if at == segment) {
            self.reads.ahead.keep((segment, from), batches);
        }
    }

    /// The copy holds nothing where it was asked. It was asked because nobody else knew where it ends, unless
    /// somebody vouches for a record there: then records are missing.
    fn end_of_copy(&mut self, reading: &mut Reading, segment: SegmentId, from: Offset) {
        let place = reading.current().map(|(range, tile)| self.place(range, tile.next));
        match place {
            Some(Place::Segment { segment: now, .. }) if now != segment => {
                // It was sealed there meanwhile, and the range goes on in another segment: that one is read next.
            }
            Some(Place::Segment { known: true, .. }) => {
                self.read_failed(reading, segment, from, "the copy ends before a record that was committed");
            }
            Some(Place::Unknown) => {}
            Some(Place::Segment { known: false, .. } | Place::End) | None => reading.next_tile(),
        }
    }

    fn take_batches(&mut self, reading: &mut Reading, segment: SegmentId, from: Offset, batches: &[Batch]) {
        for batch in batches {
            let Some((range, tile)) = reading.current() else { return };
            // Another segment's place, or nothing committed there: what the disk holds further is not for readers.
            if !matches!(self.place(range, tile.next), Place::Segment { segment: at, .. } if at == segment) {
                return;
            }
            let inside = batch.header.base_offset <= tile.next && tile.next < batch.header.end_offset();
            let filter = self.filter(range, tile);
            let take = |piece| reading.take(piece, filter.as_ref());
            let taken = inside.then(|| Piece::of(batch, tile.next).and_then(take));
            match taken {
                Some(Ok(rest)) => self.reads.rests.put(segment, rest),
                Some(Err(mangled)) => return self.read_failed(reading, segment, from, &mangled.to_string()),
                None => return self.read_failed(reading, segment, from, "another batch than asked for"),
            }
        }
        // A read that gave nothing would be asked again for ever.
        if reading.current().is_some_and(|(_, tile)| tile.next == from) {
            self.read_failed(reading, segment, from, "no batch");
        }
    }

    fn read_failed(&mut self, reading: &mut Reading, segment: SegmentId, offset: Offset, detail: &str) {
        self.core.notice(Notice::ReadFailed { segment, offset, detail: detail.to_owned() });
        self.scrub_first(segment);
        reading.give_up(fetch::Error::Storage);
    }
}
