//! Between the protocol's messages and the node's, as the server's connections do it.

use broker::{Admin, Fetched, Form, Membership, RangeInfo, RangeState, Reply, Request, TopicSummary};
use bytes::Bytes;
use wire::request::checksum;
use wire::response::{self, Batch, BatchPage, GroupNames, Page, TopicInfo, TopicState, TopicSummaries};
use wire::{Payload, Reason, Response};

/// What the node is asked.
pub(super) fn request(request: wire::Request) -> Result<Request, Reason> {
    use wire::Request as R;
    Ok(match request {
        R::CreateTopic { topic, keyspace_bits } => Request::CreateTopic { topic, keyspace_bits },
        R::Produce(wire::request::Produce { topic, records, count }) => {
            let crc = checksum(&records);
            Request::Produce(broker::Produce { topic, records, count, crc, stamp: None })
        }
        R::ProduceBatch(wire::request::ProduceBatch { topic, crc, records, count, .. }) => {
            Request::Produce(broker::Produce { topic, records, count, crc, stamp: None })
        }
        R::Fetch(fetch) => of_fetch(fetch, Form::Records),
        R::FetchBatches(fetch) => of_fetch(fetch, Form::Batches),
        R::Commit(wire::request::Commit { topic, group, cursor }) => {
            Request::Commit(broker::Commit { topic, group, cursor })
        }
        R::LeaveGroup { topic, group, member } => Request::LeaveGroup(Membership { topic, group, member }),
        R::Subscribe(wire::request::Subscribe { topic, group, member, window, max }) => {
            let who = Membership { topic, group, member };
            Request::Subscribe(broker::Subscribe { who, window, max })
        }
        R::StreamAck(wire::request::StreamAck { topic, group, member, cursor, count }) => {
            let who = Membership { topic, group, member };
            Request::StreamAck(broker::StreamAck { who, cursor, count })
        }
        R::ListTopics { prefix, after, max } => Request::Admin(Admin::ListTopics { prefix, after, max }),
        R::DescribeTopic { topic, from_range, max } => {
            Request::Admin(Admin::DescribeTopic { topic, from_range, max })
        }
        R::SealTopic { topic } => Request::Admin(Admin::SealTopic { topic }),
        R::DeleteTopic { topic } => Request::Admin(Admin::DeleteTopic { topic }),
        R::SplitRange { topic, range } => Request::Admin(Admin::SplitRange { topic, range }),
        R::MergeRanges { topic, a, b } => Request::Admin(Admin::MergeRanges { topic, a, b }),
        R::SeekTime { topic, at_ms } => Request::Admin(Admin::SeekTime { topic, at_ms }),
        R::ListGroups { topic, after, max } => Request::Admin(Admin::ListGroups { topic, after, max }),
        R::MoveGroup(moves) => Request::Admin(Admin::MoveGroup(moves)),
        R::DeleteGroup { topic, group, force } => Request::Admin(Admin::DeleteGroup { topic, group, force }),
        R::DescribeGroup { topic, group } => Request::Admin(Admin::DescribeGroup { topic, group }),
        // Users and their rights are not asked about here.
        _ => return Err(Reason::UnknownApiKey),
    })
}

fn of_fetch(fetch: wire::request::Fetch, form: Form) -> Request {
    let wire::request::Fetch { topic, cursor, group, member, max, wait_ms } = fetch;
    Request::Fetch(broker::Fetch { topic, cursor, group, member, max, wait_ms, form })
}

/// The node's answer as it goes out.
pub(super) fn response(reply: Reply, batches: bool) -> Response {
    Response::Ok(match reply {
        Reply::Created | Reply::Committed | Reply::Left | Reply::Done => Payload::Empty,
        Reply::Stored(count) => Payload::Stored(count),
        Reply::Producer { id, now } => Payload::Producer { id: id.0, now_ms: now.0 },
        Reply::Fetched(fetched) if batches => Payload::Batches(batch_page(fetched)),
        Reply::Fetched(fetched) => Payload::Page(page(fetched)),
        Reply::Topics(topics, more) => {
            Payload::Topics(TopicSummaries { topics: topics.into_iter().map(summary).collect(), more })
        }
        Reply::Topic(topic, ranges, more) => {
            let ranges = ranges.into_iter().map(range).collect();
            Payload::Topic(TopicInfo { summary: summary(topic), ranges, more })
        }
        Reply::Split { left, right } => Payload::Split { left, right },
        Reply::Merged { child } => Payload::Merged(child),
        Reply::GroupMoved { lag_before, lag_after } => Payload::GroupMoved { lag_before, lag_after },
        Reply::Sought(cursor) => Payload::Cursor(cursor),
        Reply::Groups(names, more) => Payload::Groups(GroupNames { names, more }),
        Reply::Group(group) => Payload::Group(response::GroupInfo {
            generation: group.generation,
            members: group.members.into_iter().map(member).collect(),
            lag: group.lag,
            lag_exact: group.lag_exact,
        }),
        Reply::Failed(reason) => return Response::Error(reason),
        Reply::Subscribed
        | Reply::Acked
        | Reply::Credentials(_)
        | Reply::Welcome(_)
        | Reply::Users(_)
        | Reply::UsersAndRoles(_)
        | Reply::UserPage(..)
        | Reply::Unlocked(_)
        | Reply::Rights(_)
        | Reply::Policy(_)
        | Reply::Policies(_)
        | Reply::ClusterStatus(_)
        | Reply::NodeChanged(_)
        | Reply::Ring(_)
        | Reply::Resharding(_)
        | Reply::Rebalancing(_)
        | Reply::Flags(_)
        | Reply::FlagEnabled(_)
        | Reply::Segments(_)
        | Reply::Explained(_) => return Response::Error(Reason::InternalError),
    })
}

fn member(member: broker::MemberInfo) -> response::MemberInfo {
    response::MemberInfo { name: member.name, ranges: member.ranges, idle_ms: member.idle_ms }
}

/// Records as a fetch answers them, and as they are pushed.
pub(super) fn page(fetched: Fetched) -> Page {
    let records: Vec<Bytes> = fetched.runs.into_iter().map(|run| run.records).collect();
    Page { count: fetched.count, records, next_cursor: fetched.cursor }
}

fn batch_page(fetched: Fetched) -> BatchPage {
    let batch = |run: broker::Run| Batch {
        append_time: run.append_time.0,
        count: run.count,
        crc: checksum(&run.records),
        records: run.records,
    };
    BatchPage { batches: fetched.runs.into_iter().map(batch).collect(), next_cursor: fetched.cursor }
}

fn summary(topic: TopicSummary) -> response::TopicSummary {
    response::TopicSummary {
        name: topic.name,
        state: if topic.sealed { TopicState::Sealed } else { TopicState::Active },
        keyspace_bits: topic.keyspace_bits,
        ranges: topic.ranges,
        active_ranges: topic.active_ranges,
        segments: topic.segments,
        bytes: topic.bytes,
        groups: topic.groups,
    }
}

fn range(range: RangeInfo) -> response::RangeInfo {
    response::RangeInfo {
        range: range.range,
        state: match range.state {
            RangeState::Active => response::RangeState::Active,
            RangeState::Sealed => response::RangeState::Sealed,
            RangeState::Replaced => response::RangeState::Replaced,
        },
        key_start: range.key_start,
        key_end: range.key_end,
        parents: range.parents,
        segments: range.segments,
        records: range.records,
        bytes: range.bytes,
    }
}
