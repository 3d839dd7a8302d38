//! Real processes that prove themselves by certificates, and those that must not meet: refused with one line on both
//! sides, and nothing changes.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use process::node::{Node, create, runtime, sees, settled};
use process::{Broker, wait_for, write};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The first word of the first frame, in every version.
const FIRST_WORD: &[u8; 8] = b"malachi\x01";
const HELLO: u16 = 1;
const REFUSED: u16 = 3;

/// Who says which certificates are nodes of a cluster.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Gives the node a certificate of that name or number, and the settings to show it.
    fn certify(&self, node: Node, name: &str) -> Node {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut place = node.place.with("MALACHI_DIST_TLS", "true");
        for (variable, file, content) in [
            ("CERTFILE", "node.pem", certificate.pem()),
            ("KEYFILE", "key.pem", key.serialize_pem()),
            ("CACERTFILE", "ca.pem", self.pem.clone()),
        ] {
            let path = place.dir.path().join(file);
            write(&path, &content);
            private(&path);
            place = place.with(&format!("MALACHI_PEER_TLS_{variable}"), path.to_str().unwrap());
        }
        Node { place, ..node }
    }
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn without_secret(mut node: Node) -> Node {
    node.place.env.retain(|(name, _)| name != "MALACHI_CLUSTER_SECRET");
    node
}

/// Waits until each of the two has said that there is to be no connection, and looks that nothing came of it.
#[track_caller]
fn both_refuse(inside: (&Node, &Broker), outside: (&Node, &Broker), reasons: [&str; 2]) {
    let told = |broker: &Broker, message: &str, reason: &str| {
        broker.output().lines().any(|line| line.contains(message) && line.contains(reason))
    };
    wait_for("both sides to say so", || {
        told(inside.1, "peer connection refused", reasons[0])
            && told(outside.1, "node not reached", reasons[1])
    });
    assert_eq!((inside.0.series("malachi_nodes"), inside.0.series("malachi_peers_up")), (Some(1), Some(0)));
    assert_eq!(outside.0.cluster(), None);
    assert!(inside.0.is_ready() && !outside.0.is_ready());
}

#[test]
fn certificates_make_a_cluster_with_a_secret_and_without() {
    for has_secret in [true, false] {
        let authority = Authority::new();
        let of = |name| {
            let node = authority.certify(Node::new(name), "127.0.0.1");
            if has_secret { node } else { without_secret(node) }
        };
        let a = of("a");
        let list = a.entry();
        let (b, c) = (of("b").seeded(&list), of("c").seeded(&list));
        let brokers = [&a, &b, &c].map(Node::start);
        settled(&[&a, &b, &c]);
        let runtime = runtime();
        create(&c, "t", &runtime);
        for node in [&a, &b, &c] {
            sees(node, "t", &runtime);
        }
        drop(brokers);
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_said_on_both_sides() {
    let a = Authority::new().certify(Node::new("a"), "127.0.0.1");
    let mut first = a.start();
    first.expect("peer connection refused");
    let b = Authority::new().certify(Node::new("b").seeded(&a.entry()), "127.0.0.1");
    let second = b.spawn();
    // Each refuses what the other shows; who is first depends on who looks first.
    both_refuse((&a, &first), (&b, &second), ["", "certificate"]);
    let said = first.output();
    let line = said.lines().find(|line| line.contains("peer connection refused")).unwrap();
    assert!(line.contains("ertificate") || line.contains("fatal alert"), "{line}");
    assert!(second.stop().success());
}

#[test]
fn a_certificate_of_another_name_is_refused_and_said_on_both_sides() {
    let authority = Authority::new();
    // It is dialled by its number, and shows a name.
    let a = authority.certify(Node::new("a"), "elsewhere.test");
    let mut first = a.start();
    first.expect("peer connection refused");
    let b = authority.certify(Node::new("b").seeded(&a.entry()), "127.0.0.1");
    let second = b.spawn();
    both_refuse((&a, &first), (&b, &second), ["ertificate", "certificate"]);
}

#[test]
fn a_node_that_uses_no_secret_is_refused_and_said_on_both_sides() {
    let a = Node::new("a");
    let mut first = a.start();
    first.expect("peer connection refused");
    let mut b = without_secret(Node::new("b").seeded(&a.entry()));
    b.place = b.place.with("MALACHI_LOG_CLUSTER", "test");
    let mut second = b.spawn();
    second.expect("configuration");
    both_refuse((&a, &first), (&b, &second), ["authentication_differs", "authentication_differs"]);
}

#[test]
fn plaintext_does_not_reach_a_node_with_certificates() {
    let a = Authority::new().certify(Node::new("a"), "127.0.0.1");
    let first = a.start();
    let b = Node::new("b").seeded(&a.entry());
    let second = b.spawn();
    wait_for("it to say so", || second.output().contains("node not reached"));
    assert_eq!((a.series("malachi_nodes"), b.cluster()), (Some(1), None));
    assert!(first.stop().success());
}

/// The first frame of a build that speaks these versions; what follows the numbers is of a form nobody knows yet.
fn hello(versions: (u16, u16)) -> Vec<u8> {
    let mut body = FIRST_WORD.to_vec();
    body.extend(versions.0.to_be_bytes());
    body.extend(versions.1.to_be_bytes());
    body.extend(b"whatever such a build says");
    frame(HELLO, &body)
}

fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend([0; 4]);
    frame.extend(kind.to_be_bytes());
    frame.extend(body);
    frame
}

/// The last frame of what was said.
fn last_frame(mut bytes: &[u8]) -> (u16, Vec<u8>) {
    loop {
        let length = u32::from_be_bytes(*bytes.first_chunk().unwrap()) as usize;
        let (frame, rest) = bytes.split_at(10 + length);
        if rest.is_empty() {
            return (u16::from_be_bytes([frame[8], frame[9]]), frame[10..].to_vec());
        }
        bytes = rest;
    }
}

#[test]
fn a_build_of_another_version_that_comes_is_told_and_told_of() {
    let a = Node::new("a");
    let mut first = a.start();
    first.expect("peer connection refused");
    for (versions, shown) in [((0, 0), "version 0,"), ((2, 7), "version 2 to 7")] {
        let mut stream = TcpStream::connect(("127.0.0.1", a.peer)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&hello(versions)).unwrap();
        let mut told = Vec::new();
        stream.read_to_end(&mut told).unwrap();
        assert_eq!(last_frame(&told), (REFUSED, vec![0, 1]), "by one frame, and only the number");
        wait_for("a line about it", || {
            // A line a second at most.
            first.output().lines().any(|line| line.contains("no_common_version") && line.contains(shown)) || {
                let mut again = TcpStream::connect(("127.0.0.1", a.peer)).unwrap();
                drop(again.write_all(&hello(versions)));
                drop(again.read_to_end(&mut Vec::new()));
                false
            }
        });
    }
    assert_eq!((a.series("malachi_nodes"), a.is_ready()), (Some(1), true));
}

#[test]
fn a_build_of_another_version_that_is_dialled_is_refused_and_told_of() {
    for versions in [(0, 0), (2, 7)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let b = Node::new("b").seeded(&format!("other@{}", listener.local_addr().unwrap()));
        let broker = b.spawn();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = vec![0; 10];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(said[8..], HELLO.to_be_bytes());
        stream.write_all(&hello(versions)).unwrap();
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        wait_for("a line about it", || {
            let output = broker.output();
            output.lines().any(|line| line.contains("node not reached") && line.contains("no_common_version"))
        });
        assert_eq!((b.cluster(), b.is_ready()), (None, false));
        assert!(broker.stop().success());
    }
}

#[test]
fn a_node_of_a_cluster_is_refused_without_the_settings_of_its_cluster() {
    let a = Node::new("a");
    let b = Node::new("b").seeded(&a.entry());
    let brokers = [a.start(), b.start()];
    settled(&[&a, &b]);
    let [first, second] = brokers;
    assert!(first.stop().success() && second.stop().success());
    for node in [&a, &b] {
        let mut bare = node.place.command_of(&["server"]);
        for name in ["CLUSTER_SECRET", "LOG_NODES", "PEER_ADDRESS", "PEER_PORT"] {
            bare.env_remove(format!("MALACHI_{name}"));
        }
        let output = bare.env("MALACHI_PEER_PORT", node.peer.to_string()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        let refusals: Vec<&str> = text.lines().filter(|line| line.starts_with("REFUSING TO START")).collect();
        let [line] = refusals[..] else { panic!("{text}") };
        assert!(line.contains("MALACHI_CLUSTER_SECRET"), "{line}");
    }
    // It was the settings alone.
    let again = [a.spawn(), b.spawn()];
    settled(&[&a, &b]);
    drop(again);
}
