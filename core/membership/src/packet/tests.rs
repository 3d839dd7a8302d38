//! Packets there and back, and their golden bytes.

use bytes::Bytes;
use foca::{Header, Member, Message, State};
use proptest::prelude::*;
use types::{Incarnation, NodeId};

use super::*;
use crate::digest::Digest;
use crate::engine::Identity;

fn identity(node: u128) -> Identity {
    let address = Address::new(format!("node-{node}:4043").as_bytes()).unwrap();
    Identity { node: NodeId(node), incarnation: Incarnation(40 + u64::try_from(node).unwrap()), address }
}

fn sealer() -> Sealer {
    Sealer { key: Key::of_secret(b"secret", 9), control_plane: 9 }
}

fn message() -> impl Strategy<Value = Message<Identity>> {
    let other = (1_u128..9).prop_map(identity);
    prop_oneof![
        any::<u8>().prop_map(Message::Ping),
        any::<u8>().prop_map(Message::Ack),
        (other.clone(), any::<u8>())
            .prop_map(|(target, probe_number)| Message::PingReq { target, probe_number }),
        (other.clone(), any::<u8>())
            .prop_map(|(origin, probe_number)| Message::IndirectPing { origin, probe_number }),
        (other.clone(), any::<u8>())
            .prop_map(|(target, probe_number)| Message::IndirectAck { target, probe_number }),
        (other, any::<u8>())
            .prop_map(|(origin, probe_number)| Message::ForwardedAck { origin, probe_number }),
        Just(Message::Announce),
        Just(Message::Feed),
        Just(Message::Gossip),
        Just(Message::TurnUndead),
    ]
}

fn about() -> impl Strategy<Value = About> {
    (1_u128..9, 0_u64..100, any::<u32>(), "[a-z]{0,20}", any::<u64>()).prop_map(
        |(node, incarnation, number, name, hash)| About {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            number,
            name: name.into(),
            digest: Digest { attributes: hash, led_count: number, ..Digest::default() },
        },
    )
}

proptest! {
    #[test]
    fn news_is_read_as_it_was_written(message in message(), states in proptest::collection::vec((1_u128..9, any::<u16>(), 0_usize..3), 0..9)) {
        let own = identity(1);
        let header = Header { src: identity(2), src_incarnation: 3, dst: own.clone(), message };
        let members = states.into_iter().map(|(node, refutations, state)| {
            Member::new(identity(node), refutations, [State::Alive, State::Suspect, State::Down][state])
        });
        let has_members = !matches!(header.message, Message::Announce | Message::TurnUndead);
        let members = members.filter(|_| has_members).collect();
        let news = News { header, members };
        prop_assert_eq!(News::decode(news.encode(), &own), Ok(news));
    }

    #[test]
    fn envelopes_are_read_as_they_were_written(sequence in any::<u64>(), accused in any::<Option<u16>>(), engine in proptest::collection::vec(any::<u8>(), 0..900), abouts in proptest::collection::vec(about(), 0..4)) {
        let packet = Packet::News(Envelope { sequence, accused, engine: engine.into(), abouts });
        prop_assert_eq!(sealer().open(sealer().seal(&packet), false), Ok(packet));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = sealer().open(Bytes::from(bytes.clone()), true);
        let _ = News::decode(bytes.into(), &identity(1));
    }
}

#[test]
fn a_first_question_may_be_for_anybody_and_nothing_else_may() {
    let own = identity(1);
    let nobody = Identity { node: ANYBODY, ..identity(1) };
    let news = |message| News {
        header: Header { src: identity(2), src_incarnation: 0, dst: nobody.clone(), message },
        members: vec![],
    };
    let read = News::decode(news(Message::Announce).encode(), &own).unwrap();
    assert_eq!(read.header.dst, own);
    let read = News::decode(news(Message::Gossip).encode(), &own).unwrap();
    assert_eq!(read.header.dst.node, ANYBODY);
}

#[test]
fn a_notice_has_golden_bytes() {
    let notice = Notice {
        node: NodeId(2),
        incarnation: Incarnation(3),
        kept_incarnation: Incarnation(4),
        kept: Address::new(b"a:1").unwrap(),
    };
    let bytes = sealer().seal(&Packet::Notice(notice.clone()));
    let said = b"ML\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\
        \0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\x03a:1";
    assert_eq!(bytes[..bytes.len() - MAC_BYTES], said[..]);
    assert_eq!(hex(&bytes[bytes.len() - MAC_BYTES..]), "9a602797c684a3e66d89c422779bc404");
    assert_eq!(sealer().open(bytes, false), Ok(Packet::Notice(notice)));
}

#[test]
fn news_has_golden_bytes() {
    let header = Header { src: identity(2), src_incarnation: 1, dst: identity(1), message: Message::Ping(7) };
    let engine = News { header, members: vec![Member::new(identity(3), 5, State::Suspect)] }.encode();
    let name = "n".into();
    let digest = Digest { ring_version: 1, attributes: 2, capabilities: 3, led_count: 4, led: 5 };
    let about = About { node: NodeId(2), incarnation: Incarnation(42), number: 6, name, digest };
    let packet = Packet::News(Envelope { sequence: 8, accused: Some(9), engine, abouts: vec![about] });
    let bytes = sealer().seal(&packet);
    let said = [
        "0000000000000008",
        "010009",
        "006b",
        // Header: source, destination, kind.
        "000000000000000000000000000000020000",
        "00000000002a000b6e6f64652d323a343034330001",
        "000000000000000000000000000000010000000000000029",
        "0107",
        // One member.
        "0001",
        "00000000000000000000000000000003000000000000002b000b6e6f64652d333a34303433000502",
        // One digest.
        "00000000000000000000000000000002000000000000002a00000006",
        "016e",
        "000000000000000100000000000000020000000000000003000000040000000000000005",
    ];
    assert_eq!(hex(&bytes[20..bytes.len() - MAC_BYTES]), said.concat());
    assert_eq!(sealer().open(bytes, false), Ok(packet));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
