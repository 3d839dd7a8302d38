//! `split_range` and `merge_ranges`: at any time, of ranges there are and of others.

use broker::Reply;
use rand::Rng;
use wire::{Effect, Reason, Request};

use super::Op;
use super::end_topic::End;
use crate::broker::model::{CallId, Change, State};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::Violation;

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let change = some_change(world, name);
    send_of(world, client, conn, name, change);
}

pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    change: Change,
) -> CallId {
    let topic = world.name_to_send(name);
    let request = match change {
        Change::Split(range) => Request::SplitRange { topic, range },
        Change::Merge(a, b) => Request::MergeRanges { topic, a, b },
    };
    world.send(client, conn, name, request, Op::Change(change))
}

fn some_change(world: &mut World, name: Option<usize>) -> Change {
    let ranges = name.and_then(|name| world.model.current(name)).map(|topic| &topic.ranges);
    let count = ranges.map_or(1, |ranges| ranges.len());
    let active: Vec<(u64, (u64, u64))> = ranges.map_or_else(Vec::new, |ranges| {
        let active = ranges.iter().filter(|(_, range)| range.state == State::Active);
        active.map(|(number, range)| (number, range.span)).collect()
    });
    if active.is_empty() || world.rng.random_bool(0.1) {
        let [a, b] = [0, 1].map(|_| world.rng.random_range(0..count + 2));
        return if world.rng.random_bool(0.5) { Change::Split(a) } else { Change::Merge(a, b) };
    }
    let (number, (start, end)) = active[world.rng.random_range(0..active.len())];
    let size = end - start;
    let buddy = active.iter().find(|(_, other)| other.0 == start ^ size && other.1 - other.0 == size);
    match buddy {
        // With more ranges than anybody needs, or by chance.
        Some((buddy, _)) if active.len() >= world.ranges_most || world.rng.random_bool(0.4) => {
            if world.rng.random_bool(0.5) {
                Change::Merge(number, *buddy)
            } else {
                Change::Merge(*buddy, number)
            }
        }
        _ if active.len() < world.ranges_most => Change::Split(number),
        _ => Change::Merge(number, number),
    }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Change(change) = call.op else { return Ok(()) };
    let Some(index) = call.topic else {
        return world.expect(id, reply, *reply == Reply::Failed(Reason::NoSuchTopic));
    };
    let topic = &mut world.model.topics[index];
    match reply {
        Reply::Split { .. } | Reply::Merged { .. } => {
            let made = topic.ranges.change(change);
            let told = match reply {
                Reply::Split { left, right } => vec![*left, *right],
                Reply::Merged { child } => vec![*child],
                _ => Vec::new(),
            };
            let parents = match change {
                Change::Split(range) => vec![range],
                Change::Merge(a, b) => vec![a, b],
            };
            let parents: Vec<_> = parents.into_iter().map(|range| topic.range_id(range)).collect();
            world.expect(id, reply, made == Ok(told))?;
            world.summary.changes += 1;
            world.hold(&parents);
            Ok(())
        }
        Reply::Failed(Reason::NoSuchTopic | Reason::NoSuchRange) if topic.deleted => Ok(()),
        Reply::Failed(
            reason @ (Reason::NoSuchRange | Reason::Sealed | Reason::CannotSplit | Reason::NotBuddies),
        ) => {
            let right = topic.ranges.refusal(change) == Some(*reason);
            // One that was sealed and is gone by now has no name to be told by.
            let sealed = *reason == Reason::Sealed && world.is_ending(index, End::Delete);
            world.expect(id, reply, right || sealed)
        }
        Reply::Failed(reason) => {
            if reason.effect() == Effect::Unknown {
                topic.ranges.left_unknown(change);
            }
            world.expect(id, reply, world.excused(*reason))
        }
        _ => world.expect(id, reply, false),
    }
}
