//! Producing, reading and streaming.

use broker::{Commit, Fetch, Fetched, Form, Membership, Produce, Request, StreamAck, Subscribe};
use wire::request::checksum;
use wire::response::{Batch, Page};
use wire::{BatchPage, Payload, Reason, Str};

pub(super) fn produce(produce: wire::request::Produce) -> Request {
    let wire::request::Produce { topic, records, count } = produce;
    let crc = checksum(&records);
    Request::Produce(Produce { topic, records, count, crc, stamp: None })
}

pub(super) fn produce_once(once: wire::request::ProduceOnce) -> Result<Request, Reason> {
    let stamp = Some(once.stamp);
    checked(once.batch).map(|produce| Request::Produce(Produce { stamp, ..produce }))
}

/// The checksum that came is the one that is stored, once it was found right.
pub(super) fn produce_batch(batch: wire::request::ProduceBatch) -> Result<Request, Reason> {
    checked(batch).map(Request::Produce)
}

fn checked(batch: wire::request::ProduceBatch) -> Result<Produce, Reason> {
    let wire::request::ProduceBatch { topic, flags, crc, records, count } = batch;
    if flags != 0 {
        return Err(Reason::Unsupported);
    }
    if checksum(&records) != crc {
        return Err(Reason::MalformedRequest);
    }
    Ok(Produce { topic, records, count, crc, stamp: None })
}

pub(super) fn fetch(fetch: wire::request::Fetch, form: Form) -> Request {
    let wire::request::Fetch { topic, cursor, group, member, max, wait_ms } = fetch;
    Request::Fetch(Fetch { topic, cursor, group, member, max, wait_ms, form })
}

pub(super) fn commit(commit: wire::request::Commit) -> Request {
    let wire::request::Commit { topic, group, cursor } = commit;
    Request::Commit(Commit { topic, group, cursor })
}

pub(super) fn leave(topic: Str, group: Str, member: Str) -> Request {
    Request::LeaveGroup(Membership { topic, group, member })
}

pub(super) fn subscribe(subscribe: wire::request::Subscribe) -> Request {
    let wire::request::Subscribe { topic, group, member, window, max } = subscribe;
    Request::Subscribe(Subscribe { who: Membership { topic, group, member }, window, max })
}

pub(super) fn stream_ack(ack: wire::request::StreamAck) -> Request {
    let wire::request::StreamAck { topic, group, member, cursor, count } = ack;
    Request::StreamAck(StreamAck { who: Membership { topic, group, member }, cursor, count })
}

pub(super) fn fetched(fetched: Fetched, form: Form) -> Payload {
    match form {
        Form::Records => Payload::Page(page(fetched)),
        Form::Batches => Payload::Batches(batches(fetched)),
    }
}

/// Records as a fetch answers them, and as they are pushed.
pub(in crate::tcp) fn page(fetched: Fetched) -> Page {
    let records = fetched.runs.into_iter().map(|run| run.records).collect();
    Page { count: fetched.count, records, next_cursor: fetched.cursor }
}

/// The checksum of each run is taken here: the core touches no byte of a record.
fn batches(fetched: Fetched) -> BatchPage {
    let batch = |run: broker::Run| Batch {
        append_time: run.append_time.0,
        count: run.count,
        crc: checksum(&run.records),
        records: run.records,
    };
    BatchPage { batches: fetched.runs.into_iter().map(batch).collect(), next_cursor: fetched.cursor }
}
