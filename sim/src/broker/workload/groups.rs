//! `list_groups`, `describe_group`, `leave_group`.

use broker::{GroupInfo, Reply};
use bytes::Bytes;
use rand::Rng;
use types::limits;
use wire::{Reason, Request};

use super::Op;
use super::list_topics::page_len;
use crate::broker::model::{CallId, Outcome};
use crate::broker::network::ConnId;
use crate::broker::world::World;
use crate::invariants::{Violation, ensure};

/// A page of the names of groups.
#[derive(Clone, Debug)]
pub(in super::super) struct List {
    after: Option<Bytes>,
    max: u32,
}

/// Who leaves what.
#[derive(Clone, Debug)]
pub(in super::super) struct Leave {
    group: Option<Bytes>,
    member: Option<Bytes>,
}

fn some_group(world: &mut World) -> Bytes {
    if world.rng.random_bool(0.5) { Bytes::from_static(b"crew") } else { world.some_group() }
}

pub(in super::super) fn send_list(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let after = world.rng.random_bool(0.5).then(|| some_group(world));
    let max = [0, 1, 2, 5000][world.rng.random_range(0..4)];
    let topic = world.name_to_send(name);
    let op = List { after: after.clone(), max };
    world.send(client, conn, name, Request::ListGroups { topic, after, max }, Op::Groups(op));
}

pub(in super::super) fn send_describe(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let group = match world.rng.random_range(0..20) {
        0 => None,
        1 => Some(Bytes::from(vec![b'g'; limits::GROUP_NAME_BYTES_MAX + 1])),
        _ => Some(some_group(world)),
    };
    send_describe_of(world, client, conn, name, group);
}

pub(in super::super) fn send_describe_of(
    world: &mut World,
    client: usize,
    conn: ConnId,
    name: Option<usize>,
    group: Option<Bytes>,
) -> CallId {
    let topic = world.name_to_send(name);
    let request = Request::DescribeGroup { topic, group: group.clone() };
    world.send(client, conn, name, request, Op::Group(group))
}

pub(in super::super) fn send_leave(world: &mut World, client: usize, conn: ConnId, name: Option<usize>) {
    let topic = world.name_to_send(name);
    let member = world.clients[client].member.clone();
    let (group, member) = match world.rng.random_range(0..10) {
        0 => (None, None),
        1 => (Some(world.some_group()), Some(Bytes::from_static(b"nobody"))),
        2 => (Some(world.some_group()), Some(member)),
        _ => (Some(Bytes::from_static(b"crew")), Some(member)),
    };
    let op = Leave { group: group.clone(), member: member.clone() };
    world.send(client, conn, name, Request::LeaveGroup { topic, group, member }, Op::Leave(op));
}

/// A request to leave has reached the node.
pub(in super::super) fn leaves(world: &mut World, id: CallId) {
    let call = &world.calls[id];
    let (Some(topic), Op::Leave(op)) = (call.topic, &call.op) else { return };
    if let (Some(name), Some(member), Some(true)) = (&op.group, &op.member, world.may(id)) {
        let mut streams = world.model.streams.values();
        let streams =
            streams.any(|stream| stream.is_member(topic, name) && stream.member.as_ref() == Some(member));
        let Some(group) = world.model.topics[topic].groups.get_mut(name) else { return };
        group.members.leave(member);
        if !streams {
            group.members.ask_to_leave(member);
        }
    }
}

pub(in super::super) fn listed(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Groups(op) = call.op.clone() else { return Ok(()) };
    match (reply, call.topic) {
        (Reply::Groups(names, more), Some(topic)) => {
            let groups = &world.model.topics[topic].groups;
            let later = |name: &Bytes| op.after.as_ref().is_none_or(|after| name > after);
            let last = names.last().filter(|_| *more);
            let missing = groups.iter().find(|(name, group)| {
                group.committed
                    && later(name)
                    && !names.contains(name)
                    && last.is_none_or(|last| *name < last)
            });
            let right = names.is_sorted_by(|a, b| a < b)
                && names.len() <= page_len(op.max)
                && (!more || names.len() == page_len(op.max))
                && names.iter().all(|name| {
                    let group = groups.get(name);
                    later(name) && group.is_some_and(|group| group.maybe_committed || !group.is_settled())
                });
            ensure(right && missing.is_none(), "ANSWER", || {
                format!("{call}: {names:?}, {more}; not {:?}", missing.map(|(name, _)| name))
            })
        }
        (Reply::Failed(Reason::NoSuchTopic), None) => Ok(()),
        (_, _) => world.expect(id, reply, false),
    }
}

pub(in super::super) fn described(world: &mut World, id: CallId, reply: &Reply) -> Result<(), Violation> {
    let call = &world.calls[id];
    let Op::Group(name) = call.op.clone() else { return Ok(()) };
    let valid = name.as_ref().is_some_and(|name| name.len() <= limits::GROUP_NAME_BYTES_MAX);
    match (reply, call.topic) {
        (Reply::Group(info), Some(topic)) if valid => {
            let name = name.unwrap_or_default();
            judge_streams(world, &call.to_string(), topic, &name, info)?;
            judge(world, &call.to_string(), topic, &name, info)
        }
        (Reply::Failed(Reason::NoSuchTopic), None) => Ok(()),
        (Reply::Failed(Reason::InvalidGroup), Some(_)) => world.expect(id, reply, !valid),
        (_, _) => world.expect(id, reply, false),
    }
}

/// Judges that whoever a stream reads as is a member.
fn judge_streams(
    world: &World,
    who: &str,
    topic: usize,
    name: &Bytes,
    info: &GroupInfo,
) -> Result<(), Violation> {
    let members = world.model.streams.values().filter(|stream| stream.is_member(topic, name));
    let listed = |member: &Bytes| info.members.iter().any(|listed| listed.name == *member);
    let missing = members.filter_map(|stream| stream.member.as_ref()).find(|member| !listed(member));
    ensure(missing.is_none(), "MEMBERS", || {
        format!("{who}: a stream of {missing:?} is open, and the members are {:?}", info.members)
    })
}

/// Judges the members and how far the group is behind.
fn judge(world: &World, who: &str, topic: usize, name: &Bytes, info: &GroupInfo) -> Result<(), Violation> {
    let topic = &world.model.topics[topic];
    let group = topic.groups.get(name);
    if !info.members.is_empty() {
        let assigned = group.and_then(|group| group.members.assigned);
        let told = Some((info.generation, info.members.len()));
        ensure(assigned == told, "MEMBERS", || format!("{who}: {told:?}, last told was {assigned:?}"))?;
        // Every range has one owner.
        let owned: u64 = info.members.iter().map(|member| u64::from(member.ranges)).sum();
        let leaves = topic.ranges.leaves().count() as u64;
        ensure(owned == leaves, "MEMBERS", || format!("{who}: {owned} of {leaves} ranges have an owner"))?;
    }
    let known =
        topic.ranges.iter().all(|(number, _)| !world.model.segments.has_leftover(topic.range_id(number)));
    let settled = group.is_none_or(|group| group.is_settled());
    let behind = match group {
        Some(group) => topic.log.behind(&group.at),
        None => Some(topic.log.due()),
    };
    let Some(behind) = behind.filter(|_| known && settled) else { return Ok(()) };
    let unsure = topic.log.all().filter(|which| {
        let outcome = topic.log.entry(*which).outcome;
        matches!(outcome, Outcome::Pending | Outcome::Unknown(_))
    });
    let most = behind as u64 + unsure.count() as u64;
    let right = info.lag >= behind as u64 && (info.lag <= most || !info.lag_exact);
    ensure(right, "LAG", || {
        format!("{who}: {} behind, exactly: {}; it is {behind} to {most}", info.lag, info.lag_exact)
    })
}
