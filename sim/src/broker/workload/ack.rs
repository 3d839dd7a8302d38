//! `stream_ack`: positions and credit of a stream, late, together, and wrong.

use std::fmt;

use broker::{Reply, RequestId};
use bytes::Bytes;
use rand::Rng;
use wire::{Effect, Reason, Request};

use super::fetch::garbage;
use super::{Op, commit};
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::Violation;

/// An acknowledgement.
#[derive(Clone, Debug)]
pub(in super::super) struct Ack {
    group: Bytes,
    cursor: Option<Bytes>,
    count: u32,
    /// It names another group.
    foreign: bool,
    /// The stream it reached.
    stream: Option<RequestId>,
}

impl Ack {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cursor = self.cursor.as_ref().map(|cursor| cursor.escape_ascii().to_string());
        write!(f, "ack {} with {cursor:?} for group {:?}", self.count, self.group)
    }
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId) {
    let subscribed = world.conns.get(&conn).and_then(|conn| conn.subscribed);
    let Some(Request::Subscribe(subscribe)) = subscribed.and_then(|call| world.calls[call].request.clone())
    else {
        return;
    };
    let name = subscribed.and_then(|call| world.calls[call].name);
    // Whoever is refused hears of it before it says anything.
    if !world.model.streams.values().any(|stream| Some(stream.call) == subscribed) {
        return;
    }
    let waiting = world.clients[client].pushed.len();
    let (mut cursor, mut count) = (None, 0);
    match world.rng.random_range(0..20) {
        // A sign of life.
        0 => {}
        // Some let it come to a stop.
        1..=5 => return,
        _ if waiting == 0 => return,
        _ => {
            for _ in 0..world.rng.random_range(1..=waiting) {
                let Some((last, records)) = world.clients[client].pushed.pop_front() else { break };
                cursor = Some(last);
                count += records;
            }
        }
    }
    match world.rng.random_range(0..60) {
        0 => cursor = Some(garbage(world)),
        1 => cursor = None,
        2 => count += 1000,
        _ => {}
    }
    let foreign = world.rng.random_bool(0.02);
    let group = if foreign { Some(Bytes::from_static(b"foreign")) } else { subscribe.group };
    let op = Ack {
        group: group.clone().unwrap_or_default(),
        cursor: cursor.clone(),
        count,
        foreign,
        stream: None,
    };
    let ack =
        wire::request::StreamAck { topic: subscribe.topic, group, member: subscribe.member, cursor, count };
    let call = world.call(client, conn, name, Some(Request::StreamAck(ack.clone())), Op::Ack(op));
    if let Some(open) = world.conns.get_mut(&conn) {
        let number = open.link.ack(&ack);
        open.acks.insert(number, call);
        open.sent.push_back(call);
    }
}

pub(in super::super) fn arrived(world: &mut World, id: CallId, request: RequestId) {
    let call = &world.calls[id];
    let Op::Ack(op) = call.op.clone() else { return };
    let streams = world.model.streams.iter();
    let found = streams.map(|(id, stream)| (*id, stream)).find(|(id, _)| id.connection == request.connection);
    let Some((stream_id, stream)) = found else { return };
    // What counts is the life of the topic that the stream reads.
    let (topic, member) = (stream.topic, stream.member.clone());
    if let Some(index) = topic
        && !op.foreign
    {
        let at = (world.model.life, world.now);
        if let Some(token) = commit::to_store(world, index, op.cursor.as_ref()) {
            let topic = &mut world.model.topics[index];
            topic.commit_asked(&op.group, id, &token.place, token.holder.as_ref(), at);
        }
        if let Some(member) = &member {
            world.model.topics[index].group(&op.group).members.hear(member, at.1);
        }
    }
    let call = &mut world.calls[id];
    call.topic = topic;
    if let Op::Ack(op) = &mut call.op {
        op.stream = Some(stream_id);
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Ack(op) = call.op.clone() else { return Ok(()) };
    let (topic, life) = (call.topic, world.model.life);
    let done = matches!(reply, Reply::Acked | Reply::Committed);
    if let Some(topic) = topic {
        let topic = &mut world.model.topics[topic];
        match reply {
            Reply::Failed(reason) => {
                topic.commit_failed(&op.group, id, life, reason.effect() == Effect::Unknown);
            }
            _ if done => topic.commit_done(&op.group, id),
            _ => {}
        }
    }
    let wrong = topic.is_some() && commit::is_wrong(world, topic, op.cursor.as_ref());
    let open = op.stream.filter(|stream| world.model.streams.contains_key(stream));
    match reply {
        Reply::Acked | Reply::Committed => {
            world.summary.commits += 1;
            // The credit of a stream that is over counts for nothing.
            let right = if *reply == Reply::Acked { op.stream.is_some() } else { open.is_none() };
            world.expect(id, reply, right && !op.foreign && !wrong)?;
            if let Some(stream) = open.and_then(|id| world.model.streams.get_mut(&id)) {
                stream.in_flight = stream.in_flight.saturating_sub(op.count);
            }
            Ok(())
        }
        Reply::Failed(Reason::UnexpectedFrame) => world.expect(id, reply, op.foreign),
        Reply::Failed(Reason::InvalidCursor) => world.expect(id, reply, wrong),
        Reply::Failed(Reason::UnknownApiKey) => world.expect(id, reply, op.stream.is_none()),
        Reply::Failed(Reason::NoSuchTopic) => world.expect(id, reply, world.is_gone(id)),
        Reply::Failed(reason) => world.expect(id, reply, world.excused(*reason)),
        _ => world.expect(id, reply, false),
    }
}
