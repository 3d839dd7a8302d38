//! Who lives, who is suspected, who is dead, and how soon.

use std::time::Duration;

use types::NodeId;

use super::harness::{Cluster, address, config};
use crate::{Action, Digest, Event, Status};

#[test]
fn nodes_find_each_other_through_one_seed_and_say_who_they_are() {
    let cluster = Cluster::of(5);
    let view = cluster.view("a4:1", 2).unwrap();
    assert_eq!((&*view.name, view.address.as_str(), view.incarnation.0), ("node-2", "a2:1", 10));
    assert_eq!(view.digest, Some(Digest::default()));
    let ids: Vec<u128> = cluster.processes[&address("a4:1")].members().map(|view| view.node.0).collect();
    assert_eq!(ids, [1, 2, 3, 5], "in order, without itself");
}

#[test]
fn a_seed_is_asked_until_it_answers_and_is_no_member_before() {
    let mut cluster = Cluster::new();
    cluster.start(config(1, "a1:1", 10), &["a1:1", "a2:1"]);
    cluster.run(Duration::from_secs(30));
    assert_eq!(cluster.processes[&address("a1:1")].members().count(), 0);
    cluster.start(config(2, "a2:1", 10), &[]);
    let took = cluster.run_until(5, |cluster| cluster.status("a1:1", 2) == Some(Status::Alive));
    assert!(took <= 1100, "{took} ms");
    assert_eq!(cluster.status("a2:1", 1), Some(Status::Alive));
}

#[test]
fn a_dead_member_is_suspected_first_and_known_to_be_dead_in_bounded_time() {
    let mut cluster = Cluster::of(3);
    cluster.kill("a3:1");
    // Two probe it in turns with one other; then the probe, the suspicion, and the news of it.
    cluster.run_until(4, |cluster| cluster.status("a1:1", 3) == Some(Status::Suspect));
    let took = cluster.run_until(4, |cluster| cluster.status("a1:1", 3) == Some(Status::Down));
    assert!(took > 2500, "suspect is not dead: {took} ms");
    cluster.run_until(1, |cluster| cluster.status("a2:1", 3) == Some(Status::Down));
    assert!(cluster.was_told("a2:1", 3, Status::Suspect));
}

#[test]
fn who_hears_of_a_suspicion_declares_the_death_itself() {
    let mut cluster = Cluster::of(3);
    cluster.kill("a3:1");
    cluster.run_until(5, |cluster| {
        cluster.status("a1:1", 3) == Some(Status::Suspect)
            && cluster.status("a2:1", 3) == Some(Status::Suspect)
    });
    // Both know; now each is alone with what it knows.
    cluster.cut.extend([address("a1:1"), address("a2:1")]);
    cluster.run(Duration::from_millis(3200));
    assert_eq!(cluster.status("a1:1", 3), Some(Status::Down));
    assert_eq!(cluster.status("a2:1", 3), Some(Status::Down));
    let declared = |at| cluster.processes[&address(at)].tally().declared;
    assert!(declared("a1:1") >= 1 && declared("a2:1") >= 1);
}

#[test]
fn a_short_silence_ends_in_a_refutation() {
    let mut cluster = Cluster::of(3);
    cluster.cut.insert(address("a3:1"));
    cluster.run_until(5, |cluster| cluster.status("a1:1", 3) == Some(Status::Suspect));
    cluster.cut.clear();
    let took = cluster.run_until(2, |cluster| cluster.status("a1:1", 3) == Some(Status::Alive));
    assert!(took < 1000, "it is asked all the time: {took} ms");
    cluster.run(Duration::from_secs(5));
    assert!(!cluster.was_told("a1:1", 3, Status::Down) && !cluster.was_told("a2:1", 3, Status::Down));
    assert_eq!(cluster.view("a1:1", 3).unwrap().incarnation.0, 10, "no new life for a suspicion");
}

#[test]
fn whoever_stood_still_takes_nobody_for_dead() {
    let mut cluster = Cluster::of(4);
    cluster.stopped.insert(address("a4:1"));
    cluster.run(Duration::from_secs(20));
    for at in ["a1:1", "a2:1", "a3:1"] {
        assert_eq!(cluster.status(at, 4), Some(Status::Down));
    }
    cluster.stopped.clear();
    cluster.run(Duration::from_secs(10));
    for of in [1, 2, 3] {
        assert!(!cluster.was_told("a4:1", of, Status::Down), "{of}");
        assert_eq!(cluster.status(&format!("a{of}:1"), 4), Some(Status::Alive));
    }
}

#[test]
fn two_halves_find_each_other_again() {
    let mut cluster = Cluster::of(4);
    // Everybody alone for a while.
    cluster.cut.extend(["a1:1", "a2:1", "a3:1", "a4:1"].map(address));
    cluster.run(Duration::from_secs(40));
    assert_eq!(cluster.status("a2:1", 3), Some(Status::Down));
    cluster.cut.clear();
    cluster.run_until(20, |cluster| {
        let all = cluster.processes.values();
        all.flat_map(crate::Membership::members).filter(|view| view.status == Status::Alive).count() == 12
    });
}

#[test]
fn a_farewell_spares_the_suspicion() {
    let mut cluster = Cluster::of(3);
    cluster.feed(&address("a2:1"), Event::Leave);
    let took = cluster.run_until(2, |cluster| {
        cluster.status("a1:1", 2) == Some(Status::Down) && cluster.status("a3:1", 2) == Some(Status::Down)
    });
    assert!(took < 500, "{took} ms");
    assert_eq!(cluster.feed(&address("a2:1"), Event::Timer), [], "it takes no further part");
}

#[test]
fn what_a_member_says_about_itself_is_heard_by_all() {
    let mut cluster = Cluster::of(5);
    let digest = Digest { ring_version: 3, attributes: 1, capabilities: 2, led_count: 4, led: 9 };
    cluster.feed(&address("a5:1"), Event::SetOwn(digest));
    let heard = |cluster: &Cluster, at: &str| cluster.view(at, 5).unwrap().digest == Some(digest);
    cluster.run_until(10, |cluster| ["a1:1", "a2:1", "a3:1", "a4:1"].iter().all(|at| heard(cluster, at)));
    assert_eq!(cluster.view("a1:1", 5).unwrap().incarnation.0, 10, "no new life for a new digest");
}

#[test]
fn the_dead_are_forgotten_after_a_day_and_sooner_when_they_are_not_listed() {
    let mut cluster = Cluster::of(3);
    cluster.kill("a3:1");
    cluster.kill("a2:1");
    cluster
        .run_until(20, |cluster| [2, 3].iter().all(|of| cluster.status("a1:1", *of) == Some(Status::Down)));
    cluster.feed(&address("a1:1"), Event::Forget(NodeId(2)));
    cluster.run(Duration::from_secs(55));
    assert_eq!(cluster.status("a1:1", 2), Some(Status::Down), "old news may still be about");
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.status("a1:1", 2), None);
    cluster.run(Duration::from_secs(24 * 60 * 60 - 200));
    assert_eq!(cluster.status("a1:1", 3), Some(Status::Down));
    cluster.run(Duration::from_secs(200));
    assert_eq!(cluster.status("a1:1", 3), None);
    assert!(cluster.told("a1:1").contains(&Action::Forgotten(NodeId(3))));
    assert_eq!(cluster.processes[&address("a1:1")].load().members, 0);
}
