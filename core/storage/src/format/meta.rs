//! `copy.meta`: what a copy is, and what has been decided about it. Replaced whole, never changed in place.
//!
//! ```text
//!  0  magic "MLCM"            4
//!  4  version                 u16      1
//!  6  flags                   u16      sealed 1, latched 2, rebuilding 4, repair intent 8, deleting 16
//!  8  topic, range, segment   16+8+8
//! 40  base offset             u64
//! 48  nonce                   u64      see `batch`
//! 56  epoch                   u64      highest accepted; appends below it are refused
//! 64  durable position        u64      bytes of log known to be synced
//! 72  durable end             u64      offset at that position
//! 80  sealed at               u64      ms; 0 unless sealed
//! 88  born                    u64      lowest journal sequence that can hold frames of it
//! 96  latch reason            u32      0 unless latched
//! 100 CRC                     u32      over bytes 0..100
//! ```
//!
//! A sealed copy's durable position and end are its sealed bytes and end, and never change again.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader};
use types::{Epoch, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use super::batch::{Identity, Nonce, Seed};
use crate::store::FailReason;

/// Bytes of the file.
pub const META_BYTES: usize = 104;
const MAGIC: [u8; 4] = *b"MLCM";
const VERSION: u16 = 1;
const CRC_AT: usize = META_BYTES - 4;

const SEALED: u16 = 1;
const LATCHED: u16 = 2;
const REBUILDING: u16 = 4;
const REPAIR_INTENT: u16 = 8;
const DELETING: u16 = 16;

/// The contents of `copy.meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The segment this is a copy of.
    pub segment: SegmentId,
    /// Offset of its first record.
    pub base: Offset,
    /// Drawn when the copy was created.
    pub nonce: Nonce,
    /// Highest epoch accepted; appends below it are refused.
    pub epoch: Epoch,
    /// Bytes of log known to be synced when this was written.
    pub durable_position: u64,
    /// Offset at that position.
    pub durable_end: Offset,
    /// When the copy was sealed; `None` while it takes appends.
    pub sealed_at: Option<WallTime>,
    /// Uses of the journal before this one hold nothing of the copy: what they lose, it does not miss.
    pub born: u64,
    /// Why the copy is out of service, if it is.
    pub latched: Option<FailReason>,
    /// Created late and not yet appended to in line: neither a source nor an answer.
    pub rebuilding: bool,
    /// A repair has begun to replace this copy's bytes.
    pub repair_intent: bool,
    /// The copy is being removed; a start finishes it.
    pub deleting: bool,
}

/// Why bytes are not a `copy.meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Damaged, or not ours.
    #[error("copy.meta is damaged")]
    Damaged,
    /// Intact, but of a later format.
    #[error("copy.meta has format version {0}, this build knows {VERSION}")]
    LaterVersion(u16),
}

impl From<codec::Error> for Undecodable {
    fn from(_: codec::Error) -> Self {
        Self::Damaged
    }
}

impl Meta {
    /// A new, empty copy.
    #[must_use]
    pub fn new(segment: SegmentId, base: Offset, nonce: Nonce, epoch: Epoch) -> Self {
        Self {
            segment,
            base,
            nonce,
            epoch,
            durable_position: 0,
            durable_end: base,
            sealed_at: None,
            born: 0,
            latched: None,
            rebuilding: false,
            repair_intent: false,
            deleting: false,
        }
    }

    /// What checksums of this copy's frames start from.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity { seed: Seed::of(self.segment), nonce: self.nonce }
    }

    /// The file's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let mut out = BytesMut::with_capacity(META_BYTES);
        out.put_slice(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(
            flag(self.sealed_at.is_some(), SEALED)
                | flag(self.latched.is_some(), LATCHED)
                | flag(self.rebuilding, REBUILDING)
                | flag(self.repair_intent, REPAIR_INTENT)
                | flag(self.deleting, DELETING),
        );
        out.put_slice(&self.segment.to_bytes());
        out.put_u64(self.base.0);
        out.put_u64(self.nonce.0);
        out.put_u64(self.epoch.0);
        out.put_u64(self.durable_position);
        out.put_u64(self.durable_end.0);
        out.put_u64(self.sealed_at.map_or(0, |at| at.0));
        out.put_u64(self.born);
        out.put_u32(self.latched.map_or(0, reason_code));
        let crc = crc32fast::hash(&out);
        out.put_u32(crc);
        out.freeze()
    }

    /// Reads the file's bytes: exactly [`META_BYTES`] of them.
    pub fn decode(bytes: &Bytes) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes.clone());
        if reader.take(4)?[..] != MAGIC {
            return Err(Undecodable::Damaged);
        }
        let version = reader.u16()?;
        let stored_crc = bytes.last_chunk::<4>().ok_or(Undecodable::Damaged)?;
        if crc32fast::hash(&bytes[..bytes.len() - 4]).to_be_bytes() != *stored_crc {
            return Err(Undecodable::Damaged);
        }
        // Every later version keeps magic, version and a closing checksum, so that it can be told from damage.
        if version > VERSION {
            return Err(Undecodable::LaterVersion(version));
        }
        if bytes.len() != META_BYTES || version != VERSION {
            return Err(Undecodable::Damaged);
        }
        let flags = reader.u16()?;
        if flags & !(SEALED | LATCHED | REBUILDING | REPAIR_INTENT | DELETING) != 0 {
            return Err(Undecodable::Damaged);
        }
        let range = RangeId { topic: TopicId(reader.u128()?), seq: RangeSeq(reader.u64()?) };
        let meta = Self {
            segment: SegmentId { range, seq: SegmentSeq(reader.u64()?) },
            base: Offset(reader.u64()?),
            nonce: Nonce(reader.u64()?),
            epoch: Epoch(reader.u64()?),
            durable_position: reader.u64()?,
            durable_end: Offset(reader.u64()?),
            sealed_at: Some(WallTime(reader.u64()?)).filter(|_| flags & SEALED != 0),
            born: reader.u64()?,
            latched: reason_from(reader.u32()?).filter(|_| flags & LATCHED != 0),
            rebuilding: flags & REBUILDING != 0,
            repair_intent: flags & REPAIR_INTENT != 0,
            deleting: flags & DELETING != 0,
        };
        debug_assert_eq!(reader.remaining(), META_BYTES - CRC_AT);
        // Anything this build did not write itself is refused, so one state has one encoding.
        if meta.encode() == *bytes && meta.durable_end >= meta.base {
            Ok(meta)
        } else {
            Err(Undecodable::Damaged)
        }
    }
}

fn reason_code(reason: FailReason) -> u32 {
    match reason {
        FailReason::Enospc => 1,
        FailReason::Eio => 2,
        FailReason::Erofs => 3,
        FailReason::Other => 4,
    }
}

fn reason_from(code: u32) -> Option<FailReason> {
    [FailReason::Enospc, FailReason::Eio, FailReason::Erofs, FailReason::Other]
        .into_iter()
        .find(|reason| reason_code(*reason) == code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meta() -> Meta {
        let range = RangeId { topic: TopicId(0x1234), seq: RangeSeq(3) };
        Meta {
            durable_position: 4096,
            durable_end: Offset(57),
            sealed_at: Some(WallTime(1_700_000_000_000)),
            born: 12,
            latched: Some(FailReason::Eio),
            ..Meta::new(SegmentId { range, seq: SegmentSeq(9) }, Offset(40), Nonce(0xabcd), Epoch(2))
        }
    }

    #[test]
    fn the_golden_file_keeps_its_bytes() {
        assert_eq!(&meta().encode()[..], include_bytes!("golden/copy.meta"));
    }

    #[test]
    fn zeros_every_cut_and_every_flipped_bit_are_damage() {
        assert_eq!(Meta::decode(&Bytes::from_static(&[0; META_BYTES])), Err(Undecodable::Damaged));
        let good = meta().encode();
        for len in 0..META_BYTES {
            assert_eq!(Meta::decode(&good.slice(..len)), Err(Undecodable::Damaged), "cut at {len}");
        }
        for bit in 0..META_BYTES * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&bytes.into()), Err(Undecodable::Damaged), "bit {bit}");
        }
        let mut long = good.to_vec();
        long.push(0);
        assert_eq!(Meta::decode(&long.into()), Err(Undecodable::Damaged));
    }

    #[test]
    fn a_later_version_is_named_and_not_guessed() {
        let mut bytes = meta().encode().to_vec();
        bytes.truncate(CRC_AT);
        bytes[4..6].copy_from_slice(&7u16.to_be_bytes());
        bytes.extend_from_slice(b"fields nobody knows yet");
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        assert_eq!(Meta::decode(&bytes.into()), Err(Undecodable::LaterVersion(7)));
    }

    proptest! {
        #[test]
        fn metas_round_trip(
            position: u64, end in 40u64.., epoch: u64, sealed: Option<u64>, born: u64, flags: [bool; 3], reason in 0u32..5,
        ) {
            let meta = Meta {
                durable_position: position, durable_end: Offset(end), epoch: Epoch(epoch),
                sealed_at: sealed.map(WallTime), born, latched: reason_from(reason), rebuilding: flags[0],
                repair_intent: flags[1], deleting: flags[2], ..meta()
            };
            prop_assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Meta::decode(&bytes.into()).is_err());
        }
    }
}
