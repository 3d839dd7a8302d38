//! `commit`: a group's positions, forwards, backwards and wrong.

use std::fmt;

use broker::Operation;
use bytes::Bytes;
use rand::Rng;
use types::cursor::Cursor;
use types::limits;
use wire::{Effect, Reason, Request};

use super::fetch::{Token, garbage, some_group, some_token, what_is};
use super::{Op, STRANGERS, name_of};
use crate::broker::judge::Answer;
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::Violation;

/// A commit.
#[derive(Clone, Debug)]
pub(in super::super) struct Commit {
    pub(in super::super) topic: Option<usize>,
    group: Option<Bytes>,
    token: Option<Token>,
}

impl Commit {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.group.as_ref().map(|group| group[..group.len().min(12)].escape_ascii().to_string());
        write!(f, "commit {:?} for group {group:?}", self.token)
    }

    fn group_is_valid(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.len() <= limits::GROUP_NAME_BYTES_MAX)
    }

    /// The position it stores, when everything is right with it.
    fn position(&self) -> Option<u64> {
        match self.token {
            Some(Token::At(position)) if Some(position.topic) == self.topic && self.group_is_valid() => {
                Some(position.at)
            }
            Some(Token::At(_) | Token::Unborn | Token::Garbage) | None => None,
        }
    }
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, topic: Option<usize>) {
    let received = topic.and_then(|topic| world.clients[client].received[topic].take());
    let cursor = match world.rng.random_range(0..100) {
        0..=74 => received.or_else(|| some_token(world)),
        75..=89 => some_token(world),
        90..=93 => None,
        94 | 95 => Some(Cursor::unborn().encode()),
        _ => Some(garbage(world)),
    };
    let group = match world.rng.random_range(0..50) {
        0 => None,
        1 => Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])),
        _ => Some(some_group(world)),
    };
    let name = match topic {
        Some(_) => name_of(topic),
        None => STRANGERS[world.rng.random_range(0..STRANGERS.len())].map(Bytes::from_static),
    };
    let token = cursor.as_ref().map(|token| what_is(world, token));
    let op = Commit { topic, group: group.clone(), token };
    let request = Request::Commit(wire::request::Commit { topic: name, group, cursor });
    world.send(client, conn, request, Op::Commit(op));
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    let Op::Commit(op) = &call.op else { return };
    let may = world.clients[call.client].may(Operation::Consume);
    if let (Some(topic), Some(group), Some(position)) = (op.topic, &op.group, op.position())
        && may
    {
        world.model.topics[topic].groups.entry(group.clone()).or_default().asked(id, position);
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Answer) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Commit(op) = call.op.clone() else { return Ok(()) };
    let (known, life) = (call.known, world.model.life);
    let group = match (op.topic, &op.group) {
        (Some(topic), Some(group)) => world.model.topics[topic].groups.get_mut(group),
        (_, _) => None,
    };
    if let Some(group) = group {
        match reply {
            Answer::Committed => group.acknowledged(id),
            Answer::Failed(reason) => group.failed(id, life, reason.effect() == Effect::Unknown),
            Answer::Created | Answer::Stored(_) | Answer::Fetched(_) | Answer::Left => {}
        }
    }
    let nothing_to_do = matches!(op.token, None | Some(Token::Unborn));
    match reply {
        Answer::Committed => {
            world.summary.commits += 1;
            let may_exist = op.topic.is_some_and(|topic| world.model.topics[topic].may_exist());
            let possible = op.position().is_some() || nothing_to_do;
            world.expect(id, reply, may_exist && op.group_is_valid() && possible)
        }
        Answer::Failed(Reason::InvalidGroup) => world.expect(id, reply, !op.group_is_valid()),
        Answer::Failed(Reason::NoSuchTopic) => world.expect(id, reply, !known && op.group_is_valid()),
        Answer::Failed(Reason::InvalidCursor) => {
            let wrong = op.position().is_none() && !nothing_to_do;
            world.expect(id, reply, wrong && op.group_is_valid())
        }
        Answer::Failed(reason) => world.expect(id, reply, world.excused(*reason)),
        Answer::Created | Answer::Stored(_) | Answer::Fetched(_) | Answer::Left => {
            world.expect(id, reply, false)
        }
    }
}
