//! Packets that are not what they should be.

use bytes::{BufMut, Bytes, BytesMut};
use foca::{Header, Member, Message, State};
use proptest::prelude::*;
use types::{Incarnation, Instant, NodeId, limits};

use super::harness::{CONTROL_PLANE, Cluster, address, config, key};
use crate::engine::Identity;
use crate::packet::{Envelope, News, Packet, Sealer};
use crate::{Action, Event, Key, Membership, Status};

fn sealer(key: Key, control_plane: u128) -> Sealer {
    Sealer { key, control_plane }
}

fn identity(node: u128, at: &str, incarnation: u64) -> Identity {
    Identity { node: NodeId(node), incarnation: Incarnation(incarnation), address: address(at) }
}

fn gossip(from: &Identity, to: &Identity, members: Vec<Member<Identity>>, sequence: u64) -> Packet {
    let header = Header { src: from.clone(), src_incarnation: 0, dst: to.clone(), message: Message::Gossip };
    let engine = News { header, members }.encode();
    Packet::News(Envelope { sequence, accused: None, engine, abouts: vec![] })
}

/// A node that was started, and what it does about a packet.
fn told(process: &mut Membership, bytes: Bytes) -> Vec<Action> {
    let mut out = Vec::new();
    process.step(Instant(2_000_000), Event::Packet(bytes), &mut out);
    out.retain(|action| !matches!(action, Action::WakeAt(_)));
    out
}

fn started() -> Membership {
    let mut process = Membership::new(config(1, "a1:1", 10), 5);
    process.step(Instant(1_000_000), Event::Start, &mut Vec::new());
    process
}

#[test]
fn what_was_not_made_with_the_key_changes_nothing_and_is_counted() {
    let mut process = started();
    let (me, other) = (identity(1, "a1:1", 10), identity(2, "a2:1", 10));
    let packet = gossip(&other, &me, vec![], 0);
    for key in [Key::of_secret(b"wrong", CONTROL_PLANE), Key::without_secret(CONTROL_PLANE)] {
        assert_eq!(told(&mut process, sealer(key, CONTROL_PLANE).seal(&packet)), []);
    }
    assert_eq!(told(&mut process, sealer(key(), 78).seal(&packet)), []);
    let good = sealer(key(), CONTROL_PLANE).seal(&packet);
    assert_eq!(told(&mut process, good.slice(..good.len() - 1)), []);
    assert_eq!(told(&mut process, Bytes::from_static(b"hello")), []);
    assert_eq!(told(&mut process, Bytes::from(vec![0; 65_000])), []);
    let tally = process.tally();
    assert_eq!((tally.wrong_key, tally.other_control_plane, tally.foreign, tally.received), (3, 1, 2, 0));
    assert_eq!(process.members().count(), 0);
    assert!(!told(&mut process, good).is_empty(), "and the real one counts");
    assert_eq!(process.members().count(), 1);
}

#[test]
fn a_packet_counts_once() {
    let mut process = started();
    let (me, other) = (identity(1, "a1:1", 10), identity(2, "a2:1", 10));
    let bytes = sealer(key(), CONTROL_PLANE).seal(&gossip(&other, &me, vec![], 7));
    told(&mut process, bytes.clone());
    assert_eq!(told(&mut process, bytes), []);
    assert_eq!((process.tally().received, process.tally().repeated), (1, 1));
}

#[test]
fn members_are_bounded_whoever_tells_of_them() {
    let mut process = started();
    let (me, other) = (identity(1, "a1:1", 10), identity(2, "a2:1", 10));
    for batch in 0..300_u64 {
        let members = (0..10)
            .map(|number| Member::alive(identity(u128::from(100 + batch * 10 + number), "somewhere:1", 1)));
        let bytes = sealer(key(), CONTROL_PLANE).seal(&gossip(&other, &me, members.collect(), batch));
        told(&mut process, bytes);
    }
    assert_eq!(process.members().count(), limits::MEMBERS_MAX);
    assert!(process.load().news <= limits::MEMBERS_MAX);
    // Somebody new who speaks for itself: there is no room, until somebody is dead.
    let third = identity(3, "a3:1", 10);
    let speak = |process: &mut Membership, sequence| {
        told(process, sealer(key(), CONTROL_PLANE).seal(&gossip(&third, &me, vec![], sequence)));
        process.member(NodeId(3)).is_some()
    };
    assert!(!speak(&mut process, 1));
    let dead = Member::down(identity(100, "somewhere:1", 1));
    told(&mut process, sealer(key(), CONTROL_PLANE).seal(&gossip(&other, &me, vec![dead], 300)));
    assert!(speak(&mut process, 2));
    assert_eq!(process.members().count(), limits::MEMBERS_MAX);
    assert_eq!(process.member(NodeId(100)), None);
}

#[test]
fn old_news_of_a_member_is_not_taken() {
    let mut process = started();
    let (me, other) = (identity(1, "a1:1", 10), identity(2, "a2:1", 10));
    let tell = |process: &mut Membership, member, sequence| {
        told(process, sealer(key(), CONTROL_PLANE).seal(&gossip(&other, &me, vec![member], sequence)))
    };
    tell(&mut process, Member::alive(identity(3, "a3:1", 50)), 1);
    for state in [State::Alive, State::Suspect, State::Down] {
        for place in ["a3:1", "b3:1"] {
            tell(&mut process, Member::new(identity(3, place, 49), 9, state), 2);
        }
    }
    let view = process.member(NodeId(3)).unwrap();
    assert_eq!((view.incarnation.0, view.status, view.address.as_str()), (50, Status::Alive, "a3:1"));
}

#[test]
fn every_packet_fits_its_limits() {
    let long = "x".repeat(limits::NODE_ADDRESS_BYTES_MAX - 4);
    let mut cluster = Cluster::new();
    let at = |node: u128| format!("{node:02}{long}:1");
    for node in 1..=12 {
        let mut config = config(node, &at(node), 10);
        config.name = "n".repeat(limits::NODE_NAME_BYTES_MAX).into();
        cluster.start(config, &[&at(1)]);
    }
    // Sealing asserts the size of each.
    cluster.run_until(60, |cluster| {
        cluster.processes.values().all(|process| {
            process.members().filter(|m| m.status == Status::Alive && m.digest.is_some()).count() == 11
        })
    });
}

/// A packet of any bytes, with the right MAC.
fn sealed(kind: u8, body: &[u8]) -> Bytes {
    use hmac::Mac;
    let mut bytes = BytesMut::new();
    bytes.put_u16(u16::from_be_bytes(*b"ML"));
    bytes.put_u8(1);
    bytes.put_u8(kind);
    bytes.put_u128(CONTROL_PLANE);
    bytes.put_slice(body);
    let mac = key().mac(&bytes).finalize().into_bytes();
    bytes.put_slice(&mac[..16]);
    bytes.freeze()
}

proptest! {
    #[test]
    fn any_bytes_with_the_right_mac_do_no_harm(kind in 0_u8..4, body in proptest::collection::vec(any::<u8>(), 0..1300)) {
        let mut process = started();
        told(&mut process, sealed(kind, &body));
        prop_assert!(process.members().count() <= limits::MEMBERS_MAX);
    }

    /// Real packets with bytes changed and the MAC made anew: whatever a broken build of ours may send.
    #[test]
    fn damaged_packets_with_the_right_mac_do_no_harm(
        changes in proptest::collection::vec((0_usize..200, any::<u8>()), 1..6),
        states in proptest::collection::vec((1_u128..6, 8_u64..12, 0_u16..3, 0_u8..3), 0..6),
    ) {
        let mut process = started();
        let (me, other) = (identity(1, "a1:1", 10), identity(2, "a2:1", 10));
        let members = states.into_iter().map(|(node, incarnation, refutations, state)| {
            let state = [State::Alive, State::Suspect, State::Down][usize::from(state)];
            Member::new(identity(node, &format!("a{node}:1"), incarnation), refutations, state)
        });
        let good = sealer(key(), CONTROL_PLANE).seal(&gossip(&other, &me, members.collect(), 0));
        told(&mut process, good.clone());
        let mut body = good[20..good.len() - 16].to_vec();
        for (at, byte) in changes {
            let at = at % body.len();
            body[at] = byte;
        }
        told(&mut process, sealed(1, &body));
        for at in 0..200 {
            process.step(Instant(2_000_000 + at * 100_000), Event::Timer, &mut Vec::new());
        }
        prop_assert!(process.members().count() < 20);
    }
}
