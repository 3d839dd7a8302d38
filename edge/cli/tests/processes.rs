//! Real processes that form one cluster: met, joined, killed, returned, and refused.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::net::TcpListener;
use std::path::Path;

use client::Client;
use process::{Broker, Place, wait_for};
use tokio::runtime::Runtime;

const SECRET: &str = "what all nodes of this cluster know";
/// Said of a node that was killed or is not there yet.
const NOT_REACHED: &str = "node not reached";

/// A node of a cluster; `peer` is its peer port.
struct Node {
    place: Place,
    name: &'static str,
    peer: u16,
}

impl Node {
    fn new(name: &'static str) -> Self {
        let peer = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = Place::new()
            .with("MALACHI_NODE_NAME", name)
            .with("MALACHI_PEER_PORT", &peer.to_string())
            .with("MALACHI_PEER_ADDRESS", &format!("127.0.0.1:{peer}"))
            .with("MALACHI_DASHBOARD_AUTH_ENABLED", "false")
            .with("MALACHI_CLUSTER_SECRET", SECRET);
        Self { place, name, peer }
    }

    /// It looks for these.
    fn seeded(self, list: &str) -> Self {
        Self { place: self.place.with("MALACHI_LOG_NODES", list), ..self }
    }

    fn entry(&self) -> String {
        format!("{}@127.0.0.1:{}", self.name, self.peer)
    }

    /// Starts it, without waiting for anything.
    fn spawn(&self) -> Broker {
        let mut broker = self.place.spawn();
        broker.expect(NOT_REACHED);
        broker
    }

    fn start(&self) -> Broker {
        let mut broker = self.place.start();
        broker.expect(NOT_REACHED);
        broker
    }

    fn is_ready(&self) -> bool {
        self.place.http("/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The line of its Raft directory that says which cluster it is of.
    fn cluster(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.place.raft_dir().join("malachi.cluster")).ok()?;
        text.lines().nth(1).map(str::to_owned)
    }

    async fn admin(&self) -> Client {
        Client::connect(&self.place.address(), "admin", "admin123").await.unwrap()
    }

    /// A series without labels.
    fn series(&self, name: &str) -> Option<u64> {
        let text = self.place.http("/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
    }

    fn topics(&self, runtime: &Runtime) -> Vec<String> {
        let topics = runtime.block_on(async { self.admin().await.topics("").await.unwrap() });
        topics.into_iter().map(|topic| String::from_utf8(topic.name.to_vec()).unwrap()).collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn ready(nodes: &[&Node]) {
    for node in nodes {
        wait_for(&format!("{} to be ready", node.name), || node.is_ready());
    }
}

/// Both groups have all their members, a vote each, and one leader.
#[track_caller]
fn settled(nodes: &[&Node]) {
    wait_for("every group to have all its members", || {
        let all = |name: &str| nodes.iter().map(|node| node.series(name)).collect::<Option<Vec<u64>>>();
        let sum = |name: &str| all(name).map(|values| values.iter().sum::<u64>());
        all("malachi_raft_groups") == Some(vec![2; nodes.len()])
            && sum("malachi_raft_groups_led") == Some(2)
            && sum("malachi_raft_learners") == Some(0)
            && sum("malachi_raft_groups_leaderless") == Some(0)
    });
}

fn create(node: &Node, topic: &str, runtime: &Runtime) {
    wait_for(&format!("{topic} to be made on {}", node.name), || {
        runtime.block_on(async {
            let admin = node.admin().await;
            // An attempt without an answer may have been one with success.
            admin.create_topic(topic, 0).await.is_ok()
                || admin.topics(topic).await.is_ok_and(|topics| !topics.is_empty())
        })
    });
}

fn sees(node: &Node, topic: &str, runtime: &Runtime) {
    wait_for(&format!("{topic} to be seen on {}", node.name), || {
        node.topics(runtime).iter().any(|name| name == topic)
    });
}

#[test]
fn a_cluster_of_three_survives_the_death_of_one_and_takes_it_back() {
    let a = Node::new("a");
    let list = a.entry();
    let nodes = [a, Node::new("b").seeded(&list), Node::new("c").seeded(&list)];
    let [a, b, c] = &nodes;
    let mut brokers = [a, b, c].map(|node| Some(node.start()));
    settled(&[a, b, c]);
    let runtime = runtime();
    create(b, "first", &runtime);
    for node in [a, b, c] {
        sees(node, "first", &runtime);
    }
    // Each in turn is killed, whichever leads.
    for at in 0..3 {
        brokers[at].take().unwrap().kill();
        let others: Vec<&Node> = (0..3).filter(|other| *other != at).map(|other| &nodes[other]).collect();
        let topic = format!("without-{}", nodes[at].name);
        create(others[0], &topic, &runtime);
        sees(others[1], &topic, &runtime);
        brokers[at] = Some(nodes[at].start());
        sees(&nodes[at], &topic, &runtime);
        settled(&[a, b, c]);
    }
    for broker in brokers.into_iter().flatten() {
        assert!(broker.stop().success());
    }
    // The power comes back, in another order.
    let again: Vec<Broker> = nodes.iter().rev().map(Node::spawn).collect();
    ready(&[a, b, c]);
    assert_eq!(a.topics(&runtime), ["first", "without-a", "without-b", "without-c"]);
    drop(again);
}

#[test]
fn the_first_of_a_list_forms_once_most_are_there_and_joins_with_a_new_disk() {
    let nodes = ["a", "b", "c"].map(Node::new);
    let list = [&nodes[0], &nodes[1], &nodes[2]].map(Node::entry).join(",");
    let [a, b, c] = nodes.map(|node| node.seeded(&list));
    let first = a.spawn();
    wait_for("the first to look", || first.output().contains("looking for the cluster"));
    assert!(!a.is_ready() && a.cluster().is_none());
    let (third, second) = (c.spawn(), b.spawn());
    ready(&[&a, &b, &c]);
    settled(&[&a, &b, &c]);
    first.kill();
    std::fs::remove_dir_all(a.place.log_dir()).unwrap();
    std::fs::remove_dir_all(a.place.raft_dir()).unwrap();
    let again = a.spawn();
    wait_for("the first to join", || a.cluster().is_some());
    assert_eq!(a.cluster(), b.cluster());
    drop((again, second, third));
}

#[test]
fn a_wrong_secret_is_refused_and_said_on_both_sides() {
    let a = Node::new("a");
    let mut first = a.start();
    first.expect("peer connection refused");
    let b = Node::new("b").seeded(&a.entry());
    let b = Node { place: b.place.with("MALACHI_CLUSTER_SECRET", "another secret, long enough"), ..b };
    let second = b.spawn();
    wait_for("both sides to say so", || {
        [&first, &second].iter().all(|broker| broker.output().contains("wrong_secret"))
    });
    assert_eq!((b.cluster(), a.series("malachi_nodes")), (None, Some(1)));
    assert!(second.stop().success() && first.stop().success());
}

#[test]
fn a_node_of_another_cluster_is_refused_and_both_go_on() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let (mut first, second) = (a.start(), b.start());
    first.expect("peer connection refused");
    assert!(second.stop().success());
    let b = b.seeded(&a.entry());
    let second = b.start();
    wait_for("both sides to say so", || {
        [&first, &second].iter().all(|broker| broker.output().contains("another_control_plane"))
    });
    assert!(a.is_ready() && b.is_ready());
    assert_eq!((a.series("malachi_nodes"), b.series("malachi_nodes")), (Some(1), Some(1)));
}

#[test]
fn a_process_on_a_copy_of_a_data_directory_is_refused() {
    let a = Node::new("a");
    let b = Node::new("b").seeded(&a.entry());
    let mut first = a.start();
    first.expect("peer connection refused");
    // What both have while nobody writes.
    let copy = Node::new("b").seeded(&a.entry());
    let earlier = b.start();
    settled(&[&a, &b]);
    assert!(earlier.stop().success());
    copy_all(b.place.dir.path(), copy.place.dir.path());
    let second = b.start();
    let mut third = copy.spawn();
    assert_eq!(third.wait().code(), Some(78));
    let output = third.output();
    let line = output.lines().last().unwrap();
    assert!(line.starts_with("REFUSING TO START (exit 78): ") && line.contains("copies"), "{line}");
    let runtime = runtime();
    create(&b, "still-there", &runtime);
    sees(&a, "still-there", &runtime);
    drop((first, second));
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
