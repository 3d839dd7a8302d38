//! `create_topic`: each name is given once at a time, whoever asks how often.

use broker::{Operation, Reply};
use bytes::Bytes;
use rand::Rng;
use wire::{Effect, Reason, Request};

use super::{Op, STRANGERS};
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, inv_12};

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let topic = match name {
        Some(_) => world.name_to_send(name),
        // Only names that are not allowed: a stranger stays one.
        None => STRANGERS[world.rng.random_range(1..STRANGERS.len())].map(Bytes::from_static),
    };
    let bits = [0, 1, 2, 3, 4, 16, 32, 255][world.rng.random_range(0..8)];
    let request = Request::CreateTopic { topic, keyspace_bits: bits };
    world.send(client, conn, name, request, Op::Create { bits });
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    let Op::Create { bits } = call.op else { return };
    if let Some(name) = call.name
        && world.clients[call.client].may(Operation::Produce)
    {
        world.model.names[name].creating.insert(id, bits);
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let Some(index) = world.calls[id].name else {
        return world.expect(id, reply, *reply == Reply::Failed(Reason::InvalidTopicName));
    };
    let name = &mut world.model.names[index];
    let bits = name.creating.remove(&id).unwrap_or(0);
    match reply {
        Reply::Created => {
            let born = name.born.take();
            world.expect(id, reply, born.is_some())?;
            let topic = match born {
                Some(born) => world.model.born(index, born, bits)?,
                None => return Ok(()),
            };
            // Streams that waited for it begin with it.
            for stream in world.model.streams.values_mut() {
                if stream.name == Some(index) && stream.topic.is_none() {
                    stream.topic = Some(topic);
                }
            }
            Ok(())
        }
        Reply::Failed(Reason::AlreadyExists) => {
            let exists = name.current.is_some();
            world.expect(id, reply, exists)
        }
        Reply::Failed(reason) => {
            if reason.effect() == Effect::Unknown {
                name.maybe.push(bits);
            }
            world.expect(id, reply, world.excused(*reason))
        }
        _ => world.expect(id, reply, false),
    }
}

/// The node says that it made a topic, before it answers whoever asked for it.
pub(in super::super) fn noticed(world: &mut World, topic: &str, id: types::TopicId) -> Result<(), Violation> {
    let Some(name) = world.model.index_of(topic.as_bytes()) else { return Ok(()) };
    let current = world.model.current(name).map(|topic| topic.id);
    inv_12::topic(topic, Some(id), current, current.is_none())?;
    world.model.names[name].born = Some(id);
    Ok(())
}
