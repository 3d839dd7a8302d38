//! Decoders against arbitrary, mutated and well-formed bytes.

#![allow(clippy::unwrap_used)]

extern crate malachi_wire as wire;

use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use types::record::{Header, Record};
use types::{NodeId, ProducerEpoch, ProducerId, Stamp, VnodeId, WallTime};
use wire::request::{
    Acl, Commit, Depth, Envelope, Fetch, MoveGroup, NodeChange, Produce, ProduceBatch, ProduceOnce,
    StreamAck, Subject, Subscribe,
};
use wire::response::{
    Batch, BatchPage, ClusterNode, ClusterStatus, CopyHealth, CopyInfo, Explanation, Flag, FlagEnabled,
    Flags, Grant, GroupInfo, GroupMember, GroupNames, Hello, MemberInfo, NodeChanged, NodeHealth, NodeState,
    Page, RangeInfo, RangeState, Rebalancing, Reply, Resharding, RingPage, RingStep, SegmentInfo,
    SegmentPage, TopicInfo, TopicState, TopicSummaries, TopicSummary, User, UserPage, UserV2, Verdict,
    VnodeInfo, VnodeMove,
};
use wire::{ApiKey, Gather, Payload, Reason, Request, Response, Str, frame};

const FRAME_BYTES: usize = 1024 * 1024;

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=len_max).prop_map(Bytes::from)
}

fn string() -> impl Strategy<Value = Str> {
    prop::option::of(bytes(12))
}

prop_compose! {
    fn record()(
        key in string(),
        value in bytes(900),
        timestamp in any::<u64>(),
        headers in prop::collection::vec((bytes(8), bytes(8)), 0..=4),
    ) -> Record {
        let headers = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
        Record { key, value, timestamp, headers }
    }
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(record(), 0..5)
}

prop_compose! {
    fn produce()(topic in string(), records in records()) -> Produce {
        Produce { topic, ..Produce::of(b"", &records) }
    }
}

prop_compose! {
    // The checksum is not judged by the codec, and packed records are not even looked at.
    fn produce_batch()(
        produce in produce(), crc in any::<u32>(), flags in prop_oneof![Just(0_u8), any::<u8>()],
        packed in bytes(40), count in any::<u32>(),
    ) -> ProduceBatch {
        let batch = ProduceBatch { crc, ..ProduceBatch::of(produce) };
        if flags == 0 { batch } else { ProduceBatch { flags, records: packed, count, ..batch } }
    }
}

fn request() -> impl Strategy<Value = Request> {
    let strings = || [string(), string(), string(), string()];
    let parts = (
        select(ApiKey::ALL.to_vec()),
        strings(),
        (any::<[u32; 2]>(), any::<[u64; 2]>()),
        (produce(), produce_batch()),
        prop::collection::vec(string(), 0..5),
    );
    parts.prop_map(|(api_key, [a, b, c, d], ([n, m], [x, y]), (produce, batch), permissions)| match api_key {
        ApiKey::Auth => Request::Auth { username: a, password: b },
        ApiKey::CreateTopic => Request::CreateTopic { topic: a, keyspace_bits: n as u8 },
        ApiKey::Produce => Request::Produce(produce),
        ApiKey::Fetch => {
            Request::Fetch(Fetch { topic: a, cursor: b, group: c, member: d, max: n, wait_ms: m })
        }
        ApiKey::Commit => Request::Commit(Commit { topic: a, group: b, cursor: c }),
        ApiKey::Subscribe => {
            Request::Subscribe(Subscribe { topic: a, group: b, member: c, window: n, max: m })
        }
        ApiKey::StreamAck => {
            Request::StreamAck(StreamAck { topic: a, group: b, member: c, cursor: d, count: n })
        }
        ApiKey::LeaveGroup => Request::LeaveGroup { topic: a, group: b, member: c },
        ApiKey::CreateUser => Request::CreateUser { username: a, password: b, permissions },
        ApiKey::DeleteUser => Request::DeleteUser { username: a },
        ApiKey::ChangePassword => Request::ChangePassword { username: a, new_password: b },
        ApiKey::ListUsers => Request::ListUsers,
        ApiKey::MtlsAuth => Request::MtlsAuth,
        ApiKey::TokenAuth => Request::TokenAuth { jwt: a },
        ApiKey::GrantAcl => Request::GrantAcl(Acl { username: a, operation: b, pattern: c }),
        ApiKey::RevokeAcl => Request::RevokeAcl(Acl { username: a, operation: b, pattern: c }),
        ApiKey::ListAcls => Request::ListAcls { username: a },
        ApiKey::Hello => Request::Hello { client: a, features: x },
        ApiKey::SetRole => Request::SetRole { username: a, role: b },
        ApiKey::ListUsersV2 => Request::ListUsersV2,
        ApiKey::DefinePolicy => Request::DefinePolicy { name: a, json: b.unwrap_or_default() },
        ApiKey::DeletePolicy => Request::DeletePolicy { name: a, force: n % 2 == 0 },
        ApiKey::BindTopicPolicy => Request::BindTopicPolicy { topic: a, name: b },
        ApiKey::GetPolicy => Request::GetPolicy { topic: a },
        ApiKey::ListPolicies => Request::ListPolicies,
        ApiKey::ListTopics => Request::ListTopics { prefix: a, after: b, max: n },
        ApiKey::DescribeTopic => Request::DescribeTopic { topic: a, from_range: x, max: n },
        ApiKey::SealTopic => Request::SealTopic { topic: a },
        ApiKey::DeleteTopic => Request::DeleteTopic { topic: a },
        ApiKey::SplitRange => Request::SplitRange { topic: a, range: x },
        ApiKey::MergeRanges => Request::MergeRanges { topic: a, a: x, b: y },
        ApiKey::ProduceBatch => Request::ProduceBatch(batch),
        ApiKey::FetchBatches => {
            Request::FetchBatches(Fetch { topic: a, cursor: b, group: c, member: d, max: n, wait_ms: m })
        }
        ApiKey::SeekTime => Request::SeekTime { topic: a, at_ms: x },
        ApiKey::ListGroups => Request::ListGroups { topic: a, after: b, max: n },
        ApiKey::DescribeGroup => Request::DescribeGroup { topic: a, group: b },
        ApiKey::UnlockUser => Request::UnlockUser { username: a, address: b },
        ApiKey::ListUsersPage => Request::ListUsersPage { after: a, max: n },
        ApiKey::ClusterStatus => {
            Request::ClusterStatus { after: a.map(|_| NodeId(u128::from(x) << 64 | u128::from(y))), max: n }
        }
        ApiKey::ChangeNode => Request::ChangeNode {
            node: NodeId(x.into()),
            change: NodeChange::ALL[n as usize % NodeChange::ALL.len()],
            dry_run: m % 2 == 0,
        },
        ApiKey::DescribeRing => Request::DescribeRing { from_token: n, max: m },
        ApiKey::Reshard => Request::Reshard { to: n, dry_run: m % 2 == 0 },
        ApiKey::Rebalance => Request::Rebalance { dry_run: m % 2 == 0 },
        ApiKey::ListFlags => Request::ListFlags,
        ApiKey::EnableFlag => Request::EnableFlag { flag: a, dry_run: m % 2 == 0 },
        ApiKey::ListSegments => Request::ListSegments {
            topic: a,
            from_range: x,
            from_segment: y,
            max: n,
            depth: Depth::ALL[m as usize % Depth::ALL.len()],
        },
        ApiKey::Explain => Request::Explain(match n % 3 {
            0 => Subject::Range { topic: a, range: x },
            1 => Subject::Node { node: NodeId(y.into()) },
            _ => Subject::Group { topic: a, group: b },
        }),
        ApiKey::NewProducer => Request::NewProducer { topic: a },
        ApiKey::MoveGroup => Request::MoveGroup(MoveGroup {
            topic: a,
            group: b,
            cursor: c,
            like: d,
            force: n % 2 == 0,
            dry_run: m % 2 == 0,
        }),
        ApiKey::DeleteGroup => Request::DeleteGroup { topic: a, group: b, force: n % 2 == 0 },
        ApiKey::ProduceOnce => {
            let (producer, epoch) = (ProducerId(x.max(1)), ProducerEpoch(m));
            let (first, born) = (n.min(u32::MAX - batch.count), WallTime(y.max(1)));
            let stamp = Stamp { producer, epoch, first, settled: first / 2, born };
            Request::ProduceOnce(ProduceOnce { stamp, batch })
        }
    })
}

prop_compose! {
    fn batch()(records in prop::collection::vec(record(), 1..4), append_time in any::<u64>(), crc in any::<u32>())
        -> Batch {
        let Produce { records, count, .. } = Produce::of(b"", &records);
        Batch { append_time, count, crc, records }
    }
}

prop_compose! {
    fn summary()(
        name in bytes(12), is_active in any::<bool>(), keyspace_bits in any::<u8>(), counts in any::<[u32; 4]>(),
        bytes in any::<u64>(),
    ) -> TopicSummary {
        let [ranges, active_ranges, segments, groups] = counts;
        let state = if is_active { TopicState::Active } else { TopicState::Sealed };
        TopicSummary { name, state, keyspace_bits, ranges, active_ranges, segments, bytes, groups }
    }
}

prop_compose! {
    fn range()(
        state in select(vec![RangeState::Active, RangeState::Sealed, RangeState::Replaced]),
        numbers in any::<[u64; 5]>(), parents in prop::collection::vec(any::<u64>(), 0..3), segments in any::<u32>(),
    ) -> RangeInfo {
        let [range, key_start, key_end, records, bytes] = numbers;
        RangeInfo { range, state, key_start, key_end, parents, segments, records, bytes }
    }
}

/// Answers of the operations that came later.
fn later_response() -> impl Strategy<Value = (ApiKey, Response)> {
    let user = (string(), string(), prop::collection::vec(string(), 0..3))
        .prop_map(|(username, role, permissions)| UserV2 { username, role, permissions });
    let users = prop::collection::vec(user, 0..4).boxed();
    let hello =
        (bytes(12), any::<u64>(), any::<[u32; 4]>()).prop_map(|(server, features, [a, b, c, d])| Hello {
            server,
            features,
            frame_bytes_max: a,
            fetch_records_max: b,
            fetch_wait_ms_max: c,
            stream_window_max: d,
        });
    let topics = (prop::collection::vec(summary(), 0..3), any::<bool>())
        .prop_map(|(topics, more)| TopicSummaries { topics, more });
    let topic = (summary(), prop::collection::vec(range(), 0..3), any::<bool>())
        .prop_map(|(summary, ranges, more)| TopicInfo { summary, ranges, more });
    let page = (prop::collection::vec(batch(), 0..4), bytes(40))
        .prop_map(|(batches, next_cursor)| BatchPage { batches, next_cursor });
    let groups = (prop::collection::vec(bytes(12), 0..4), any::<bool>())
        .prop_map(|(names, more)| GroupNames { names, more });
    let member = (bytes(12), any::<u32>(), any::<u64>()).prop_map(|(name, ranges, idle_ms)| MemberInfo {
        name,
        ranges,
        idle_ms,
    });
    let group = (any::<[u64; 2]>(), prop::collection::vec(member, 0..3), any::<bool>()).prop_map(
        |([generation, lag], members, lag_exact)| GroupInfo { generation, members, lag, lag_exact },
    );
    let ok = |api_key: ApiKey| move |payload| (api_key, Response::Ok(payload));
    prop_oneof![
        hello.prop_map(Payload::Hello).prop_map(ok(ApiKey::Hello)),
        users.clone().prop_map(Payload::UsersV2).prop_map(ok(ApiKey::ListUsersV2)),
        (users, any::<bool>())
            .prop_map(|(users, more)| Payload::UserPage(UserPage { users, more }))
            .prop_map(ok(ApiKey::ListUsersPage)),
        any::<u32>().prop_map(Payload::Unlocked).prop_map(ok(ApiKey::UnlockUser)),
        bytes(60).prop_map(Payload::Policies).prop_map(ok(ApiKey::GetPolicy)),
        topics.prop_map(Payload::Topics).prop_map(ok(ApiKey::ListTopics)),
        topic.prop_map(Payload::Topic).prop_map(ok(ApiKey::DescribeTopic)),
        any::<[u64; 2]>()
            .prop_map(|[left, right]| Payload::Split { left, right })
            .prop_map(ok(ApiKey::SplitRange)),
        any::<[u64; 2]>()
            .prop_map(|[id, now_ms]| Payload::Producer { id, now_ms })
            .prop_map(ok(ApiKey::NewProducer)),
        any::<[u64; 2]>()
            .prop_map(|[lag_before, lag_after]| Payload::GroupMoved { lag_before, lag_after })
            .prop_map(ok(ApiKey::MoveGroup)),
        any::<u32>().prop_map(Payload::Stored).prop_map(ok(ApiKey::ProduceOnce)),
        any::<u64>().prop_map(Payload::Merged).prop_map(ok(ApiKey::MergeRanges)),
        page.prop_map(Payload::Batches).prop_map(ok(ApiKey::FetchBatches)),
        bytes(40).prop_map(Payload::Cursor).prop_map(ok(ApiKey::SeekTime)),
        groups.prop_map(Payload::Groups).prop_map(ok(ApiKey::ListGroups)),
        group.prop_map(Payload::Group).prop_map(ok(ApiKey::DescribeGroup)),
    ]
}

fn response() -> impl Strategy<Value = (ApiKey, Response)> {
    prop_oneof![earlier_response(), later_response(), cluster_response()]
}

fn step() -> impl Strategy<Value = RingStep> {
    any::<(bool, [u64; 2], u32)>().prop_map(|(splits, [vnode, other], token)| {
        let (vnode, other) = (VnodeId(vnode), VnodeId(other));
        if splits {
            RingStep::Split { vnode, source: other, token }
        } else {
            RingStep::Merge { vnode, into: other }
        }
    })
}

prop_compose! {
    fn cluster_node()(
        node in any::<u128>(), texts in (bytes(12), bytes(12), string()),
        state in select(vec![NodeState::Joining, NodeState::Active, NodeState::Draining]),
        incarnation in any::<u64>(), connected in any::<bool>(), vnodes in any::<u32>(),
        health in select(vec![NodeHealth::Alive, NodeHealth::Suspect, NodeHealth::Dead, NodeHealth::Unknown]),
        attributes in prop::collection::vec((bytes(6), bytes(6)), 0..3),
    ) -> ClusterNode {
        let (name, peer, client) = texts;
        let node = NodeId(node);
        ClusterNode { node, name, peer, client, state, incarnation, connected, health, vnodes, attributes }
    }
}

prop_compose! {
    fn vnode()(
        ids in any::<(u64, u32, u64, u32)>(), members in prop::collection::vec(any::<u128>(), 0..4),
        leader in any::<Option<u128>>(),
    ) -> VnodeInfo {
        let (vnode, token, places, topics) = ids;
        let members = members.into_iter().map(NodeId).collect();
        VnodeInfo { vnode: VnodeId(vnode), token, places, members, leader: leader.map(NodeId), topics }
    }
}

prop_compose! {
    fn copy()(
        node in any::<u128>(), health in select(CopyHealth::ALL.to_vec()), end in any::<Option<u64>>(),
        size in any::<u64>(), detail in bytes(12),
    ) -> CopyInfo {
        CopyInfo { node: NodeId(node), health, end, bytes: size, detail }
    }
}

prop_compose! {
    fn segment()(
        numbers in any::<[u64; 4]>(), end in any::<Option<u64>>(), copies in prop::collection::vec(copy(), 0..4),
    ) -> SegmentInfo {
        let [range, segment, start, bytes] = numbers;
        SegmentInfo { range, segment, start, end, bytes, copies }
    }
}

prop_compose! {
    fn explanation()(
        told_by in any::<u128>(), verdict in select(vec![Verdict::Moves, Verdict::Waits, Verdict::Stands]),
        texts in [bytes(12), bytes(12), bytes(12)], since_ms in any::<Option<u64>>(),
        facts in prop::collection::vec((bytes(8), bytes(8)), 0..4), segment in prop::option::of(segment()),
    ) -> Explanation {
        let [cause, text, next] = texts;
        Explanation { told_by: NodeId(told_by), verdict, cause, text, since_ms, next, facts, segment }
    }
}

/// Answers about the cluster.
fn cluster_response() -> impl Strategy<Value = (ApiKey, Response)> {
    let status = (
        (any::<u128>(), any::<[u64; 2]>(), any::<[u32; 3]>(), any::<[Option<u128>; 2]>(), any::<bool>()),
        prop::collection::vec(any::<(u128, bool)>(), 0..4),
        prop::option::of(step()),
        prop::collection::vec(cluster_node(), 0..3),
    )
        .prop_map(
            |((asked, [term, ring_version], counts, nodes_known, more), members, pending, nodes)| {
                let [vnodes, leaderless, node_count] = counts;
                let [leader, lease] = nodes_known.map(|node| node.map(NodeId));
                let member = |(node, votes)| GroupMember { node: NodeId(node), votes };
                let members = members.into_iter().map(member).collect();
                let asked = NodeId(asked);
                ClusterStatus {
                    asked,
                    term,
                    leader,
                    members,
                    ring_version,
                    vnodes,
                    pending,
                    lease,
                    leaderless,
                    node_count,
                    nodes,
                    more,
                }
            },
        );
    let changed = (string(), any::<(u32, bool, u64)>(), prop::collection::vec(any::<u64>(), 0..4)).prop_map(
        |(refusal, (vnode_count, in_cluster_group, segments), vnodes)| {
            let vnodes = vnodes.into_iter().map(VnodeId).collect();
            NodeChanged { refusal, vnode_count, vnodes, in_cluster_group, segments }
        },
    );
    let ring = (any::<u64>(), prop::collection::vec(vnode(), 0..4), any::<bool>())
        .prop_map(|(version, vnodes, more)| RingPage { version, vnodes, more });
    let resharding = (any::<[u32; 3]>(), prop::collection::vec(step(), 0..4), string()).prop_map(
        |([from, to, step_count], steps, refusal)| Resharding { from, to, step_count, steps, refusal },
    );
    let nodes = || prop::collection::vec(any::<u128>().prop_map(NodeId), 0..4);
    let moved = (any::<u64>(), nodes(), nodes());
    let moved = moved.prop_map(|(vnode, add, remove)| VnodeMove { vnode: VnodeId(vnode), add, remove });
    let rebalancing = (any::<u32>(), prop::collection::vec(moved, 0..4), string())
        .prop_map(|(move_count, moves, refusal)| Rebalancing { move_count, moves, refusal });
    let names = || prop::collection::vec(string().prop_map(Option::unwrap_or_default), 0..3);
    let flag = (string(), any::<[bool; 2]>(), names()).prop_map(|(name, [known, enabled], lacking)| Flag {
        name: name.unwrap_or_default(),
        known,
        enabled,
        lacking,
    });
    let flags = prop::collection::vec(flag, 0..4).prop_map(|flags| Flags { flags });
    let enabled = (string(), names()).prop_map(|(refusal, lacking)| FlagEnabled { refusal, lacking });
    let segments = (prop::collection::vec(segment(), 0..4), any::<bool>())
        .prop_map(|(segments, more)| SegmentPage { segments, more });
    let explanation = explanation().prop_map(Box::new);
    let ok = |api_key: ApiKey| move |payload| (api_key, Response::Ok(payload));
    prop_oneof![
        segments.prop_map(Payload::Segments).prop_map(ok(ApiKey::ListSegments)),
        explanation.prop_map(Payload::Explanation).prop_map(ok(ApiKey::Explain)),
        status.prop_map(Payload::ClusterStatus).prop_map(ok(ApiKey::ClusterStatus)),
        changed.prop_map(Payload::NodeChanged).prop_map(ok(ApiKey::ChangeNode)),
        ring.prop_map(Payload::Ring).prop_map(ok(ApiKey::DescribeRing)),
        resharding.prop_map(Payload::Resharding).prop_map(ok(ApiKey::Reshard)),
        rebalancing.prop_map(Payload::Rebalancing).prop_map(ok(ApiKey::Rebalance)),
        flags.prop_map(Payload::Flags).prop_map(ok(ApiKey::ListFlags)),
        enabled.prop_map(Payload::FlagEnabled).prop_map(ok(ApiKey::EnableFlag)),
    ]
}

proptest! {
    #[test]
    fn what_is_said_of_a_segment_s_size_is_the_size(segment in segment()) {
        let page = SegmentPage { segments: vec![segment.clone()], more: false };
        let bytes = encode_response(&Response::Ok(Payload::Segments(page)), 1).len();
        prop_assert_eq!(bytes, 4 + 6 + 4 + segment.encoded_len() + 1);
    }

    #[test]
    fn what_is_explained_and_why_go_through_other_places_too(explanation in explanation(), noise in bytes(80)) {
        prop_assert_eq!(Explanation::from_bytes(explanation.to_bytes()), Ok(explanation));
        // Whatever another node sends: it is refused or taken, and nothing else happens.
        let _ = Explanation::from_bytes(noise.clone());
        if let Ok(subject) = Subject::from_bytes(noise.clone()) {
            prop_assert_eq!(subject.to_bytes(), noise);
        }
    }

    #[test]
    fn what_is_said_of_a_size_is_the_size(node in cluster_node(), vnode in vnode()) {
        let page = RingPage { vnodes: vec![vnode.clone()], ..RingPage::default() };
        let bytes = encode_response(&Response::Ok(Payload::Ring(page)), 1).len();
        prop_assert_eq!(bytes, 4 + 6 + 8 + 4 + vnode.encoded_len() + 1);
        let status = ClusterStatus {
            asked: NodeId(0),
            term: 0,
            leader: None,
            members: Vec::new(),
            ring_version: 0,
            vnodes: 0,
            pending: None,
            lease: None,
            leaderless: 0,
            node_count: 0,
            nodes: Vec::new(),
            more: false,
        };
        let bytes = |status| encode_response(&Response::Ok(Payload::ClusterStatus(status)), 1).len();
        let full = ClusterStatus { nodes: vec![node.clone()], ..status.clone() };
        prop_assert_eq!(bytes(full), bytes(status) + node.encoded_len());
    }
}

/// Errors, and answers of the operations 0 to 16.
fn earlier_response() -> impl Strategy<Value = (ApiKey, Response)> {
    let user = (string(), prop::collection::vec(string(), 0..3))
        .prop_map(|(username, permissions)| User { username, permissions });
    let grant = (string(), string()).prop_map(|(operation, pattern)| Grant { operation, pattern });
    let page = (records(), bytes(60)).prop_map(|(records, next_cursor)| {
        let Produce { records, count, .. } = Produce::of(b"", &records);
        let records = if count == 0 { Vec::new() } else { vec![records] };
        Payload::Page(Page { count, records, next_cursor })
    });
    let ok = |api_key: ApiKey| move |payload| (api_key, Response::Ok(payload));
    prop_oneof![
        page.prop_map(ok(ApiKey::Fetch)),
        bytes(43).prop_map(Payload::Token).prop_map(ok(ApiKey::Auth)),
        any::<u32>().prop_map(Payload::Stored).prop_map(ok(ApiKey::Produce)),
        Just(Payload::Empty).prop_map(ok(ApiKey::Commit)),
        prop::collection::vec(user, 0..4).prop_map(Payload::Users).prop_map(ok(ApiKey::ListUsers)),
        prop::collection::vec(grant, 0..4).prop_map(Payload::Grants).prop_map(ok(ApiKey::ListAcls)),
        (select(ApiKey::ALL.to_vec()), select(Reason::ALL.to_vec()))
            .prop_map(|(api_key, reason)| (api_key, Response::Error(reason))),
        prop::collection::vec(select(b"abz019_".to_vec()), 1..64)
            .prop_filter("a token nobody knows", |token| Reason::from_token(token).is_none())
            .prop_map(|token| (ApiKey::Produce, Response::UnknownError(token.into()))),
    ]
}

fn encode_request(request: &Request, correlation_id: u32) -> BytesMut {
    let mut out = BytesMut::new();
    request.encode(correlation_id, &mut out);
    out
}

fn encode_response(response: &Response, correlation_id: u32) -> BytesMut {
    let mut out = Gather::new();
    response.encode(correlation_id, &mut out);
    let mut frame = BytesMut::new();
    while out.has_remaining() {
        let taken = out.chunk().len();
        frame.extend_from_slice(out.chunk());
        out.advance(taken);
    }
    frame
}

/// Whatever decodes must be exactly what its own encoding says, or two readers could disagree about it.
fn request_is_refused_or_canonical(api_key: ApiKey, payload: &Bytes) {
    // These ignore their payload.
    if matches!(api_key, ApiKey::ListUsers | ApiKey::ListUsersV2 | ApiKey::ListPolicies | ApiKey::MtlsAuth) {
        return;
    }
    if let Ok(request) = Request::decode(api_key, payload.clone()) {
        assert_eq!(encode_request(&request, 0)[10..], payload[..]);
    }
}

fn response_is_refused_or_canonical(api_key: ApiKey, body: &Bytes) {
    let Ok(reply) = Reply::split(body.clone()) else { return };
    let id = reply.correlation_id;
    if let Ok(response) = reply.decode(api_key) {
        assert_eq!(encode_response(&response, id)[4..], body[..]);
    }
}

proptest! {
    #[test]
    fn requests_round_trip(request in request(), id in any::<u32>()) {
        let mut frame = encode_request(&request, id);
        let body = frame::take(&mut frame, FRAME_BYTES).unwrap().unwrap();
        prop_assert!(frame.is_empty());
        let (envelope, payload) = Envelope::split(body).unwrap();
        prop_assert_eq!(envelope, Envelope { api_key: request.api_key().number(), correlation_id: id });
        prop_assert_eq!(Request::decode(request.api_key(), payload), Ok(request));
    }

    #[test]
    fn responses_round_trip((api_key, response) in response(), id in any::<u32>()) {
        let mut frame = encode_response(&response, id);
        let body = frame::take(&mut frame, FRAME_BYTES).unwrap().unwrap();
        prop_assert!(frame.is_empty());
        let reply = Reply::split(body).unwrap();
        prop_assert_eq!(reply.correlation_id, id);
        prop_assert_eq!(reply.decode(api_key), Ok(response));
    }

    #[test]
    fn a_page_reads_the_same_however_its_records_are_cut(records in records(), cuts in any::<[Index; 3]>()) {
        let Produce { records: bytes, count, .. } = Produce::of(b"", &records);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let slices = starts.zip(ends).map(|(start, end)| bytes.slice(start..end)).collect();
        let page = Page { count, records: slices, next_cursor: Bytes::from_static(b"c") };
        let mut frame = encode_response(&Response::Ok(Payload::Page(page)), 1);
        let body = frame::take(&mut frame, FRAME_BYTES).unwrap().unwrap();
        match Reply::split(body).unwrap().decode(ApiKey::Fetch) {
            Ok(Response::Ok(Payload::Page(page))) => prop_assert_eq!(page.decode_records().unwrap(), records),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    // Small values make lengths and counts that nearly fit, which is where decoders go wrong.
    #[test]
    fn anything_is_refused_or_canonical(
        body in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(0_u8..3, 0..200)],
        api_key in select(ApiKey::ALL.to_vec()),
    ) {
        let body = Bytes::from(body);
        request_is_refused_or_canonical(api_key, &body);
        response_is_refused_or_canonical(api_key, &body);
    }

    #[test]
    fn a_changed_request_is_refused_or_canonical(
        request in request(), changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in any::<Index>(),
    ) {
        let mut payload = encode_request(&request, 7)[10..].to_vec();
        for (at, byte) in changes {
            if !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
        }
        request_is_refused_or_canonical(request.api_key(), &Bytes::from(payload.clone()));
        payload.truncate(cut.index(payload.len() + 1));
        request_is_refused_or_canonical(request.api_key(), &Bytes::from(payload));
    }

    #[test]
    fn a_changed_response_is_refused_or_canonical(
        (api_key, response) in response(), changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in any::<Index>(),
    ) {
        let mut body = encode_response(&response, 7)[4..].to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        response_is_refused_or_canonical(api_key, &Bytes::from(body.clone()));
        body.truncate(cut.index(body.len() + 1));
        response_is_refused_or_canonical(api_key, &Bytes::from(body));
    }

    #[test]
    fn one_byte_more_is_refused(request in request(), byte in any::<u8>()) {
        let mut payload = encode_request(&request, 7)[10..].to_vec();
        payload.push(byte);
        // Packed records have no end of their own.
        let packed = matches!(
            &request,
            Request::ProduceBatch(batch) | Request::ProduceOnce(ProduceOnce { batch, .. }) if batch.flags != 0
        );
        let ignored = matches!(
            request,
            Request::ListUsers | Request::ListUsersV2 | Request::ListPolicies | Request::MtlsAuth
        );
        prop_assert_eq!(Request::decode(request.api_key(), payload.into()).is_ok(), ignored || packed);
    }
}

#[test]
fn null_header_parts_make_a_produce_malformed() {
    let record = |header: &[u8]| [&[0; 13][..], &[0, 0, 0, 1], header].concat();
    // Padded so that the count alone would not be refused.
    let name_is_null = record(&[0, 1, 0, 0, 0, 3, 9, 9, 9]);
    let value_is_null = record(&[1, 0, 0, 0, 3, 9, 9, 9, 0]);
    for record in [name_is_null, value_is_null] {
        let payload = [&[1, 0, 0, 0, 1, b't', 0, 0, 0, 1][..], &record].concat();
        assert!(Request::decode(ApiKey::Produce, payload.into()).is_err());
    }
}

#[test]
fn a_produce_counts_what_it_holds() {
    let produce =
        Produce::of(b"t", &[Record { key: None, value: Bytes::new(), timestamp: 0, headers: vec![] }]);
    for (count, is_ok) in [(0, false), (1, true), (2, false), (u32::MAX, false)] {
        let request = Request::Produce(Produce { count, ..produce.clone() });
        let payload = encode_request(&request, 1).freeze().slice(10..);
        assert_eq!(Request::decode(ApiKey::Produce, payload).is_ok(), is_ok, "{count}");
    }
    let none = Request::Produce(Produce::of(b"t", &[]));
    let payload = encode_request(&none, 1).freeze().slice(10..);
    assert_eq!(Request::decode(ApiKey::Produce, payload), Ok(none));
}

#[test]
fn a_batch_holds_what_it_counts_and_at_least_one_record() {
    let record = Record { key: None, value: Bytes::from_static(b"v"), timestamp: 0, headers: vec![] };
    let Produce { records, .. } = Produce::of(b"", &[record.clone(), record]);
    let decode = |count, records: &Bytes| {
        let batch = Batch { append_time: 1, count, crc: 0, records: records.clone() };
        let page = BatchPage { batches: vec![batch], next_cursor: Bytes::from_static(b"c") };
        let body = encode_response(&Response::Ok(Payload::Batches(page)), 1).freeze().slice(4..);
        Reply::split(body).unwrap().decode(ApiKey::FetchBatches)
    };
    for (count, is_ok) in [(1, false), (2, true), (3, false), (u32::MAX, false)] {
        assert_eq!(decode(count, &records).is_ok(), is_ok, "{count}");
    }
    assert!(decode(0, &Bytes::new()).is_err());
    assert!(decode(2, &records.slice(..records.len() - 1)).is_err());
}

#[test]
fn a_changed_byte_of_a_batch_shows() {
    let record = Record { key: None, value: Bytes::from_static(b"value"), timestamp: 0, headers: vec![] };
    let batch = ProduceBatch::of(Produce::of(b"", &[record]));
    let good = Batch { append_time: 1, count: 1, crc: batch.crc, records: batch.records };
    assert!(good.is_intact());
    let mut bytes = good.records.to_vec();
    bytes[6] ^= 1;
    assert!(!Batch { records: bytes.into(), ..good }.is_intact());
}

#[test]
fn states_that_no_build_knows_are_refused() {
    let name = [1, 0, 0, 0, 1, b't'];
    let summary =
        |state: u8| [&[0, 0, 0, 1, 0, 0][..], &[0, 0, 0, 1], &name, &[state], &[0; 25], &[0]].concat();
    let decode = |body: Vec<u8>| Reply::split(body.into()).unwrap().decode(ApiKey::ListTopics);
    assert!(decode(summary(1)).is_ok());
    assert!(decode(summary(2)).is_err());
}

#[test]
fn codes_and_reasons_that_say_nothing_are_refused() {
    assert!(Reply::split(Bytes::from_static(&[0, 0, 0, 1, 0, 2])).is_err());
    let error = |token: &[u8]| {
        let head = [0, 0, 0, 1, 0, 1, 1, 0, 0, 0, token.len() as u8];
        Reply::split(Bytes::from([&head[..], token].concat())).unwrap().decode(ApiKey::Produce)
    };
    assert_eq!(error(b"timeout"), Ok(Response::Error(Reason::Timeout)));
    assert_eq!(
        error(b"of_a_later_release"),
        Ok(Response::UnknownError(Bytes::from_static(b"of_a_later_release")))
    );
    assert!(error(b"").is_err());
    assert!(error(b"\x1b[2J").is_err());
    assert!(error(&[b'a'; 65]).is_err());
}
