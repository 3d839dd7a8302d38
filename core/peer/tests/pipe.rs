//! Two links over a pipe that cuts anywhere, drops, and carries garbage: every message of a stream arrives once and
//! in order, or the connection is given up; never a panic, never more kept than the bounds say.

#![allow(clippy::unwrap_used)]

extern crate malachi_peer as peer;

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use peer::message::{Forward, ForwardReply, OfGroup};
use peer::{CallId, Claim, Link, Message, Parcel, Received, Secret, Setup, StreamId, Trust};
use proptest::prelude::*;
use types::{ControlPlaneId, Incarnation, Instant, NodeId, VnodeId, limits};

fn setup(node: u128) -> Setup {
    let claim = Claim {
        control_plane: Some(ControlPlaneId(1)),
        node: NodeId(node),
        incarnation: Incarnation(1),
        features: 0,
        name: format!("n{node}"),
        build: "0".to_owned(),
        address: String::new(),
    };
    let trust = Trust::Secret(Secret::new(b"a secret of the cluster").unwrap());
    Setup { claim, trust, binding: Bytes::new(), nonce: [node as u8; 32] }
}

/// What happens next.
#[derive(Clone, Debug)]
enum Do {
    /// A side says something of so many bytes.
    Say { side: usize, vnode: u64, bulk: bool, bytes: usize },
    /// A side asks.
    Ask { side: usize, session: u64, bytes: usize },
    /// At most so many bytes move from a side to the other.
    Move { side: usize, bytes: usize },
    /// A side releases what it holds.
    Release { side: usize },
    /// Time passes.
    Tick { ms: u64 },
}

fn step() -> impl Strategy<Value = Do> {
    let side = 0..2_usize;
    prop_oneof![
        2 => (side.clone(), 0..20_u64, any::<bool>(), prop_oneof![0..200_usize, 60_000..70_000_usize, 0..300_000_usize])
            .prop_map(|(side, vnode, bulk, bytes)| Do::Say { side, vnode, bulk, bytes }),
        1 => (side.clone(), 0..20_u64, 0..3000_usize)
            .prop_map(|(side, session, bytes)| Do::Ask { side, session, bytes }),
        5 => (side.clone(), prop_oneof![1..50_usize, 1..200_000_usize])
            .prop_map(|(side, bytes)| Do::Move { side, bytes }),
        1 => side.prop_map(|side| Do::Release { side }),
        1 => (0..900_u64).prop_map(|ms| Do::Tick { ms }),
    ]
}

struct World {
    links: [Link; 2],
    now: Instant,
    /// Messages each side sent, by stream, that the other has not received.
    sent: [BTreeMap<StreamId, Vec<Message>>; 2],
    held: [Vec<Parcel>; 2],
    up: [bool; 2],
    calls: [Vec<CallId>; 2],
    count: u64,
}

impl World {
    fn new() -> Self {
        let now = Instant(5);
        Self {
            links: [Link::dial(setup(1), Some(NodeId(2)), now), Link::accept(setup(2), now)],
            now,
            sent: Default::default(),
            held: Default::default(),
            up: [false; 2],
            calls: Default::default(),
            count: 0,
        }
    }

    /// Bytes that say which message it is.
    fn body(&mut self, bytes: usize) -> Bytes {
        self.count += 1;
        let mut body = self.count.to_be_bytes().to_vec();
        body.resize(8 + bytes, self.count as u8);
        body.into()
    }

    fn act(&mut self, step: &Do) {
        match *step {
            Do::Say { side, vnode, bulk, bytes } if self.up[side] => {
                let message = OfGroup { vnode: VnodeId(vnode), message: self.body(bytes) };
                let message = if bulk { Message::RaftPart(message) } else { Message::Raft(vec![message]) };
                self.links[side].say(&message).unwrap();
                self.sent[side].entry(message.stream()).or_default().push(message);
            }
            Do::Ask { side, session, bytes } if self.up[side] => {
                let body = self.body(bytes);
                let message = Message::Forward(Forward { session, user: Bytes::new(), revision: 0, body });
                let deadline = Instant(u64::MAX);
                let call = self.links[side].call(&message, self.now, deadline).unwrap();
                self.calls[side].push(call);
                self.sent[side].entry(message.stream()).or_default().push(message);
            }
            Do::Say { .. } | Do::Ask { .. } => {}
            Do::Move { side, bytes } => self.carry(side, bytes),
            Do::Release { side } => {
                let held = std::mem::take(&mut self.held[side]);
                held.iter().for_each(|parcel| self.links[side].release(parcel));
            }
            Do::Tick { ms } => {
                self.now = Instant(self.now.0 + ms * 1000);
                // The pipe of this test may stand still for longer than a peer may be silent; being given up for
                // that is told of elsewhere.
                for side in 0..2 {
                    if self.links[side].next_wake() <= self.now && self.up[side] {
                        self.carry(1 - side, 100_000);
                    }
                }
            }
        }
    }

    fn carry(&mut self, from: usize, bytes: usize) {
        let out = self.links[from].outgoing();
        assert!(out.remaining() <= limits::PEER_OUT_BYTES + 2 * limits::PEER_CHUNK_BYTES);
        let moved = out.copy_to_bytes(bytes.min(out.remaining()));
        let to = 1 - from;
        self.links[to].incoming().extend_from_slice(&moved);
        while let Some(received) = self.links[to].receive(self.now).unwrap() {
            self.received(to, received);
        }
        let most = if self.up[to] { limits::PEER_CHUNK_BYTES } else { limits::PEER_HANDSHAKE_BYTES_MAX };
        assert!(self.links[to].incoming().len() < most + 10, "one unfinished frame");
    }

    fn received(&mut self, side: usize, received: Received) {
        match received {
            Received::Up(peer) => {
                assert!(!std::mem::replace(&mut self.up[side], true));
                assert_eq!(peer.claim, setup(2 - side as u128).claim);
            }
            Received::Said { message, parcel } => {
                self.expect(side, &message);
                self.held[side].push(parcel);
            }
            Received::Asked { call, message, parcel } => {
                self.expect(side, &message);
                self.held[side].push(parcel);
                let Message::Forward(Forward { body, .. }) = message else {
                    panic!("only forwards were sent")
                };
                let answer = Message::ForwardReply(ForwardReply::Answer(body));
                self.links[side].answer(call, &answer).unwrap();
            }
            Received::Answered { call, parcel, .. } => {
                let at = self.calls[side].iter().position(|made| *made == call);
                self.calls[side].remove(at.expect("a call is answered once"));
                self.held[side].push(parcel);
            }
            Received::Failed { .. } | Received::Cancelled { .. } | Received::NotUnderstood { .. } => {
                panic!("{received:?}")
            }
        }
    }

    fn expect(&mut self, side: usize, message: &Message) {
        let queue = self.sent[1 - side].get_mut(&message.stream()).expect("it was sent");
        assert_eq!(queue.remove(0), *message);
    }

    /// Everything arrives once nothing is in the way.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            for side in 0..2 {
                self.carry(side, usize::MAX);
                self.act(&Do::Release { side });
            }
            let quiet = (0..2).all(|side| self.links[side].outgoing().is_empty());
            if quiet && self.links.iter().all(|link| link.waiting_bytes() == 0) {
                break;
            }
        }
        assert!(self.sent.iter().all(|sent| sent.values().all(Vec::is_empty)), "{:?}", self.sent);
        assert_eq!(self.calls, [vec![], vec![]]);
        assert_eq!(self.up, [true, true]);
    }
}

proptest! {
    #[test]
    fn every_message_arrives_once_and_in_order(steps in prop::collection::vec(step(), 0..150)) {
        let mut world = World::new();
        for step in &steps {
            world.act(step);
        }
        world.finish();
    }

    #[test]
    fn garbage_at_any_place_is_an_end_and_never_a_panic(
        steps in prop::collection::vec(step(), 0..60), garbage in prop::collection::vec(any::<u8>(), 1..400),
        framed in any::<Option<(u16, u32)>>(), to in 0..2_usize,
    ) {
        let mut world = World::new();
        for step in &steps {
            world.act(step);
        }
        let mut bytes = Vec::new();
        if let Some((kind, stream)) = framed {
            // Often enough something that is looked at further.
            bytes.extend_from_slice(&(garbage.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&[0, [0, 1, 2, 3][stream as usize % 4], 0, (stream >> 8) as u8 % 16]);
            let known = [0, 0x1001, 0x1002, 0x2001, 0x3001, 1, 2, 3, 6, 7, 8][kind as usize % 11];
            bytes.extend_from_slice(&(if kind % 2 == 0 { known } else { kind }).to_be_bytes());
        }
        bytes.extend_from_slice(&garbage);
        let link = &mut world.links[to];
        link.incoming().extend_from_slice(&bytes);
        for _ in 0..10_000 {
            match link.receive(world.now) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    prop_assert!(link.incoming().len() < limits::PEER_CHUNK_BYTES + 10);
                    break;
                }
                Err(error) => {
                    // Once broken, always broken, and nothing is kept.
                    prop_assert!(link.incoming().is_empty());
                    prop_assert_eq!(link.receive(world.now), Err(error.clone()));
                    prop_assert_eq!(link.tick(world.now), Err(error));
                    break;
                }
            }
        }
        drop(link.abandon());
    }

    #[test]
    fn a_changed_byte_of_a_handshake_brings_nobody_up(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let now = Instant(0);
        let (mut a, mut b) = (Link::dial(setup(1), None, now), Link::accept(setup(2), now));
        let hello = a.outgoing();
        let hello = hello.copy_to_bytes(hello.remaining());
        let mut changed = hello.to_vec();
        let at = at.index(changed.len());
        changed[at] ^= 1 << bit;
        b.incoming().extend_from_slice(&changed);
        for _ in 0..4 {
            let answer = b.outgoing();
            let answer = answer.copy_to_bytes(answer.remaining());
            a.incoming().extend_from_slice(&answer);
            prop_assert!(!matches!(a.receive(now), Ok(Some(_))));
            let next = a.outgoing();
            let next = next.copy_to_bytes(next.remaining());
            b.incoming().extend_from_slice(&next);
            prop_assert!(!matches!(b.receive(now), Ok(Some(_))));
        }
    }
}
