//! What people and programs may see of topics, ranges and groups.
//!
//! Reads only. A list names only what the session may use, and is cut into pages so that one answer stays small
//! whatever there is.

use bytes::Bytes;
use metadata::vnode::{RangeState as Listed, Topic, TopicState, Vnode};
use types::{GroupName, RangeId, RangeSeq, TopicId, limits};
use wire::Reason;

use crate::action::{RangeInfo, RangeState, Reply, TopicSummary};
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::groups;
use crate::node::Node;

impl Node {
    /// Answers with a page of topics.
    pub(crate) fn list_topics(
        &mut self,
        id: RequestId,
        session: &Session,
        prefix: Option<&Bytes>,
        after: Option<&Bytes>,
        max: u32,
    ) {
        let prefix = prefix.map(|prefix| &prefix[..]).unwrap_or_default();
        let after = after.map(|after| &after[..]).unwrap_or_default();
        let wanted = |(_, topic): &(TopicId, &Topic)| {
            let name = topic.name.as_str().as_bytes();
            name > after && name.starts_with(prefix) && self.may_use(session, name)
        };
        let listed = self.core.meta.all_topics().filter(|(_, id, topic)| wanted(&(*id, *topic)));
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable_by(|(_, _, one), (_, _, other)| one.name.cmp(&other.name));
        listed.truncate(page(max) + 1);
        let mut topics: Vec<TopicSummary> =
            listed.into_iter().map(|(vnode, id, topic)| summary(vnode, id, topic)).collect();
        let more = topics.len() > page(max);
        topics.truncate(page(max));
        self.core.reply(id, Reply::Topics(topics, more));
    }

    /// Answers with a topic and a page of its ranges.
    pub(crate) fn describe_topic(
        &mut self,
        id: RequestId,
        session: &Session,
        topic: Option<&Bytes>,
        from_range: u64,
        max: u32,
    ) {
        let reply = self.described(session, topic, from_range, max).unwrap_or_else(Reply::Failed);
        self.core.reply(id, reply);
    }

    fn described(
        &mut self,
        session: &Session,
        topic: Option<&Bytes>,
        from_range: u64,
        max: u32,
    ) -> Result<Reply, Reason> {
        let topic = self.usable_topic(session, topic)?;
        let vnode = self.core.meta.of(topic);
        let listed = vnode.topic(topic).ok_or(Reason::NoSuchTopic)?;
        let ranges = vnode.ranges_of(topic).filter(|(id, _)| id.seq >= RangeSeq(from_range));
        let mut ranges: Vec<RangeInfo> =
            ranges.take(page(max) + 1).map(|(id, range)| self.range_info(id, range)).collect();
        let more = ranges.len() > page(max);
        ranges.truncate(page(max));
        Ok(Reply::Topic(summary(vnode, topic, listed), ranges, more))
    }

    fn range_info(&self, id: RangeId, range: &metadata::vnode::Range) -> RangeInfo {
        let vnode = self.core.meta.of(id.topic);
        let first = vnode.segments_of(id).next().map(|(_, segment)| segment.start);
        let segments = vnode.segments_of(id);
        let (count, bytes) = segments.fold((0_u32, 0), |(count, bytes), (_, segment)| {
            (count.saturating_add(1), bytes + segment.sealed_bytes())
        });
        RangeInfo {
            range: id.seq.0,
            state: match range.state {
                Listed::Active => RangeState::Active,
                Listed::Sealed => RangeState::Sealed,
                Listed::Replaced => RangeState::Replaced,
            },
            key_start: range.span.start(),
            key_end: range.span.end(),
            parents: range.parents.iter().map(|seq| seq.0).collect(),
            segments: count,
            records: first.map_or(0, |first| self.end_of(id).max(first).since(first)),
            bytes,
        }
    }

    /// Answers with a page of the groups that committed positions.
    pub(crate) fn list_groups(
        &mut self,
        id: RequestId,
        session: &Session,
        topic: Option<&Bytes>,
        after: Option<&Bytes>,
        max: u32,
    ) {
        let reply = self.usable_topic(session, topic).map(|topic| {
            let groups = self.core.meta.of(topic).groups_of(topic);
            let later = |group: &&GroupName| after.is_none_or(|after| group.as_bytes() > &after[..]);
            let names = groups.filter(later).map(|group| Bytes::copy_from_slice(group.as_bytes()));
            let mut names: Vec<Bytes> = names.take(page(max) + 1).collect();
            let more = names.len() > page(max);
            names.truncate(page(max));
            Reply::Groups(names, more)
        });
        self.core.reply(id, reply.unwrap_or_else(Reply::Failed));
    }

    /// Answers with a group's members and lag.
    pub(crate) fn describe_group(
        &mut self,
        id: RequestId,
        session: &Session,
        topic: Option<&Bytes>,
        group: Option<&Bytes>,
    ) {
        let key = self.usable_topic(session, topic).and_then(|topic| {
            let group = group.and_then(|group| GroupName::new(group).ok()).ok_or(Reason::InvalidGroup)?;
            Ok(groups::Key { topic, group })
        });
        let reply = match key {
            Err(reason) => Reply::Failed(reason),
            Ok(key) if self.coordinates(&key) => Reply::Group(self.group_info(&key)),
            // Who its members are is known elsewhere.
            Ok(key) if self.ask_members(id, &key) => return,
            Ok(_) => Reply::Failed(Reason::NotOwner),
        };
        self.core.reply(id, reply);
    }

    /// The topic a request names, when the session may do anything with it.
    fn usable_topic(&mut self, session: &Session, topic: Option<&Bytes>) -> Result<TopicId, Reason> {
        let name = topic.map(|topic| &topic[..]).unwrap_or_default();
        if !self.may_use(session, name) {
            return Err(Reason::PermissionDenied);
        }
        topic.and_then(|name| self.topic(name)).ok_or(Reason::NoSuchTopic)
    }

    fn may_use(&self, session: &Session, name: &[u8]) -> bool {
        self.may(session, Operation::Consume, name) || self.may(session, Operation::Produce, name)
    }
}

fn page(max: u32) -> usize {
    let max = if max == 0 { limits::LIST_ITEMS_DEFAULT } else { max.min(limits::LIST_ITEMS_MAX) };
    max as usize
}

fn summary(vnode: &Vnode, id: TopicId, topic: &Topic) -> TopicSummary {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (mut ranges, mut segments, mut bytes) = (0, 0, 0);
    for (range, _) in vnode.ranges_of(id) {
        ranges += 1;
        for (_, segment) in vnode.segments_of(range) {
            segments += 1;
            bytes += segment.sealed_bytes();
        }
    }
    TopicSummary {
        name: Bytes::copy_from_slice(topic.name.as_str().as_bytes()),
        sealed: topic.state == TopicState::Sealed,
        keyspace_bits: topic.keyspace.bits(),
        ranges: count(ranges),
        active_ranges: count(vnode.active_ranges_of(id).count()),
        segments: count(segments),
        bytes,
        groups: count(vnode.groups_of(id).count()),
    }
}
