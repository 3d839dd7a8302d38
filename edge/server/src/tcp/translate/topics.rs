//! What the node says of topics, ranges and groups.

use broker::{GroupInfo, RangeInfo, RangeState, TopicSummary};
use bytes::Bytes;
use wire::Payload;
use wire::response::{self, GroupNames, MemberInfo, TopicInfo, TopicState, TopicSummaries};

pub(super) fn topics(topics: Vec<TopicSummary>, more: bool) -> Payload {
    Payload::Topics(TopicSummaries { topics: topics.into_iter().map(summary).collect(), more })
}

pub(super) fn topic(topic: TopicSummary, ranges: Vec<RangeInfo>, more: bool) -> Payload {
    let ranges = ranges.into_iter().map(range).collect();
    Payload::Topic(TopicInfo { summary: summary(topic), ranges, more })
}

fn summary(topic: TopicSummary) -> response::TopicSummary {
    let TopicSummary { name, sealed, keyspace_bits, ranges, active_ranges, segments, bytes, groups } = topic;
    let state = if sealed { TopicState::Sealed } else { TopicState::Active };
    response::TopicSummary { name, state, keyspace_bits, ranges, active_ranges, segments, bytes, groups }
}

fn range(range: RangeInfo) -> response::RangeInfo {
    let RangeInfo { range, state, key_start, key_end, parents, segments, records, bytes } = range;
    let state = match state {
        RangeState::Active => response::RangeState::Active,
        RangeState::Sealed => response::RangeState::Sealed,
        RangeState::Replaced => response::RangeState::Replaced,
    };
    response::RangeInfo { range, state, key_start, key_end, parents, segments, records, bytes }
}

pub(super) fn groups(names: Vec<Bytes>, more: bool) -> Payload {
    Payload::Groups(GroupNames { names, more })
}

pub(super) fn group(group: GroupInfo) -> Payload {
    let GroupInfo { generation, members, lag, lag_exact } = group;
    let member = |member: broker::MemberInfo| MemberInfo {
        name: member.name,
        ranges: member.ranges,
        idle_ms: member.idle_ms,
    };
    let members = members.into_iter().map(member).collect();
    Payload::Group(response::GroupInfo { generation, members, lag, lag_exact })
}
