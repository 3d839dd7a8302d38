//! The fake's topics, ranges, groups, users and rights, as they are managed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::request::{Acl, list_max_effective};
use wire::response::{
    Grant, GroupInfo, GroupNames, MemberInfo, RangeInfo, RangeState, TopicInfo, TopicState, TopicSummaries,
    TopicSummary, User, UserV2,
};
use wire::{Payload, Reason, Request, Response, Str};

use super::State;

const KEYSPACE: u64 = 1 << 16;

/// What it knows besides records and positions.
#[derive(Default)]
pub struct Admin {
    /// Ranges of topics where something was split.
    pub ranges: BTreeMap<Bytes, Vec<RangeInfo>>,
    /// Topics that take no records.
    pub sealed: BTreeSet<Bytes>,
    /// Users by name.
    pub users: BTreeMap<Bytes, Person>,
    /// Rights by user.
    pub grants: BTreeMap<Bytes, BTreeSet<(Bytes, Bytes)>>,
}

/// A user.
pub struct Person {
    pub password: Bytes,
    pub permissions: Vec<Str>,
    pub role: Str,
}

impl Admin {
    pub(super) fn is_sealed(&self, topic: &Bytes) -> bool {
        self.sealed.contains(topic)
    }
}

pub(super) fn handle(request: Request, state: &mut State) -> Response {
    answer(request, state).map_or_else(Response::Error, Response::Ok)
}

fn answer(request: Request, state: &mut State) -> Result<Payload, Reason> {
    match request {
        Request::ListTopics { prefix, after, max } => {
            let prefix = prefix.unwrap_or_default();
            let wanted = |name: &&Bytes| name.starts_with(&prefix) && Some(*name) > after.as_ref();
            let mut names: Vec<Bytes> = state.topics.keys().filter(wanted).cloned().collect();
            let more = cut(&mut names, max);
            let topics = names.into_iter().map(|name| summary(name, state)).collect();
            Ok(Payload::Topics(TopicSummaries { topics, more }))
        }
        Request::DescribeTopic { topic, from_range, max } => {
            let topic = known(topic, state)?;
            let mut ranges = ranges(&topic, state).clone();
            ranges.retain(|range| range.range >= from_range);
            let more = cut(&mut ranges, max);
            Ok(Payload::Topic(TopicInfo { summary: summary(topic, state), ranges, more }))
        }
        Request::SealTopic { topic } => {
            let topic = known(topic, state)?;
            ranges(&topic, state).iter_mut().filter(|range| range.state == RangeState::Active).for_each(
                |range| {
                    range.state = RangeState::Sealed;
                },
            );
            state.admin.sealed.insert(topic);
            Ok(Payload::Empty)
        }
        Request::DeleteTopic { topic } => {
            let topic = known(topic, state)?;
            state.topics.remove(&topic);
            state.admin.ranges.remove(&topic);
            state.admin.sealed.remove(&topic);
            state.positions.retain(|(of, _), _| *of != topic);
            Ok(Payload::Empty)
        }
        Request::SplitRange { topic, range } => {
            let topic = known(topic, state)?;
            let parent = replace(ranges(&topic, state), range)?;
            let middle = parent.key_start + (parent.key_end - parent.key_start) / 2;
            let left = add(&topic, state, parent.key_start, middle, vec![range]);
            let right = add(&topic, state, middle, parent.key_end, vec![range]);
            Ok(Payload::Split { left, right })
        }
        Request::MergeRanges { topic, a, b } => {
            let topic = known(topic, state)?;
            let all = ranges(&topic, state);
            let find = |range| all.iter().find(|one| one.range == range).cloned().ok_or(Reason::NoSuchRange);
            let (first, second) = (find(a)?, find(b)?);
            if first.key_end != second.key_start {
                return Err(Reason::NotBuddies);
            }
            replace(all, a)?;
            replace(all, b)?;
            Ok(Payload::Merged(add(&topic, state, first.key_start, second.key_end, vec![a, b])))
        }
        Request::ListGroups { topic, after, max } => {
            let topic = known(topic, state)?;
            let groups =
                state.positions.keys().filter(|(of, _)| *of == topic).map(|(_, group)| group.clone());
            let mut names: Vec<Bytes> = groups.filter(|name| Some(name) > after.as_ref()).collect();
            let more = cut(&mut names, max);
            Ok(Payload::Groups(GroupNames { names, more }))
        }
        Request::DescribeGroup { topic, group } => {
            let topic = known(topic, state)?;
            let group = (topic, group.unwrap_or_default());
            let at = state.positions.get(&group).copied().unwrap_or(0);
            let lag = state.topics[&group.0].len().saturating_sub(at) as u64;
            let members = vec![MemberInfo { name: "m1".into(), ranges: 1, idle_ms: 5 }];
            Ok(Payload::Group(GroupInfo { generation: 1, members, lag, lag_exact: true }))
        }
        Request::CreateUser { .. }
        | Request::DeleteUser { .. }
        | Request::ChangePassword { .. }
        | Request::ListUsers
        | Request::ListUsersV2
        | Request::SetRole { .. } => users(request, &mut state.admin),
        Request::GrantAcl(acl) => {
            let (username, right) = parts(acl)?;
            state.admin.grants.entry(username).or_default().insert(right);
            Ok(Payload::Empty)
        }
        Request::RevokeAcl(acl) => {
            let (username, right) = parts(acl)?;
            state.admin.grants.entry(username).or_default().remove(&right);
            Ok(Payload::Empty)
        }
        Request::ListAcls { username } => {
            let rights = state.admin.grants.get(&username.unwrap_or_default()).into_iter().flatten().cloned();
            let grant = |(operation, pattern)| Grant { operation: Some(operation), pattern: Some(pattern) };
            // Not in order: whoever shows them sorts them.
            Ok(Payload::Grants(rights.rev().map(grant).collect()))
        }
        _ => unreachable!("it is served elsewhere"),
    }
}

fn users(request: Request, admin: &mut Admin) -> Result<Payload, Reason> {
    match request {
        Request::CreateUser { username, password, permissions } => {
            let known =
                |permission: &Str| matches!(permission.as_deref(), Some(b"admin" | b"produce" | b"consume"));
            if !permissions.iter().all(known) {
                return Err(Reason::InvalidPermissions);
            }
            let username = username.ok_or(Reason::InvalidUsername)?;
            let password = password.ok_or(Reason::InvalidPassword)?;
            if admin.users.contains_key(&username) {
                return Err(Reason::UserExists);
            }
            admin.users.insert(username, Person { password, permissions, role: None });
            Ok(Payload::Empty)
        }
        Request::DeleteUser { username } => {
            admin.users.remove(&username.unwrap_or_default());
            Ok(Payload::Empty)
        }
        Request::ChangePassword { username, new_password } => {
            let user = admin.users.get_mut(&username.unwrap_or_default()).ok_or(Reason::UserNotFound)?;
            user.password = new_password.ok_or(Reason::InvalidPassword)?;
            Ok(Payload::Empty)
        }
        Request::SetRole { username, role } => {
            let user = admin.users.get_mut(&username.unwrap_or_default()).ok_or(Reason::UserNotFound)?;
            user.role = role;
            Ok(Payload::Empty)
        }
        Request::ListUsers => {
            let user = |(name, person): (&Bytes, &Person)| User {
                username: Some(name.clone()),
                permissions: person.permissions.clone(),
            };
            Ok(Payload::Users(admin.users.iter().rev().map(user).collect()))
        }
        Request::ListUsersV2 => {
            let user = |(name, person): (&Bytes, &Person)| UserV2 {
                username: Some(name.clone()),
                role: person.role.clone(),
                permissions: person.permissions.clone(),
            };
            Ok(Payload::UsersV2(admin.users.iter().rev().map(user).collect()))
        }
        _ => unreachable!("it is served elsewhere"),
    }
}

fn parts(acl: Acl) -> Result<(Bytes, (Bytes, Bytes)), Reason> {
    let operation = acl.operation.unwrap_or_default();
    if !matches!(&operation[..], b"produce" | b"consume") {
        return Err(Reason::InvalidOperation);
    }
    Ok((acl.username.unwrap_or_default(), (operation, acl.pattern.ok_or(Reason::InvalidAcl)?)))
}

fn known(topic: Str, state: &State) -> Result<Bytes, Reason> {
    topic.filter(|topic| state.topics.contains_key(topic)).ok_or(Reason::NoSuchTopic)
}

pub(super) fn cut<T>(items: &mut Vec<T>, max: u32) -> bool {
    let max = list_max_effective(max) as usize;
    let more = items.len() > max;
    items.truncate(max);
    more
}

fn summary(name: Bytes, state: &mut State) -> TopicSummary {
    let bytes = state.topics[&name].iter().map(|record| record.len() as u64).sum();
    let groups = state.positions.keys().filter(|(of, _)| *of == name).count() as u32;
    let sealed = state.admin.is_sealed(&name);
    let ranges = ranges(&name, state);
    let active = ranges.iter().filter(|range| range.state == RangeState::Active).count();
    TopicSummary {
        state: if sealed { TopicState::Sealed } else { TopicState::Active },
        keyspace_bits: 16,
        ranges: ranges.len() as u32,
        active_ranges: active as u32,
        segments: 1,
        bytes,
        groups,
        name,
    }
}

fn ranges<'a>(topic: &Bytes, state: &'a mut State) -> &'a mut Vec<RangeInfo> {
    state.admin.ranges.entry(topic.clone()).or_insert_with(|| vec![range(0, 0, KEYSPACE, Vec::new())])
}

fn range(range: u64, key_start: u64, key_end: u64, parents: Vec<u64>) -> RangeInfo {
    let state = RangeState::Active;
    RangeInfo { range, state, key_start, key_end, parents, segments: 1, records: 0, bytes: 0 }
}

fn add(topic: &Bytes, state: &mut State, key_start: u64, key_end: u64, parents: Vec<u64>) -> u64 {
    let ranges = ranges(topic, state);
    let number = ranges.len() as u64;
    ranges.push(range(number, key_start, key_end, parents));
    number
}

/// Takes an active range's place.
fn replace(ranges: &mut [RangeInfo], number: u64) -> Result<RangeInfo, Reason> {
    let active = |range: &&mut RangeInfo| range.range == number && range.state == RangeState::Active;
    let range = ranges.iter_mut().find(active).ok_or(Reason::NoSuchRange)?;
    range.state = RangeState::Replaced;
    Ok(range.clone())
}
