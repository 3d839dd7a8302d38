//! Every message's bytes: golden, round trip, and whatever else may arrive.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use bytes::Bytes;
use proptest::prelude::*;
use types::{NodeId, RaftIndex, Term};

use super::{Body, Message};
use crate::entry::Payload;
use crate::event::{Entry, EntryId, SnapshotMark};
use crate::image::Image;
use crate::members::{Amendment, Member, Members, ReplicaId};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn id(index: u64, term: u64) -> EntryId {
    EntryId { index: RaftIndex(index), term: Term(term) }
}

fn message(body: Body) -> Message {
    let from = Member { replica: ReplicaId(3), node: NodeId(0xabcd) };
    Message { from, to: ReplicaId(2), term: Term(9), body }
}

fn entry(index: u64, term: u64, payload: &Payload) -> Entry {
    Entry { index: RaftIndex(index), term: Term(term), data: payload.encode().freeze() }
}

/// Version, sender, receiver, term of every message here.
const HEAD: &str = "010000000000000003000000000000000000000000000\
                    0abcd00000000000000020000000000000009";

#[test]
fn golden() {
    let command = Payload::Command(Bytes::from_static(b"hi"));
    let mark = SnapshotMark { index: RaftIndex(7), term: Term(8) };
    for (body, tail) in [
        (
            Body::Vote { pre: true, transfer: false, last: id(6, 5), commit: id(4, 3) },
            "0101000000000000000006000000000000000500000000000000040000000000000003",
        ),
        (
            Body::VoteReply { pre: false, granted: true, commit: id(0, 0) },
            "02000100000000000000000000000000000000",
        ),
        (
            Body::Append {
                previous: id(6, 5),
                commit: RaftIndex(4),
                entries: vec![entry(7, 8, &Payload::Opening), entry(8, 8, &command)],
            },
            "030000000000000006000000000000000500000000000000040000000200000000000000080000000000000000000000080000\
             0003016869",
        ),
        (Body::Appended { index: RaftIndex(6), commit: RaftIndex(4) }, "0400000000000000060000000000000004"),
        (
            Body::Rejected { index: RaftIndex(6), hint: id(5, 2), commit: RaftIndex(4) },
            "050000000000000006000000000000000500000000000000020000000000000004",
        ),
        (Body::Heartbeat { commit: RaftIndex(4), round: None }, "06000000000000000400"),
        (
            Body::HeartbeatReply { commit: RaftIndex(4), round: Some(5) },
            "070000000000000004010000000000000005",
        ),
        (
            Body::Part { mark, total: 10, offset: 8, bytes: Bytes::from_static(b"xy") },
            "08000000000000000700000000000000080000000000000\
             00a0000000000000008000000027879",
        ),
        (Body::PartReply { mark, received: 10 }, "0900000000000000070000000000000008000000000000000a"),
        (Body::TakeOver, "0a"),
    ] {
        let message = message(body);
        let bytes = message.encode();
        assert_eq!(hex(&bytes), format!("{HEAD}{tail}"), "{message:?}");
        assert_eq!(Message::decode(bytes), Ok(message));
    }
}

#[test]
fn golden_entries_and_images() {
    let members = Members::founding(&[NodeId(2), NodeId(1)]);
    let list = "000000000000000200000002\
                00000000000000010000000000000000000000000000000101\
                00000000000000020000000000000000000000000000000201";
    let added = Amendment::Add(Member { replica: ReplicaId(3), node: NodeId(5) });
    for (payload, bytes) in [
        (Payload::Opening, String::new()),
        (Payload::Command(Bytes::from_static(b"x")), "0178".to_owned()),
        (Payload::Command(Bytes::new()), "01".to_owned()),
        (Payload::Founding(members.clone()), format!("02{list}")),
        (Payload::Amendment(added), "0301000000000000000300000000000000000000000000000005".to_owned()),
        (Payload::Amendment(Amendment::Promote(ReplicaId(3))), "03020000000000000003".to_owned()),
        (Payload::Amendment(Amendment::Remove(ReplicaId(3))), "03030000000000000003".to_owned()),
    ] {
        let encoded = payload.encode().freeze();
        assert_eq!(hex(&encoded), bytes);
        assert_eq!(Payload::decode(encoded), Ok(payload));
    }
    let image = Image::encode(&members, b"state");
    let crc = crc32fast::hash(&image[..image.len() - 4]);
    assert_eq!(hex(&image), format!("4d52534901{list}000000057374617465{crc:08x}"));
    let decoded = Image { members, state: Bytes::from_static(b"state") };
    assert_eq!(Image::decode(image), Ok(decoded));
}

#[test]
fn what_no_member_would_say_is_refused() {
    let good = message(Body::Append {
        previous: id(6, 5),
        commit: RaftIndex(4),
        entries: vec![entry(7, 8, &Payload::Opening)],
    });
    assert!(Message::decode(good.encode()).is_ok());
    let with = |previous, entries| message(Body::Append { previous, commit: RaftIndex(0), entries });
    let founding = Payload::Founding(Members::founding(&[NodeId(1)]));
    let unknown = Entry { data: Bytes::from_static(&[77]), ..entry(7, 8, &Payload::Opening) };
    let mark = |index, term| SnapshotMark { index: RaftIndex(index), term: Term(term) };
    let part = |mark, total, offset, bytes: &'static [u8]| {
        message(Body::Part { mark, total, offset, bytes: Bytes::from_static(bytes) })
    };
    for bad in [
        Message { term: Term(0), ..good.clone() },
        Message { term: Term(1 << 62), ..good.clone() },
        Message { to: ReplicaId(0), ..good.clone() },
        Message { from: Member { replica: ReplicaId(0), node: NodeId(1) }, ..good.clone() },
        with(id(6, 0), vec![]),
        with(id(0, 5), vec![]),
        with(id(6, 5), vec![entry(7, 4, &Payload::Opening)]),
        with(id(6, 5), vec![entry(7, 10, &Payload::Opening)]),
        with(id(6, 5), vec![unknown]),
        with(id(6, 5), vec![entry(7, 8, &founding)]),
        with(id(0, 0), vec![entry(1, 8, &Payload::Opening)]),
        part(mark(0, 0), 5, 0, b"x"),
        part(mark(5, 10), 5, 0, b"x"),
        part(mark(5, 5), 5, 5, b"x"),
        part(mark(5, 5), 5, u64::MAX, b"x"),
        part(mark(5, 5), u64::MAX, 0, b"x"),
        part(mark(5, 5), 5, 0, b""),
        message(Body::Heartbeat { commit: RaftIndex(1 << 63), round: None }),
    ] {
        assert!(Message::decode(bad.encode()).is_err(), "{bad:?}");
    }
    let mut later = good.encode().to_vec();
    later[0] = 2;
    assert!(Message::decode(later.into()).is_err());
    let mut longer = good.encode().to_vec();
    longer.push(0);
    assert!(Message::decode(longer.into()).is_err());
}

#[test]
fn lists_of_members_that_make_no_sense_are_refused() {
    let members = Members::founding(&[NodeId(1), NodeId(2)]);
    let good = Payload::Founding(members).encode().to_vec();
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Payload::decode(bytes.into())
    };
    assert!(change(0, 2).is_ok());
    // The highest number given, the count, a number twice, out of order, a node twice, nobody with a vote.
    for (at, byte) in [(8, 1), (1, 0x40), (12, 3), (12, 0), (20, 2), (20, 0), (36, 2)] {
        assert!(change(at, byte).is_err(), "byte {at}");
    }
    let mut voteless = good.clone();
    (voteless[37], voteless[62]) = (0, 0);
    assert!(Payload::decode(voteless.into()).is_err());
}

prop_compose! {
    fn entry_id()(index in 0_u64..1000, term in 1_u64..50) -> EntryId {
        if index == 0 { EntryId::default() } else { id(index, term) }
    }
}

fn payload() -> impl Strategy<Value = Payload> {
    let replica = (1_u64..100).prop_map(ReplicaId);
    let node = any::<u128>().prop_map(NodeId);
    prop_oneof![
        Just(Payload::Opening),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Payload::Command(bytes.into())),
        (replica.clone(), node)
            .prop_map(|(replica, node)| Payload::Amendment(Amendment::Add(Member { replica, node }))),
        replica.clone().prop_map(|replica| Payload::Amendment(Amendment::Promote(replica))),
        replica.prop_map(|replica| Payload::Amendment(Amendment::Remove(replica))),
    ]
}

/// Entries after `previous`, of terms from its own to 50.
fn append() -> impl Strategy<Value = Body> {
    let parts = (entry_id(), 0_u64..1000, prop::collection::vec((0_u64..3, payload()), 0..6));
    parts.prop_map(|(previous, commit, list)| {
        let mut before = previous;
        let mut entries = Vec::new();
        for (steps, payload) in list {
            let next = id(before.index.0 + 1, (before.term.0 + steps).clamp(1, 50));
            let founding = Payload::Founding(Members::founding(&[NodeId(4), NodeId(3)]));
            let payload = if next.index == RaftIndex(1) { &founding } else { &payload };
            entries.push(entry(next.index.0, next.term.0, payload));
            before = next;
        }
        Body::Append { previous, commit: RaftIndex(commit), entries }
    })
}

/// Whatever a message may say that decodes.
pub(crate) fn body() -> impl Strategy<Value = Body> {
    let index = || (0_u64..1000).prop_map(RaftIndex);
    let mark = (1_u64..1000, 1_u64..50)
        .prop_map(|(index, term)| SnapshotMark { index: RaftIndex(index), term: Term(term) });
    let part = (mark.clone(), 0_u64..1000, prop::collection::vec(any::<u8>(), 1..50), 0_u64..100);
    prop_oneof![
        (any::<bool>(), any::<bool>(), entry_id(), entry_id())
            .prop_map(|(pre, transfer, last, commit)| Body::Vote { pre, transfer, last, commit }),
        (any::<bool>(), any::<bool>(), entry_id()).prop_map(|(pre, granted, commit)| Body::VoteReply {
            pre,
            granted,
            commit
        }),
        append(),
        (index(), index()).prop_map(|(index, commit)| Body::Appended { index, commit }),
        (index(), entry_id(), index()).prop_map(|(index, hint, commit)| Body::Rejected {
            index,
            hint,
            commit
        }),
        (index(), any::<Option<u64>>()).prop_map(|(commit, round)| Body::Heartbeat { commit, round }),
        (index(), any::<Option<u64>>()).prop_map(|(commit, round)| Body::HeartbeatReply { commit, round }),
        part.prop_map(|(mark, offset, bytes, more)| Body::Part {
            mark,
            total: offset + bytes.len() as u64 + more,
            offset,
            bytes: bytes.into(),
        }),
        (mark, 0_u64..1000).prop_map(|(mark, received)| Body::PartReply { mark, received }),
        Just(Body::TakeOver),
    ]
}

proptest! {
    #[test]
    fn what_is_said_is_understood(
        body in body(), from in 1_u64..9, node in any::<u128>(), to in 1_u64..9, term in 50_u64..60,
    ) {
        let from = Member { replica: ReplicaId(from), node: NodeId(node) };
        let message = Message { from, to: ReplicaId(to), term: Term(term), body };
        prop_assert_eq!(Message::decode(message.encode()), Ok(message));
    }

    #[test]
    fn other_bytes_are_refused_or_mean_one_thing(
        body in body(), cut in any::<prop::sample::Index>(), changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = Message { term: Term(50), ..message(body) }.encode().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let bytes = Bytes::from(bytes);
        if let Ok(message) = Message::decode(bytes.clone()) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        if let Ok(message) = Message::decode(bytes.clone()) {
            prop_assert_eq!(message.encode(), bytes.clone());
        }
        if let Ok(payload) = Payload::decode(bytes.clone()) {
            prop_assert_eq!(payload.encode().freeze(), bytes.clone());
        }
        prop_assert!(Image::decode(bytes).is_err());
    }

    #[test]
    fn an_image_with_another_byte_is_none(state in prop::collection::vec(any::<u8>(), 0..50),
        at in any::<prop::sample::Index>(), bit in 0_u8..8,
    ) {
        let members = Members::founding(&[NodeId(1), NodeId(9)]);
        let image = Image::encode(&members, &state);
        prop_assert_eq!(Image::decode(image.clone()).unwrap().state, state);
        let mut bytes = image.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Image::decode(bytes.into()).is_err());
    }

    /// Whatever is asked for, in whatever order: lists stay sensible and are read back as they were written.
    #[test]
    fn members_stay_sensible(changes in prop::collection::vec((0_u8..3, 1_u64..9, 1_u128..6), 0..40)) {
        let mut members = Members::founding(&[NodeId(1), NodeId(2), NodeId(3)]);
        for (kind, replica, node) in changes {
            let before = members.clone();
            let amendment = match kind {
                0 => Amendment::Add(Member { replica: ReplicaId(replica), node: NodeId(node) }),
                1 => Amendment::Promote(ReplicaId(replica)),
                _ => Amendment::Remove(ReplicaId(replica)),
            };
            let changed = members.amend(amendment);
            prop_assert_eq!(changed, members != before);
            let moved = before.voters().filter(|voter| !members.voters().any(|other| other == *voter)).count()
                + members.voters().filter(|voter| !before.voters().any(|other| other == *voter)).count();
            prop_assert!(moved <= 1, "quorums of neighbouring lists meet");
            prop_assert!(members.voters().next().is_some());
            let payload = Payload::Founding(members.clone());
            prop_assert_eq!(Payload::decode(payload.encode().freeze()), Ok(payload));
        }
    }
}
