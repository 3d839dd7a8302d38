//! Real processes that form one cluster: met, joined, killed, returned, and refused.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::path::Path;
use std::time::Duration;

use client::Record;
use tokio::runtime::Runtime;

use process::node::{Node, create, ready, runtime, sees, settled, started, three};
use process::{Broker, wait_for};

#[test]
fn a_cluster_of_three_survives_the_death_of_one_and_takes_it_back() {
    let nodes = three();
    let mut brokers = started(&nodes);
    let [a, b, c] = &nodes;
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

/// Writes one record to a topic on a node, as often as it takes: what is not known to be stored is written again.
fn write(node: &Node, topic: &str, value: &str, runtime: &Runtime) {
    wait_for(&format!("{} to take {value}", node.name), || {
        runtime.block_on(async {
            let Some(client) = node.admin_within(Duration::from_secs(12)).await else { return false };
            let value = value.to_owned().into();
            let record = Record { key: None, value, timestamp: 0, headers: Vec::new() };
            client.produce(topic, &[record]).await.is_ok()
        })
    });
}

/// What a reader of a topic on a node is given until it has seen `last`.
fn read_to(node: &Node, topic: &str, last: &str, runtime: &Runtime) -> Vec<String> {
    let client = runtime.block_on(node.admin());
    let mut consumer = runtime.block_on(client.consumer(topic).wait(Duration::from_secs(5)).open()).unwrap();
    let mut seen: Vec<String> = Vec::new();
    wait_for(&format!("{last} to be read on {}", node.name), || {
        let page = runtime.block_on(consumer.poll()).unwrap();
        let values = page.decode_records().unwrap().into_iter().map(|record| record.value.to_vec());
        seen.extend(values.map(|value| String::from_utf8(value).unwrap()));
        seen.iter().any(|value| value == last)
    });
    seen
}

#[test]
fn any_node_takes_records_and_any_gives_them_also_while_one_is_gone() {
    let nodes = three();
    let mut brokers = started(&nodes);
    let [a, b, c] = &nodes;
    let runtime = runtime();
    // Of several topics each node is the primary of some, whoever is asked.
    let topics = ["t0", "t1", "t2", "t3"];
    for topic in topics {
        create(a, topic, &runtime);
        for node in [a, b, c] {
            sees(node, topic, &runtime);
            write(node, topic, node.name, &runtime);
        }
        for node in [a, b, c] {
            assert_eq!(read_to(node, topic, "c", &runtime), ["a", "b", "c"], "{topic} on {}", node.name);
        }
    }
    // Each in turn is killed; the others go on with everything.
    for at in 0..3 {
        brokers[at].take().unwrap().kill();
        let others: Vec<&Node> = (0..3).filter(|other| *other != at).map(|other| &nodes[other]).collect();
        let value = format!("without {}", nodes[at].name);
        for topic in topics {
            write(others[0], topic, &value, &runtime);
            let seen = read_to(others[1], topic, &value, &runtime);
            assert_eq!(seen[..3], ["a", "b", "c"], "{topic}");
        }
        brokers[at] = Some(nodes[at].start());
        settled(&[a, b, c]);
        for topic in topics {
            read_to(&nodes[at], topic, &value, &runtime);
        }
    }
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
