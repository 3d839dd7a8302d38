//! Incarnations: a node's lives, and how many of them are reserved.

use std::time::Duration;

use types::Incarnation;

use super::harness::{Cluster, address, config};
use crate::{Action, Event, Status};

#[test]
fn a_later_life_replaces_the_earlier_one_at_once_wherever_it_is() {
    let mut cluster = Cluster::of(3);
    cluster.kill("a3:1");
    cluster.start(config(3, "elsewhere:1", 2000), &["a1:1"]);
    let took = cluster.run_until(5, |cluster| {
        ["a1:1", "a2:1"].iter().all(|at| cluster.view(at, 3).unwrap().incarnation == Incarnation(2000))
    });
    assert!(took < 1000, "{took} ms");
    let view = cluster.view("a2:1", 3).unwrap();
    assert_eq!((view.address.as_str(), view.status), ("elsewhere:1", Status::Alive));
    assert!(!cluster.was_told("a1:1", 3, Status::Down));
    assert!(cluster.told.values().flatten().all(|action| !matches!(action, Action::Duplicate { .. })));
}

#[test]
fn who_was_declared_dead_comes_back_as_the_next_incarnation() {
    let mut cluster = Cluster::of(3);
    cluster.cut.insert(address("a3:1"));
    cluster.run_until(20, |cluster| cluster.status("a1:1", 3) == Some(Status::Down));
    cluster.cut.clear();
    cluster.run_until(20, |cluster| cluster.status("a1:1", 3) == Some(Status::Alive));
    let own = cluster.processes[&address("a3:1")].incarnation();
    assert!(own > Incarnation(10));
    assert_eq!(cluster.view("a1:1", 3).unwrap().incarnation, own);
    assert!(cluster.told("a3:1").contains(&Action::Renewed(own)));
}

#[test]
fn no_incarnation_above_the_recorded_ceiling_is_used() {
    let mut cluster = Cluster::of(2);
    cluster.kill("a2:1");
    let mut last = config(2, "a2:1", 20);
    last.ceiling = Incarnation(20);
    cluster.records = false;
    cluster.start(last, &["a1:1"]);
    assert!(cluster.told("a2:1").contains(&Action::Reserve(Incarnation(1044))), "asked for ahead of need");
    cluster.run_until(5, |cluster| cluster.status("a1:1", 2) == Some(Status::Alive));
    cluster.cut.insert(address("a2:1"));
    cluster.run_until(20, |cluster| cluster.status("a1:1", 2) == Some(Status::Down));
    cluster.cut.clear();
    cluster.run(Duration::from_secs(20));
    assert_eq!(cluster.processes[&address("a2:1")].incarnation(), Incarnation(20));
    assert_eq!(cluster.status("a1:1", 2), Some(Status::Down));
    // It is durable at last.
    cluster.feed(&address("a2:1"), Event::Reserved(Incarnation(1044)));
    cluster.run_until(20, |cluster| cluster.status("a1:1", 2) == Some(Status::Alive));
    assert!(cluster.processes[&address("a2:1")].incarnation() > Incarnation(20));
}

#[test]
fn a_node_that_lost_count_goes_on_above_its_past() {
    let mut cluster = Cluster::of(3);
    cluster.kill("a3:1");
    cluster.start(config(3, "a3:1", 10 - 5), &["a1:1"]);
    cluster.run_until(10, |cluster| cluster.processes[&address("a3:1")].incarnation() > Incarnation(10));
    cluster.run_until(10, |cluster| {
        let own = cluster.processes[&address("a3:1")].incarnation();
        ["a1:1", "a2:1"].iter().all(|at| {
            cluster.view(at, 3).is_some_and(|view| view.incarnation == own && view.status == Status::Alive)
        })
    });
}

#[test]
fn more_is_reserved_when_half_of_the_block_is_used() {
    let mut cluster = Cluster::new();
    let mut half = config(1, "a1:1", 600);
    half.ceiling = Incarnation(1024);
    cluster.start(half, &[]);
    assert_eq!(cluster.told("a1:1"), [Action::Reserve(Incarnation(2048))]);
    let mut fresh = config(2, "a2:1", 1);
    fresh.ceiling = Incarnation(1024);
    cluster.start(fresh, &[]);
    assert_eq!(cluster.told("a2:1"), []);
}
