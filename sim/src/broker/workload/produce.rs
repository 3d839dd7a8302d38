//! `produce`: batches of every shape, with and without keys, often several on their way.

use std::collections::BTreeMap;

use broker::{Operation, Reply};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use types::record::{Header, Record, Walk};
use wire::{Reason, Request};

use super::Op;
use super::end_topic::End;
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, inv_06, inv_13, inv_52};

/// Keys clients use, beside the empty one.
pub(in super::super) const KEYS: u32 = 12;

/// A produce.
#[derive(Clone, Debug)]
pub(in super::super) struct Produce {
    pub(in super::super) count: u32,
    /// Its batch in the topic, once it has reached the node.
    batch: Option<usize>,
    /// Where its records went then, as far as their keys tell.
    routes: BTreeMap<u64, u64>,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let count = [0, 1, 1, 1, 2, 3, 5, 12][world.rng.random_range(0..8)];
    let mut keys = Vec::new();
    // Some requests are of one key, and so of one range.
    let one = world.rng.random_bool(0.3).then(|| some_key(world));
    for _ in 0..count {
        let key = one.clone().unwrap_or_else(|| some_key(world));
        keys.push(key);
    }
    send_of(world, client, conn, name, &keys);
}

fn some_key(world: &mut World) -> Option<Bytes> {
    match world.rng.random_range(0..10) {
        0..=2 => None,
        3 => Some(Bytes::new()),
        _ => Some(key(world.rng.random_range(0..KEYS))),
    }
}

/// A key of those that clients use.
pub(in super::super) fn key(number: u32) -> Bytes {
    Bytes::from(format!("key-{number}"))
}

/// Sends a record for each of the keys, fewer when they do not fit in a frame.
pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    keys: &[Option<Bytes>],
) -> CallId {
    let topic = world.name_to_send(name);
    let room = world.config.frame_bytes_max - 300;
    let call = world.calls.len();
    let (mut records, mut count) = (BytesMut::new(), 0);
    for (index, key) in keys.iter().enumerate() {
        let mut record = sample(world, call, index, key.clone());
        if records.len() + record.encoded_len() > room {
            if count > 0 {
                break;
            }
            // The first one is sent, if need be without what it is padded with.
            record = Record { value: name_of(call, index).into(), headers: Vec::new(), ..record };
        }
        record.encode(&mut records);
        count += 1;
    }
    let request = wire::request::Produce { topic, records: records.freeze(), count };
    let request = if world.rng.random_bool(0.3) {
        Request::ProduceBatch(wire::request::ProduceBatch::of(request))
    } else {
        Request::Produce(request)
    };
    let op = Produce { count, batch: None, routes: BTreeMap::new() };
    world.send(client, conn, name, request, Op::Produce(op))
}

fn name_of(call: CallId, index: usize) -> String {
    format!("{call}/{index}/")
}

/// A record like no other.
pub(super) fn sample(world: &mut World, call: CallId, index: usize, key: Option<Bytes>) -> Record {
    let rng = &mut world.rng;
    let mut value = BytesMut::from(name_of(call, index).as_bytes());
    let padding = [0, 0, 10, 40, 100, 400, 1500][rng.random_range(0..7)];
    value.resize(value.len() + padding, b'.');
    let header =
        |at: u32| Header { name: Bytes::from_static(b"h"), value: Bytes::from(vec![b'v'; at as usize]) };
    let headers =
        if rng.random_bool(0.2) { (0..rng.random_range(1..3)).map(header).collect() } else { Vec::new() };
    Record { key, value: value.freeze(), timestamp: rng.random(), headers }
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let wall = world.wall_ms();
    let call = &mut world.calls[id];
    let Op::Produce(op) = &mut call.op else { return };
    let (Some(Request::Produce(wire::request::Produce { records, .. }))
    | Some(Request::ProduceBatch(wire::request::ProduceBatch { records, .. }))) = &call.request
    else {
        return;
    };
    let may = world.clients[call.client].may(Operation::Produce);
    let Some(topic) = call.topic.filter(|_| may && op.count > 0) else { return };
    let topic = &mut world.model.topics[topic];
    if !topic.sealed {
        let batch = topic.log.asked(id, split(records), wall);
        op.batch = Some(batch);
        op.routes = topic.routes(batch);
    }
}

/// Each record's key, and the record as it is encoded.
fn split(records: &Bytes) -> Vec<(Option<Bytes>, Bytes)> {
    let spans = Walk::new(records).map_while(Result::ok);
    let record = |span: types::record::Span<'_>| {
        (span.key.map(Bytes::copy_from_slice), records.slice(span.start..span.end))
    };
    spans.map(record).collect()
}

/// Adds each record as it is encoded.
pub(in super::super) fn split_to(records: &Bytes, into: &mut Vec<Bytes>) {
    into.extend(split(records).into_iter().map(|(_, record)| record));
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Produce(op) = call.op.clone() else { return Ok(()) };
    let Some(index) = call.topic else {
        return world.expect(id, reply, *reply == Reply::Failed(Reason::NoSuchTopic));
    };
    let (life, wall) = (world.model.life, world.model.wall_max);
    let topic = &mut world.model.topics[index];
    let (sealed, deleted) = (topic.sealed, topic.deleted);
    match reply {
        Reply::Stored(count) => {
            inv_06::whole(&world.calls[id], *count, op.count)?;
            world.expect(id, reply, !deleted && (op.batch.is_some() || op.count == 0))?;
            let Some(batch) = op.batch else { return Ok(()) };
            let topic = &mut world.model.topics[index];
            for range in op.routes.keys() {
                let later = topic.ranges.descendants(*range);
                let was_opened = |range: &u64| world.model.segments.was_opened(topic.range_id(*range));
                let opened = was_opened(range) || later.iter().any(was_opened);
                inv_13::opened_here(&world.calls[id], opened)?;
            }
            topic.log.acknowledged(batch, life, wall)?;
            for (range, count) in topic.count(&op.routes) {
                world.model.segments.acknowledged(range, count);
            }
            world.summary.acknowledged += u64::from(op.count);
            world.summary.unrelated += u64::from(is_held(world, index, batch, &op.routes) == Some(false));
            Ok(())
        }
        Reply::Failed(reason) => {
            // With a topic go all its records.
            if let Some(batch) = op.batch.filter(|_| !deleted && *reason != Reason::NoSuchTopic) {
                topic.log.refused(batch, *reason, life, wall)?;
            }
            let allowed = match reason {
                Reason::NoSuchTopic => deleted || world.is_ending(index, End::Delete),
                Reason::Unroutable | Reason::Sealed => sealed || world.is_ending(index, End::Seal),
                Reason::Storage if !world.excused(Reason::Storage) => {
                    let held = op.batch.and_then(|batch| is_held(world, index, batch, &op.routes));
                    inv_52::unrelated(&world.calls[id], held != Some(false))?;
                    held.is_some()
                }
                other => world.excused(*other),
            };
            world.expect(id, reply, allowed)
        }
        _ => world.expect(id, reply, false),
    }
}

/// Whether a request may have to wait for a range that cannot end its segment; `None` when there is none in its
/// topic.
fn is_held(world: &World, index: usize, batch: usize, routes: &BTreeMap<u64, u64>) -> Option<bool> {
    let topic = &world.model.topics[index];
    let held = world.weather.held.filter(|held| held.topic == topic.id)?.seq.0;
    // Without a key a record may go anywhere.
    let routed: u64 = routes.values().sum();
    let loose = routed < topic.log.batches[batch].records.len() as u64;
    let mut waits = topic.ranges.descendants(held);
    waits.insert(held);
    let comes_there =
        |range: &u64| waits.contains(range) || !topic.ranges.descendants(*range).is_disjoint(&waits);
    Some(loose || routes.keys().any(comes_there))
}
