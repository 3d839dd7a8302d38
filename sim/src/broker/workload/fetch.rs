//! `fetch` and `fetch_batches`: by cursor, by group, as a member, from the beginning, waiting or not.

use std::fmt;

use broker::{Fetched, Reply};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use types::cursor::Cursor;
use types::limits;
use wire::{Reason, Request};

use super::page::{self, Given};
use super::{Op, TOPICS};
use crate::broker::model::{CallId, Holder, Place, Reader, Token};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure};

/// A fetch.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Fetch {
    cursor: Option<Bytes>,
    pub(in super::super) group: Option<Bytes>,
    pub(in super::super) member: Option<Bytes>,
    max: u32,
    wait_ms: u32,
    /// Where its page may begin, and the group's version that says so.
    pub(in super::super) start: Place,
    version: u64,
    /// The same in a life of its topic that began while it waited.
    later: Option<(usize, Place)>,
}

/// What a cursor is, to the model.
#[derive(Clone, Debug)]
pub(in super::super) enum Meaning {
    Known(Token),
    /// Of a topic that did not exist.
    Unborn,
    /// Nothing the node ever gave.
    Garbage,
}

impl Fetch {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cursor, group, member, max, wait_ms, .. } = self;
        let short =
            |bytes: &Option<Bytes>| bytes.as_ref().map(|b| b[..b.len().min(12)].escape_ascii().to_string());
        let cursor = cursor.as_ref().map(|token| token.escape_ascii().to_string());
        let (group, member) = (short(group), short(member));
        write!(f, "fetch {cursor:?} group {group:?} member {member:?} max {max} wait {wait_ms} ms")
    }

    /// A member's positions count, whatever the cursor.
    fn is_member(&self) -> bool {
        self.member.is_some() && self.group.is_some()
    }

    /// The cursor that counts.
    fn used(&self) -> Option<&Bytes> {
        self.cursor.as_ref().filter(|_| !self.is_member())
    }

    /// The group whose positions count.
    pub(in super::super) fn reads_for(&self) -> Option<&Bytes> {
        self.group.as_ref().filter(|_| self.used().is_none())
    }

    /// It may begin again at what its group has committed in a life of its topic.
    pub(in super::super) fn may_begin_at(&mut self, asked: Option<usize>, index: usize, committed: &Place) {
        if asked == Some(index) {
            return self.start.or(committed);
        }
        match &mut self.later {
            Some((life, place)) if *life == index => place.or(committed),
            later => *later = Some((index, committed.clone())),
        }
    }

    /// Where it may begin in a life of its topic.
    fn start_in(&self, asked: Option<usize>, index: usize) -> Place {
        if asked == Some(index) {
            return self.start.clone();
        }
        let mut start = Place::beginning();
        if let Some((_, place)) = self.later.as_ref().filter(|(life, _)| *life == index) {
            start.or(place);
        }
        start
    }

    fn max(&self) -> u32 {
        match self.max {
            0 => limits::FETCH_RECORDS_DEFAULT,
            max => max.min(limits::FETCH_RECORDS_MAX),
        }
    }
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let held = name.and_then(|name| world.clients[client].cursors[name].clone());
    let member = world.clients[client].member.clone();
    let (cursor, group, member) = match world.rng.random_range(0..100) {
        0..=39 => (held, None, None),
        40..=47 => (None, None, None),
        48..=72 => (None, Some(world.some_group()), None),
        73..=82 => (None, Some(world.some_group()), Some(member)),
        83..=87 => (held, Some(world.some_group()), world.rng.random_bool(0.5).then_some(member)),
        88..=94 => (some_token(world), None, None),
        95 | 96 => (Some(Cursor::unborn().encode()), None, None),
        97 => (None, Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])), None),
        _ => (Some(garbage(world)), None, None),
    };
    let (max, wait_ms) = some_limits(world);
    send_of(world, client, conn, name, Fetch { cursor, group, member, max, wait_ms, ..Fetch::default() });
}

fn some_limits(world: &mut World) -> (u32, u32) {
    let max = [0, 0, 1, 2, 5, 100, 5000][world.rng.random_range(0..7)];
    let wait_ms = match world.rng.random_range(0..10) {
        0..=5 => 0,
        6 | 7 => world.rng.random_range(1..300),
        _ => world.rng.random_range(1..40_000),
    };
    (max, wait_ms)
}

/// Reads on for a group, alone or as a member.
pub(in super::super) fn send_as_group(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    member: bool,
) {
    let (max, wait_ms) = some_limits(world);
    let member = member.then(|| world.clients[client].member.clone());
    let group = if member.is_some() { Bytes::from_static(b"crew") } else { world.some_group() };
    let group = Some(group);
    send_of(world, client, conn, name, Fetch { group, member, max, wait_ms, ..Fetch::default() });
}

/// Reads from a cursor, or from the beginning.
pub(in super::super) fn send_from(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: usize,
    cursor: Option<Bytes>,
    max: u32,
) -> CallId {
    send_of(world, client, conn, Some(name), Fetch { cursor, max, ..Fetch::default() })
}

/// Reads for a group.
pub(in super::super) fn send_for(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: usize,
    (group, member): (Bytes, Option<Bytes>),
) -> CallId {
    send_of(world, client, conn, Some(name), Fetch { group: Some(group), member, ..Fetch::default() })
}

fn send_of(world: &mut World, client: usize, conn: ConnId, name: Option<usize>, op: Fetch) -> CallId {
    let topic = world.name_to_send(name);
    let Fetch { cursor, group, member, max, wait_ms, .. } = op.clone();
    let request = wire::request::Fetch { topic, cursor, group, member, max, wait_ms };
    let batches = world.rng.random_bool(0.3);
    let request = if batches { Request::FetchBatches(request) } else { Request::Fetch(request) };
    world.send(client, conn, name, request, Op::Fetch(Box::new(op)))
}

/// What a token is, to the model.
pub(super) fn meaning(world: &World, token: &Bytes) -> Meaning {
    match world.model.tokens.get(token) {
        Some(known) => Meaning::Known(known.clone()),
        None if *token == Cursor::unborn().encode() => Meaning::Unborn,
        None => Meaning::Garbage,
    }
}

/// A token that was given out, of whatever topic.
pub(super) fn some_token(world: &mut World) -> Option<Bytes> {
    let count = world.model.given.len();
    let at = world.rng.random_range(0..count.max(1));
    world.model.given.get(at).cloned()
}

/// A token with one thing wrong.
pub(super) fn garbage(world: &mut World) -> Bytes {
    let token = some_token(world).unwrap_or_else(|| Bytes::from_static(b"bm90IGEgY3Vyc29y"));
    let mut token = BytesMut::from(&token[..]);
    match world.rng.random_range(0..3) {
        0 => token.truncate(world.rng.random_range(0..token.len())),
        1 => token.extend_from_slice(b"A"),
        _ => {
            let at = world.rng.random_range(0..token.len());
            token[at] = if token[at] == b'A' { b'B' } else { b'A' };
        }
    }
    token.freeze()
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let (now, call) = (world.now, &world.calls[id]);
    let Op::Fetch(op) = &call.op else { return };
    let deadline = now + 1000 * u64::from(op.wait_ms.min(limits::FETCH_WAIT_MS_MAX));
    let used = op.used().map(|token| meaning(world, token));
    let (mut start, mut version) = (Place::beginning(), 0);
    if let Some(index) = call.topic {
        let op = op.clone();
        let may = world.may(id) == Some(true);
        let topic = &mut world.model.topics[index];
        match (used, op.reads_for()) {
            (Some(Meaning::Known(token)), _) if token.topic == index => {
                start = token.place.completed(&topic.log.positions);
            }
            (None, Some(group)) if group.len() <= limits::GROUP_NAME_BYTES_MAX && may => {
                let group = topic.group(group);
                (start, version) = (group.at.clone(), group.version);
                if let Some(member) = &op.member {
                    group.members.hear(member, now);
                }
            }
            (_, _) => {}
        }
    }
    let call = &mut world.calls[id];
    call.deadline = deadline;
    if let Op::Fetch(op) = &mut call.op {
        (op.start, op.version) = (start, version);
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Fetch(op) = &call.op else { return Ok(()) };
    let op = op.clone();
    let used = op.used().map(|token| meaning(world, token));
    match reply {
        Reply::Failed(Reason::InvalidCursor) => {
            let here = call.topic.or(call.name.and_then(|name| world.model.names[name].current));
            let wrong = match used {
                Some(Meaning::Garbage) => true,
                Some(Meaning::Known(token)) => here.is_some_and(|here| here != token.topic),
                Some(Meaning::Unborn) | None => false,
            };
            world.expect(id, reply, wrong)
        }
        Reply::Failed(reason) => world.expect(id, reply, world.excused(*reason)),
        Reply::Fetched(fetched) => {
            world.expect(id, reply, !matches!(used, Some(Meaning::Garbage)))?;
            let echo = op.cursor.clone().unwrap_or_else(|| Cursor::unborn().encode());
            // A member begins again when its topic is gone, and waits for the next.
            let unborn = world.is_gone(id) && (call.topic.is_none() || op.is_member());
            if unborn && fetched.count == 0 && fetched.cursor == echo {
                return Ok(());
            }
            got_page(world, id, &op, fetched)
        }
        _ => world.expect(id, reply, false),
    }
}

fn got_page(world: &mut World, id: CallId, op: &Fetch, fetched: &Fetched) -> Result<(), Violation> {
    let call = &world.calls[id];
    let who = call.to_string();
    let cursor = page::decoded(&who, &fetched.cursor)?;
    // Topics of that name may have been made while it waited, and removed again.
    let here = |found: &usize| {
        Some(world.model.topics[*found].name) == call.name && call.topic.is_none_or(|topic| topic <= *found)
    };
    let index = world.model.by_id(cursor.topic).filter(here);
    let Some(index) = index else {
        let name = call.name.map(|name| TOPICS[name]);
        return Err(Violation::new(
            "INV-12",
            format!("{who}: a cursor of {}, not of {name:?}", cursor.topic),
        ));
    };
    let stamp = cursor.member.as_ref().map(|member| Bytes::copy_from_slice(member.member.as_bytes()));
    ensure(stamp == op.member.clone().filter(|_| op.is_member()), "MEMBERS", || {
        format!("{who} gets a cursor of the member {stamp:?}")
    })?;
    let life = world.model.life;
    let holder = cursor.member.as_ref().zip(stamp).map(|(member, name)| Holder {
        group: op.group.clone().unwrap_or_default(),
        member: name,
        generation: member.generation.0,
        life,
    });
    let start = op.start_in(call.topic, index);
    let reader = if op.reads_for().is_some() { Reader::Group } else { Reader::Cursor };
    let given = Given {
        who: &who,
        topic: index,
        reader,
        start: &start,
        holder,
        from: op
            .used()
            .filter(|_| call.topic.is_some())
            .cloned()
            .filter(|token| world.model.tokens.get(token).is_some_and(|token| token.topic == index)),
        max: op.max(),
    };
    let seen = page::judge(world, &given, fetched, &cursor)?;
    let now = world.now;
    let topic = &mut world.model.topics[index];
    let Some(group) = op.reads_for() else { return Ok(()) };
    if group.len() > limits::GROUP_NAME_BYTES_MAX {
        return Ok(());
    }
    let group = topic.group(group);
    match &given.holder {
        Some(Holder { member, generation, .. }) => {
            let spans = seen.after.covers().map(<[_]>::to_vec).unwrap_or_default();
            group.members.given(member, *generation, &spans)?;
            group.members.answered(member, now);
        }
        None if Some(index) == world.calls[id].topic => group.seen(seen.start, op.version),
        None => {}
    }
    Ok(())
}
