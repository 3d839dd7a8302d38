//! Collecting records for one fetch: range by range, segment by segment, read by read.
//!
//! Owns what a running fetch has gathered and where it stands, the reads asked of the store, and the rests of
//! batches that were read but not wanted yet. Does not decide where a fetch starts or whether it waits.
//!
//! Invariants:
//! - only committed records are given out;
//! - a position moves past a record only with that record given out;
//! - a failed read never looks like the end of the data: the range's position stays and the fetch fails
//!   unless other ranges gave records;
//! - fetches that want the same place share one read.

use std::collections::BTreeMap;

use bytes::Bytes;
use storage::format::batch::Batch;
use storage::store;
use types::cursor::{Cursor, Tile};
use types::{Instant, Offset, RangeId, SegmentId, TopicId, limits};

use crate::action::{Fetched, Notice};
use crate::cut::{Piece, Room};
use crate::event::RequestId;
use crate::fetch;
use crate::node::{Node, Owner};
use crate::planted::Bug;

/// Bytes of a response that are not records: envelope, count, and a cursor of one tile with room to spare.
const OVERHEAD_BYTES: usize = 128;
/// Bytes of cursor that each further tile may take.
const TILE_BYTES: usize = 36;
/// Rests of batches kept, over all readers.
const RESTS_MAX: usize = 128;
/// Bytes of batches kept alive by them.
const REST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A fetch that is collecting.
#[derive(Debug)]
pub(crate) struct Reading {
    topic: Bytes,
    id: TopicId,
    /// One for each range read, sorted by span.
    tiles: Vec<Tile>,
    /// Index of the tile being read.
    turn: usize,
    /// Tiles not finished in this pass, the one being read included.
    left: usize,
    count_max: u32,
    count: u32,
    bytes_max: usize,
    bytes: usize,
    records: Vec<Bytes>,
    deadline: Instant,
    failed: Option<fetch::Error>,
}

impl Reading {
    pub(crate) fn new(
        topic: Bytes,
        id: TopicId,
        tiles: Vec<Tile>,
        count_max: u32,
        deadline: Instant,
        frame_bytes_max: usize,
    ) -> Self {
        let left = tiles.len();
        let bytes_max = frame_bytes_max.saturating_sub(OVERHEAD_BYTES + left * TILE_BYTES);
        Self {
            topic,
            id,
            tiles,
            turn: 0,
            left,
            count_max,
            count: 0,
            bytes_max,
            bytes: 0,
            records: Vec::new(),
            deadline,
            failed: None,
        }
    }

    /// The same fetch at the start of another pass over its ranges.
    pub(crate) fn again(self) -> Self {
        Self { left: self.tiles.len(), failed: None, ..self }
    }

    pub(crate) fn topic(&self) -> Bytes {
        self.topic.clone()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Why a range could not be read.
    pub(crate) fn failed(&self) -> Option<fetch::Error> {
        self.failed
    }

    pub(crate) fn into_fetched(self) -> Fetched {
        let cursor = Cursor { topic: self.id, member: None, tiles: self.tiles }.encode();
        Fetched { count: self.count, records: self.records, cursor }
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
        let more =
            self.left > 0 && self.count < self.count_max && (self.bytes < self.bytes_max || self.count == 0);
        let tile = *self.tiles.get(self.turn)?;
        more.then_some((RangeId { topic: self.id, seq: tile.range }, tile))
    }

    fn move_to(&mut self, next: Offset) {
        self.tiles[self.turn].next = next;
    }

    /// Leaves the range being read where it is.
    fn give_up(&mut self, error: fetch::Error) {
        self.failed = Some(error);
        if self.left > 0 {
            self.next_tile();
        }
    }

    fn next_tile(&mut self) {
        self.turn = (self.turn + 1) % self.tiles.len();
        self.left -= 1;
    }

    /// Takes what fits of a piece that starts at the current position; gives back the rest.
    fn take(&mut self, piece: Piece) -> Result<Piece, crate::cut::Mangled> {
        let (taken, rest) = piece.take(self.room())?;
        self.move_to(rest.first);
        if taken.count > 0 {
            self.count += taken.count;
            self.bytes += taken.records.len();
            self.records.push(taken.records);
        }
        if rest.count > 0 {
            // Something did not fit: the response is full.
            self.left = 0;
        }
        Ok(rest)
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
}

/// Reads in flight, and the rests of batches.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    running: BTreeMap<RequestId, Reading>,
    /// Who waits for which read.
    asked: BTreeMap<(SegmentId, Offset), Vec<RequestId>>,
    rests: Rests,
}

impl Reads {
    /// Serves a batch from memory; only a planted bug does that before the store vouches for it.
    pub(crate) fn keep(&mut self, segment: SegmentId, piece: Piece) {
        self.rests.put(segment, piece);
    }
}

impl Node {
    /// Collects until the fetch is full, at the end, or has to wait for the disk.
    pub(crate) fn read_on(&mut self, id: RequestId, mut reading: Reading) {
        while let Some((range, tile)) = reading.current() {
            match self.place(range, tile.next) {
                Place::End => reading.next_tile(),
                Place::Segment { segment, from, .. } => {
                    reading.move_to(from);
                    let Some(piece) = self.reads.rests.take(segment, from) else {
                        return self.ask_read(id, reading, segment, from);
                    };
                    match reading.take(piece) {
                        Ok(rest) => self.reads.rests.put(segment, rest),
                        Err(mangled) => self.read_failed(&mut reading, segment, from, &mangled.to_string()),
                    }
                }
            }
        }
        self.read_done(id, reading);
    }

    fn ask_read(&mut self, id: RequestId, reading: Reading, segment: SegmentId, from: Offset) {
        self.reads.running.insert(id, reading);
        let waiting = self.reads.asked.entry((segment, from)).or_default();
        waiting.push(id);
        if waiting.len() == 1 {
            let bytes_max = limits::READ_WINDOW_BYTES;
            self.core.ask(Owner::Read { segment, from }, store::Request::Read { segment, from, bytes_max });
        }
    }

    /// The store answered a read: everybody who waits for it goes on.
    pub(crate) fn read(
        &mut self,
        segment: SegmentId,
        from: Offset,
        result: Result<Vec<Batch>, store::Error>,
    ) {
        let ids = self.reads.asked.remove(&(segment, from)).unwrap_or_default();
        for id in ids {
            let Some(mut reading) = self.reads.running.remove(&id) else { continue };
            match &result {
                Ok(batches) => self.take_batches(&mut reading, segment, from, batches),
                Err(store::Error::EndOfData { .. }) => self.end_of_copy(&mut reading, segment, from),
                // Nothing is wrong: it works when less is waiting.
                Err(store::Error::Overloaded) => reading.give_up(fetch::Error::Overloaded),
                Err(_) if self.core.config.has_bug(Bug::ErrorIsEnd) => reading.next_tile(),
                Err(error) => self.read_failed(&mut reading, segment, from, &error.to_string()),
            }
            self.read_on(id, reading);
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
            let taken = inside.then(|| Piece::of(batch, tile.next).and_then(|piece| reading.take(piece)));
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
        reading.give_up(fetch::Error::Storage);
    }
}

/// Rests of batches that were read and not wanted yet, so that reading on inside a large batch neither reads
/// nor walks its beginning again. A bounded, first-in-first-out cache.
#[derive(Debug, Default)]
struct Rests {
    pieces: BTreeMap<(SegmentId, Offset), (u64, Piece)>,
    order: BTreeMap<u64, (SegmentId, Offset)>,
    bytes: usize,
    next: u64,
}

impl Rests {
    fn take(&mut self, segment: SegmentId, first: Offset) -> Option<Piece> {
        let (order, piece) = self.pieces.remove(&(segment, first))?;
        self.order.remove(&order);
        self.bytes -= piece.records.len();
        Some(piece)
    }

    fn put(&mut self, segment: SegmentId, piece: Piece) {
        if piece.count == 0 {
            return;
        }
        drop(self.take(segment, piece.first));
        let key = (segment, piece.first);
        self.bytes += piece.records.len();
        self.order.insert(self.next, key);
        self.pieces.insert(key, (self.next, piece));
        self.next += 1;
        while self.pieces.len() > RESTS_MAX || self.bytes > REST_BYTES_MAX {
            let Some((_, (segment, first))) = self.order.pop_first() else { return };
            drop(self.take(segment, first));
        }
    }
}
