//! The published vectors, G1 to G30, and those of the later operations, H1 to H58 and P1 to P7, in both directions: the bytes decode to these messages, and these
//! messages encode to the bytes. `golden.txt` holds one vector a line.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_wire as wire;

use bytes::{Buf, Bytes, BytesMut};
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

const FRAME_BYTES: usize = 16 * 1024 * 1024;

fn vector(name: &str) -> Vec<u8> {
    let line = include_str!("golden.txt").lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    let hex = line.expect("every vector named here is in the file");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn body(name: &str) -> Bytes {
    let mut buffer = BytesMut::from(&vector(name)[..]);
    let body = frame::take(&mut buffer, FRAME_BYTES).unwrap().unwrap();
    assert!(buffer.is_empty(), "{name} is one frame");
    body
}

fn s(text: &str) -> Str {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn check_request(name: &str, correlation_id: u32, request: Request) {
    let (envelope, payload) = Envelope::split(body(name)).unwrap();
    assert_eq!(envelope, Envelope { api_key: request.api_key().number(), correlation_id }, "{name}");
    assert_eq!(Request::decode(request.api_key(), payload), Ok(request.clone()), "{name}");
    let mut out = BytesMut::new();
    request.encode(correlation_id, &mut out);
    assert_eq!(out[..], vector(name)[..], "{name}");
}

fn check_response(name: &str, correlation_id: u32, api_key: ApiKey, response: Response) {
    let reply = Reply::split(body(name)).unwrap();
    assert_eq!(reply.correlation_id, correlation_id, "{name}");
    assert_eq!(reply.decode(api_key), Ok(response.clone()), "{name}");
    let mut out = Gather::new();
    response.encode(correlation_id, &mut out);
    assert_eq!(out.copy_to_bytes(out.remaining())[..], vector(name)[..], "{name}");
}

fn user_42() -> Record {
    Record {
        key: s("user-42"),
        value: Bytes::from_static(b"created"),
        timestamp: 1_700_000_000_000,
        headers: vec![Header { name: Bytes::from_static(b"source"), value: Bytes::from_static(b"api") }],
    }
}

fn keyless() -> Record {
    let value = Bytes::from_static(&[0x00, 0xff]);
    Record { key: None, value, timestamp: 1_700_000_000_001, headers: Vec::new() }
}

fn empty_key() -> Record {
    Record { key: s(""), value: Bytes::new(), timestamp: 0, headers: Vec::new() }
}

fn page(records: &[Record], next_cursor: &'static str) -> Response {
    let Produce { records: bytes, count, .. } = Produce::of(b"", records);
    Response::Ok(Payload::Page(Page { count, records: vec![bytes], next_cursor: next_cursor.into() }))
}

#[test]
fn requests() {
    let topic = || s("orders");
    let group = || s("live");
    let member = || s("m1");
    let acl = || Acl { username: s("alice"), operation: s("produce"), pattern: s("orders.*") };
    check_request("G1", 1, Request::Auth { username: s("admin"), password: s("admin123") });
    check_request("G4", 2, Request::CreateTopic { topic: topic(), keyspace_bits: 16 });
    check_request("G6", 3, Request::Produce(Produce::of(b"orders", &[user_42(), keyless()])));
    let fetch = Fetch { topic: topic(), group: s("workers"), max: 100, wait_ms: 5000, ..Fetch::default() };
    check_request("G8", 4, Request::Fetch(fetch));
    let subscribe = Subscribe { topic: topic(), group: group(), member: member(), window: 500, max: 100 };
    check_request("G10", 6, Request::Subscribe(subscribe));
    let heartbeat = StreamAck { topic: topic(), group: group(), member: member(), cursor: None, count: 0 };
    check_request("G12", 8, Request::StreamAck(heartbeat.clone()));
    check_request("G13", 5, Request::Commit(Commit { topic: topic(), group: s("workers"), cursor: s("c1") }));
    check_request("G14", 7, Request::StreamAck(StreamAck { cursor: s("c2"), count: 2, ..heartbeat }));
    check_request("G15", 9, Request::LeaveGroup { topic: topic(), group: group(), member: member() });
    check_request(
        "G16",
        10,
        Request::CreateUser {
            username: s("alice"),
            password: s("s3cret-pass-12"),
            permissions: vec![s("produce"), s("consume")],
        },
    );
    check_request("G17", 14, Request::DeleteUser { username: s("alice") });
    let new_password = s("n3w-pass-123456");
    check_request("G18", 15, Request::ChangePassword { username: s("alice"), new_password });
    check_request("G19", 11, Request::ListUsers);
    check_request("G21", 1, Request::MtlsAuth);
    check_request("G22", 1, Request::TokenAuth { jwt: s("a.b.c") });
    check_request("G23", 12, Request::GrantAcl(acl()));
    check_request("G24", 13, Request::ListAcls { username: s("alice") });
}

#[test]
fn responses() {
    let token = Bytes::from_static(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFG");
    check_response("G2", 1, ApiKey::Auth, Response::Ok(Payload::Token(token)));
    check_response("G3", 7, ApiKey::Produce, Response::Error(Reason::AuthRequired));
    for api_key in [ApiKey::CreateTopic, ApiKey::Commit, ApiKey::LeaveGroup, ApiKey::GrantAcl] {
        check_response("G5", 2, api_key, Response::Ok(Payload::Empty));
    }
    check_response("G7", 3, ApiKey::Produce, Response::Ok(Payload::Stored(2)));
    check_response("G9", 4, ApiKey::Fetch, page(&[user_42()], "c1"));
    check_response("G11", 6, ApiKey::Subscribe, page(&[keyless(), empty_key()], "c2"));
    let user = |name, permissions: &[&str]| User {
        username: s(name),
        permissions: permissions.iter().map(|permission| s(permission)).collect(),
    };
    let users = vec![user("admin", &["admin"]), user("alice", &["produce", "consume"])];
    check_response("G20", 11, ApiKey::ListUsers, Response::Ok(Payload::Users(users)));
    let grants = vec![Grant { operation: s("produce"), pattern: s("orders.*") }];
    check_response("G25", 13, ApiKey::ListAcls, Response::Ok(Payload::Grants(grants)));
    check_response("G26", 4, ApiKey::Fetch, Response::Error(Reason::NotOwner));
    check_response("G28", 0, ApiKey::Fetch, Response::Error(Reason::FrameTooLarge));
    check_response("G30", 0, ApiKey::Fetch, Response::Error(Reason::MalformedRequest));
}

#[test]
fn policies() {
    let (topic, name) = (|| s("orders"), || s("short"));
    let json = Bytes::from_static(br#"{"retention.max_age_ms":60000,"spread_by":null}"#);
    check_request("P1", 24, Request::DefinePolicy { name: name(), json });
    check_request("P2", 25, Request::DeletePolicy { name: name(), force: true });
    check_request("P3", 26, Request::BindTopicPolicy { topic: topic(), name: name() });
    check_request("P4", 26, Request::BindTopicPolicy { topic: topic(), name: None });
    check_request("P5", 27, Request::GetPolicy { topic: topic() });
    check_request("P6", 28, Request::ListPolicies);
    let json = Bytes::from_static(br#"{"policies":[]}"#);
    check_response("P7", 28, ApiKey::ListPolicies, Response::Ok(Payload::Policies(json)));
}

#[test]
fn later_requests() {
    let topic = || s("orders");
    check_request("H1", 1, Request::Hello { client: s("rust/0.1"), features: 3 });
    check_request("H3", 2, Request::SetRole { username: s("alice"), role: s("viewer") });
    check_request("H4", 3, Request::SetRole { username: s("alice"), role: None });
    check_request("H5", 4, Request::ListUsersV2);
    check_request("H7", 5, Request::ListTopics { prefix: s("or"), after: None, max: 10 });
    check_request("H9", 6, Request::DescribeTopic { topic: topic(), from_range: 0, max: 100 });
    check_request("H11", 7, Request::SealTopic { topic: topic() });
    check_request("H12", 8, Request::DeleteTopic { topic: topic() });
    check_request("H13", 9, Request::SplitRange { topic: topic(), range: 1 });
    check_request("H15", 10, Request::MergeRanges { topic: topic(), a: 3, b: 4 });
    let batch = ProduceBatch::of(Produce::of(b"orders", &[user_42(), keyless()]));
    check_request("H17", 11, Request::ProduceBatch(batch));
    // A later build's packing: this one keeps it as it came, so that it can be refused by name.
    let records = Bytes::from_static(b"packed");
    let packed = ProduceBatch { topic: topic(), flags: 1, crc: 0xdead_beef, records, count: 9 };
    check_request("H18", 11, Request::ProduceBatch(packed));
    let fetch = Fetch { topic: topic(), group: s("workers"), max: 100, wait_ms: 5000, ..Fetch::default() };
    check_request("H20", 12, Request::FetchBatches(fetch));
    check_request("H22", 13, Request::SeekTime { topic: topic(), at_ms: 1_700_000_000_000 });
    check_request("H24", 14, Request::ListGroups { topic: topic(), after: s("live"), max: 0 });
    check_request("H26", 15, Request::DescribeGroup { topic: topic(), group: s("workers") });
    check_request("H30", 16, Request::UnlockUser { username: s("alice"), address: s("10.0.0.7") });
    check_request("H31", 16, Request::UnlockUser { username: s("alice"), address: None });
    check_request("H33", 17, Request::ListUsersPage { after: s("alice"), max: 1 });
}

fn orders() -> TopicSummary {
    TopicSummary {
        name: "orders".into(),
        state: TopicState::Active,
        keyspace_bits: 16,
        ranges: 3,
        active_ranges: 2,
        segments: 4,
        bytes: 5_000_000_000,
        groups: 1,
    }
}

#[test]
fn later_responses_on_topics() {
    let old = TopicSummary {
        name: "orders.old".into(),
        state: TopicState::Sealed,
        keyspace_bits: 8,
        ranges: 1,
        active_ranges: 0,
        segments: 1,
        bytes: 17,
        groups: 0,
    };
    let topics = TopicSummaries { topics: vec![orders(), old], more: true };
    check_response("H8", 5, ApiKey::ListTopics, Response::Ok(Payload::Topics(topics)));
    let root = RangeInfo {
        range: 0,
        state: RangeState::Replaced,
        key_start: 0,
        key_end: 1 << 16,
        parents: Vec::new(),
        segments: 2,
        records: 1000,
        bytes: 2000,
    };
    let state = RangeState::Active;
    let child =
        RangeInfo { range: 1, state, key_end: 1 << 15, parents: vec![0], segments: 1, ..root.clone() };
    let left = RangeInfo { records: 0, bytes: 0, ..child.clone() };
    let right =
        RangeInfo { range: 2, key_start: 1 << 15, key_end: 1 << 16, records: 7, bytes: 99, ..child.clone() };
    let topic = TopicInfo { summary: orders(), ranges: vec![root, left, right], more: false };
    check_response("H10", 6, ApiKey::DescribeTopic, Response::Ok(Payload::Topic(topic)));
    check_response("H14", 9, ApiKey::SplitRange, Response::Ok(Payload::Split { left: 3, right: 4 }));
    check_response("H28", 9, ApiKey::SplitRange, Response::Error(Reason::CannotSplit));
    check_response("H16", 10, ApiKey::MergeRanges, Response::Ok(Payload::Merged(5)));
}

#[test]
fn later_responses_on_records_groups_and_users() {
    let server = Bytes::from_static(b"malachi/0.1");
    let hello = Hello {
        server,
        features: 31,
        frame_bytes_max: 16 * 1024 * 1024,
        fetch_records_max: 1000,
        fetch_wait_ms_max: 30_000,
        stream_window_max: 10_000,
    };
    check_response("H2", 1, ApiKey::Hello, Response::Ok(Payload::Hello(hello)));
    let user = |name, role: Option<&str>, permissions: &[&str]| UserV2 {
        username: s(name),
        role: role.and_then(s),
        permissions: permissions.iter().map(|permission| s(permission)).collect(),
    };
    let users = vec![user("admin", None, &["admin"]), user("alice", Some("viewer"), &[])];
    check_response("H6", 4, ApiKey::ListUsersV2, Response::Ok(Payload::UsersV2(users)));
    check_response("H32", 16, ApiKey::UnlockUser, Response::Ok(Payload::Unlocked(2)));
    let some = UserPage { users: vec![user("bob", None, &["produce"])], more: true };
    check_response("H34", 17, ApiKey::ListUsersPage, Response::Ok(Payload::UserPage(some)));
    check_response("H19", 11, ApiKey::ProduceBatch, Response::Ok(Payload::Stored(2)));
    let batch = |append_time, record: &Record| {
        let ProduceBatch { crc, records, count, .. } =
            ProduceBatch::of(Produce::of(b"", std::slice::from_ref(record)));
        Batch { append_time, count, crc, records }
    };
    let batches = vec![batch(1_700_000_000_100, &user_42()), batch(1_700_000_000_200, &keyless())];
    assert!(batches.iter().all(Batch::is_intact));
    let page = BatchPage { batches, next_cursor: "c1".into() };
    check_response("H21", 12, ApiKey::FetchBatches, Response::Ok(Payload::Batches(page)));
    let none = BatchPage { batches: Vec::new(), next_cursor: "c2".into() };
    check_response("H29", 12, ApiKey::FetchBatches, Response::Ok(Payload::Batches(none)));
    check_response("H23", 13, ApiKey::SeekTime, Response::Ok(Payload::Cursor("c9".into())));
    let groups = GroupNames { names: vec!["".into(), "workers".into()], more: false };
    check_response("H25", 14, ApiKey::ListGroups, Response::Ok(Payload::Groups(groups)));
    let member = |name: &'static str, ranges, idle_ms| MemberInfo { name: name.into(), ranges, idle_ms };
    let members = vec![member("m1", 2, 12), member("m2", 0, 30_001)];
    let group = GroupInfo { generation: 4, members, lag: 1234, lag_exact: true };
    check_response("H27", 15, ApiKey::DescribeGroup, Response::Ok(Payload::Group(group)));
}

fn copy(
    node: NodeId,
    health: CopyHealth,
    (end, bytes): (Option<u64>, u64),
    detail: &'static str,
) -> CopyInfo {
    CopyInfo { node, health, end, bytes, detail: detail.into() }
}

#[test]
fn requests_and_responses_about_what_does_not_move() {
    let topic = || s("orders");
    let (from_range, from_segment, max, depth) = (1, 4, 10, Depth::Verify);
    check_request("H46", 22, Request::ListSegments { topic: topic(), from_range, from_segment, max, depth });
    check_request("H47", 23, Request::Explain(Subject::Range { topic: topic(), range: 2 }));
    check_request("H48", 23, Request::Explain(Subject::Node { node: TWO }));
    check_request("H49", 23, Request::Explain(Subject::Group { topic: topic(), group: s("workers") }));

    let stands = (Some(250), 9000);
    let sealed = SegmentInfo {
        range: 0,
        segment: 3,
        start: 100,
        end: Some(250),
        bytes: 9000,
        copies: vec![
            copy(ONE, CopyHealth::Settled, stands, ""),
            copy(TWO, CopyHealth::Damaged, stands, "damaged at byte 80"),
        ],
    };
    let active = SegmentInfo {
        range: 2,
        segment: 0,
        start: 250,
        end: None,
        bytes: 0,
        copies: vec![
            copy(ONE, CopyHealth::Intact, (Some(260), 900), ""),
            copy(TWO, CopyHealth::Unreachable, (None, 0), "its node cannot be reached"),
        ],
    };
    let page = SegmentPage { segments: vec![sealed, active.clone()], more: true };
    check_response("H50", 22, ApiKey::ListSegments, Response::Ok(Payload::Segments(page)));
    let stands = Explanation {
        told_by: ONE,
        verdict: Verdict::Stands,
        cause: "no_quorum".into(),
        text: "1 of 2 copies have it".into(),
        since_ms: Some(1500),
        next: "bring one back".into(),
        facts: vec![("state".into(), "open".into())],
        segment: Some(active),
    };
    check_response("H51", 23, ApiKey::Explain, Response::Ok(Payload::Explanation(Box::new(stands))));
    let moves = Explanation {
        told_by: TWO,
        verdict: Verdict::Moves,
        cause: "alive".into(),
        text: "it takes part".into(),
        since_ms: None,
        next: "nothing".into(),
        facts: Vec::new(),
        segment: None,
    };
    check_response("H52", 23, ApiKey::Explain, Response::Ok(Payload::Explanation(Box::new(moves))));
}

#[test]
fn requests_and_responses_of_producers_that_repeat_themselves() {
    check_request("H53", 24, Request::NewProducer { topic: s("orders") });
    let answer = Payload::Producer { id: 0xabcd, now_ms: 1_700_000_000_000 };
    check_response("H54", 24, ApiKey::NewProducer, Response::Ok(answer));
    let stamp = Stamp {
        producer: ProducerId(0xabcd),
        epoch: ProducerEpoch(2),
        first: 7,
        settled: 5,
        born: WallTime(1_700_000_000_001),
    };
    let batch = ProduceBatch::of(Produce::of(b"orders", &[keyless()]));
    check_request("H55", 25, Request::ProduceOnce(ProduceOnce { stamp, batch }));
}

const ONE: NodeId = NodeId(0x11);
const TWO: NodeId = NodeId(0x22);

#[test]
fn requests_about_the_cluster() {
    check_request("H35", 18, Request::ClusterStatus { after: None, max: 0 });
    check_request("H36", 18, Request::ClusterStatus { after: Some(ONE), max: 10 });
    let change = |change, dry_run| Request::ChangeNode { node: TWO, change, dry_run };
    check_request("H38", 19, change(NodeChange::Drain, false));
    check_request("H39", 19, change(NodeChange::ForceRemove, true));
    check_request("H41", 20, Request::DescribeRing { from_token: 0x4000_0001, max: 2 });
    check_request("H43", 21, Request::Reshard { to: 8, dry_run: true });
}

#[test]
fn responses_about_the_cluster() {
    let one = ClusterNode {
        node: ONE,
        name: "n1".into(),
        peer: "n1:4043".into(),
        client: s("n1:4040"),
        state: NodeState::Active,
        incarnation: 5,
        connected: true,
        health: NodeHealth::Alive,
        vnodes: 4,
        attributes: vec![("rack".into(), "r1".into())],
    };
    let two = ClusterNode {
        node: TWO,
        name: "n2".into(),
        peer: "n2:4043".into(),
        client: None,
        state: NodeState::Joining,
        incarnation: 0,
        connected: false,
        health: NodeHealth::Unknown,
        vnodes: 0,
        attributes: Vec::new(),
    };
    let member = |node, votes| GroupMember { node, votes };
    let status = ClusterStatus {
        asked: ONE,
        term: 7,
        leader: Some(TWO),
        members: vec![member(ONE, true), member(TWO, false)],
        ring_version: 9,
        vnodes: 4,
        pending: Some(RingStep::Split { vnode: VnodeId(4), source: VnodeId(3), token: 0xe000_0000 }),
        lease: Some(ONE),
        leaderless: 1,
        node_count: 3,
        nodes: vec![one, two],
        more: true,
    };
    check_response("H37", 18, ApiKey::ClusterStatus, Response::Ok(Payload::ClusterStatus(status)));
    let changed = NodeChanged {
        refusal: s("node_not_drained"),
        vnode_count: 2,
        vnodes: vec![VnodeId(0), VnodeId(3)],
        in_cluster_group: true,
        segments: 12,
    };
    check_response("H40", 19, ApiKey::ChangeNode, Response::Ok(Payload::NodeChanged(changed)));
    let vnode = VnodeInfo {
        vnode: VnodeId(2),
        token: 0x8000_0000,
        places: 0x4000_0000,
        members: vec![TWO, ONE],
        leader: None,
        topics: 17,
    };
    let page = RingPage { version: 9, vnodes: vec![vnode], more: false };
    check_response("H42", 20, ApiKey::DescribeRing, Response::Ok(Payload::Ring(page)));
    let steps = vec![RingStep::Merge { vnode: VnodeId(3), into: VnodeId(0) }];
    let resharding = Resharding { from: 4, to: 3, step_count: 1, steps, refusal: None };
    check_response("H44", 21, ApiKey::Reshard, Response::Ok(Payload::Resharding(resharding)));
    check_response("H45", 21, ApiKey::Reshard, Response::Error(Reason::NotLeaseHolder));
}

#[test]
fn placing_and_switches() {
    check_request("Q1", 24, Request::Rebalance { dry_run: true });
    let moved = VnodeMove { vnode: VnodeId(5), add: vec![TWO, ONE], remove: Vec::new() };
    let rebalancing = Rebalancing { move_count: 2, moves: vec![moved], refusal: None };
    check_response("Q2", 24, ApiKey::Rebalance, Response::Ok(Payload::Rebalancing(rebalancing)));
    check_request("Q3", 25, Request::ListFlags);
    let lacking = || vec![Bytes::from_static(b"n2")];
    let flag = Flag { name: "wide_frames".into(), known: true, enabled: false, lacking: lacking() };
    check_response("Q4", 25, ApiKey::ListFlags, Response::Ok(Payload::Flags(Flags { flags: vec![flag] })));
    check_request("Q5", 26, Request::EnableFlag { flag: s("wide_frames"), dry_run: true });
    let enabled = FlagEnabled { refusal: s("flag_unsupported"), lacking: lacking() };
    check_response("Q6", 26, ApiKey::EnableFlag, Response::Ok(Payload::FlagEnabled(enabled)));
}

#[test]
fn records_of_a_page_decode_to_what_was_sent() {
    let Ok(Response::Ok(Payload::Page(page))) = Reply::split(body("G11")).unwrap().decode(ApiKey::Subscribe)
    else {
        panic!("G11 is a page");
    };
    assert_eq!(page.decode_records().unwrap(), [keyless(), empty_key()]);
}

#[test]
fn a_prefix_over_the_limit_is_refused_without_a_body() {
    let mut buffer = BytesMut::from(&vector("G27")[..]);
    assert_eq!(
        frame::take(&mut buffer, FRAME_BYTES),
        Err(frame::TooLarge { length: FRAME_BYTES + 1, limit: FRAME_BYTES })
    );
}

#[test]
fn a_body_too_short_for_an_envelope_has_none() {
    assert_eq!(Envelope::split(body("G29")), None);
}

#[test]
fn every_vector_is_checked_above() {
    let checked = include_str!("golden.rs");
    let names: Vec<&str> =
        include_str!("golden.txt").lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names.len(), 101);
    for name in names {
        assert!(checked.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn requests_and_responses_of_groups_that_are_moved_and_forgotten() {
    let moves = MoveGroup {
        topic: s("orders"),
        group: s("workers"),
        cursor: s("c1"),
        like: None,
        force: false,
        dry_run: true,
    };
    check_request("H56", 26, Request::MoveGroup(moves));
    let moved = Payload::GroupMoved { lag_before: 9, lag_after: 2 };
    check_response("H57", 26, ApiKey::MoveGroup, Response::Ok(moved));
    check_request("H58", 27, Request::DeleteGroup { topic: s("orders"), group: s("workers"), force: true });
}
