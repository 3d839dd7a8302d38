//! `seal_topic` and `delete_topic`.

use broker::Reply;
use rand::Rng;
use wire::{Effect, Reason, Request};

use super::Op;
use crate::broker::model::CallId;
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::Violation;

/// How a topic ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum End {
    /// For appends.
    Seal,
    /// For good.
    Delete,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    // A sealed topic is of little use, so it is mostly removed next.
    let sealed = name.and_then(|name| world.model.current(name)).is_some_and(|topic| topic.sealed);
    let end = if world.rng.random_bool(if sealed { 0.9 } else { 0.6 }) { End::Delete } else { End::Seal };
    let topic = world.name_to_send(name);
    let request = match end {
        End::Seal => Request::SealTopic { topic },
        End::Delete => Request::DeleteTopic { topic },
    };
    world.send(client, conn, name, request, Op::End(end));
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::End(end) = call.op else { return Ok(()) };
    let topic = call.topic;
    match reply {
        Reply::Done => {
            let ended = topic.is_some_and(|index| match end {
                // One that is gone by now has no name to be told by.
                End::Seal => world.model.topics[index].sealed || world.is_ending(index, End::Delete),
                End::Delete => world.model.topics[index].deleted,
            });
            world.expect(id, reply, ended)
        }
        Reply::Failed(Reason::NoSuchTopic) => world.expect(id, reply, world.is_gone(id)),
        Reply::Failed(reason) => {
            if let Some(topic) = topic
                && reason.effect() == Effect::Unknown
            {
                let topic = &mut world.model.topics[topic];
                match end {
                    End::Seal => topic.maybe_sealed = true,
                    End::Delete => topic.maybe_deleted = true,
                }
            }
            world.expect(id, reply, world.excused(*reason))
        }
        _ => world.expect(id, reply, false),
    }
}

/// The node says that a topic ended, before it answers whoever asked for it.
pub(in super::super) fn noticed(world: &mut World, topic: &str, end: End) -> Result<(), Violation> {
    let Some(name) = world.model.index_of(topic.as_bytes()) else { return Ok(()) };
    let current = world.model.names[name].current;
    let Some(index) = current else {
        return Err(Violation::new("INV-12", format!("topic {topic} ended, and there is none")));
    };
    match end {
        End::Seal => {
            world.model.topics[index].sealed = true;
            world.model.topics[index].ranges.seal();
        }
        End::Delete => world.model.died(index),
    }
    Ok(())
}

impl World {
    /// Whether somebody is having a topic ended: it may be decided, and told next.
    pub(in super::super) fn is_ending(&self, topic: usize, end: End) -> bool {
        self.waiting.values().any(|call| {
            let call = &self.calls[*call];
            call.topic == Some(topic) && matches!(call.op, Op::End(asked) if asked == end)
        })
    }
}
