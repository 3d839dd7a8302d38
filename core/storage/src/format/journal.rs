//! The journal: frames of many copies in one file, so that one sync makes them all durable.
//!
//! ```text
//! file:    header at 0, the same again at 512; records from 1024 on, back to back
//!
//! header:   0  magic "MLJR", version u16, zero u16
//!           8  sequence u64     which use of the file this is; files follow one another in this order
//!          16  salt u64         drawn for each use
//!          24  previous end u64 where the use before this one ended, in the other file; all of it was synced
//!          32  CRC u32          over bytes 0..32
//!
//! record:   0  magic "JN", version 1, zero 1
//!           4  payload length u32
//!           8  segment id 32
//!          40  nonce u64        of the copy: see `batch`
//!          48  position u64     where the payload belongs in the copy's log
//!          56  durable before   sequence u64, position u64: known to be synced when this was written
//!          72  payload CRC u32  over seed, payload
//!          76  header CRC u32   over seed, bytes 0..76
//!          80  payload          whole frames of the copy, exactly as they stand in its log
//! ```
//!
//! The seed is the file's sequence and salt and the record's position: a record of an earlier use, of another
//! file or place, or one that a client wrote into its own data never decodes. The header stands twice because
//! without it every record of the file would be lost to one flipped bit; a new use of a file rewrites one after
//! the other, with a sync between.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::Reader;
use types::{RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};

use super::batch::Nonce;

/// Where the second copy of a file's header stands.
pub const SECOND_HEADER_AT: u64 = 512;
/// Where records begin.
pub const RECORDS_AT: u64 = 1024;
/// Bytes of a file's header.
pub const FILE_HEADER_BYTES: usize = 36;
/// Bytes of a record before its payload.
pub const HEADER_BYTES: usize = 80;
/// First bytes of every record.
pub const MAGIC: [u8; 3] = [b'J', b'N', 1];
const FILE_MAGIC: [u8; 4] = *b"MLJR";
const VERSION: u16 = 1;
const CRC_AT: usize = 76;

/// One use of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Files follow one another in this order.
    pub sequence: u64,
    /// Drawn for this use.
    pub salt: u64,
    /// Everything below, in the use before this one, was synced when this one began; 0 when there is none.
    pub previous_end: u64,
}

impl Stamp {
    /// The file's header.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FILE_HEADER_BYTES);
        out.put_slice(&FILE_MAGIC);
        out.put_u16(VERSION);
        out.put_u16(0);
        out.put_u64(self.sequence);
        out.put_u64(self.salt);
        out.put_u64(self.previous_end);
        let crc = crc32fast::hash(&out);
        out.put_u32(crc);
        out.freeze()
    }

    /// Reads a file's header; `None` when there is none, it is damaged, or it is of a later format.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FILE_HEADER_BYTES] = bytes.first_chunk()?;
        let stamp =
            Self { sequence: number(bytes, 8), salt: number(bytes, 16), previous_end: number(bytes, 24) };
        (stamp.encode()[..] == bytes[..]).then_some(stamp)
    }

    fn hasher(&self, at: u64) -> crc32fast::Hasher {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.sequence.to_be_bytes());
        hasher.update(&self.salt.to_be_bytes());
        hasher.update(&at.to_be_bytes());
        hasher
    }
}

/// A place in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Which use of a file.
    pub sequence: u64,
    /// Byte position in it.
    pub at: u64,
}

/// What a record says about its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow.
    pub payload_len: u32,
    /// Whose log they belong to.
    pub segment: SegmentId,
    /// Which copy of it.
    pub nonce: Nonce,
    /// Where in that log.
    pub position: u64,
    /// Everything before was synced when this was written.
    pub durable_before: Spot,
}

impl Header {
    /// The record's header; `at` is where the record begins, `payload` its slices in order.
    #[must_use]
    pub fn encode(&self, stamp: Stamp, at: u64, payload: &[Bytes]) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES);
        out.put_slice(&MAGIC);
        out.put_u8(0);
        out.put_u32(self.payload_len);
        out.put_slice(&self.segment.to_bytes());
        out.put_u64(self.nonce.0);
        out.put_u64(self.position);
        out.put_u64(self.durable_before.sequence);
        out.put_u64(self.durable_before.at);
        let mut hasher = stamp.hasher(at);
        for slice in payload {
            hasher.update(slice);
        }
        out.put_u32(hasher.finalize());
        let mut hasher = stamp.hasher(at);
        hasher.update(&out);
        out.put_u32(hasher.finalize());
        out.freeze()
    }

    /// Reads a record's header at `at`, and the CRC its payload must have. `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8], stamp: Stamp, at: u64) -> Option<(Self, u32)> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let mut hasher = stamp.hasher(at);
        hasher.update(&bytes[..CRC_AT]);
        if bytes[..3] != MAGIC || bytes[3] != 0 || hasher.finalize().to_be_bytes() != bytes[CRC_AT..] {
            return None;
        }
        let mut reader = Reader::new(Bytes::copy_from_slice(&bytes[4..]));
        let payload_len = reader.u32().ok()?;
        let range = RangeId { topic: TopicId(reader.u128().ok()?), seq: RangeSeq(reader.u64().ok()?) };
        let header = Self {
            payload_len,
            segment: SegmentId { range, seq: SegmentSeq(reader.u64().ok()?) },
            nonce: Nonce(reader.u64().ok()?),
            position: reader.u64().ok()?,
            durable_before: Spot { sequence: reader.u64().ok()?, at: reader.u64().ok()? },
        };
        let fits = payload_len > 0 && header.position.checked_add(u64::from(payload_len)).is_some();
        Some((header, reader.u32().ok()?)).filter(|_| fits)
    }

    /// Whether `payload` is the one a header at `at` vouches for.
    #[must_use]
    pub fn vouches(stamp: Stamp, at: u64, crc: u32, payload: &[u8]) -> bool {
        let mut hasher = stamp.hasher(at);
        hasher.update(payload);
        hasher.finalize() == crc
    }
}

fn number(bytes: &[u8; FILE_HEADER_BYTES], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("every field lies inside the header"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Stamp = Stamp { sequence: 6, salt: 0x5a17, previous_end: 77 };

    fn header(len: u32) -> Header {
        let range = RangeId { topic: TopicId(0xfeed), seq: RangeSeq(1) };
        Header {
            payload_len: len,
            segment: SegmentId { range, seq: SegmentSeq(2) },
            nonce: Nonce(3),
            position: 4096,
            durable_before: Spot { sequence: 5, at: 999 },
        }
    }

    #[test]
    fn the_golden_file_keeps_its_bytes() {
        let payload = [Bytes::from_static(b"frames")];
        let mut file = STAMP.encode().to_vec();
        file.extend_from_slice(&header(6).encode(STAMP, RECORDS_AT, &payload));
        file.extend_from_slice(b"frames");
        assert_eq!(file, include_bytes!("golden/journal.bin"));
    }

    #[test]
    fn zeros_cuts_and_every_flipped_bit_are_refused() {
        assert_eq!(Stamp::decode(&[0; FILE_HEADER_BYTES]), None);
        assert_eq!(Header::decode(&[0; HEADER_BYTES], STAMP, 0), None);
        let (file, record) = (STAMP.encode(), header(3).encode(STAMP, 2048, &[Bytes::from_static(b"abc")]));
        for len in 0..FILE_HEADER_BYTES {
            assert_eq!(Stamp::decode(&file[..len]), None);
        }
        for len in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&record[..len], STAMP, 2048), None);
        }
        for bit in 0..FILE_HEADER_BYTES * 8 {
            let mut bytes = file.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::decode(&bytes), None, "bit {bit}");
        }
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = record.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes, STAMP, 2048), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_of_another_use_or_place_does_not_decode() {
        let record = header(3).encode(STAMP, 2048, &[Bytes::from_static(b"abc")]);
        assert!(Header::decode(&record, STAMP, 2048).is_some());
        assert_eq!(Header::decode(&record, STAMP, 2049), None);
        assert_eq!(Header::decode(&record, Stamp { sequence: 7, ..STAMP }, 2048), None);
        assert_eq!(Header::decode(&record, Stamp { salt: 1, ..STAMP }, 2048), None);
    }

    proptest! {
        #[test]
        fn records_round_trip(payload in prop::collection::vec(any::<u8>(), 1..300), at: u64, cut in any::<prop::sample::Index>()) {
            let cut = cut.index(payload.len());
            let slices = [Bytes::copy_from_slice(&payload[..cut]), Bytes::copy_from_slice(&payload[cut..])];
            let header = header(u32::try_from(payload.len()).unwrap());
            let bytes = header.encode(STAMP, at, &slices);
            let (read, crc) = Header::decode(&bytes, STAMP, at).unwrap();
            prop_assert_eq!(read, header);
            prop_assert!(Header::vouches(STAMP, at, crc, &payload));
            let mut other = payload.clone();
            other[cut] ^= 1;
            prop_assert!(!Header::vouches(STAMP, at, crc, &other));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Stamp::decode(&bytes), None);
            prop_assert_eq!(Header::decode(&bytes, STAMP, 0), None);
        }
    }
}
