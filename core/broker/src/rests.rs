//! Batches that were read and not wanted yet: rests, so that reading on inside a large batch neither reads nor walks
//! its beginning again, and what was read ahead of a reader. A cache: bounded, first in first out, and of no
//! consequence for any answer.

use std::collections::BTreeMap;

use types::{Offset, SegmentId};

use crate::cut::Piece;

/// Rests of batches kept, over all readers.
const RESTS_MAX: usize = 128;
/// Bytes of batches kept alive by them.
const REST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    pieces: BTreeMap<(SegmentId, Offset), (u64, Piece)>,
    order: BTreeMap<u64, (SegmentId, Offset)>,
    bytes: usize,
    next: u64,
}

impl Rests {
    pub(crate) fn take(&mut self, segment: SegmentId, first: Offset) -> Option<Piece> {
        let (order, piece) = self.pieces.remove(&(segment, first))?;
        self.order.remove(&order);
        self.bytes -= piece.records.len();
        Some(piece)
    }

    pub(crate) fn put(&mut self, segment: SegmentId, piece: Piece) {
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
