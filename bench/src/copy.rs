//! One segment copy that the benchmark writes to: what was acknowledged, and what it must hold.

use anyhow::ensure;
use bytes::Bytes;
use storage::format::batch::{Batch, Flags, Header, Identity, Nonce, Producer, Seed};
use storage::store::{Reply, Request};
use types::{Epoch, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use crate::engine::Engine;
use crate::payload::Payloads;

/// Epoch of every copy here.
pub(crate) const EPOCH: Epoch = Epoch(1);
/// Batches of [`fill`] on their way at one time.
const FILL_IN_FLIGHT: u64 = 64;

/// A copy whose batches all have the same number of payload bytes and one record each.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) segment: SegmentId,
    seed: Seed,
    /// Which payloads it gets.
    pub(crate) writer: u64,
    pub(crate) payload_bytes: usize,
    /// Batches asked for.
    pub(crate) asked: u64,
    /// Batches acknowledged.
    pub(crate) acknowledged: u64,
}

impl Written {
    /// Copy number `number`, which nothing was written to.
    pub(crate) fn new(number: u64, payload_bytes: usize) -> Self {
        let range = RangeId { topic: TopicId(0x00be_0000 + u128::from(number)), seq: RangeSeq(0) };
        let segment = SegmentId { range, seq: SegmentSeq(0) };
        let seed = Seed::of(segment);
        Self { segment, seed, writer: number, payload_bytes, asked: 0, acknowledged: 0 }
    }

    /// Creates it.
    pub(crate) fn create(&self, engine: &mut Engine, expect_full: bool) -> anyhow::Result<()> {
        let request = Request::Create {
            segment: self.segment,
            base: Offset::ZERO,
            epoch: EPOCH,
            expect_full,
            rebuilding: false,
        };
        let reply = engine.call(request)?;
        ensure!(matches!(reply, Reply::Created), "creation of {}: {reply:?}", self.segment);
        Ok(())
    }

    /// What checksums of a copy with this nonce start from.
    pub(crate) fn identity(&self, nonce: Nonce) -> Identity {
        Identity { seed: self.seed, nonce }
    }

    /// Batch number `index`, as it is sent and as it must be read back.
    pub(crate) fn batch(&self, payloads: &Payloads, index: u64) -> Batch {
        let (payload, plain) = payloads.get(self.writer, index, self.payload_bytes);
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(payload.len()).expect("payloads are far below 4 GiB"),
            record_count: 1,
            base_offset: Offset(index),
            append_time: WallTime(1_700_000_000_000 + index),
            epoch: EPOCH,
            producer: Producer::default(),
            payload_crc: self.seed.combine(plain, payload.len() as u64),
        };
        Batch { header, payload }
    }

    /// Batch number `index` as the slices of a frame, for the raw side.
    pub(crate) fn frame(&self, payloads: &Payloads, index: u64) -> [Bytes; 2] {
        let batch = self.batch(payloads, index);
        [batch.header.encode(self.identity(Nonce(0)), 0), batch.payload]
    }

    /// The request that appends the next batch.
    pub(crate) fn append(&mut self, payloads: &Payloads) -> Request {
        let batch = self.batch(payloads, self.asked);
        self.asked += 1;
        Request::Append { segment: self.segment, epoch: EPOCH, batches: vec![batch] }
    }

    /// Takes the reply to the oldest append that has none.
    pub(crate) fn appended(&mut self, reply: &Reply) -> anyhow::Result<()> {
        let due = Offset(self.acknowledged + 1);
        let as_due = matches!(reply, Reply::Appended { end } if *end == due);
        ensure!(as_due, "append {due} to {}: {reply:?}", self.segment);
        self.acknowledged += 1;
        Ok(())
    }

    /// Appends batches, many at a time, until `count` are acknowledged.
    pub(crate) fn fill(
        &mut self,
        engine: &mut Engine,
        payloads: &Payloads,
        count: u64,
    ) -> anyhow::Result<()> {
        self.fill_with(engine, payloads, count, FILL_IN_FLIGHT)
    }

    /// Appends batches, `in_flight` at a time, until `count` are acknowledged.
    pub(crate) fn fill_with(
        &mut self,
        engine: &mut Engine,
        payloads: &Payloads,
        count: u64,
        in_flight: u64,
    ) -> anyhow::Result<()> {
        while self.acknowledged < count {
            while self.asked < count && self.asked - self.acknowledged < in_flight {
                engine.request(self.append(payloads))?;
            }
            let (_, reply) = engine.reply()?;
            self.appended(&reply)?;
        }
        Ok(())
    }

    /// Ends it where it stands.
    pub(crate) fn seal(&self, engine: &mut Engine) -> anyhow::Result<()> {
        let end = Offset(self.acknowledged);
        let reply = engine.call(Request::Seal { segment: self.segment, end, at: WallTime(1) })?;
        let as_due = matches!(&reply, Reply::Sealed(extent) if extent.end == end);
        ensure!(as_due, "seal of {}: {reply:?}", self.segment);
        Ok(())
    }

    /// Removes it.
    pub(crate) fn delete(&self, engine: &mut Engine) -> anyhow::Result<()> {
        let reply = engine.call(Request::Delete { segment: self.segment })?;
        ensure!(matches!(reply, Reply::Deleted), "removal of {}: {reply:?}", self.segment);
        Ok(())
    }

    /// Bytes of one frame.
    pub(crate) fn frame_bytes(&self) -> usize {
        storage::format::batch::HEADER_BYTES + self.payload_bytes
    }
}
