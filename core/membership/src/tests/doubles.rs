//! Two processes with one node id: a copied data directory.

use std::time::Duration;

use types::{Incarnation, NodeId};

use super::harness::{Cluster, address, config};
use crate::{Action, Event, Status};

fn duplicate(node: u128, kept: &str, refused: &str) -> Action {
    Action::Duplicate { node: NodeId(node), kept: address(kept), refused: address(refused) }
}

fn refused(by: &str, incarnation: u64) -> Action {
    Action::Superseded { by: address(by), incarnation: Incarnation(incarnation) }
}

#[test]
fn the_same_incarnation_elsewhere_is_refused_and_both_sides_are_told() {
    let mut cluster = Cluster::of(3);
    cluster.start(config(3, "copy:1", 10), &["a1:1"]);
    cluster.run(Duration::from_secs(3));
    assert!(cluster.told("a1:1").contains(&duplicate(3, "a3:1", "copy:1")));
    assert_eq!(cluster.told("copy:1").last(), Some(&refused("a3:1", 10)));
    // Nothing changes for the others, and the copy is silent from now on.
    cluster.run(Duration::from_secs(20));
    let view = cluster.view("a1:1", 3).unwrap();
    assert_eq!((view.address.as_str(), view.status, view.incarnation.0), ("a3:1", Status::Alive, 10));
    assert_eq!(cluster.feed(&address("copy:1"), Event::Timer), []);
    let told = cluster.told("a1:1").iter().filter(|action| **action == duplicate(3, "a3:1", "copy:1"));
    assert_eq!(told.count(), 1, "told once");
}

#[test]
fn an_earlier_incarnation_elsewhere_is_refused_too() {
    let mut cluster = Cluster::of(3);
    // Long enough for no packet of an earlier life to be on its way.
    cluster.run(Duration::from_secs(40));
    cluster.start(config(3, "copy:1", 4), &["a2:1"]);
    cluster.run(Duration::from_secs(3));
    assert!(cluster.told("a2:1").contains(&duplicate(3, "a3:1", "copy:1")));
    assert_eq!(cluster.told("copy:1").last(), Some(&refused("a3:1", 10)));
    assert_eq!(cluster.view("a1:1", 3).unwrap().address, address("a3:1"));
}

#[test]
fn a_later_incarnation_elsewhere_ends_the_earlier_one_that_still_runs() {
    let mut cluster = Cluster::of(3);
    cluster.start(config(3, "new:1", 500), &["a1:1"]);
    cluster.run_until(10, |cluster| cluster.told("a3:1").contains(&refused("new:1", 500)));
    cluster.run(Duration::from_secs(10));
    for at in ["a1:1", "a2:1"] {
        let view = cluster.view(at, 3).unwrap();
        assert_eq!((view.address.as_str(), view.status, view.incarnation.0), ("new:1", Status::Alive, 500));
    }
    assert!(cluster.told("new:1").iter().all(|action| !matches!(action, Action::Superseded { .. })));
}

#[test]
fn two_that_meet_directly_tell_each_other() {
    let mut cluster = Cluster::new();
    cluster.start(config(1, "a1:1", 10), &[]);
    cluster.start(config(1, "copy:1", 10), &["a1:1"]);
    cluster.run(Duration::from_secs(2));
    assert!(cluster.told("a1:1").contains(&duplicate(1, "a1:1", "copy:1")));
    assert_eq!(cluster.told("copy:1").last(), Some(&refused("a1:1", 10)));
}
