//! `produce`: batches of every shape, often several on their way.

use broker::Operation;
use bytes::{Bytes, BytesMut};
use rand::Rng;
use types::record::{Header, Record, Walk};
use wire::{Reason, Request};

use super::{Op, STRANGERS, name_of};
use crate::broker::judge::Answer;
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, inv_13, inv_17};

/// A produce.
#[derive(Clone, Debug)]
pub(in super::super) struct Produce {
    pub(in super::super) topic: Option<usize>,
    pub(in super::super) count: u32,
    /// Its batch in the topic, once it has reached the node.
    pub(in super::super) batch: Option<usize>,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, topic: Option<usize>) {
    let count = [0, 1, 1, 1, 2, 3, 5, 12][world.rng.random_range(0..8)];
    send_of(world, client, conn, topic, count);
}

/// Sends so many records, fewer when they do not fit in a frame.
pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    topic: Option<usize>,
    most: u32,
) -> CallId {
    let name = match topic {
        Some(_) => name_of(topic),
        None => STRANGERS[world.rng.random_range(0..STRANGERS.len())].map(Bytes::from_static),
    };
    let room = world.config.frame_bytes_max - 300;
    let call = world.calls.len();
    let (mut records, mut count) = (BytesMut::new(), 0);
    for index in 0..most {
        let record = sample(world, call, index);
        if records.len() + record.encoded_len() > room {
            break;
        }
        record.encode(&mut records);
        count += 1;
    }
    let request = wire::request::Produce { topic: name, records: records.freeze(), count };
    world.send(client, conn, Request::Produce(request), Op::Produce(Produce { topic, count, batch: None }))
}

/// A record like no other.
pub(super) fn sample(world: &mut World, call: CallId, index: u32) -> Record {
    let rng = &mut world.rng;
    let key = match rng.random_range(0..8) {
        0..=2 => None,
        3 => Some(Bytes::new()),
        _ => Some(Bytes::from(format!("key-{}", rng.random_range(0..4)))),
    };
    let mut value = BytesMut::from(format!("{call}/{index}/").as_bytes());
    let padding = [0, 0, 10, 40, 100, 400, 1500][rng.random_range(0..7)];
    value.resize(value.len() + padding, b'.');
    let header =
        |at: u32| Header { name: Bytes::from_static(b"h"), value: Bytes::from(vec![b'v'; at as usize]) };
    let headers =
        if rng.random_bool(0.2) { (0..rng.random_range(1..3)).map(header).collect() } else { Vec::new() };
    Record { key, value: value.freeze(), timestamp: rng.random(), headers }
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &mut world.calls[id];
    let Op::Produce(op) = &mut call.op else { return };
    let Some(Request::Produce(request)) = &call.request else { return };
    let may = world.clients[call.client].may(Operation::Produce);
    if let Some(topic) = op.topic.filter(|_| may && op.count > 0) {
        let mut records = Vec::with_capacity(op.count as usize);
        split_to(&request.records, &mut records);
        op.batch = Some(world.model.topics[topic].asked(id, records));
    }
}

/// Adds each record as it is encoded.
pub(super) fn split_to(records: &Bytes, into: &mut Vec<Bytes>) {
    let spans = Walk::new(records).map_while(Result::ok);
    into.extend(spans.map(|span| records.slice(span.start..span.end)));
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Answer) -> Result<(), Violation> {
    let Op::Produce(op) = world.calls[id].op.clone() else { return Ok(()) };
    let known = world.calls[id].known;
    let Some(index) = op.topic else {
        return world.expect(id, reply, *reply == Answer::Failed(Reason::NoSuchTopic));
    };
    let life = world.model.life;
    match reply {
        Answer::Stored(count) => {
            world.expect(id, reply, *count == op.count && world.model.topics[index].may_exist())?;
            let topic = &mut world.model.topics[index];
            topic.existence = crate::broker::model::Existence::Known;
            if let Some(batch) = op.batch {
                if let Some(range) = topic.range() {
                    inv_13::opened_here(&world.calls[id], world.model.segments.is_open(range))?;
                    inv_17::check(topic.name, topic.kept(), world.model.segments.end(range))?;
                }
                topic.acknowledged(batch, life)?;
                world.summary.acknowledged += u64::from(op.count);
            }
            Ok(())
        }
        Answer::Failed(reason) => {
            if let Some(batch) = op.batch {
                let unknown = reason.effect() == wire::Effect::Unknown;
                world.model.topics[index].refused(batch, *reason, life, unknown);
            }
            if *reason == Reason::NoSuchTopic {
                world.model.topics[index].seen_absent(life);
                return world.expect(id, reply, !known);
            }
            world.expect(id, reply, world.excused(*reason))
        }
        Answer::Created | Answer::Fetched(_) | Answer::Committed | Answer::Left => {
            world.expect(id, reply, false)
        }
    }
}
