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
//! 68  local CRC               u32  /   over segment id, header CRC, durable before
//! 72  payload                          records in wire encoding, back to back
//! ```
//!
//! Every CRC is CRC-32 (IEEE) and starts from the segment's id, so a frame of another segment never decodes
//! here: neither a leftover in a recycled file nor a misdirected write.

use bytes::Bytes;
use types::{Epoch, Offset, SegmentId, WallTime};

/// Bytes of a frame before its payload, the local ones included.
pub const HEADER_BYTES: usize = 72;
/// Bytes of a header that are equal on every copy.
pub const SHARED_BYTES: usize = 60;

/// Whose bytes a checksum vouches for: the CRC of the segment's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(u32);

impl Seed {
    /// The seed of one segment.
    #[must_use]
    pub fn of(segment: SegmentId) -> Self {
        Self(crc32fast::hash(&segment.to_bytes()))
    }
}

/// How a batch's payload is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

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
    /// Bytes of payload, 1 to [`types::limits::BATCH_BYTES_MAX`].
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
}

/// One batch: what a primary ships and a reader gets. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What it says about itself.
    pub header: Header,
    /// The records, in wire encoding, back to back.
    pub payload: Bytes,
}
