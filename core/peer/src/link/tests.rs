//! Both ends of one connection, side by side.

use bytes::Buf;
use types::{ControlPlaneId, Incarnation, RaftIndex, VnodeId};

use super::*;
use crate::message::{Forward, OfGroup, ReadIndexReply};
use crate::proof::Secret;
use crate::stream::Class;

const START: Instant = Instant(1_000_000);

fn later(ms: u64) -> Instant {
    START.plus(Duration::from_millis(ms))
}

fn setup(node: u128) -> Setup {
    let claim = Claim {
        control_plane: Some(ControlPlaneId(1)),
        node: NodeId(node),
        incarnation: Incarnation(10 + node as u64),
        features: 0,
        name: format!("n{node}@host"),
        build: "0.1.0".to_owned(),
        address: format!("host{node}:4043"),
    };
    let trust = Trust::Secret(Secret::new(b"a secret of the cluster").unwrap());
    Setup { claim, trust, binding: Bytes::from_static(b"channel"), nonce: [node as u8; 32] }
}

/// A dialler, an accepter, and what came out of each.
struct Pair {
    links: [Link; 2],
    errors: [Option<Error>; 2],
    got: [Vec<Received>; 2],
}

impl Pair {
    fn new(a: Setup, b: Setup) -> Self {
        Self::of(Link::dial(a, None, START), Link::accept(b, START))
    }

    fn of(a: Link, b: Link) -> Self {
        Self { links: [a, b], errors: [None, None], got: [vec![], vec![]] }
    }

    fn up() -> Self {
        let mut pair = Self::new(setup(1), setup(2));
        pair.run(START);
        assert_eq!(pair.errors, [None, None]);
        for (me, peer) in [(0, 2), (1, 1)] {
            let up = Received::Up(Peer { claim: setup(peer).claim, version: 1 });
            assert_eq!(std::mem::take(&mut pair.got[me]), [up]);
        }
        pair
    }

    /// Moves bytes until nothing moves. Parcels are not released.
    fn run(&mut self, now: Instant) {
        loop {
            let mut moved = 0;
            for (from, to) in [(0, 1), (1, 0)] {
                let bytes = take_all(&mut self.links[from]);
                moved += bytes.len();
                self.feed(to, &bytes, now);
            }
            if moved == 0 {
                return;
            }
        }
    }

    fn feed(&mut self, to: usize, bytes: &[u8], now: Instant) {
        if self.errors[to].is_some() {
            return;
        }
        self.links[to].incoming().extend_from_slice(bytes);
        loop {
            match self.links[to].receive(now) {
                Ok(Some(received)) => self.got[to].push(received),
                Ok(None) => return,
                Err(error) => {
                    self.errors[to] = Some(error);
                    return;
                }
            }
        }
    }

    fn refusal(mut self) -> (Refusal, String) {
        self.run(START);
        let [one, two] = self.errors.map(|error| error.expect("both sides hear of it"));
        assert_eq!(self.got, [vec![], vec![]], "nobody was up");
        match (one, two) {
            (Error::Refuses { refusal, detail }, Error::RefusedBy(told))
            | (Error::RefusedBy(told), Error::Refuses { refusal, detail }) => {
                assert_eq!(refusal, told);
                (refusal, detail)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn take_all(link: &mut Link) -> Bytes {
    let mut all = BytesMut::new();
    loop {
        let out = link.outgoing();
        if out.is_empty() {
            return all.freeze();
        }
        all.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    }
}

fn raft(vnode: u64, bytes: usize) -> Message {
    Message::Raft(vec![OfGroup { vnode: VnodeId(vnode), message: Bytes::from(vec![vnode as u8; bytes]) }])
}

fn part(vnode: u64, bytes: usize) -> Message {
    Message::RaftPart(OfGroup { vnode: VnodeId(vnode), message: Bytes::from(vec![vnode as u8; bytes]) })
}

fn messages(got: &mut Vec<Received>) -> Vec<Message> {
    got.drain(..)
        .map(|received| match received {
            Received::Said { message, .. } => message,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn each_refusal_is_told_to_both_sides() {
    let mut other = setup(2);
    other.trust = Trust::Secret(Secret::new(b"a secret of another").unwrap());
    let (refusal, detail) = Pair::new(setup(1), other).refusal();
    assert_eq!(refusal, Refusal::Secret);
    assert!(detail.contains("n1@host"), "{detail}");

    let mut between = setup(2);
    between.binding = Bytes::from_static(b"another channel");
    assert_eq!(Pair::new(setup(1), between).refusal().0, Refusal::Secret);

    let mut foreign = setup(2);
    foreign.claim.control_plane = Some(ControlPlaneId(2));
    assert_eq!(Pair::new(setup(1), foreign).refusal().0, Refusal::ControlPlane);

    assert_eq!(Pair::new(setup(1), setup(1)).refusal().0, Refusal::SameNode);

    let mut open = setup(2);
    open.trust = Trust::Anybody;
    assert_eq!(Pair::new(setup(1), open).refusal().0, Refusal::Authentication);

    let dialled = Link::dial(setup(1), Some(NodeId(3)), START);
    let (refusal, detail) = Pair::of(dialled, Link::accept(setup(2), START)).refusal();
    assert_eq!(refusal, Refusal::OtherNode);
    assert!(detail.contains(&NodeId(3).to_string()), "{detail}");
}

#[test]
fn a_build_without_a_common_version_is_told_which_ones_there_are() {
    let mut pair = Pair::new(setup(1), setup(2));
    let mut hello = BytesMut::from(&take_all(&mut pair.links[0])[..]);
    hello[frame::HEAD_BYTES + 9] = 7;
    hello[frame::HEAD_BYTES + 11] = 9;
    pair.feed(1, &hello, START);
    let (refusal, detail) = pair.refusal();
    assert_eq!(refusal, Refusal::Version);
    assert!(detail.contains("7 to 9") && detail.contains("this build 1"), "{detail}");
}

#[test]
fn a_node_without_a_cluster_may_come_and_certificates_or_nothing_may_do() {
    for trust in [Trust::Certificate, Trust::Anybody, setup(1).trust] {
        let (mut a, mut b) = (setup(1), setup(2));
        a.claim.control_plane = None;
        (a.trust, b.trust) = (trust.clone(), trust);
        let mut pair = Pair::new(a, b);
        pair.run(START);
        assert_eq!(pair.errors, [None, None]);
        assert!(matches!(pair.got[0][..], [Received::Up(_)]) && matches!(pair.got[1][..], [Received::Up(_)]));
    }
}

#[test]
fn nobody_is_up_by_playing_back_what_was_heard() {
    // The accepter's own hello and the dialler's proof of another connection.
    let mut first = Pair::new(setup(1), setup(2));
    let hello = take_all(&mut first.links[0]);
    first.feed(1, &hello, START);
    let answer = take_all(&mut first.links[1]);
    first.feed(0, &answer, START);
    let proof = take_all(&mut first.links[0]);
    first.feed(1, &proof, START);
    assert!(matches!(first.got[1][..], [Received::Up(_)]), "which was good there");

    let mut fresh = setup(2);
    fresh.nonce = [99; 32];
    let mut second = Pair::new(setup(1), fresh);
    second.feed(1, &hello, START);
    second.feed(1, &proof, START);
    assert!(matches!(&second.errors[1], Some(Error::Refuses { refusal: Refusal::Secret, .. })));
    assert_eq!(second.got[1], []);
}

#[test]
fn nothing_but_the_handshake_is_understood_before_a_proof() {
    let mut up = Pair::up();
    up.links[0].say(&raft(1, 10)).unwrap();
    let message = take_all(&mut up.links[0]);
    let mut own = BytesMut::new();
    Own::Ping(1).put(&mut own);
    for early in [&message[..], &own[..], &[0xff; 64], b"GET / HTTP/1.1\r\n\r\n", &[0, 0, 0x10, 1]] {
        let mut pair = Pair::new(setup(1), setup(2));
        pair.feed(1, early, START);
        assert!(matches!(pair.errors[1], Some(Error::Malformed(_))), "{early:?}");
        assert!(pair.links[1].incoming().is_empty() && !take_all(&mut pair.links[1]).is_empty());
    }
    let mut quiet = Link::accept(setup(2), START);
    assert_eq!(quiet.say(&raft(1, 10)), Err(Unsent::NotUp));
    assert_eq!(quiet.next_wake(), later(limits::PEER_HANDSHAKE_MS));
    assert_eq!(quiet.tick(later(limits::PEER_HANDSHAKE_MS - 1)), Ok(()));
    assert_eq!(quiet.tick(later(limits::PEER_HANDSHAKE_MS)), Err(Error::Unproved));
    assert_eq!(quiet.receive(START), Err(Error::Unproved));
}

#[test]
fn messages_of_one_stream_arrive_whole_and_in_order() {
    let mut pair = Pair::up();
    let sent: Vec<Message> = [10, 200_000, 1, 65_536, 65_528, 65_520].map(|bytes| raft(5, bytes)).into();
    for message in &sent {
        pair.links[0].say(message).unwrap();
    }
    pair.run(START);
    assert_eq!(messages(&mut pair.got[1]), sent);
    assert_eq!(pair.links[0].waiting_bytes(), 0);
}

#[test]
fn control_is_not_delayed_by_bulk() {
    let mut pair = Pair::up();
    for _ in 0..8 {
        pair.links[0].say(&part(3, 250_000)).unwrap();
    }
    // What is on its way already is little.
    assert!(pair.links[0].outgoing().remaining() < 2 * limits::PEER_OUT_BYTES);
    pair.links[0].say(&raft(5, 100)).unwrap();
    let first = pair.links[0].outgoing();
    let mut bytes = first.copy_to_bytes(first.remaining());
    let next = pair.links[0].outgoing().copy_to_bytes(200);
    pair.feed(1, &bytes, START);
    bytes = next;
    pair.feed(1, &bytes, START);
    assert_eq!(messages(&mut pair.got[1]), [raft(5, 100)]);
}

#[test]
fn a_stream_that_is_not_released_stops_and_the_others_go_on() {
    let mut pair = Pair::up();
    for _ in 0..10 {
        pair.links[0].say(&part(3, 500_000)).unwrap();
    }
    pair.run(START);
    let held: Vec<Parcel> = pair.got[1].drain(..).map(parcel).collect();
    assert_eq!(held.len(), 3, "a window is a million bytes, and what was begun is finished");
    pair.links[0].say(&part(4, 500_000)).unwrap();
    pair.links[0].say(&raft(3, 10)).unwrap();
    pair.run(START);
    assert_eq!(messages(&mut pair.got[1]), [raft(3, 10), part(4, 500_000)]);
    let mut rest = 7;
    let mut held = held;
    while rest > 0 {
        held.drain(..).for_each(|parcel| pair.links[1].release(&parcel));
        pair.run(START);
        held = pair.got[1].drain(..).map(parcel).collect();
        assert!(!held.is_empty() && held.len() <= 3);
        rest -= held.len();
    }
}

fn parcel(received: Received) -> Parcel {
    match received {
        Received::Said { parcel, .. } => parcel,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_ignores_a_window_is_given_up() {
    let mut pair = Pair::up();
    let mut frame = BytesMut::new();
    let stream = StreamId::of(Class::Bulk, 0);
    let mut sent = 0_u64;
    while pair.errors[1].is_none() {
        assert!(sent <= limits::PEER_BULK_WINDOW_BYTES + 70_000);
        frame.clear();
        let body = limits::PEER_CHUNK_BYTES;
        frame::put_head(&mut frame, body, stream.number(), Kind::RaftPart.number());
        frame.extend_from_slice(&(body as u32 - 8).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&[0; 8]);
        frame.extend_from_slice(&(body as u32 - 20).to_be_bytes());
        frame.resize(frame::HEAD_BYTES + body, 1);
        sent += body as u64;
        pair.feed(1, &frame, START);
    }
    assert_eq!(pair.errors[1], Some(Error::Malformed("more than the window")));
}

#[test]
fn a_call_is_answered_once_cancelled_or_overdue() {
    let mut pair = Pair::up();
    let ask = Message::ReadIndex { vnode: VnodeId(4) };
    let answer = Message::ReadIndexReply(ReadIndexReply::Ready(RaftIndex(9)));
    let [one, two, three] = [0; 3].map(|_| pair.links[0].call(&ask, START, later(250)).unwrap());
    pair.run(START);
    assert_eq!(pair.got[1].len(), 3);
    pair.links[0].cancel(two);
    pair.links[1].answer(one, &answer).unwrap();
    pair.run(START);
    assert_eq!(pair.got[1].pop(), Some(Received::Cancelled { call: two }));
    assert!(
        matches!(&pair.got[0][..], [Received::Answered { call, message, .. }] if *call == one && *message == answer)
    );
    pair.got[0].clear();
    // An answer that nobody waits for goes nowhere.
    pair.links[1].answer(two, &answer).unwrap();
    assert_eq!(pair.links[0].next_wake(), later(250));
    pair.links[0].tick(later(250)).unwrap();
    pair.run(later(250));
    assert_eq!(pair.got[0], [Received::Failed { call: three, failure: CallFailure::Overdue }]);
    pair.got[0].clear();
    pair.links[1].answer(three, &answer).unwrap();
    pair.run(later(251));
    assert_eq!((&pair.got[0][..], &pair.errors), (&[][..], &[None, None]));
    assert_eq!(pair.links[0].abandon(), []);
}

#[test]
fn what_a_later_build_says_is_refused_politely() {
    let mut pair = Pair::up();
    let mut bytes = BytesMut::new();
    let stream = StreamId::of(Class::Request, 0).number();
    for (kind, call) in [(0x1fff_u16, 0_u32), (0x2fff, 77), (0x1fff, 0)] {
        frame::put_head(&mut bytes, 12, stream, kind);
        bytes.extend_from_slice(&4_u32.to_be_bytes());
        bytes.extend_from_slice(&call.to_be_bytes());
        bytes.extend_from_slice(b"what");
    }
    // A frame of the connection itself that is not known.
    Own::Later(900).put(&mut bytes);
    pair.feed(1, &bytes, START);
    let call = pair.links[0].call(&Message::ReadIndex { vnode: VnodeId(4) }, START, later(500)).unwrap();
    pair.links[1].asked.not_understood(0x2004, call.0).unwrap();
    pair.run(START);
    assert!(pair.got[0].contains(&Received::NotUnderstood { kind: 0x1fff }));
    assert!(pair.got[0].contains(&Received::Failed { call, failure: CallFailure::NotUnderstood }));
    assert_eq!(pair.got[0].len(), 2, "told once");
    assert!(matches!(pair.got[1][..], [Received::Asked { .. }]), "the connection goes on");
}

#[test]
fn a_quiet_peer_is_asked_and_a_silent_one_given_up() {
    let mut pair = Pair::up();
    let mut now = START;
    for _ in 0..20 {
        now = pair.links[0].next_wake().max(pair.links[1].next_wake());
        pair.links[0].tick(now).unwrap();
        pair.links[1].tick(now).unwrap();
        pair.run(now);
    }
    assert_eq!((&pair.errors, now > START.plus(3 * SILENCE)), (&[None, None], true), "asking keeps it alive");
    let silent_since = now;
    let call = pair.links[0].call(&Message::ReadIndex { vnode: VnodeId(4) }, now, now.plus(SILENCE)).unwrap();
    let mut asked = 0;
    let error = loop {
        now = pair.links[0].next_wake();
        if let Err(error) = pair.links[0].tick(now) {
            break error;
        }
        asked += 1;
        assert!(asked < 20);
        drop(take_all(&mut pair.links[0]));
    };
    assert_eq!(error, Error::Silent);
    assert_eq!(now.since(silent_since), SILENCE);
    assert_eq!(pair.links[0].abandon(), [call]);
}

#[test]
fn an_overdue_call_gives_a_silent_peer_up_and_not_one_that_speaks() {
    let mut pair = Pair::up();
    let ask = Message::ReadIndex { vnode: VnodeId(4) };
    pair.links[0].call(&ask, START, later(800)).unwrap();
    for ms in [300, 600] {
        pair.links[0].tick(later(ms)).unwrap();
    }
    let mut silent = pair;
    assert_eq!(silent.links[0].tick(later(800)), Err(Error::Silent));

    let mut pair = Pair::up();
    pair.links[0].call(&ask, START, later(800)).unwrap();
    pair.links[0].tick(later(300)).unwrap();
    pair.run(later(330));
    pair.links[0].tick(later(700)).unwrap();
    assert_eq!(pair.links[0].tick(later(800)), Ok(()));
}

#[test]
fn a_pause_of_ones_own_is_not_the_peers_silence() {
    let mut pair = Pair::up();
    assert_eq!(pair.links[0].tick(later(60_000)), Ok(()));
    for pings in 1..5 {
        assert_eq!(pair.links[0].tick(later(60_000).plus(pings * PING_AFTER)), Ok(()));
    }
    assert_eq!(pair.links[0].tick(later(60_000).plus(SILENCE)), Err(Error::Silent));
}

#[test]
fn what_does_not_fit_is_not_sent() {
    let mut pair = Pair::up();
    assert_eq!(pair.links[0].say(&part(1, limits::PEER_BULK_MESSAGE_BYTES_MAX)), Err(Unsent::TooLarge));
    let large = raft(1, limits::RAFT_MESSAGE_BYTES_MAX);
    let mut count = 0;
    while pair.links[0].say(&large) != Err(Unsent::Full) {
        count += 1;
        assert!(count < 10);
    }
    assert!(pair.links[0].waiting_bytes() <= limits::PEER_QUEUE_BYTES_MAX);
    let body = Bytes::from(vec![0; 1000]);
    let forward = Message::Forward(Forward { session: 1, user: Bytes::new(), revision: 0, body });
    let error = pair.links[0].refuse(Refusal::Closing, "bye".to_owned());
    assert!(matches!(error, Error::Refuses { refusal: Refusal::Closing, .. }));
    assert_eq!(pair.links[0].call(&forward, START, later(1)), Err(Unsent::NotUp));
    pair.run(START);
    assert_eq!(pair.errors[1], Some(Error::RefusedBy(Refusal::Closing)));
}

#[test]
fn nothing_is_kept_of_what_is_not_known() {
    let mut pair = Pair::up();
    let mut bytes = BytesMut::new();
    let stream = StreamId::of(Class::Request, 0).number();
    frame::put_head(&mut bytes, 1008, stream, 0x1fff);
    bytes.extend_from_slice(&(limits::PEER_MESSAGE_BYTES_MAX as u32).to_be_bytes());
    bytes.resize(frame::HEAD_BYTES + 1008, 0);
    pair.feed(1, &bytes, START);
    assert_eq!((pair.errors[1].clone(), pair.links[1].inbox.kept()), (None, 0));
}
