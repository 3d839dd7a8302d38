//! The batch frame: the unit of append, checksum, replication and recovery.
//!
//! ```text
//!  0  magic 2, version 1, flags 1      zeros never decode
//!  4  payload length          u32      1 ..= limits::BATCH_BYTES_MAX
//!  8  record count            u32      at least 1
//! 12  base offset             u64      of the first record, range-relative
//! 20  append time             u64      ms, never decreases within a range
//! 28  epoch                   u64      segment epoch it was appended under
//! 36  producer id             u64  \
//! 44  producer epoch          u32   |  zero when the producer is not idempotent
//! 48  first sequence          u32  /
//! 52  payload CRC             u32      over segment id, payload
//! 56  header CRC              u32      over segment id, bytes 0..56
//! 60  durable before          u64  \   local to this copy: masked in comparisons, never sent
//! 68  local CRC               u32  /   over segment id, copy nonce, header CRC, durable before
//! 72  payload                          records in wire encoding, back to back
//! ```
//!
//! Every CRC is CRC-32 (IEEE) and starts from the segment's id, so a frame of another segment never decodes
//! here: neither a leftover in a recycled file nor a misdirected write. The local CRC also covers the copy's
//! nonce, drawn when the copy was created, so a frame of an earlier life of the *same* segment does not decode
//! either, and a recycled file needs no rewriting before it is used again.
//!
//! `durable before` is what tells rot from a torn write; see `recovery`.

use bytes::{BufMut, Bytes, BytesMut};
use types::{Epoch, Offset, SegmentId, WallTime, limits};

/// Bytes of a frame before its payload, the local ones included.
pub const HEADER_BYTES: usize = 72;
/// Bytes of a header that are equal on every copy.
pub const SHARED_BYTES: usize = 60;
/// The first bytes of every frame of this version; the flags follow.
pub const MAGIC: [u8; 3] = [0xD7, 0x4D, VERSION];
/// The only version this build reads and writes.
const VERSION: u8 = 1;
/// Flags this build understands: any other bit is a frame it must not guess about.
const KNOWN_FLAGS: u8 = 0b0011_1111;

const PAYLOAD_CRC_AT: usize = 52;
const HEADER_CRC_AT: usize = 56;
const DURABLE_AT: usize = 60;
const LOCAL_CRC_AT: usize = 68;

/// Whose bytes a checksum vouches for: the CRC of the segment's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(u32);

impl Seed {
    /// Bytes that went into every seed.
    const LEN: u64 = 32;

    /// The seed of one segment.
    #[must_use]
    pub fn of(segment: SegmentId) -> Self {
        Self(crc32fast::hash(&segment.to_bytes()))
    }

    /// A hasher that has already taken the segment's id.
    #[must_use]
    pub fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial_len(self.0, Self::LEN)
    }

    /// CRC over segment id and `bytes`.
    #[must_use]
    pub fn crc(self, bytes: &[u8]) -> u32 {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finalize()
    }

    /// CRC over segment id and some bytes, of which only the plain CRC-32 and the length are known: whoever
    /// received a body has hashed it before anybody knew which segment it would go to.
    #[must_use]
    pub fn combine(self, plain: u32, len: u64) -> u32 {
        let mut hasher = self.hasher();
        hasher.combine(&crc32fast::Hasher::new_with_initial_len(plain, len));
        hasher.finalize()
    }
}

/// Drawn at random when a copy is created; tells its frames from those of an earlier copy of the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// Whose frames a file holds: what a checksum must start from to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The segment.
    pub seed: Seed,
    /// The copy.
    pub nonce: Nonce,
}

/// How a batch's payload is to be read: the low three bits name the compression codec (0 is none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Every record of the batch has a null key.
    pub const KEYLESS: Self = Self(0b0000_1000);
    /// The batch is the broker's own, not a client's.
    pub const CONTROL: Self = Self(0b0001_0000);

    /// The stored byte.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Flags from a stored byte; `None` when a bit is set that this build does not know.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !KNOWN_FLAGS == 0).then_some(Self(bits))
    }

    /// Both sets together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Identity of an idempotent producer's batch; all zero when the producer is not idempotent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// The producer.
    pub id: u64,
    /// Its life.
    pub epoch: u32,
    /// Sequence number of the batch's first record.
    pub first_sequence: u32,
}

/// What a frame says about its payload; equal on every copy of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How to read the payload.
    pub flags: Flags,
    /// Bytes of payload, 1 to [`limits::BATCH_BYTES_MAX`].
    pub payload_len: u32,
    /// Records in the payload, at least 1.
    pub record_count: u32,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// When the primary appended it.
    pub append_time: WallTime,
    /// Segment epoch it was appended under.
    pub epoch: Epoch,
    /// Who produced it.
    pub producer: Producer,
    /// CRC over segment id and payload.
    pub payload_crc: u32,
}

/// Why 72 bytes are not the header of a frame of this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Not a frame, or damaged.
    #[error("not a frame header")]
    NotAHeader,
    /// An intact header of this segment, written by a build this one must not second-guess.
    #[error("a frame of format version {version} with flags {flags:#04x}")]
    Unsupported {
        /// Its version.
        version: u8,
        /// Its flags.
        flags: u8,
    },
}

impl Header {
    /// The offset after the batch's last record.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        self.base_offset.plus(u64::from(self.record_count))
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.payload_len)
    }

    /// The 72 bytes that precede the payload on the copy `identity`, whose file is known to be synced below
    /// `durable_before`.
    #[must_use]
    pub fn encode(&self, identity: Identity, durable_before: u64) -> Bytes {
        let (mut out, header_crc) = self.shared(identity.seed);
        out.put_u64(durable_before);
        out.put_u32(local_crc(identity, header_crc, durable_before));
        out.freeze()
    }

    /// The 60 bytes that are equal on every copy: what travels between nodes.
    #[must_use]
    pub fn encode_shared(&self, seed: Seed) -> Bytes {
        self.shared(seed).0.freeze()
    }

    /// Those bytes, with room for the local ones, and the checksum at their end.
    fn shared(&self, seed: Seed) -> (BytesMut, u32) {
        let mut out = BytesMut::with_capacity(HEADER_BYTES);
        out.put_slice(&MAGIC);
        out.put_u8(self.flags.bits());
        out.put_u32(self.payload_len);
        out.put_u32(self.record_count);
        out.put_u64(self.base_offset.0);
        out.put_u64(self.append_time.0);
        out.put_u64(self.epoch.0);
        out.put_u64(self.producer.id);
        out.put_u32(self.producer.epoch);
        out.put_u32(self.producer.first_sequence);
        out.put_u32(self.payload_crc);
        let header_crc = seed.crc(&out);
        out.put_u32(header_crc);
        (out, header_crc)
    }

    /// Reads a header and its `durable before`.
    ///
    /// Every byte is covered by one of the two checksums, so a single flipped bit never decodes.
    pub fn decode(bytes: &[u8; HEADER_BYTES], identity: Identity) -> Result<(Self, u64), Undecodable> {
        let shared = bytes.first_chunk().expect("a header is longer than what of it is shared");
        let header_crc = checked(shared, identity.seed)?;
        let durable_before = u64::from_be_bytes(field(bytes, DURABLE_AT));
        if local_crc(identity, header_crc, durable_before) != u32::from_be_bytes(field(bytes, LOCAL_CRC_AT)) {
            return Err(Undecodable::NotAHeader);
        }
        Ok((Self::parsed(shared)?, durable_before))
    }

    /// Reads what another node sent of a header of a segment.
    pub fn decode_shared(bytes: &[u8], seed: Seed) -> Result<Self, Undecodable> {
        let bytes = <&[u8; SHARED_BYTES]>::try_from(bytes).map_err(|_| Undecodable::NotAHeader)?;
        checked(bytes, seed)?;
        Self::parsed(bytes)
    }

    /// What bytes say whose checksum is right.
    fn parsed(bytes: &[u8; SHARED_BYTES]) -> Result<Self, Undecodable> {
        let u32_at = |at: usize| u32::from_be_bytes(field(bytes, at));
        let u64_at = |at: usize| u64::from_be_bytes(field(bytes, at));
        let unsupported = Undecodable::Unsupported { version: bytes[2], flags: bytes[3] };
        let flags = Flags::from_bits(bytes[3]).filter(|_| bytes[2] == VERSION).ok_or(unsupported)?;
        let header = Self {
            flags,
            payload_len: u32_at(4),
            record_count: u32_at(8),
            base_offset: Offset(u64_at(12)),
            append_time: WallTime(u64_at(20)),
            epoch: Epoch(u64_at(28)),
            producer: Producer { id: u64_at(36), epoch: u32_at(44), first_sequence: u32_at(48) },
            payload_crc: u32_at(PAYLOAD_CRC_AT),
        };
        if header.is_plausible() { Ok(header) } else { Err(Undecodable::NotAHeader) }
    }

    /// Whether the numbers are ones a batch can have; holds for everything this build writes.
    fn is_plausible(&self) -> bool {
        let payload_fits = (1..=limits::BATCH_BYTES_MAX).contains(&(self.payload_len as usize));
        let offsets_fit = self.base_offset.checked_add(u64::from(self.record_count)).is_some();
        payload_fits && self.record_count > 0 && offsets_fit
    }
}

/// The checksum of the shared bytes of a header, when it is right.
fn checked(bytes: &[u8; SHARED_BYTES], seed: Seed) -> Result<u32, Undecodable> {
    let crc = u32::from_be_bytes(field(bytes, HEADER_CRC_AT));
    let is_header = bytes[..2] == MAGIC[..2] && seed.crc(&bytes[..HEADER_CRC_AT]) == crc;
    if is_header { Ok(crc) } else { Err(Undecodable::NotAHeader) }
}

fn local_crc(identity: Identity, header_crc: u32, durable_before: u64) -> u32 {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&identity.nonce.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&header_crc.to_be_bytes());
    bytes[12..].copy_from_slice(&durable_before.to_be_bytes());
    identity.seed.crc(&bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("every field lies inside the header")
}

/// One batch: what a primary ships and a reader gets. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What it says about itself.
    pub header: Header,
    /// The records, in wire encoding, back to back.
    pub payload: Bytes,
}

impl Batch {
    /// Whether the payload is the one the header vouches for.
    #[must_use]
    pub fn is_intact(&self, seed: Seed) -> bool {
        self.payload.len() == self.header.payload_len as usize
            && seed.crc(&self.payload) == self.header.payload_crc
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{RangeId, RangeSeq, SegmentSeq, TopicId};

    use super::*;

    fn identity(topic: u128, nonce: u64) -> Identity {
        let range = RangeId { topic: TopicId(topic), seq: RangeSeq(0) };
        Identity { seed: Seed::of(SegmentId { range, seq: SegmentSeq(0) }), nonce: Nonce(nonce) }
    }

    fn header(payload: &[u8], seed: Seed) -> Header {
        Header {
            flags: Flags::KEYLESS,
            payload_len: u32::try_from(payload.len()).unwrap(),
            record_count: 3,
            base_offset: Offset(40),
            append_time: WallTime(1_700_000_000_000),
            epoch: Epoch(1),
            producer: Producer { id: 7, epoch: 2, first_sequence: 9 },
            payload_crc: seed.crc(payload),
        }
    }

    fn encoded(header: &Header, identity: Identity, durable: u64) -> [u8; HEADER_BYTES] {
        header.encode(identity, durable)[..].try_into().unwrap()
    }

    /// Raises a field and mends both checksums: bytes only another build could have written.
    fn forged(header: &Header, identity: Identity, at: usize, value: u8) -> [u8; HEADER_BYTES] {
        let mut bytes = encoded(header, identity, 0);
        bytes[at] = value;
        let crc = identity.seed.crc(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..DURABLE_AT].copy_from_slice(&crc.to_be_bytes());
        bytes[LOCAL_CRC_AT..].copy_from_slice(&local_crc(identity, crc, 0).to_be_bytes());
        bytes
    }

    #[test]
    fn the_golden_frame_keeps_its_bytes() {
        let identity = identity(0xfeed, 5);
        let bytes = header(b"payload", identity.seed).encode(identity, 1234);
        let golden = include_bytes!("golden/batch.bin");
        assert_eq!(&bytes[..], &golden[..HEADER_BYTES]);
        assert_eq!(&golden[HEADER_BYTES..], b"payload");
    }

    #[test]
    fn zeros_never_decode() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES], identity(0, 0)), Err(Undecodable::NotAHeader));
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let identity = identity(1, 2);
        let bytes = encoded(&header(b"abc", identity.seed), identity, 99);
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped, identity), Err(Undecodable::NotAHeader), "bit {bit}");
            let shared = Header::decode_shared(&flipped[..SHARED_BYTES], identity.seed);
            assert_eq!(shared.is_err(), bit / 8 < SHARED_BYTES, "bit {bit}");
        }
    }

    #[test]
    fn frames_of_another_segment_or_an_earlier_copy_do_not_decode() {
        let ours = identity(1, 2);
        let bytes = encoded(&header(b"abc", ours.seed), ours, 0);
        assert!(Header::decode(&bytes, ours).is_ok());
        assert!(Header::decode(&bytes, identity(2, 2)).is_err());
        assert!(Header::decode(&bytes, identity(1, 3)).is_err());
    }

    #[test]
    fn later_versions_and_unknown_flags_are_refused_and_not_guessed() {
        let identity = identity(1, 2);
        let header = header(b"abc", identity.seed);
        let later = forged(&header, identity, 2, VERSION + 1);
        assert!(matches!(Header::decode(&later, identity), Err(Undecodable::Unsupported { version: 2, .. })));
        let flagged = forged(&header, identity, 3, 0x80);
        assert!(matches!(
            Header::decode(&flagged, identity),
            Err(Undecodable::Unsupported { flags: 0x80, .. })
        ));
    }

    #[test]
    fn implausible_numbers_do_not_decode_even_with_good_checksums() {
        let identity = identity(1, 2);
        let good = header(b"abc", identity.seed);
        for bad in [
            Header { payload_len: 0, ..good },
            Header { payload_len: u32::MAX, ..good },
            Header { record_count: 0, ..good },
            Header { base_offset: Offset(u64::MAX - 1), ..good },
        ] {
            assert!(Header::decode(&encoded(&bad, identity, 0), identity).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            payload in prop::collection::vec(any::<u8>(), 1..200), count in 1u32.., base in 0..u64::MAX / 2,
            time: u64, epoch: u64, id: u64, durable: u64, nonce: u64,
        ) {
            let identity = identity(3, nonce);
            let header = Header {
                record_count: count, base_offset: Offset(base), append_time: WallTime(time), epoch: Epoch(epoch),
                producer: Producer { id, epoch: count, first_sequence: 1 }, ..header(&payload, identity.seed)
            };
            let bytes = encoded(&header, identity, durable);
            prop_assert_eq!(Header::decode(&bytes, identity), Ok((header, durable)));
            let shared = header.encode_shared(identity.seed);
            prop_assert_eq!(&shared[..], &bytes[..SHARED_BYTES]);
            prop_assert_eq!(Header::decode_shared(&shared, identity.seed), Ok(header));
            for cut in [&bytes[..], &shared[..SHARED_BYTES - 1], &[]] {
                prop_assert!(Header::decode_shared(cut, identity.seed).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::array::uniform32(any::<u8>())) {
            let mut header = [0xA5; HEADER_BYTES];
            header[..3].copy_from_slice(&MAGIC);
            header[40..].copy_from_slice(&bytes);
            prop_assert!(Header::decode(&header, identity(1, 1)).is_err());
        }

        #[test]
        fn a_plain_checksum_combines_with_the_segment(body in prop::collection::vec(any::<u8>(), 0..3000)) {
            let seed = identity(77, 0).seed;
            prop_assert_eq!(seed.combine(crc32fast::hash(&body), body.len() as u64), seed.crc(&body));
        }
    }
}
