//! `seek_time`: a cursor at the first records appended at or after a time.

use std::rc::Rc;

use broker::Reply;
use rand::Rng;
use wire::{Reason, Request};

use super::{Op, page};
use crate::broker::model::{CallId, Sought, Token};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, inv_12};

/// A search.
#[derive(Clone, Debug)]
pub(in super::super) struct Seek {
    at_ms: u64,
    /// What was known when it reached the node.
    sought: Sought,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let now = world.wall_ms();
    let at_ms = match world.rng.random_range(0..10) {
        0 => 0,
        1 => u64::MAX,
        2 => now,
        3 => world.rng.random(),
        _ => now.saturating_sub(world.rng.random_range(0..2 * (world.now / 1000) + 2)),
    };
    let topic = world.name_to_send(name);
    let op = Seek { at_ms, sought: Sought::default() };
    world.send(client, conn, name, Request::SeekTime { topic, at_ms }, Op::Seek(op));
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    let (Some(topic), Op::Seek(op)) = (call.topic, &call.op) else { return };
    let topic = &world.model.topics[topic];
    let known =
        topic.ranges.iter().all(|(number, _)| !world.model.segments.has_leftover(topic.range_id(number)));
    let sought = topic.log.seek(op.at_ms, known);
    if let Op::Seek(op) = &mut world.calls[id].op {
        op.sought = sought;
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Seek(op) = call.op.clone() else { return Ok(()) };
    match (reply, call.topic) {
        (Reply::Sought(token), Some(topic)) => {
            let who = call.to_string();
            let cursor = page::decoded(&who, token)?;
            let sought = &world.model.topics[topic];
            inv_12::topic(&who, Some(cursor.topic), Some(sought.id), cursor.topic == sought.id)?;
            let place = Rc::new(sought.log.sought(&op.sought));
            world.model.give(token, Token { topic, place, holder: None });
            Ok(())
        }
        (Reply::Failed(Reason::NoSuchTopic), _) => world.expect(id, reply, world.is_gone(id)),
        (Reply::Failed(reason), Some(topic)) => {
            // What it looked at may be gone.
            let gone = *reason == Reason::Storage && world.model.topics[topic].deleted;
            world.expect(id, reply, gone || world.excused(*reason))
        }
        (_, _) => world.expect(id, reply, false),
    }
}
