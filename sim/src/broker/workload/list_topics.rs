//! `list_topics`: what there is, in pages.

use broker::Reply;
use bytes::Bytes;
use rand::Rng;
use types::limits;
use wire::Request;

use super::{Op, TOPICS};
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure};

/// A page of a list.
#[derive(Clone, Debug)]
pub(in super::super) struct List {
    prefix: Option<Bytes>,
    after: Option<Bytes>,
    max: u32,
}

/// Items of a page.
pub(super) fn page_len(max: u32) -> usize {
    (if max == 0 { limits::LIST_ITEMS_DEFAULT } else { max.min(limits::LIST_ITEMS_MAX) }) as usize
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId) {
    let some = |world: &mut World| match world.rng.random_range(0..4) {
        0 => Some(Bytes::from_static(TOPICS[world.rng.random_range(0..TOPICS.len())].as_bytes())),
        1 => Some(Bytes::from_static([&b""[..], b"b", b"\xff"][world.rng.random_range(0..3)])),
        _ => None,
    };
    let (prefix, after) = (some(world), some(world));
    let max = [0, 1, 2, 5000][world.rng.random_range(0..4)];
    let op = List { prefix: prefix.clone(), after: after.clone(), max };
    world.send(client, conn, None, Request::ListTopics { prefix, after, max }, Op::List(op));
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let Op::List(op) = world.calls[id].op.clone() else { return Ok(()) };
    let Reply::Topics(topics, more) = reply else { return world.expect(id, reply, false) };
    let prefix = op.prefix.unwrap_or_default();
    let wanted =
        |name: &&[u8]| name.starts_with(&prefix) && op.after.as_ref().is_none_or(|after| *name > &after[..]);
    let existing = world.model.names.iter().filter(|name| name.current.is_some());
    let mut names: Vec<&[u8]> = existing.map(|name| name.name.as_bytes()).filter(wanted).collect();
    names.sort_unstable();
    let expected_more = names.len() > page_len(op.max);
    names.truncate(page_len(op.max));
    let told: Vec<&[u8]> = topics.iter().map(|topic| &topic.name[..]).collect();
    ensure(told == names && *more == expected_more, "ANSWER", || {
        format!("{}: {told:?}, {more}; there are {names:?}, {expected_more}", world.calls[id])
    })
}
