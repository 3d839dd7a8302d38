//! Whole batches in, whole records out: where a batch is cut when a reader wants a part of it.
//!
//! Pure. A batch that fits whole is passed on by its header alone; only a cut walks records.

use bytes::Bytes;
use storage::format::batch::Batch;
use types::keyspace::KeyHash;
use types::record::Walk;
use types::{KeySpan, Keyspace, Offset, WallTime};

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
    /// When they were appended.
    pub(crate) append_time: WallTime,
}

/// Which records of a range a reader wants that is responsible for a part of its keys only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    /// What the reader is responsible for.
    pub(crate) wanted: KeySpan,
    /// The slice of the range that holds the records.
    pub(crate) stored: KeySpan,
    pub(crate) keyspace: Keyspace,
    pub(crate) hash: KeyHash,
}

impl Filter {
    fn wants(&self, key: Option<&[u8]>, offset: Offset) -> bool {
        let position = match key {
            Some(key) => self.keyspace.position(self.hash, key),
            None => self.stored.keyless_position(self.hash, offset),
        };
        self.wanted.contains(position)
    }
}

/// Some records of a piece, and what was not looked at.
#[derive(Debug)]
pub(crate) struct Selected {
    /// Neighbours lie together.
    pub(crate) runs: Vec<Piece>,
    /// From the first record that did not fit.
    pub(crate) rest: Piece,
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
        let whole = Self {
            records: batch.payload.clone(),
            count: header.record_count,
            first: header.base_offset,
            append_time: header.append_time,
        };
        let skip = u32::try_from(from.since(header.base_offset)).map_err(|_| Mangled)?;
        if skip == 0 { Ok(whole) } else { Ok(whole.split(skip, usize::MAX, true)?.1) }
    }

    /// Takes what fits from the front: (taken, rest). Either may be empty.
    pub(crate) fn take(self, room: Room) -> Result<(Self, Self), Mangled> {
        if self.count <= room.count && self.records.len() <= room.bytes {
            let rest = self.end();
            return Ok((self, rest));
        }
        self.split(room.count, room.bytes, room.at_least_one)
    }

    /// Takes the wanted records from the front, until one does not fit.
    pub(crate) fn select(self, room: Room, filter: &Filter) -> Result<Selected, Mangled> {
        let Self { records, count, first, append_time } = &self;
        let mut runs: Vec<(std::ops::Range<usize>, u32, Offset)> = Vec::new();
        let (mut kept, mut bytes, mut seen) = (0, 0, 0);
        let mut end = 0;
        for span in Walk::new(records) {
            let span = span.map_err(|_| Mangled)?;
            let offset = first.plus(u64::from(seen));
            if filter.wants(span.key, offset) {
                let len = span.end - span.start;
                let fits = bytes + len <= room.bytes || (room.at_least_one && kept == 0);
                if kept == room.count || !fits {
                    break;
                }
                match runs.last_mut() {
                    Some((run, count, _)) if run.end == span.start => {
                        run.end = span.end;
                        *count += 1;
                    }
                    Some(_) | None => runs.push((span.start..span.end, 1, offset)),
                }
                kept += 1;
                bytes += len;
            }
            seen += 1;
            end = span.end;
        }
        let left = count.checked_sub(seen).ok_or(Mangled)?;
        if (left == 0) != (end == records.len()) {
            return Err(Mangled);
        }
        let run = |(run, count, first)| Self {
            records: records.slice(run),
            count,
            first,
            append_time: *append_time,
        };
        let runs = runs.into_iter().map(run).collect();
        let first = first.plus(u64::from(seen));
        let rest = Self { records: records.slice(end..), count: left, first, append_time: *append_time };
        Ok(Selected { runs, rest })
    }

    /// Nothing, behind the last record.
    fn end(&self) -> Self {
        let first = self.first.plus(u64::from(self.count));
        Self { records: Bytes::new(), count: 0, first, append_time: self.append_time }
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
        let append_time = self.append_time;
        let taken = Self { records, count, first: self.first, append_time };
        let first = self.first.plus(u64::from(count));
        Ok((taken, Self { records: self.records, count: left, first, append_time }))
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
        Piece { records: out.freeze(), count, first: Offset(10), append_time: WallTime(7) }
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
        let garbage = Piece { records: Bytes::from_static(b"garbage"), count: 2, ..piece(0) };
        assert_eq!(garbage.take(room(1, 100, true)), Err(Mangled));
    }
}
