//! `create_topic`: each name is given once, whoever asks how often.

use bytes::Bytes;
use rand::Rng;
use wire::{Reason, Request};

use super::{Op, STRANGERS, name_of};
use crate::broker::judge::Answer;
use crate::broker::model::{CallId, Existence};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, inv_12};

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, topic: Option<usize>) {
    let name = match topic {
        Some(_) => name_of(topic),
        // Only names that are not allowed: a stranger stays one.
        None => STRANGERS[world.rng.random_range(1..STRANGERS.len())].map(Bytes::from_static),
    };
    let keyspace_bits = [0, 1, 16, 32, 255][world.rng.random_range(0..5)];
    world.send(client, conn, Request::CreateTopic { topic: name, keyspace_bits }, Op::Create { topic });
}

pub(in super::super) fn arrived(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    if let Some(topic) = call.op.topic()
        && world.clients[call.client].may(broker::Operation::Produce)
    {
        world.model.topics[topic].creating.push(id);
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Answer) -> Result<(), Violation> {
    let Some(index) = world.calls[id].op.topic() else {
        return world.expect(id, reply, *reply == Answer::Failed(Reason::InvalidTopicName));
    };
    let life = world.model.life;
    let topic = &mut world.model.topics[index];
    topic.creating.retain(|call| *call != id);
    match reply {
        Answer::Created => {
            inv_12::created_once(topic.name, topic.created)?;
            topic.created = true;
            topic.existence = Existence::Known;
            Ok(())
        }
        Answer::Failed(Reason::AlreadyExists) => {
            let possible = topic.may_exist();
            topic.existence = Existence::Known;
            world.expect(id, reply, possible)
        }
        Answer::Failed(reason) => {
            topic.maybe.push(life);
            world.expect(id, reply, world.excused(*reason))
        }
        Answer::Stored(_) | Answer::Fetched(_) | Answer::Committed | Answer::Left => {
            world.expect(id, reply, false)
        }
    }
}
