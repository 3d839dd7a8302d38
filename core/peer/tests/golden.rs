//! Every message's bytes, in both directions.

#![allow(clippy::unwrap_used)]

extern crate malachi_peer as peer;

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use peer::message::{
    Attributes, Follow, FollowReply, Forward, ForwardReply, Kind, OfGroup, Propose, ProposeRefusal,
    ProposeReply, ReadIndexReply,
};
use peer::{Message, Rope};
use types::{ControlPlaneId, FenceToken, Incarnation, NodeId, RaftIndex, Term, VnodeId};

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn of_group(vnode: u64, message: &'static str) -> OfGroup {
    OfGroup { vnode: VnodeId(vnode), message: b(message) }
}

const NODE: &str = "0100000000000000000000000000000005";

fn vectors() -> Vec<(Message, String)> {
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
            Message::FollowReply(FollowReply::Entries(vec![b("x"), b("")])),
            "0000000002000000017800000000".into(),
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
}
