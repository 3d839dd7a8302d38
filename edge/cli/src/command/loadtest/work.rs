//! What a connection asks again and again, and what it makes of the answers.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use client::{Batch, Fetch, Payload, ProduceBatch, ProduceOnce, Request, Response};
use types::record::Walk;
use types::{ProducerEpoch, ProducerId, Stamp, WallTime};

use super::Run;
use super::mark::{self, Mark, Marks};
use super::stats::Tally;
use crate::input::batcher::now;

/// A connection's task.
pub(super) struct Work {
    run: Arc<Run>,
    connection: u32,
    marks: Marks,
    /// Where the next fetch goes on.
    cursor: Option<Bytes>,
    value: Vec<u8>,
    /// With stamps: who it is, what time it was when it was told, and when that was.
    producer: Option<(ProducerId, u64, Instant)>,
}

/// What a request is remembered by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// When it was sent, or was to be sent.
    pub(super) at: Instant,
    /// Sequence of its first record.
    first: u64,
}

impl Work {
    pub(super) fn new(run: &Arc<Run>, connection: u32) -> Self {
        let value = vec![0; run.args.record_size];
        let (marks, cursor, producer) = (Marks::new(connection), None, None);
        Self { run: Arc::clone(run), connection, marks, cursor, value, producer }
    }

    /// From now on its requests bear stamps.
    pub(super) fn name(&mut self, id: u64, now_ms: u64) {
        self.producer = Some((ProducerId(id), now_ms, Instant::now()));
    }

    /// The stamp of a request; nothing is ever sent again, so that all before it may be forgotten in a closed loop.
    fn stamp(&self, first: u64) -> Option<Stamp> {
        let (producer, now_ms, at) = self.producer?;
        // No run is so long that it numbers more.
        let first = u32::try_from(first).ok()?;
        first.checked_add(self.run.args.batch)?;
        let since = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let settled = if self.run.args.rate == 0 { first } else { 0 };
        let born = WallTime(now_ms.saturating_add(since).max(1));
        Some(Stamp { producer, epoch: ProducerEpoch(0), first, settled, born })
    }

    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    /// Whether it appends.
    pub(super) fn appends(&self) -> bool {
        self.run.args.appends(self.connection)
    }

    /// Whether it has records pushed.
    pub(super) fn streams(&self) -> bool {
        self.run.args.streams(self.connection)
    }

    /// What became of the records it appended; `None` when it appended none.
    pub(super) fn into_marks(self) -> Option<Marks> {
        self.appends().then_some(self.marks)
    }

    /// The next request, sent at `at` or to be sent then.
    pub(super) fn request(&mut self, at: Instant) -> (Request, Ticket) {
        if self.appends() {
            return self.produce(at);
        }
        let fetch = Fetch {
            topic: Some(Bytes::copy_from_slice(self.run.topic.as_bytes())),
            cursor: self.cursor.clone(),
            max: self.run.args.max,
            ..Fetch::default()
        };
        let fetch =
            if self.run.args.checksums { Request::FetchBatches(fetch) } else { Request::Fetch(fetch) };
        (fetch, Ticket { at, first: 0 })
    }

    fn produce(&mut self, at: Instant) -> (Request, Ticket) {
        let args = &self.run.args;
        let first = self.marks.send(args.batch);
        let nanos =
            u64::try_from(at.saturating_duration_since(self.run.epoch).as_nanos()).unwrap_or(u64::MAX);
        let timestamp = now();
        let mut batch = Batch::with_capacity((args.record_size + 40).saturating_mul(args.batch as usize));
        let mut key = BytesMut::with_capacity(16);
        for sequence in first..first + u64::from(args.batch) {
            Mark { run: self.run.id, connection: self.connection, sequence, nanos }.write(&mut self.value);
            key.clear();
            key.extend_from_slice(mark::key(sequence, args.keys).as_bytes());
            batch.push_parts(Some(&key), &self.value, timestamp);
        }
        let produce = batch.into_produce(Some(Bytes::copy_from_slice(self.run.topic.as_bytes())));
        let request = if let Some(stamp) = self.stamp(first) {
            Request::ProduceOnce(ProduceOnce { stamp, batch: ProduceBatch::of(produce) })
        } else if args.checksums {
            Request::ProduceBatch(ProduceBatch::of(produce))
        } else {
            Request::Produce(produce)
        };
        (request, Ticket { at, first })
    }

    /// Takes an answer in. Whether it was a success.
    pub(super) fn settle(&mut self, ticket: Ticket, response: Response, tally: &mut Tally) -> bool {
        match response {
            Response::Ok(payload) => {
                let (records, bytes) = self.succeed(ticket, payload);
                tally.operations += 1;
                tally.records += records;
                tally.bytes += bytes;
                true
            }
            Response::Error(reason) => {
                tally.fail(reason.to_string());
                false
            }
            Response::UnknownError(token) => {
                tally.fail(String::from_utf8_lossy(&token).into_owned());
                false
            }
        }
    }

    /// Records and bytes of values that an answer stands for.
    fn succeed(&mut self, ticket: Ticket, payload: Payload) -> (u64, u64) {
        if let Payload::Stored(count) = payload {
            self.marks.acknowledge(ticket.first, count);
            return (u64::from(count), u64::from(count) * self.run.args.record_size as u64);
        }
        let (count, slices, next_cursor) = if let Payload::Page(page) = payload {
            (u64::from(page.count), page.records, page.next_cursor)
        } else if let Payload::Batches(page) = payload {
            let count = page.count();
            (count, page.batches.into_iter().map(|batch| batch.records).collect(), page.next_cursor)
        } else {
            return (0, 0);
        };
        // At the end it starts over.
        self.cursor = (count > 0).then_some(next_cursor);
        (count, value_bytes(&slices))
    }
}

/// Bytes of the values of records.
pub(super) fn value_bytes(slices: &[Bytes]) -> u64 {
    let spans = slices.iter().flat_map(|slice| Walk::new(slice));
    spans.map(|span| span.map_or(0, |span| span.value_bytes as u64)).sum()
}
