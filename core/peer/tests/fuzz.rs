//! Decoders against arbitrary, mutated and well-formed bytes.

#![allow(clippy::unwrap_used)]

extern crate malachi_peer as peer;

use std::collections::BTreeSet;

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
use proptest::prelude::*;
use proptest::sample::{Index, select};
use types::{
    ControlPlaneId, Epoch, FenceToken, Generation, GroupName, Incarnation, MemberName, NodeId, Offset,
    Position, ProducerEpoch, ProducerId, RaftIndex, RangeId, RangeSeq, SegmentId, SegmentSeq, Stamp, Term,
    TopicId, VnodeId, WallTime,
};

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=len_max).prop_map(Bytes::from)
}

fn text() -> impl Strategy<Value = String> {
    "[!-~]{0,20}"
}

fn node() -> impl Strategy<Value = Option<NodeId>> {
    prop::option::of(any::<u128>().prop_map(NodeId))
}

prop_compose! {
    fn of_group()(vnode in any::<u64>(), message in bytes(900)) -> OfGroup {
        OfGroup { vnode: VnodeId(vnode), message }
    }
}

prop_compose! {
    fn attributes()(
        control_plane in prop::option::of(any::<u128>()), numbers in any::<[u64; 2]>(), name in text(),
        address in text(), attributes in prop::collection::btree_map(bytes(9), bytes(9), 0..5),
        capabilities in prop::collection::btree_set(bytes(9), 0..5),
        leads in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..5),
    ) -> Attributes {
        let capabilities: BTreeSet<Bytes> = capabilities;
        Attributes {
            control_plane: control_plane.map(ControlPlaneId),
            incarnation: Incarnation(numbers[0]),
            name,
            address,
            attributes,
            capabilities: capabilities.into_iter().collect(),
            ring_version: numbers[1],
            leads: leads.into_iter().map(|(vnode, term)| (VnodeId(vnode), Term(term))).collect(),
        }
    }
}

fn segment(a: u64, b: u64) -> SegmentId {
    let range = RangeId { topic: TopicId(u128::from(a) << 64 | u128::from(b)), seq: RangeSeq(b) };
    SegmentId { range, seq: SegmentSeq(a ^ b) }
}

fn copy_request(which: u8, number: u64, other: u64, (long, short): (Bytes, Bytes)) -> copy::Request {
    let (offset, epoch, at) = (Offset(number), Epoch(number), WallTime(other));
    match which % 11 {
        0 => copy::Request::Create { base: offset, epoch, expect_full: other == 0, rebuilding: number == 0 },
        1 => {
            let frame = Frame { header: short, payload: long };
            copy::Request::Append { epoch, frames: vec![frame; 1 + other as usize % 3] }
        }
        2 => copy::Request::Read { from: offset, bytes_max: other as u32 },
        3 => copy::Request::SeekTime { at },
        4 => copy::Request::Fence { epoch },
        5 => copy::Request::Seal { end: offset, at },
        6 => copy::Request::Latch { reason: fail_reason(other) },
        7 => copy::Request::Verify,
        8 => copy::Request::Delete,
        9 => copy::Request::Inspect,
        _ => copy::Request::Rebuilt,
    }
}

fn copy_reply(which: u8, number: u64, other: u64, (long, short): (Bytes, Bytes)) -> copy::Reply {
    let offset = Offset(number);
    let extent = Extent {
        base: Offset(number / 2),
        end: offset,
        bytes: other,
        epoch: Epoch(number),
        last_append: other.is_multiple_of(2).then_some(WallTime(other)),
        rebuilding: other.is_multiple_of(3),
        state: match other % 4 {
            0 => State::Active,
            1 => State::Sealed,
            2 => State::Stopped(fail_reason(number)),
            _ => State::Latched(fail_reason(number)),
        },
    };
    let damage = Damage { position: other, offset, class: damage_class(other) };
    match which % 14 {
        0 => copy::Reply::Created,
        1 => copy::Reply::Appended { end: offset },
        2 => {
            let frame = Frame { header: short, payload: long };
            copy::Reply::Read(vec![frame; (other % 3) as usize])
        }
        3 => copy::Reply::Sought(offset),
        4 => copy::Reply::Fenced(extent),
        5 => copy::Reply::Sealed(extent),
        6 => copy::Reply::Latched,
        7 => {
            let damage = other.is_multiple_of(2).then_some(damage);
            copy::Reply::Verified { records: number, bytes: other, damage }
        }
        8 => copy::Reply::Deleted,
        9 => copy::Reply::Inspected(extent),
        10 => copy::Reply::NotServed,
        11 => copy::Reply::TooLarge,
        12 => copy::Reply::Rebuilt(extent),
        _ => copy::Reply::Failed(match other % 12 {
            0 => copy::Error::NoSuchSegment,
            1 => copy::Error::Exists,
            2 => copy::Error::Sealed { end: offset },
            3 => copy::Error::Fenced { epoch: Epoch(number) },
            4 => copy::Error::OutOfSync { end: offset },
            5 => copy::Error::OutOfRange { base: offset },
            6 => copy::Error::EndOfData { end: offset },
            7 => copy::Error::CannotSeal { end: offset },
            8 => copy::Error::Damaged(damage),
            9 => copy::Error::Latched(fail_reason(number)),
            10 => copy::Error::Storage { detail: short },
            _ => copy::Error::Overloaded,
        }),
    }
}

fn fail_reason(number: u64) -> FailReason {
    match number % 4 {
        0 => FailReason::Enospc,
        1 => FailReason::Eio,
        2 => FailReason::Erofs,
        _ => FailReason::Other,
    }
}

fn damage_class(number: u64) -> DamageClass {
    match number % 6 {
        0 => DamageClass::Header,
        1 => DamageClass::Payload,
        2 => DamageClass::Order,
        3 => DamageClass::Short,
        4 => DamageClass::Unsupported,
        _ => DamageClass::Meta,
    }
}

fn outcome(which: u8, hint: Option<NodeId>) -> Outcome {
    match which % 12 {
        9 => Outcome::NotStored(Refusal::Forgotten),
        10 => Outcome::NotStored(Refusal::Fenced),
        0 => Outcome::Stored { count: u32::from(which) },
        1 => Outcome::NotStored(Refusal::NotPrimary { hint }),
        2 => Outcome::NotStored(Refusal::Sealed),
        3 => Outcome::NotStored(Refusal::NoSuchTopic),
        4 => Outcome::NotStored(Refusal::Unroutable),
        5 => Outcome::NotStored(Refusal::Overloaded),
        6 => Outcome::NotStored(Refusal::Unavailable),
        7 => Outcome::NotStored(Refusal::InsufficientDomains),
        8 => Outcome::Unknown(Doubt::Storage),
        _ => Outcome::Unknown(Doubt::Timeout),
    }
}

fn key(topic: u64, group: &[u8]) -> attend::Key {
    attend::Key { topic: TopicId(topic.into()), group: GroupName::new(group).unwrap() }
}

fn standings(many: u8, as_of: RaftIndex, hint: Option<NodeId>) -> Vec<Standing> {
    let ranges = (0..u64::from(many)).map(|seq| RangeSeq(seq * 3)).collect();
    let share = Standing::Share { generation: Generation(as_of.0), as_of, ranges };
    let all = [
        share,
        Standing::Same,
        Standing::Gone,
        Standing::Full,
        Standing::NotCoordinator { hint },
        Standing::Again,
    ];
    all.into_iter().cycle().skip(usize::from(many)).take(usize::from(many % 9)).collect()
}

fn commit_reply(which: u8, as_of: RaftIndex, hint: Option<NodeId>) -> CommitReply {
    match which % 9 {
        0 => CommitReply::Stored { as_of },
        1 => CommitReply::NotCoordinator { hint },
        2 => CommitReply::Refused(attend::Refusal::InvalidCursor),
        3 => CommitReply::Refused(attend::Refusal::NoSuchTopic),
        4 => CommitReply::Refused(attend::Refusal::TooManyGroups),
        5 => CommitReply::Refused(attend::Refusal::Overloaded),
        6 => CommitReply::Refused(attend::Refusal::Unavailable),
        7 => CommitReply::Refused(attend::Refusal::Migrating),
        _ => CommitReply::Unknown,
    }
}

fn members(count: u8) -> Vec<attend::Member> {
    let one = |n| attend::Member { name: MemberName::new(&[n]).unwrap(), ranges: n.into(), idle_ms: 7 };
    (0..count).map(one).collect()
}

fn message() -> impl Strategy<Value = Message> {
    let parts = (
        (select(Kind::ALL.to_vec()), 0_u8..32, node()),
        (any::<[u64; 2]>(), 0_u64..1 << 62, 0_u64..1000),
        (bytes(900), bytes(20)),
        prop::collection::vec(of_group(), 1..5),
        attributes(),
    );
    parts.prop_map(|((kind, which, hint), ([a, b], index, offset), (long, short), batch, attributes)| {
        let (vnode, index) = (VnodeId(a), RaftIndex(index));
        let many = which;
        let which = which % 4;
        match kind {
            Kind::Copy => Message::Copy(OfCopy {
                segment: segment(a, b),
                bulk: which == 0,
                request: copy_request(many, index.0, offset, (long, short)),
            }),
            Kind::CopyReply => Message::CopyReply(copy_reply(many, index.0, offset, (long, short))),
            Kind::Append => {
                let count = 1 + u32::from(many);
                let (producer, epoch) = (ProducerId(a.max(1)), ProducerEpoch(count));
                let (first, born) = (u32::from(many), WallTime(b.max(1)));
                let stamp = Stamp { producer, epoch, first, settled: first / 2, born };
                let stamp = (b % 3 > 0 && stamp.fits(count)).then_some(stamp);
                let part = Part { count, crc: b as u32, records: long, stamp };
                Message::Append(Append { range: segment(a, b).range, parts: vec![part; 1 + b as usize % 3] })
            }
            Kind::AppendReply => {
                Message::AppendReply(AppendReply(vec![outcome(many, hint); 1 + b as usize % 3]))
            }
            Kind::Watch => {
                let wait_ms = u32::from(many);
                Message::Watch(Watch { segment: segment(a, b), known: Offset(index.0), wait_ms })
            }
            Kind::WatchReply => Message::WatchReply(match which {
                0 => WatchReply::Committed { end: Offset(index.0) },
                1 => WatchReply::Ended,
                2 => WatchReply::NotPrimary { hint },
                _ => WatchReply::Overloaded,
            }),
            Kind::Assigned => Message::Assigned(Assigned { key: key(a, &short), generation: Generation(b) }),
            Kind::Attend => Message::Attend(vec![
                Attends {
                    key: key(a, &short),
                    member: MemberName::new(&short).unwrap(),
                    known: Generation(b),
                    idle_ms: offset,
                    leaves: which == 0,
                };
                1 + usize::from(which)
            ]),
            Kind::AttendReply => Message::AttendReply(standings(many, index, hint)),
            Kind::CommitAs => Message::CommitAs(CommitAs { key: key(a, &short), cursor: long }),
            Kind::CommitReply => Message::CommitReply(commit_reply(many, index, hint)),
            Kind::Members => Message::Members(key(a, &short)),
            Kind::MembersReply => Message::MembersReply(match which {
                0 => MembersReply::NotCoordinator { hint },
                _ => MembersReply::Members { generation: Generation(b), members: members(which) },
            }),
            Kind::Loads => Message::Loads(vec![
                Load {
                    range: segment(a, b).range,
                    records: b,
                    bytes: a,
                    keyless: u16::from(many) * 31,
                    keys: (0..u32::from(many)).map(Position).collect(),
                };
                1 + usize::from(which)
            ]),
            Kind::Raft => Message::Raft(batch),
            Kind::RaftPart => Message::RaftPart(batch[0].clone()),
            Kind::Attributes => Message::Attributes(attributes),
            Kind::Forward => Message::Forward(Forward { session: a, user: short, revision: b, body: long }),
            Kind::Follow => {
                let part = hint.map(|_| (index, b));
                Message::Follow(Follow { vnode, from: index, part, wait_ms: which.into() })
            }
            Kind::Propose => {
                let fence = hint.map(|_| FenceToken(b));
                Message::Propose(Propose { vnode, fence, command: long })
            }
            Kind::ReadIndex => Message::ReadIndex { vnode },
            Kind::ForwardReply => Message::ForwardReply(match which {
                0 => ForwardReply::Answer(long),
                1 => ForwardReply::NotServed { hint },
                _ => ForwardReply::Overloaded,
            }),
            Kind::FollowReply => Message::FollowReply(match which {
                0 => FollowReply::Entries(vec![(Term(a), long), (Term(b), short)]),
                1 => {
                    let total = offset + long.len() as u64 + u64::from(which);
                    FollowReply::Part { index, total, offset, bytes: long }
                }
                2 => FollowReply::NotHere { hint },
                _ => FollowReply::Overloaded,
            }),
            Kind::ProposeReply => Message::ProposeReply(match which {
                0 => ProposeReply::Applied { index, reply: long },
                1 => ProposeReply::NotLeader { hint },
                2 => ProposeReply::Unknown,
                _ => ProposeReply::Refused(match a % 4 {
                    0 => ProposeRefusal::NoVnode,
                    1 => ProposeRefusal::Overloaded,
                    2 => ProposeRefusal::Fenced,
                    _ => ProposeRefusal::TooLarge,
                }),
            }),
            Kind::ReadIndexReply => Message::ReadIndexReply(match which {
                0 => ReadIndexReply::Ready(index),
                1 => ReadIndexReply::NotLeader { hint },
                _ => ReadIndexReply::Overloaded,
            }),
        }
    })
}

fn encode(message: &Message) -> Bytes {
    let mut out = Rope::new();
    message.encode(&mut out);
    out.copy_to_bytes(out.remaining())
}

fn is_refused_or_canonical(kind: Kind, bytes: &Bytes) {
    if let Ok(message) = Message::decode(kind, bytes.clone()) {
        assert_eq!(message.kind(), kind);
        assert_eq!(encode(&message), bytes, "{message:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(kind in select(Kind::ALL.to_vec()), bytes in bytes(200)) {
        is_refused_or_canonical(kind, &bytes);
    }

    #[test]
    fn a_message_comes_back_as_it_was(message in message()) {
        prop_assert_eq!(Message::decode(message.kind(), encode(&message)), Ok(message));
    }

    #[test]
    fn a_changed_message_is_refused_or_canonical(
        message in message(), other in select(Kind::ALL.to_vec()),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4), cut in any::<Index>(),
    ) {
        let mut bytes = encode(&message).to_vec();
        is_refused_or_canonical(other, &bytes.clone().into());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        is_refused_or_canonical(message.kind(), &bytes.clone().into());
        bytes.truncate(cut.index(bytes.len() + 1));
        is_refused_or_canonical(message.kind(), &bytes.into());
    }

    #[test]
    fn one_byte_more_or_less_is_refused(message in message(), byte in any::<u8>()) {
        let bytes = encode(&message);
        prop_assert!(Message::decode(message.kind(), bytes.slice(..bytes.len() - 1)).is_err());
        let more = [&bytes[..], &[byte]].concat();
        prop_assert!(Message::decode(message.kind(), more.into()).is_err());
    }
}
