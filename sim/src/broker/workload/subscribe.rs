//! `subscribe`: records are pushed as they come, as far as the credit reaches.

use broker::{Fetched, Reply, RequestId};
use bytes::Bytes;
use rand::Rng;
use types::limits;
use wire::{Reason, Request};

use super::Op;
use super::page::{self, Given};
use crate::broker::judge::digest_of;
use crate::broker::model::{CallId, Holder, Place, Reader, Stream};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure, inv_05, inv_51};

/// A subscription.
#[derive(Clone, Debug)]
pub(in super::super) struct Subscribe {
    group: Option<Bytes>,
    member: Option<Bytes>,
    window: u32,
    max: u32,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let member = world.rng.random_bool(0.5).then(|| world.clients[client].member.clone());
    let group = match (world.rng.random_range(0..30), &member) {
        (0, _) => None,
        (1, _) => Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])),
        (_, Some(_)) => Some(Bytes::from_static(b"crew")),
        (_, None) => Some(world.some_group()),
    };
    let window = [0, 1, 2, 5, 20, 1000][world.rng.random_range(0..6)];
    let max = [0, 1, 3, 10, 5000][world.rng.random_range(0..5)];
    let op = Subscribe { group: group.clone(), member: member.clone(), window, max };
    let topic = world.name_to_send(name);
    let subscribe = wire::request::Subscribe { topic, group, member, window, max };
    let request = Request::Subscribe(subscribe.clone());
    let call = world.call(client, conn, name, Some(request), Op::Subscribe(op));
    if let Some(open) = world.conns.get_mut(&conn) {
        open.link.subscribe(&subscribe, call);
        open.undelivered += 1;
        open.subscribed = Some(call);
        open.sent.push_back(call);
    }
}

fn effective(asked: u32, default: u32, most: u32) -> u32 {
    if asked == 0 { default } else { asked.min(most) }
}

pub(in super::super) fn arrived(world: &mut World, id: CallId, request: RequestId) {
    let call = &world.calls[id];
    let Op::Subscribe(op) = call.op.clone() else { return };
    let valid = op.group.filter(|group| group.len() <= limits::GROUP_NAME_BYTES_MAX);
    let (Some(group), Some(true)) = (valid, world.may(id)) else { return };
    let (name, topic) = (call.name, call.topic);
    let mut place = Place::beginning();
    if let Some(topic) = topic {
        let now = world.now;
        let group = world.model.topics[topic].group(&group);
        place = group.at.clone();
        if let Some(member) = &op.member {
            group.members.hear(member, now);
        }
    }
    let stream = Stream {
        call: id,
        name,
        topic,
        group,
        member: op.member,
        window: effective(op.window, limits::STREAM_WINDOW_DEFAULT, limits::STREAM_WINDOW_MAX),
        max: effective(op.max, limits::FETCH_RECORDS_DEFAULT, limits::FETCH_RECORDS_MAX),
        place,
        in_flight: 0,
        pushing: false,
    };
    world.model.streams.insert(request, stream);
}

pub(in super::super) fn answered(
    world: &mut World,
    id: CallId,
    request: RequestId,
    reply: &Reply,
) -> Result<(), Violation> {
    let Op::Subscribe(op) = world.calls[id].op.clone() else { return Ok(()) };
    let valid = op.group.is_some_and(|group| group.len() <= limits::GROUP_NAME_BYTES_MAX);
    match reply {
        Reply::Subscribed => world.expect(id, reply, valid),
        Reply::Failed(reason) => {
            world.model.streams.remove(&request);
            let invalid = *reason == Reason::InvalidGroup && !valid;
            world.expect(id, reply, invalid || world.excused(*reason))
        }
        _ => world.expect(id, reply, false),
    }
}

impl World {
    /// The node gives records to a stream.
    pub(in super::super) fn push(&mut self, id: RequestId, fetched: Fetched) -> Result<(), Violation> {
        let Some(stream) = self.model.streams.get(&id) else {
            return inv_05::once(format_args!("the stream {id:?}"), false);
        };
        let stream = stream.clone();
        let who = self.calls[stream.call].to_string();
        self.say(|| {
            format!("   {who} <- {} records, cursor {}", fetched.count, fetched.cursor.escape_ascii())
        });
        self.note(digest_of(&fetched));
        inv_51::one_push(&who, stream.pushing)?;
        inv_05::once(&who, fetched.count > 0)?;
        let in_flight = stream.in_flight.saturating_add(fetched.count);
        inv_51::credit(&who, in_flight, stream.window)?;
        let cursor = page::decoded(&who, &fetched.cursor)?;
        let Some(topic) = stream.topic.filter(|topic| self.model.topics[*topic].id == cursor.topic) else {
            return Err(Violation::new("INV-12", format!("{who}: a cursor of {}", cursor.topic)));
        };
        let assigned = self.model.topics[topic].groups.get(&stream.group);
        let generation = assigned.and_then(|group| group.members.assigned).map_or(0, |(now, _)| now);
        let life = self.model.life;
        let group = stream.group.clone();
        let holder = stream.member.clone().map(|member| Holder { group, member, generation, life });
        let stamp = cursor.member.as_ref().map(|stamp| (stamp.member.as_bytes(), stamp.generation.0));
        let right = stamp == holder.as_ref().map(|holder| (&holder.member[..], holder.generation));
        ensure(right, "MEMBERS", || format!("{who}: a cursor of {stamp:?}, and it reads as {holder:?}"))?;
        let given = Given {
            who: &who,
            topic,
            reader: Reader::Stream,
            start: &stream.place,
            holder: holder.clone(),
            from: None,
            max: stream.max,
        };
        let seen = page::judge(self, &given, &fetched, &cursor)?;
        if let Some(Holder { member, generation, .. }) = holder {
            let spans = seen.after.covers().map(<[_]>::to_vec).unwrap_or_default();
            self.model.topics[topic].group(&stream.group).members.given(&member, generation, &spans)?;
        }
        if let Some(stream) = self.model.streams.get_mut(&id) {
            stream.place = seen.after;
            stream.in_flight = in_flight;
            stream.pushing = true;
        }
        self.edge_push(id, fetched);
        Ok(())
    }

    /// The node ends a stream.
    pub(in super::super) fn stream_ended(&mut self, id: RequestId, reason: Reason) -> Result<(), Violation> {
        let Some(stream) = self.model.streams.get(&id) else {
            return inv_05::once(format_args!("the stream {id:?}"), false);
        };
        let gone = stream.topic.is_some_and(|topic| self.model.topics[topic].deleted);
        let full = reason == Reason::Overloaded && self.config.waiters_max < 100;
        let allowed = (reason == Reason::NoSuchTopic && gone) || full || self.excused(reason);
        let call = stream.call;
        self.say(|| format!("   {} ends: {reason}", self.calls[call]));
        self.expect(call, &Reply::Failed(reason), allowed)?;
        self.stream_over(id);
        self.edge_ends_stream(id, reason);
        Ok(())
    }

    /// A stream is over, and its member leaves.
    pub(in super::super) fn stream_over(&mut self, id: RequestId) {
        let Some(stream) = self.model.streams.remove(&id) else { return };
        if let (Some(topic), Some(member)) = (stream.topic, &stream.member) {
            self.model.topics[topic].group(&stream.group).members.leave(member);
        }
    }

    /// A stream that waits although there are records for it and credit.
    pub(in super::super) fn stuck_stream(&self) -> Option<CallId> {
        let stuck = self.model.streams.values().find(|stream| {
            let Some(topic) = stream.topic.filter(|_| stream.may_push()) else { return false };
            let topic = &self.model.topics[topic];
            let all_are_its = stream.member.as_ref().is_none_or(|member| {
                let group = topic.groups.get(&stream.group);
                group.is_some_and(|group| group.members.is_alone(member, self.now))
            });
            !topic.deleted && all_are_its && topic.log.has_more(&stream.place)
        });
        stuck.map(|stream| stream.call)
    }
}
