//! Several nodes in one process, over real TCP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use peer::message::{OfGroup, ReadIndexReply};
use peer::{Error, Secret};
use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use types::{Incarnation, RaftIndex, VnodeId, limits};

use super::*;

/// For anything that should happen to happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn secret(text: &str) -> Trust {
    Trust::Secret(Secret::new(text.as_bytes()).unwrap())
}

fn settings(node: u128) -> Settings {
    let claim = Claim {
        control_plane: Some(ControlPlaneId(1)),
        node: NodeId(node),
        incarnation: Incarnation(1),
        features: 0,
        name: format!("n{node}@localhost"),
        build: "0.1.0".to_owned(),
        address: String::new(),
    };
    Settings { claim, trust: secret("a secret of the cluster"), tls: None, queue_max: 1024 }
}

struct Node {
    peers: Peers,
    running: Running,
    events: mpsc::Receiver<PeerEvent>,
    address: SocketAddr,
}

impl Node {
    async fn start(settings: Settings) -> Self {
        Self::start_at(settings, "127.0.0.1:0").await
    }

    async fn start_at(settings: Settings, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::channel(16);
        let (peers, running) = Peers::start(settings, listener, sender);
        Self { peers, running, events, address }
    }

    fn dial(&self, others: &[&Self]) {
        let target = |other: &&Self| Target { address: other.address.to_string(), node: None };
        self.peers.dial(others.iter().map(target).collect());
    }

    async fn event(&mut self) -> PeerEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("something happens").unwrap()
    }

    /// The next event that is not about attempts.
    async fn next(&mut self) -> PeerEvent {
        loop {
            match self.event().await {
                PeerEvent::Refused { .. } => {}
                event => return event,
            }
        }
    }

    async fn up(&mut self) -> Peer {
        match self.next().await {
            PeerEvent::Up { node, peer } => {
                assert_eq!(node, peer.claim.node);
                peer
            }
            other => panic!("{other:?}"),
        }
    }

    async fn down(&mut self) -> String {
        match self.next().await {
            PeerEvent::Down { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    /// Why nobody is up.
    async fn refused(&mut self) -> Error {
        match self.event().await {
            PeerEvent::Refused { cause: Cause::Protocol(error), .. } => error,
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        let Self { peers, running, events, .. } = self;
        peers.stop();
        drop(events);
        timeout(PATIENCE, running.ended()).await.expect("every task ends");
    }
}

async fn both_up(a: &mut Node, b: &mut Node) {
    a.up().await;
    b.up().await;
}

fn raft(vnode: u64, message: impl Into<Bytes>) -> Message {
    Message::Raft(vec![OfGroup { vnode: VnodeId(vnode), message: message.into() }])
}

fn part(bytes: usize) -> Message {
    Message::RaftPart(OfGroup { vnode: VnodeId(1), message: vec![7; bytes].into() })
}

fn send(peers: &Peers, node: NodeId, command: Command) -> Result<(), Trouble> {
    peers.send(node, vec![command]).map_err(|(trouble, _)| trouble)
}

fn ask(token: u64) -> Command {
    Command::Call { token, message: Message::ReadIndex { vnode: VnodeId(4) }, within: PATIENCE }
}

#[tokio::test]
async fn two_nodes_talk_and_part() {
    let (mut a, mut b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    a.dial(&[&b]);
    assert_eq!(a.up().await.claim.name, "n2@localhost");
    assert_eq!(b.up().await.claim.name, "n1@localhost");
    send(&a.peers, NodeId(2), Command::Say(raft(3, "hello"))).unwrap();
    assert_eq!(b.next().await, PeerEvent::Message { node: NodeId(1), message: raft(3, "hello") });
    send(&a.peers, NodeId(2), ask(77)).unwrap();
    let PeerEvent::Asked { caller, .. } = b.next().await else { panic!("a question") };
    let answer = Message::ReadIndexReply(ReadIndexReply::Ready(RaftIndex(9)));
    send(&b.peers, NodeId(1), Command::Answer { caller, message: answer.clone() }).unwrap();
    let answered = PeerEvent::Answered { node: NodeId(2), token: 77, message: answer };
    assert_eq!(a.next().await, answered);
    assert_eq!(send(&a.peers, NodeId(3), ask(1)), Err(Trouble::NotConnected));
    // A question that nobody answers before the end.
    send(&a.peers, NodeId(2), ask(78)).unwrap();
    assert!(matches!(b.next().await, PeerEvent::Asked { .. }));
    b.stop().await;
    let failed = PeerEvent::Failed { node: NodeId(2), token: 78, failure: Failure::Disconnected };
    assert_eq!(a.next().await, failed);
    assert_eq!(a.down().await, "refused by the peer: closing");
    a.stop().await;
}

#[tokio::test]
async fn strangers_are_refused_with_one_line_on_both_sides() {
    let mut wrong = settings(2);
    wrong.trust = secret("a secret of another cluster");
    let mut foreign = settings(2);
    foreign.claim.control_plane = Some(ControlPlaneId(2));
    for (other, expected) in
        [(wrong, Refusal::Secret), (foreign, Refusal::ControlPlane), (settings(1), Refusal::SameNode)]
    {
        let (mut a, mut b) = (Node::start(settings(1)).await, Node::start(other).await);
        a.dial(&[&b]);
        assert_eq!(a.refused().await, Error::RefusedBy(expected));
        let Error::Refuses { refusal, detail } = b.refused().await else { panic!("the one who refuses") };
        assert_eq!((refusal, detail.is_empty()), (expected, false));
        assert_eq!(send(&a.peers, NodeId(2), ask(1)), Err(Trouble::NotConnected));
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test]
async fn another_node_at_a_known_address_is_not_taken_for_it() {
    let (mut a, b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    a.peers.dial(vec![Target { address: b.address.to_string(), node: Some(NodeId(3)) }]);
    assert_eq!(a.refused().await, Error::RefusedBy(Refusal::OtherNode));
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_node_that_starts_again_is_found_again() {
    let (mut a, mut b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    a.dial(&[&b]);
    both_up(&mut a, &mut b).await;
    let address = b.address.to_string();
    b.stop().await;
    a.down().await;
    let mut again = settings(2);
    again.claim.incarnation = Incarnation(2);
    let mut b = Node::start_at(again, &address).await;
    assert_eq!(a.up().await.claim.incarnation, Incarnation(2));
    b.up().await;
    send(&a.peers, NodeId(2), Command::Say(raft(3, "hello"))).unwrap();
    assert_eq!(b.next().await, PeerEvent::Message { node: NodeId(1), message: raft(3, "hello") });
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_later_start_of_a_node_takes_its_place_and_an_earlier_is_refused() {
    let mut a = Node::start(settings(1)).await;
    let of = |incarnation| {
        let mut settings = settings(2);
        settings.claim.incarnation = Incarnation(incarnation);
        settings
    };
    let mut second = Node::start(of(2)).await;
    second.dial(&[&a]);
    both_up(&mut a, &mut second).await;
    let mut first = Node::start(of(1)).await;
    first.dial(&[&a]);
    loop {
        match first.event().await {
            PeerEvent::Refused { cause, .. } => {
                assert_eq!(cause, Cause::Protocol(Error::RefusedBy(Refusal::Superseded)));
                break;
            }
            // It was proved before it was refused.
            PeerEvent::Down { why, .. } => {
                assert_eq!(why, "refused by the peer: superseded");
                break;
            }
            PeerEvent::Up { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    first.stop().await;
    second.stop().await;
    a.down().await;
    let mut third = Node::start(of(3)).await;
    third.dial(&[&a]);
    third.up().await;
    assert_eq!(a.up().await.claim.incarnation, Incarnation(3));
    // Another process of the same node, while that one lives.
    let mut fourth = Node::start(of(4)).await;
    fourth.dial(&[&a]);
    let duplicate = Cause::Protocol(Error::RefusedBy(Refusal::Duplicate));
    loop {
        match fourth.event().await {
            PeerEvent::Refused { cause, .. } if cause == duplicate => break,
            PeerEvent::Refused { .. } | PeerEvent::Up { .. } | PeerEvent::Down { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    send(&a.peers, NodeId(2), Command::Say(raft(1, "still there"))).unwrap();
    match third.next().await {
        PeerEvent::Message { message, .. } => assert_eq!(message, raft(1, "still there")),
        other => panic!("{other:?}"),
    }
    for node in [a, third, fourth] {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_connection_is_told_of_after_the_end_of_the_one_before() {
    let (mut a, mut b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    b.dial(&[&a]);
    both_up(&mut a, &mut b).await;
    // More than there is room for: the end has to wait behind what was said.
    for number in 0..40 {
        send(&b.peers, NodeId(1), Command::Say(raft(number, "hello"))).unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while a.events.len() < a.events.max_capacity() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    b.stop().await;
    let deadline = Instant::now() + PATIENCE;
    while send(&a.peers, NodeId(2), Command::Cancel { token: 0 }).is_ok() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let mut again = settings(2);
    again.claim.incarnation = Incarnation(2);
    let mut b = Node::start(again).await;
    b.dial(&[&a]);
    // It is up, or told to wait.
    b.event().await;
    let mut told = Vec::new();
    while told.last() != Some(&"up") || told.len() < 2 {
        match a.event().await {
            PeerEvent::Up { .. } => told.push("up"),
            PeerEvent::Down { .. } => told.push("down"),
            _ => {}
        }
    }
    assert_eq!(told, ["down", "up"]);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn three_nodes_that_all_dial_each_other_keep_one_connection_each() {
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(Node::start(settings(id)).await);
    }
    for node in &nodes {
        node.dial(&nodes.iter().filter(|other| other.address != node.address).collect::<Vec<_>>());
    }
    // `Up` and `Down` alternate for each node, and in the end everybody reaches everybody.
    let mut up: Vec<BTreeMap<NodeId, bool>> = vec![BTreeMap::new(); 3];
    let mut heard: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); 3];
    let deadline = Instant::now() + PATIENCE;
    while heard.iter().any(|heard| heard.len() < 2) {
        assert!(Instant::now() < deadline, "{up:?} {heard:?}");
        for at in 0..3 {
            for other in (0..3).filter(|other| *other != at) {
                // Those that are lost with a connection that loses are sent again.
                let _ = send(&nodes[at].peers, NodeId(other as u128 + 1), Command::Say(raft(1, "hello")));
            }
            let soon = Instant::now() + Duration::from_millis(20);
            while let Ok(Some(event)) = timeout_at(soon, nodes[at].events.recv()).await {
                match event {
                    PeerEvent::Up { node, .. } => assert_ne!(up[at].insert(node, true), Some(true)),
                    PeerEvent::Down { node, .. } => assert_eq!(up[at].insert(node, false), Some(true)),
                    PeerEvent::Message { node, .. } => {
                        assert_eq!(up[at].get(&node), Some(&true));
                        heard[at].insert(node);
                    }
                    PeerEvent::Refused { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_question_passes_bulk() {
    let (mut a, mut b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    a.dial(&[&b]);
    both_up(&mut a, &mut b).await;
    let parts = 200;
    for _ in 0..parts {
        send(&a.peers, NodeId(2), Command::Say(part(250_000))).unwrap();
    }
    send(&a.peers, NodeId(2), ask(1)).unwrap();
    let (mut received, mut before) = (0, None);
    while received < parts || before.is_none() {
        match b.next().await {
            PeerEvent::Message { message, .. } => {
                assert_eq!(message, part(250_000));
                received += 1;
            }
            PeerEvent::Asked { caller, .. } => {
                before = Some(received);
                let message = Message::ReadIndexReply(ReadIndexReply::Overloaded);
                send(&b.peers, NodeId(1), Command::Answer { caller, message }).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(before.unwrap() < 40, "{before:?} of {parts} went before");
    assert!(matches!(a.next().await, PeerEvent::Answered { token: 1, .. }));
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn who_does_not_keep_up_is_given_up() {
    let (mut a, b) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
    a.dial(&[&b]);
    a.up().await;
    // The other takes no events. All these share the same bytes.
    let large = raft(1, vec![0; limits::RAFT_COMMAND_BYTES_MAX]);
    let deadline = Instant::now() + PATIENCE;
    while send(&a.peers, NodeId(2), Command::Say(large.clone())).is_ok() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let why = a.down().await;
    assert!(why.contains("busy"), "{why}");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn strangers_who_say_nothing_are_few() {
    let mut a = Node::start(settings(1)).await;
    let mut silent = Vec::new();
    for _ in 0..limits::PEER_UNPROVED_PER_ADDRESS_MAX {
        silent.push(TcpStream::connect(a.address).await.unwrap());
    }
    let mut one_more = TcpStream::connect(a.address).await.unwrap();
    let mut told = Vec::new();
    timeout(PATIENCE, one_more.read_to_end(&mut told)).await.unwrap().unwrap();
    let busy = [0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 9];
    assert_eq!(told, busy);
    drop(silent);
    let mut b = Node::start(settings(2)).await;
    b.dial(&[&a]);
    both_up(&mut a, &mut b).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn nonsense_is_answered_with_an_end() {
    use tokio::io::AsyncWriteExt;
    let mut a = Node::start(settings(1)).await;
    let mut stranger = TcpStream::connect(a.address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut told = Vec::new();
    timeout(PATIENCE, stranger.read_to_end(&mut told)).await.unwrap().unwrap();
    assert_eq!(told.last(), Some(&11), "malformed");
    assert!(matches!(a.refused().await, Error::Malformed(_)));
    a.stop().await;
}

#[tokio::test]
async fn numbers_of_the_sixth_version_are_dialled_too() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        // This host has none.
        return;
    }
    let (mut a, b) = (Node::start(settings(1)).await, Node::start_at(settings(2), "[::1]:0").await);
    a.dial(&[&b]);
    assert_eq!(a.up().await.claim.node, NodeId(2));
    a.stop().await;
    b.stop().await;
}

/// Files of one authority for nodes that are dialled as `localhost`.
fn authority() -> (tempfile::TempDir, Tls) {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let node_key = KeyPair::generate().unwrap();
    let node =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&node_key, &issuer).unwrap();
    let file = |name: &str, content: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let files = TlsFiles {
        certificate: file("node.pem", node.pem()),
        key: file("key.pem", node_key.serialize_pem()),
        authorities: file("ca.pem", authority.pem()),
    };
    let tls = Tls::open(&files).unwrap();
    (dir, tls)
}

#[tokio::test]
async fn certificates_may_do_alone_or_beside_a_secret() {
    let (_dir, tls) = authority();
    for trust in [Trust::Certificate, secret("a secret of the cluster")] {
        let of = |node| Settings { trust: trust.clone(), tls: Some(tls.clone()), ..settings(node) };
        let (mut a, mut b) = (Node::start(of(1)).await, Node::start(of(2)).await);
        let address = format!("localhost:{}", b.address.port());
        a.peers.dial(vec![Target { address, node: Some(NodeId(2)) }]);
        both_up(&mut a, &mut b).await;
        send(&a.peers, NodeId(2), Command::Say(part(300_000))).unwrap();
        assert_eq!(b.next().await, PeerEvent::Message { node: NodeId(1), message: part(300_000) });
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_name_and_plaintext_do_not_do() {
    let ((_one, tls), (_other, foreign)) = (authority(), authority());
    let of = |node, tls: &Tls| Settings { tls: Some(tls.clone()), ..settings(node) };
    let mut b = Node::start(of(2, &tls)).await;
    let by_name = format!("localhost:{}", b.address.port());
    for (settings, address) in
        [(of(1, &foreign), by_name.clone()), (of(1, &tls), b.address.to_string()), (settings(1), by_name)]
    {
        let mut a = Node::start(settings).await;
        a.peers.dial(vec![Target { address, node: None }]);
        match a.event().await {
            PeerEvent::Refused { cause: Cause::Channel(_) | Cause::Protocol(_), .. } => {}
            other => panic!("{other:?}"),
        }
        a.stop().await;
    }
    assert!(b.events.try_recv().is_err(), "nobody was up, and strangers are not told of");
    b.stop().await;
}
