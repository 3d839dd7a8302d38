//! `describe_topic`: the ranges of a topic, as the answers to splits and merges have told them.

use broker::{RangeInfo, RangeState, Reply, TopicSummary};
use rand::Rng;
use wire::{Reason, Request};

use super::Op;
use super::list_topics::page_len;
use crate::broker::model::{CallId, Range, State};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure};

/// A page of a description.
#[derive(Clone, Debug)]
pub(in super::super) struct Describe {
    from_range: u64,
    max: u32,
}

pub(in super::super) fn send(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let from_range = if world.rng.random_bool(0.5) { 0 } else { world.rng.random_range(0..20) };
    let max = [0, 1, 3, 5000][world.rng.random_range(0..4)];
    send_of(world, client, conn, name, from_range, max);
}

pub(in super::super) fn send_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    from_range: u64,
    max: u32,
) -> CallId {
    let topic = world.name_to_send(name);
    let op = Describe { from_range, max };
    world.send(client, conn, name, Request::DescribeTopic { topic, from_range, max }, Op::Describe(op))
}

/// A range as it is described.
pub(in super::super) fn range(info: &RangeInfo) -> Range {
    let state = match info.state {
        RangeState::Active => State::Active,
        RangeState::Sealed => State::Sealed,
        RangeState::Replaced => State::Replaced,
    };
    Range { span: (info.key_start, info.key_end), state, parents: info.parents.clone() }
}

pub(in super::super) fn answered(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Describe(op) = call.op.clone() else { return Ok(()) };
    match (reply, call.topic) {
        (Reply::Topic(summary, ranges, more), Some(topic)) => {
            let all = &world.model.topics[topic].ranges;
            let from = usize::try_from(op.from_range).unwrap_or(usize::MAX).min(all.as_slice().len());
            let left = &all.as_slice()[from..];
            let expected = &left[..left.len().min(page_len(op.max))];
            let told: Vec<Range> = ranges.iter().map(range).collect();
            let numbered = ranges.iter().map(|info| info.range).eq((op.from_range..).take(ranges.len()));
            let right = told == expected && numbered && *more == (expected.len() < left.len());
            ensure(right, "ANSWER", || {
                format!("{}: {ranges:?}, {more}; there are {expected:?}", world.calls[id])
            })?;
            judge(world, topic, summary, ranges)
        }
        (Reply::Failed(Reason::NoSuchTopic), None) => Ok(()),
        (_, _) => world.expect(id, reply, false),
    }
}

/// Judges what a description says beside who came from whom.
pub(in super::super) fn judge(
    world: &mut World,
    topic: usize,
    summary: &TopicSummary,
    ranges: &[RangeInfo],
) -> Result<(), Violation> {
    let topic = &world.model.topics[topic];
    let active = topic.ranges.iter().filter(|(_, range)| range.state == State::Active).count();
    let sure = topic.groups.values().filter(|group| group.committed).count();
    let maybe = topic.groups.values().filter(|group| group.maybe_committed || !group.is_settled()).count();
    let right = summary.sealed == topic.sealed
        && summary.keyspace_bits == topic.bits
        && u64::from(summary.ranges) == topic.ranges.len()
        && summary.active_ranges as usize == active
        && (sure..=maybe.max(sure)).contains(&(summary.groups as usize));
    ensure(right, "ANSWER", || {
        format!("topic {} is described as {summary:?}, with {active} active ranges", topic.log_name())
    })?;
    for info in ranges {
        world.model.segments.described(topic.range_id(info.range), info.records)?;
    }
    Ok(())
}
