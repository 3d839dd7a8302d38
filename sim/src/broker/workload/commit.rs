//! `commit`: a group's positions, forwards, backwards and wrong.

use std::fmt;

use broker::{Operation, Reply};
use bytes::Bytes;
use rand::Rng;
use types::cursor::Cursor;
use types::limits;
use wire::{Effect, Reason, Request};

use super::Op;
use super::fetch::{Meaning, garbage, meaning, some_token};
use crate::broker::model::{CallId, Token};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::Violation;

/// A commit.
#[derive(Clone, Debug)]
pub(in super::super) struct Commit {
    group: Option<Bytes>,
    cursor: Option<Bytes>,
    /// Its positions are on their way.
    proposed: bool,
}

impl Commit {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.group.as_ref().map(|group| group[..group.len().min(12)].escape_ascii().to_string());
        let cursor = self.cursor.as_ref().map(|cursor| cursor.escape_ascii().to_string());
        write!(f, "commit {cursor:?} for group {group:?}")
    }

    fn group_is_valid(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.len() <= limits::GROUP_NAME_BYTES_MAX)
    }
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let received = name.and_then(|name| world.clients[client].received[name].take());
    let (mut group, cursor) = match (world.rng.random_range(0..100), received) {
        (0..=74, Some((group, cursor))) => (Some(group), Some(cursor)),
        (0..=89, _) => (Some(world.some_group()), some_token(world)),
        (90..=93, _) => (Some(world.some_group()), None),
        (94 | 95, _) => (Some(world.some_group()), Some(Cursor::unborn().encode())),
        (_, _) => (Some(world.some_group()), Some(garbage(world))),
    };
    match world.rng.random_range(0..50) {
        0 => group = None,
        1 => group = Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])),
        _ => {}
    }
    send_of(world, client, conn, name, group, cursor);
}

pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    group: Option<Bytes>,
    cursor: Option<Bytes>,
) {
    let op = Commit { group: group.clone(), cursor: cursor.clone(), proposed: false };
    let topic = world.name_to_send(name);
    let request = Request::Commit(wire::request::Commit { topic, group, cursor });
    world.send(client, conn, name, request, Op::Commit(op));
}

/// The cursor of a topic's life that a commit stores, when there is something in it to store.
pub(super) fn to_store(world: &World, topic: usize, cursor: Option<&Bytes>) -> Option<Token> {
    let Meaning::Known(token) = meaning(world, cursor?) else { return None };
    let empty = token.place.covers().is_some_and(<[_]>::is_empty);
    (token.topic == topic && !empty).then_some(token)
}

/// Whether a cursor is refused.
pub(super) fn is_wrong(world: &World, topic: Option<usize>, cursor: Option<&Bytes>) -> bool {
    match cursor.map(|cursor| meaning(world, cursor)) {
        None | Some(Meaning::Unborn) => false,
        Some(Meaning::Garbage) => true,
        Some(Meaning::Known(token)) => Some(token.topic) != topic,
    }
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    let Op::Commit(op) = call.op.clone() else { return };
    let may = world.clients[call.client].may(Operation::Consume);
    let Some(index) = call.topic.filter(|_| may && op.group_is_valid()) else { return };
    let (Some(group), Some(token)) = (&op.group, to_store(world, index, op.cursor.as_ref())) else { return };
    let at = (world.model.life, world.now);
    world.model.topics[index].commit_asked(group, id, &token.place, token.holder.as_ref(), at);
    if let Op::Commit(op) = &mut world.calls[id].op {
        op.proposed = true;
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Commit(op) = call.op.clone() else { return Ok(()) };
    let (topic, life) = (call.topic, world.model.life);
    if let (Some(topic), Some(group)) = (topic, &op.group) {
        let topic = &mut world.model.topics[topic];
        match reply {
            Reply::Committed => topic.commit_done(group, id),
            Reply::Failed(reason) => {
                topic.commit_failed(group, id, life, reason.effect() == Effect::Unknown);
            }
            _ => {}
        }
    }
    let wrong = is_wrong(world, topic, op.cursor.as_ref());
    match reply {
        Reply::Committed => {
            world.summary.commits += 1;
            world.expect(id, reply, topic.is_some() && op.group_is_valid() && !wrong)
        }
        Reply::Failed(Reason::InvalidGroup) => world.expect(id, reply, !op.group_is_valid()),
        Reply::Failed(Reason::NoSuchTopic) => {
            world.expect(id, reply, world.is_gone(id) && op.group_is_valid())
        }
        Reply::Failed(Reason::InvalidCursor) => world.expect(id, reply, wrong && op.group_is_valid()),
        Reply::Failed(reason) => world.expect(id, reply, world.excused(*reason)),
        _ => world.expect(id, reply, false),
    }
}
