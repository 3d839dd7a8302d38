//! Whole batches in, whole records out: where a batch is cut when a reader wants a part of it.
//!
//! Pure. A batch that fits whole is passed on by its header alone; only a cut walks records.

use bytes::Bytes;
use storage::format::batch::Batch;
use types::Offset;
use types::record::Walk;

/// The records of a batch do not agree with its header: its checksum vouched for bytes we did not write so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch holds other records than its header says")]
pub(crate) struct Mangled;

/// The rest of a batch, from one offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Records in wire encoding.
    pub(crate) records: Bytes,
    /// How many.
    pub(crate) count: u32,
    /// Offset of the first.
    pub(crate) first: Offset,
}

/// What may still be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Records.
    pub(crate) count: u32,
    /// Bytes.
    pub(crate) bytes: usize,
    /// Take the first record whatever its size.
    pub(crate) at_least_one: bool,
}

impl Piece {
    /// The part of `batch` at and after `from`, which must lie inside it.
    pub(crate) fn of(batch: &Batch, from: Offset) -> Result<Self, Mangled> {
        let header = &batch.header;
        let whole =
            Self { records: batch.payload.clone(), count: header.record_count, first: header.base_offset };
        let skip = u32::try_from(from.since(header.base_offset)).map_err(|_| Mangled)?;
        if skip == 0 { Ok(whole) } else { Ok(whole.split(skip, usize::MAX, true)?.1) }
    }

    /// Takes what fits from the front: (taken, rest). Either may be empty.
    pub(crate) fn take(self, room: Room) -> Result<(Self, Self), Mangled> {
        if self.count <= room.count && self.records.len() <= room.bytes {
            let end = self.first.plus(u64::from(self.count));
            return Ok((self, Self { records: Bytes::new(), count: 0, first: end }));
        }
        self.split(room.count, room.bytes, room.at_least_one)
    }

    fn split(
        mut self,
        count_max: u32,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<(Self, Self), Mangled> {
        let (mut count, mut end) = (0, 0);
        for span in Walk::new(&self.records) {
            let span = span.map_err(|_| Mangled)?;
            let fits = span.end <= bytes_max || (at_least_one && count == 0);
            if count == count_max || !fits {
                break;
            }
            count += 1;
            end = span.end;
        }
        let left = self.count.checked_sub(count).ok_or(Mangled)?;
        let records = self.records.split_to(end);
        // Nothing may be left of the one when something is left of the other.
        if (left == 0) != self.records.is_empty() {
            return Err(Mangled);
        }
        let taken = Self { records, count, first: self.first };
        let first = self.first.plus(u64::from(count));
        Ok((taken, Self { records: self.records, count: left, first }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::BytesMut;
    use types::record::Record;

    use super::*;

    /// Records of 18, 19, 20 ... bytes.
    fn piece(count: u32) -> Piece {
        let mut out = BytesMut::new();
        for n in 0..count {
            let value = Bytes::from(vec![b'v'; n as usize + 1]);
            Record { key: None, value, timestamp: 0, headers: Vec::new() }.encode(&mut out);
        }
        Piece { records: out.freeze(), count, first: Offset(10) }
    }

    fn room(count: u32, bytes: usize, at_least_one: bool) -> Room {
        Room { count, bytes, at_least_one }
    }

    #[test]
    fn what_fits_passes_whole_and_what_does_not_is_cut_between_records() {
        let whole = piece(3);
        let (taken, rest) = whole.clone().take(room(3, 1000, true)).unwrap();
        assert_eq!((taken, rest.count, rest.first), (whole.clone(), 0, Offset(13)));
        let (taken, rest) = whole.clone().take(room(2, 1000, true)).unwrap();
        assert_eq!((taken.count, taken.records.len(), rest.count, rest.first), (2, 37, 1, Offset(12)));
        let (taken, rest) = whole.take(room(9, 18 + 18, false)).unwrap();
        assert_eq!((taken.count, rest.count, rest.first), (1, 2, Offset(11)));
    }

    #[test]
    fn the_first_record_passes_whatever_its_size_only_when_asked() {
        let (taken, rest) = piece(2).take(room(9, 1, true)).unwrap();
        assert_eq!((taken.count, rest.count), (1, 1));
        let (taken, rest) = piece(2).take(room(9, 1, false)).unwrap();
        assert_eq!((taken.count, rest.count, rest.first), (0, 2, Offset(10)));
    }

    #[test]
    fn a_count_the_records_do_not_bear_out_is_refused() {
        let more = Piece { count: 4, ..piece(3) };
        assert_eq!(more.take(room(9, 20, true)).map(|(taken, _)| taken.count), Ok(1));
        let more = Piece { count: 5, ..piece(3) };
        assert_eq!(more.take(room(4, usize::MAX, true)), Err(Mangled));
        let fewer = Piece { count: 2, ..piece(3) };
        assert_eq!(fewer.take(room(1, 18, true)).map(|(taken, _)| taken.count), Ok(1));
        let garbage = Piece { records: Bytes::from_static(b"garbage"), count: 2, first: Offset(0) };
        assert_eq!(garbage.take(room(1, 100, true)), Err(Mangled));
    }
}
