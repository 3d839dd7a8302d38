//! Every message's bytes, in both directions.

#![allow(clippy::unwrap_used)]

extern crate malachi_peer as peer;

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use peer::message::{
    Attributes, Follow, FollowReply, Forward, ForwardReply, Kind, OfGroup, Propose, ProposeRefusal,
    ProposeReply, ReadIndexReply,
    attend::{self, Assigned, Attends, CommitAs, CommitReply, MembersReply, Standing},
    copy::{self, Damage, DamageClass, Extent, FailReason, Frame, OfCopy, State},
    load::Load,
    part::{Append, AppendReply, Doubt, Outcome, Part, Refusal, Watch, WatchReply},
};
use peer::{Message, Rope};
use types::{
    ControlPlaneId, Epoch, FenceToken, Generation, GroupName, Incarnation, MemberName, NodeId, Offset,
    Position, ProducerEpoch, ProducerId, RaftIndex, RangeId, RangeSeq, SegmentId, SegmentSeq, Stamp, Term,
    TopicId, VnodeId, WallTime,
};

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn of_group(vnode: u64, message: &'static str) -> OfGroup {
    OfGroup { vnode: VnodeId(vnode), message: b(message) }
}

const NODE: &str = "0100000000000000000000000000000005";

fn vectors() -> Vec<(Message, String)> {
    [of_groups(), of_copies(), of_parts(), of_members()].concat()
}

fn of_groups() -> Vec<(Message, String)> {
    let hint = Some(NodeId(5));
    let attributes = Attributes {
        control_plane: Some(ControlPlaneId(5)),
        incarnation: Incarnation(3),
        name: "a@h".to_owned(),
        address: "h:1".to_owned(),
        attributes: BTreeMap::from([(b("rack"), b("r1")), (b("zone"), b(""))]),
        capabilities: vec![b("x"), b("y")],
        ring_version: 7,
        leads: BTreeMap::from([(VnodeId(1), Term(2))]),
    };
    let attributes_hex = [
        NODE,
        "0000000000000003",
        "00000003614068",
        "00000003683a31",
        "00000002000000047261636b000000027231000000047a6f6e6500000000",
        "0000000200000001780000000179",
        "0000000000000007",
        "0000000100000000000000010000000000000002",
    ];
    let applied = ProposeReply::Applied { index: RaftIndex(6), reply: b("ok") };
    let refused = |refusal| Message::ProposeReply(ProposeReply::Refused(refusal));
    vec![
        (
            Message::Raft(vec![of_group(1, "hi"), of_group(2, "")]),
            "000000020000000000000001000000026869000000000000000200000000".into(),
        ),
        (Message::RaftPart(of_group(1, "hi")), "0000000000000001000000026869".into()),
        (Message::Attributes(attributes), attributes_hex.concat()),
        (
            Message::Forward(Forward { session: 8, user: b("me"), revision: 9, body: b("req") }),
            "0000000000000008000000026d65000000000000000900000003726571".into(),
        ),
        (
            Message::Follow(Follow { vnode: VnodeId(1), from: RaftIndex(6), part: None, wait_ms: 9 }),
            "000000000000000100000000000000060000000009".into(),
        ),
        (
            Message::Follow(Follow {
                vnode: VnodeId(1),
                from: RaftIndex(6),
                part: Some((RaftIndex(7), 8)),
                wait_ms: 9,
            }),
            "000000000000000100000000000000060100000000000000070000000000000008".to_owned() + "00000009",
        ),
        (
            Message::Propose(Propose { vnode: VnodeId(1), fence: Some(FenceToken(2)), command: b("c") }),
            "00000000000000010100000000000000020000000163".into(),
        ),
        (
            Message::Propose(Propose { vnode: VnodeId(1), fence: None, command: b("") }),
            "00000000000000010000000000".into(),
        ),
        (Message::ReadIndex { vnode: VnodeId(1) }, "0000000000000001".into()),
        (Message::ForwardReply(ForwardReply::Answer(b("a"))), "000000000161".into()),
        (Message::ForwardReply(ForwardReply::NotServed { hint }), format!("01{NODE}")),
        (Message::ForwardReply(ForwardReply::Overloaded), "02".into()),
        (
            Message::FollowReply(FollowReply::Entries(vec![(Term(3), b("x")), (Term(4), b(""))])),
            "0000000002000000000000000300000001780000000000000004".to_owned() + "00000000",
        ),
        (
            Message::FollowReply(FollowReply::Part {
                index: RaftIndex(6),
                total: 10,
                offset: 8,
                bytes: b("xy"),
            }),
            "010000000000000006000000000000000a0000000000000008000000027879".into(),
        ),
        (Message::FollowReply(FollowReply::NotHere { hint: None }), "0200".into()),
        (Message::FollowReply(FollowReply::Overloaded), "03".into()),
        (Message::ProposeReply(applied), "000000000000000006000000026f6b".into()),
        (Message::ProposeReply(ProposeReply::NotLeader { hint }), format!("01{NODE}")),
        (Message::ProposeReply(ProposeReply::Unknown), "02".into()),
        (refused(ProposeRefusal::NoVnode), "0300".into()),
        (refused(ProposeRefusal::Overloaded), "0301".into()),
        (refused(ProposeRefusal::Fenced), "0302".into()),
        (refused(ProposeRefusal::TooLarge), "0303".into()),
        (Message::ReadIndexReply(ReadIndexReply::Ready(RaftIndex(6))), "000000000000000006".into()),
        (Message::ReadIndexReply(ReadIndexReply::NotLeader { hint: None }), "0100".into()),
        (Message::ReadIndexReply(ReadIndexReply::Overloaded), "02".into()),
    ]
}

const RANGE: RangeId = RangeId { topic: TopicId(7), seq: RangeSeq(2) };
const RANGE_HEX: &str = "000000000000000000000000000000070000000000000002";

/// Eight bytes.
fn n(value: u64) -> String {
    format!("{value:016x}")
}

fn of_copies() -> Vec<(Message, String)> {
    let segment = SegmentId { range: RANGE, seq: SegmentSeq(3) };
    let head = |bulk: &str| format!("{RANGE_HEX}{}{bulk}", n(3));
    let ask = |bulk, request| Message::Copy(OfCopy { segment, bulk, request });
    let frame = || Frame { header: b("hd"), payload: b("rec") };
    let frame_hex = "00000002686400000003726563";
    let extent = |state| Extent {
        base: Offset(1),
        end: Offset(9),
        bytes: 5,
        epoch: Epoch(2),
        last_append: Some(WallTime(4)),
        rebuilding: true,
        state,
    };
    let extent_hex =
        |tag: &str, state: &str| format!("{tag}{}{}{}{}01{}01{state}", n(1), n(9), n(5), n(2), n(4));
    let bare = Extent { last_append: None, rebuilding: false, ..extent(State::Sealed) };
    let bare_hex = format!("05{}{}{}{}000001", n(1), n(9), n(5), n(2));
    let damage = |class| Damage { position: 6, offset: Offset(7), class };
    let damage_hex = |class: &str| format!("{}{}{class}", n(6), n(7));
    let create =
        copy::Request::Create { base: Offset(1), epoch: Epoch(2), expect_full: true, rebuilding: false };
    let mut all = vec![
        (ask(false, create), format!("{}00{}{}0100", head("00"), n(1), n(2))),
        (
            ask(true, copy::Request::Append { epoch: Epoch(2), frames: vec![frame(), frame()] }),
            format!("{}01{}00000002{frame_hex}{frame_hex}", head("01"), n(2)),
        ),
        (
            ask(true, copy::Request::Read { from: Offset(4), bytes_max: 5 }),
            format!("{}02{}00000005", head("01"), n(4)),
        ),
        (ask(false, copy::Request::SeekTime { at: WallTime(4) }), format!("{}03{}", head("00"), n(4))),
        (ask(false, copy::Request::Fence { epoch: Epoch(4) }), format!("{}04{}", head("00"), n(4))),
        (
            ask(false, copy::Request::Seal { end: Offset(4), at: WallTime(5) }),
            format!("{}05{}{}", head("00"), n(4), n(5)),
        ),
        (ask(false, copy::Request::Latch { reason: FailReason::Erofs }), format!("{}0602", head("00"))),
        (ask(false, copy::Request::Verify), format!("{}07", head("00"))),
        (ask(false, copy::Request::Delete), format!("{}08", head("00"))),
        (ask(false, copy::Request::Inspect), format!("{}09", head("00"))),
        (ask(false, copy::Request::Rebuilt), format!("{}0a", head("00"))),
    ];
    let replies = vec![
        (copy::Reply::Created, "00".to_owned()),
        (copy::Reply::Appended { end: Offset(4) }, format!("01{}", n(4))),
        (copy::Reply::Read(vec![frame(), frame()]), format!("0200000002{frame_hex}{frame_hex}")),
        (copy::Reply::Sought(Offset(4)), format!("03{}", n(4))),
        (copy::Reply::Fenced(extent(State::Active)), extent_hex("04", "00")),
        (copy::Reply::Sealed(bare), bare_hex),
        (copy::Reply::Latched, "06".to_owned()),
        (
            copy::Reply::Verified { records: 1, bytes: 2, damage: Some(damage(DamageClass::Short)) },
            format!("07{}{}01{}", n(1), n(2), damage_hex("03")),
        ),
        (copy::Reply::Verified { records: 1, bytes: 2, damage: None }, format!("07{}{}00", n(1), n(2))),
        (copy::Reply::Deleted, "08".to_owned()),
        (copy::Reply::Inspected(extent(State::Stopped(FailReason::Enospc))), extent_hex("09", "0200")),
        (copy::Reply::NotServed, "0b".to_owned()),
        (copy::Reply::TooLarge, "0c".to_owned()),
        (copy::Reply::Rebuilt(extent(State::Latched(FailReason::Eio))), extent_hex("0d", "0301")),
    ];
    all.extend(replies.into_iter().map(|(reply, hex)| (Message::CopyReply(reply), hex)));
    let errors = vec![
        (copy::Error::NoSuchSegment, "00".to_owned()),
        (copy::Error::Exists, "01".to_owned()),
        (copy::Error::Sealed { end: Offset(4) }, format!("02{}", n(4))),
        (copy::Error::Fenced { epoch: Epoch(4) }, format!("03{}", n(4))),
        (copy::Error::OutOfSync { end: Offset(4) }, format!("04{}", n(4))),
        (copy::Error::OutOfRange { base: Offset(4) }, format!("05{}", n(4))),
        (copy::Error::EndOfData { end: Offset(4) }, format!("06{}", n(4))),
        (copy::Error::CannotSeal { end: Offset(4) }, format!("07{}", n(4))),
        (copy::Error::Damaged(damage(DamageClass::Header)), format!("08{}", damage_hex("00"))),
        (copy::Error::Damaged(damage(DamageClass::Payload)), format!("08{}", damage_hex("01"))),
        (copy::Error::Damaged(damage(DamageClass::Order)), format!("08{}", damage_hex("02"))),
        (copy::Error::Damaged(damage(DamageClass::Unsupported)), format!("08{}", damage_hex("04"))),
        (copy::Error::Damaged(damage(DamageClass::Meta)), format!("08{}", damage_hex("05"))),
        (copy::Error::Latched(FailReason::Other), "0903".to_owned()),
        (copy::Error::Storage { detail: b("why") }, "0a00000003776879".to_owned()),
        (copy::Error::Overloaded, "0b".to_owned()),
    ];
    let failed = |(error, hex)| (Message::CopyReply(copy::Reply::Failed(error)), format!("0a{hex}"));
    all.extend(errors.into_iter().map(failed));
    all
}

const STAMP: Stamp =
    Stamp { producer: ProducerId(9), epoch: ProducerEpoch(1), first: 7, settled: 6, born: WallTime(5) };
/// What follows the producer.
const STAMP_REST: &str = "0000000100000007000000060000000000000005";

fn of_parts() -> Vec<(Message, String)> {
    let segment = SegmentId { range: RANGE, seq: SegmentSeq(3) };
    let hint = Some(NodeId(5));
    let reply = |outcome| Message::AppendReply(AppendReply(vec![outcome]));
    let not_stored = |refusal| reply(Outcome::NotStored(refusal));
    let unknown = |doubt| reply(Outcome::Unknown(doubt));
    let part = |stamp| Part { count: 2, crc: 3, records: b("rec"), stamp };
    vec![
        (
            Message::Append(Append { range: RANGE, parts: vec![part(None), part(Some(STAMP))] }),
            format!(
                "{RANGE_HEX}0000000200000002000000030000000372656300{}{}{STAMP_REST}",
                "00000002000000030000000372656301",
                n(9)
            ),
        ),
        (
            Message::AppendReply(AppendReply(vec![Outcome::Stored { count: 2 }; 2])),
            "0000000200000000020000000002".to_owned(),
        ),
        (not_stored(Refusal::NotPrimary { hint }), format!("000000010100{NODE}")),
        (not_stored(Refusal::Sealed), "000000010101".to_owned()),
        (not_stored(Refusal::NoSuchTopic), "000000010102".to_owned()),
        (not_stored(Refusal::Unroutable), "000000010103".to_owned()),
        (not_stored(Refusal::Overloaded), "000000010104".to_owned()),
        (not_stored(Refusal::Unavailable), "000000010105".to_owned()),
        (not_stored(Refusal::Forgotten), "000000010106".to_owned()),
        (not_stored(Refusal::Fenced), "000000010107".to_owned()),
        (not_stored(Refusal::InsufficientDomains), "000000010108".to_owned()),
        (unknown(Doubt::Storage), "000000010200".to_owned()),
        (unknown(Doubt::Timeout), "000000010201".to_owned()),
        (
            Message::Watch(Watch { segment, known: Offset(4), wait_ms: 5 }),
            format!("{RANGE_HEX}{}{}00000005", n(3), n(4)),
        ),
        (Message::WatchReply(WatchReply::Committed { end: Offset(4) }), format!("00{}", n(4))),
        (Message::WatchReply(WatchReply::Ended), "01".to_owned()),
        (Message::WatchReply(WatchReply::NotPrimary { hint }), format!("02{NODE}")),
        (Message::WatchReply(WatchReply::Overloaded), "03".to_owned()),
    ]
}

fn of_members() -> Vec<(Message, String)> {
    let key = || attend::Key { topic: RANGE.topic, group: GroupName::new(b"g").unwrap() };
    let key_hex = format!("{}0000000167", &RANGE_HEX[..32]);
    let member = || MemberName::new(b"m").unwrap();
    let (hint, generation, as_of) = (Some(NodeId(5)), Generation(7), RaftIndex(8));
    let attends = Attends { key: key(), member: member(), known: Generation(6), idle_ms: 9, leaves: true };
    let share = Standing::Share { generation, as_of, ranges: vec![RangeSeq(1), RangeSeq(2)] };
    let standings = vec![
        share,
        Standing::Same,
        Standing::Gone,
        Standing::Full,
        Standing::NotCoordinator { hint },
        Standing::Again,
    ];
    let refused = |refusal| Message::CommitReply(CommitReply::Refused(refusal));
    let members = vec![attend::Member { name: member(), ranges: 3, idle_ms: 4 }];
    vec![
        (Message::Assigned(Assigned { key: key(), generation }), format!("{key_hex}{}", n(7))),
        (Message::Attend(vec![attends]), format!("00000001{key_hex}000000016d{}{}01", n(6), n(9))),
        (
            Message::AttendReply(standings),
            format!("0000000600{}{}00000002{}{}01020304{NODE}05", n(7), n(8), n(1), n(2)),
        ),
        (Message::CommitAs(CommitAs { key: key(), cursor: b("cur") }), format!("{key_hex}00000003637572")),
        (Message::CommitReply(CommitReply::Stored { as_of }), format!("00{}", n(8))),
        (Message::CommitReply(CommitReply::NotCoordinator { hint }), format!("01{NODE}")),
        (refused(attend::Refusal::InvalidCursor), "0200".to_owned()),
        (refused(attend::Refusal::NoSuchTopic), "0201".to_owned()),
        (refused(attend::Refusal::TooManyGroups), "0202".to_owned()),
        (refused(attend::Refusal::Overloaded), "0203".to_owned()),
        (refused(attend::Refusal::Unavailable), "0204".to_owned()),
        (refused(attend::Refusal::Migrating), "0205".to_owned()),
        (Message::CommitReply(CommitReply::Unknown), "03".to_owned()),
        (Message::Members(key()), key_hex),
        (
            Message::MembersReply(MembersReply::Members { generation, members }),
            format!("00{}00000001000000016d00000003{}", n(7), n(4)),
        ),
        (Message::MembersReply(MembersReply::NotCoordinator { hint }), format!("01{NODE}")),
        (Message::Loads(vec![load()]), format!("00000001{LOAD}")),
    ]
}

const LOAD: &str = concat!(
    "00000000000000000000000000000001",
    "0000000000000002",
    "0000000000000003",
    "0000000000000004",
    "0005",
    "0000000200000006",
    "00000007",
);

fn load() -> Load {
    let range = RangeId { topic: TopicId(1), seq: RangeSeq(2) };
    Load { range, records: 3, bytes: 4, keyless: 5, keys: vec![Position(6), Position(7)] }
}

#[test]
fn bytes_are_what_they_were() {
    let mut kinds = BTreeSet::new();
    for (message, hex) in vectors() {
        let mut out = Rope::new();
        message.encode(&mut out);
        let bytes = out.copy_to_bytes(out.remaining());
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, hex, "{message:?}");
        assert_eq!(Message::decode(message.kind(), bytes), Ok(message.clone()));
        kinds.insert(message.kind());
    }
    assert_eq!(kinds.len(), Kind::ALL.len(), "every kind has a vector");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let decode = |kind, hex: &str| {
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        Message::decode(kind, bytes.collect())
    };
    assert!(decode(Kind::Raft, "00000000").is_err(), "a batch of nothing");
    assert!(decode(Kind::Raft, "00000002000000000000000100000000").is_err(), "a count too high");
    let part = "010000000000000006000000000000000900000000000000080000000278";
    assert!(decode(Kind::FollowReply, &format!("{part}79")).is_err(), "a part beyond the end");
    let index = "00ffffffffffffffff";
    assert!(decode(Kind::ReadIndexReply, index).is_err(), "an index that cannot be counted up");
    assert!(decode(Kind::ReadIndexReply, "03").is_err());
    assert!(decode(Kind::ReadIndex, "000000000000000100").is_err(), "a byte more");
    let high = "ffffffffffffffff";
    assert!(decode(Kind::CopyReply, &format!("01{high}")).is_err(), "an offset that cannot be counted up");
    assert!(decode(Kind::CopyReply, &format!("0a03{high}")).is_err(), "an epoch that cannot be counted up");
    let backwards = format!("04{}{}{}{}000000", n(9), n(1), n(5), n(2));
    assert!(decode(Kind::CopyReply, &backwards).is_err(), "an extent that ends before it begins");
    assert!(decode(Kind::CopyReply, "020000000200000000").is_err(), "a count too high");
    assert!(decode(Kind::Append, &format!("{RANGE_HEX}000000000000000300000000")).is_err(), "no record");
    assert!(decode(Kind::Attend, "00000000").is_err(), "nobody attends");
    let twice = format!("0000000100{}{}00000002{}{}", n(7), n(8), n(1), n(1));
    assert!(decode(Kind::AttendReply, &twice).is_err(), "a range twice");
}
