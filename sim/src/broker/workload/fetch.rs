//! `fetch`: by cursor, by group, from the beginning, waiting or not.

use std::fmt;

use broker::Fetched;
use bytes::{Bytes, BytesMut};
use rand::Rng;
use types::cursor::Cursor;
use types::limits;
use wire::{Reason, Request};

use super::{GROUPS, Op, STRANGERS, name_of, produce};
use crate::broker::judge::Answer;
use crate::broker::model::{CallId, Position};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure, inv_07, inv_25, inv_42, inv_43, inv_44};

/// Bytes of an answer that are neither records nor the cursor's own: envelope, count, the cursor's length.
const RESPONSE_BYTES: usize = 6 + 4 + 5;

/// A fetch.
#[derive(Clone, Debug)]
pub(in super::super) struct Fetch {
    pub(in super::super) topic: Option<usize>,
    pub(in super::super) cursor: Option<Token>,
    pub(in super::super) group: Option<Bytes>,
    pub(in super::super) member: bool,
    max: u32,
    wait_ms: u32,
    /// Where its page may begin, and the group's version that says so.
    allowed: Vec<u64>,
    version: u64,
}

/// What a cursor is, to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Token {
    At(Position),
    /// Of a topic that did not exist.
    Unborn,
    /// Nothing a fetch ever gave.
    Garbage,
}

impl Fetch {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cursor, group, member, max, wait_ms, .. } = self;
        let group = group.as_ref().map(|group| group[..group.len().min(12)].escape_ascii().to_string());
        write!(f, "fetch {cursor:?} group {group:?} member {member} max {max} wait {wait_ms} ms")
    }

    /// Whether there are records for it when so many are in its topic.
    pub(super) fn stands_before(&self, records: u64) -> bool {
        self.allowed.iter().all(|position| *position < records)
    }

    /// Whether the group's positions count.
    fn by_group(&self) -> bool {
        self.group.is_some() && (self.member || self.cursor.is_none())
    }
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, topic: Option<usize>) {
    let held = topic.and_then(|topic| world.clients[client].cursors[topic].clone());
    let (cursor, group, member) = match world.rng.random_range(0..100) {
        0..=39 => (held, None, false),
        40..=47 => (None, None, false),
        48..=82 => (None, Some(some_group(world)), false),
        83..=87 => (held, Some(some_group(world)), false),
        88..=94 => (some_token(world), None, false),
        95 | 96 => (Some(Cursor::unborn().encode()), None, false),
        97 => (None, Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])), false),
        _ => (Some(garbage(world)), None, false),
    };
    let max = [0, 0, 1, 2, 5, 100, 5000][world.rng.random_range(0..7)];
    let wait_ms = match world.rng.random_range(0..10) {
        0..=5 => 0,
        6 | 7 => world.rng.random_range(1..300),
        _ => world.rng.random_range(1..40_000),
    };
    send_of(world, client, conn, topic, (cursor, group, member), max, wait_ms);
}

pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    topic: Option<usize>,
    (cursor, group, member): (Option<Bytes>, Option<Bytes>, bool),
    max: u32,
    wait_ms: u32,
) -> CallId {
    let name = match topic {
        Some(_) => name_of(topic),
        None => STRANGERS[world.rng.random_range(0..STRANGERS.len())].map(Bytes::from_static),
    };
    let token = cursor.as_ref().map(|token| what_is(world, token));
    let op = Fetch {
        topic,
        cursor: token,
        group: group.clone(),
        member,
        max,
        wait_ms,
        allowed: vec![],
        version: 0,
    };
    let member = member.then(|| Bytes::from_static(b"m"));
    let request = wire::request::Fetch { topic: name, cursor, group, member, max, wait_ms };
    world.send(client, conn, Request::Fetch(request), Op::Fetch(op))
}

/// What a token is, to the model.
pub(super) fn what_is(world: &World, token: &Bytes) -> Token {
    match world.model.tokens.get(token) {
        Some(position) => Token::At(*position),
        None if *token == Cursor::unborn().encode() => Token::Unborn,
        None => Token::Garbage,
    }
}

pub(super) fn some_group(world: &mut World) -> Bytes {
    Bytes::from_static(GROUPS[world.rng.random_range(0..GROUPS.len())])
}

/// A token that a fetch of whatever topic gave out.
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
    let (now, life) = (world.now, world.model.life);
    let call = &mut world.calls[id];
    let Op::Fetch(op) = &mut call.op else { return };
    call.deadline = now + 1000 * u64::from(op.wait_ms.min(limits::FETCH_WAIT_MS_MAX));
    (op.allowed, op.version) = match (&op.topic, &op.group, op.cursor) {
        (Some(topic), Some(group), _) if op.by_group() && group.len() <= limits::GROUP_NAME_BYTES_MAX => {
            let group = world.model.topics[*topic].groups.get(group);
            group.map_or((vec![0], u64::MAX), |group| group.allowed(life))
        }
        (Some(topic), _, Some(Token::At(position))) if !op.by_group() && position.topic == *topic => {
            (vec![position.at], 0)
        }
        (_, _, _) => (vec![0], 0),
    };
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Answer) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Fetch(op) = call.op.clone() else { return Ok(()) };
    let (known, used) = (call.known, op.cursor.filter(|_| !op.by_group()));
    let foreign = matches!(used, Some(Token::At(position)) if Some(position.topic) != op.topic);
    match reply {
        Answer::Failed(Reason::InvalidCursor) => {
            world.expect(id, reply, used == Some(Token::Garbage) || foreign)
        }
        Answer::Failed(reason) => world.expect(id, reply, world.excused(*reason)),
        Answer::Fetched(page) => {
            world.expect(id, reply, used != Some(Token::Garbage) && !(foreign && known))?;
            let sent = match &call.request {
                Some(Request::Fetch(fetch)) => fetch.cursor.clone(),
                Some(_) | None => None,
            };
            let echoed = page.cursor == Cursor::unborn().encode() || Some(&page.cursor) == sent.as_ref();
            match op.topic {
                Some(topic) if world.model.topics[topic].is_known() || !echoed => {
                    got_page(world, id, &op, topic, page)
                }
                _ => {
                    if let Some(topic) = op.topic {
                        let life = world.model.life;
                        world.model.topics[topic].seen_absent(life);
                    }
                    world.expect(id, reply, page.count == 0 && echoed)
                }
            }
        }
        Answer::Created | Answer::Stored(_) | Answer::Committed | Answer::Left => {
            world.expect(id, reply, false)
        }
    }
}

fn got_page(
    world: &mut World,
    id: CallId,
    op: &Fetch,
    index: usize,
    page: &Fetched,
) -> Result<(), Violation> {
    let (life, power_lost) = (world.model.life, world.model.power_lost);
    let call = &world.calls[id];
    let known = call.known;
    let cursor = Cursor::decode(&page.cursor).ok().filter(|cursor| cursor.tiles.len() == 1);
    let topic = &mut world.model.topics[index];
    // A topic that exists is never read as one that does not.
    let Some(cursor) = cursor else { return inv_25::nothing_left(topic.name, 0, true) };
    topic.seen_as(cursor.topic)?;
    let mut records = Vec::with_capacity(page.count as usize);
    page.runs.iter().for_each(|run| produce::split_to(&run.records, &mut records));
    let count = records.len() as u64;
    let next = cursor.tiles[0].next.0;
    let max = if op.max == 0 { limits::FETCH_RECORDS_DEFAULT } else { op.max.min(limits::FETCH_RECORDS_MAX) };
    ensure(count == u64::from(page.count) && count <= u64::from(max), "ANSWER", || {
        format!("{call}: {count} records, {} announced", page.count)
    })?;
    // One record always fits: it came in a frame.
    let bytes =
        RESPONSE_BYTES + page.cursor.len() + page.runs.iter().map(|run| run.records.len()).sum::<usize>();
    ensure(count <= 1 || bytes <= world.config.frame_bytes_max, "ANSWER", || {
        format!("{call}: {bytes} bytes, at most {} are allowed", world.config.frame_bytes_max)
    })?;
    let start = next.checked_sub(count);
    inv_07::contiguous(call, start.unwrap_or(0), count, next)?;
    let start = start.unwrap_or(0);
    if known && op.by_group() {
        inv_42::check(call, start, &op.allowed)?;
        inv_44::check(call, start, &op.allowed)?;
    } else if known {
        inv_43::check(call, start, op.allowed.first().copied().unwrap_or(0))?;
    }
    topic.read(start, &records, power_lost)?;
    if count == 0 {
        topic.nothing_at(next, life)?;
    }
    if known
        && op.by_group()
        && let Some(group) = op.group.as_ref().and_then(|group| topic.groups.get_mut(group))
    {
        group.seen(start, life, op.version);
    }
    world.summary.delivered += count;
    let position = Position { topic: index, at: next };
    if world.model.tokens.insert(page.cursor.clone(), position).is_none() {
        world.model.given.push(page.cursor.clone());
    }
    Ok(())
}
