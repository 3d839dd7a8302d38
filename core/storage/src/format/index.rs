//! `<base>.idx`: the sparse index of a sealed copy, written once, trusted never.
//!
//! ```text
//!  0  magic "MLIX", version u16, reserved u16
//!  8  segment seed            u32      the CRC of the segment's id
//! 12  entries                 u32
//! 16  entry: offset u64, append time u64, position u64      ascending in all three
//!  n  CRC                     u32      over everything before it
//! ```
//!
//! A file that does not decode is as good as none. One that decodes is still only a hint: a reader checks that
//! the frame it is sent to is the one the entry names, and scans from the start of the log when it is not.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{Offset, WallTime};

use super::batch::Seed;

const MAGIC: [u8; 4] = *b"MLIX";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;

/// Where one frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset of the frame's first record.
    pub offset: Offset,
    /// When it was appended.
    pub time: WallTime,
    /// Its first byte in the log.
    pub position: u64,
}

/// Bytes of a file with `count` entries.
#[must_use]
pub fn encoded_len(count: usize) -> usize {
    HEADER_BYTES + count * ENTRY_BYTES + 4
}

/// The file's bytes.
#[must_use]
pub fn encode(seed: Seed, entries: &[Entry]) -> Bytes {
    let mut out = BytesMut::with_capacity(encoded_len(entries.len()));
    out.put_slice(&MAGIC);
    out.put_u16(VERSION);
    out.put_u16(0);
    out.put_u32(seed.crc(&MAGIC));
    out.put_count(entries.len());
    for entry in entries {
        out.put_u64(entry.offset.0);
        out.put_u64(entry.time.0);
        out.put_u64(entry.position);
    }
    let crc = crc32fast::hash(&out);
    out.put_u32(crc);
    out.freeze()
}

/// Reads the file's bytes. An error means "scan the log instead", whatever it is.
pub fn decode(seed: Seed, bytes: Bytes) -> Result<Vec<Entry>, Error> {
    let body_len = bytes.len().checked_sub(4).ok_or(Error::Short)?;
    if crc32fast::hash(&bytes[..body_len]).to_be_bytes() != bytes[body_len..] {
        return Err(Error::Invalid("the checksum"));
    }
    let mut reader = Reader::new(bytes.slice(..body_len));
    let ours = reader.take(4)?[..] == MAGIC && reader.u16()? == VERSION && reader.u16()? == 0;
    if !ours || reader.u32()? != seed.crc(&MAGIC) {
        return Err(Error::Invalid("the identity"));
    }
    let count = reader.count(ENTRY_BYTES)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let entry =
            Entry { offset: Offset(reader.u64()?), time: WallTime(reader.u64()?), position: reader.u64()? };
        entries.push(entry);
    }
    reader.finish()?;
    let ascending = |pair: &[Entry]| pair[0].offset < pair[1].offset && pair[0].position < pair[1].position;
    if entries.windows(2).all(ascending) { Ok(entries) } else { Err(Error::Invalid("the order of entries")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};

    use super::*;

    fn seed(topic: u128) -> Seed {
        let range = RangeId { topic: TopicId(topic), seq: RangeSeq(0) };
        Seed::of(SegmentId { range, seq: SegmentSeq(0) })
    }

    fn entries(count: u64) -> Vec<Entry> {
        let entry = |i: u64| Entry { offset: Offset(i * 3), time: WallTime(1000 + i), position: i * 4100 };
        (0..count).map(entry).collect()
    }

    #[test]
    fn the_golden_file_keeps_its_bytes() {
        assert_eq!(&encode(seed(0xfeed), &entries(3))[..], include_bytes!("golden/index.idx"));
    }

    #[test]
    fn zeros_every_cut_every_flipped_bit_and_another_segments_index_are_refused() {
        assert!(decode(seed(1), Bytes::from_static(&[0; 64])).is_err());
        let good = encode(seed(1), &entries(3));
        for len in 0..good.len() {
            assert!(decode(seed(1), good.slice(..len)).is_err(), "cut at {len}");
        }
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(seed(1), bytes.into()).is_err(), "bit {bit}");
        }
        assert!(decode(seed(2), good).is_err());
    }

    proptest! {
        #[test]
        fn indexes_round_trip(count in 0u64..300) {
            prop_assert_eq!(decode(seed(9), encode(seed(9), &entries(count))), Ok(entries(count)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(seed(1), bytes.into()).is_err());
        }
    }
}
