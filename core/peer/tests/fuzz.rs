//! Decoders against arbitrary, mutated and well-formed bytes.

#![allow(clippy::unwrap_used)]

extern crate malachi_peer as peer;

use std::collections::BTreeSet;

use bytes::{Buf, Bytes};
use peer::message::{
    Attributes, Follow, FollowReply, Forward, ForwardReply, Kind, OfGroup, Propose, ProposeRefusal,
    ProposeReply, ReadIndexReply,
};
use peer::{Message, Rope};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use types::{ControlPlaneId, FenceToken, Incarnation, NodeId, RaftIndex, Term, VnodeId};

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

fn message() -> impl Strategy<Value = Message> {
    let parts = (
        (select(Kind::ALL.to_vec()), 0_u8..4, node()),
        (any::<[u64; 2]>(), 0_u64..1 << 62, 0_u64..1000),
        (bytes(900), bytes(20)),
        prop::collection::vec(of_group(), 1..5),
        attributes(),
    );
    parts.prop_map(|((kind, which, hint), ([a, b], index, offset), (long, short), batch, attributes)| {
        let (vnode, index) = (VnodeId(a), RaftIndex(index));
        match kind {
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
                0 => FollowReply::Entries(vec![long, short]),
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
