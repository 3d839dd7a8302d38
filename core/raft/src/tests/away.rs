//! Members that are told that whoever leads them cannot be reached.

use types::{NodeId, Term};

use super::harness::{Cluster, node};
use crate::{Event, Role};

/// Longer than every turn of the members of a small group, shorter than the leader's silence must last otherwise.
const SOON: u32 = 6;

/// One tick, before which these are told that whoever they follow is away.
fn tick(cluster: &mut Cluster, told: &[NodeId]) {
    for id in told {
        cluster.at(*id).step(Event::LeaderAway);
    }
    cluster.tick();
}

fn term(cluster: &mut Cluster, id: NodeId) -> Term {
    cluster.at(id).group.term()
}

#[test]
fn a_leader_that_all_know_to_be_away_is_replaced_at_once_by_the_first_that_may() {
    for count in [3, 5] {
        let (mut cluster, gone) = Cluster::led(count);
        let before = term(&mut cluster, gone);
        cluster.cut_off.push(gone);
        let others = cluster.others(gone);
        tick(&mut cluster, &others);
        assert_eq!(cluster.leader(), Some(others[0]), "of {count}");
        assert_eq!(term(&mut cluster, others[0]), Term(before.0 + 1));
    }
}

#[test]
fn whoever_is_told_later_is_waited_for_by_asking_again() {
    let (mut cluster, gone) = Cluster::led(3);
    cluster.cut_off.push(gone);
    let others = cluster.others(gone);
    // The other one does not listen while it takes the leader for alive.
    tick(&mut cluster, &others[..1]);
    assert_eq!(cluster.leader(), None);
    assert_eq!(cluster.at(others[0]).group.role(), Role::Candidate);
    cluster.at(others[1]).step(Event::Unreachable(gone));
    (1..SOON).for_each(|_| tick(&mut cluster, &others));
    assert!(others.contains(&cluster.leader().unwrap()));
}

#[test]
fn the_first_is_not_waited_for_when_it_is_away_as_well() {
    let (mut cluster, gone) = Cluster::led(5);
    let others = cluster.others(gone);
    cluster.cut_off.extend([gone, others[0]]);
    (0..SOON).for_each(|_| tick(&mut cluster, &others[1..]));
    assert!(others[1..].contains(&cluster.leader().unwrap()));
}

#[test]
fn one_that_lacks_entries_makes_room_for_one_that_has_them() {
    let (mut cluster, gone) = Cluster::led(3);
    let others = cluster.others(gone);
    cluster.cut_off.push(others[0]);
    cluster.propose(gone, 1, "x");
    cluster.cut_off = vec![gone];
    (0..SOON).for_each(|_| tick(&mut cluster, &others));
    assert_eq!(cluster.leader(), Some(others[1]));
}

#[test]
fn one_that_is_mistaken_disturbs_nobody_and_follows_again() {
    let (mut cluster, leader) = Cluster::led(3);
    let before = term(&mut cluster, leader);
    let others = cluster.others(leader);
    cluster.cut_off.push(others[0]);
    (0..40).for_each(|_| tick(&mut cluster, &others[..1]));
    cluster.cut_off.clear();
    // It still does not hear the leader itself, but is heard by the other.
    let asks = |cluster: &mut Cluster| {
        cluster.at(others[0]).step(Event::LeaderAway);
        cluster.at(others[0]).step(Event::Tick);
        let sent = std::mem::take(&mut cluster.at(others[0]).sent);
        let asked = sent.len();
        for (to, message) in sent.into_iter().filter(|(to, _)| *to != leader) {
            cluster.deliver(others[0], to, message);
        }
        cluster.settle();
        asked
    };
    assert!((0..SOON).map(|_| asks(&mut cluster)).sum::<usize>() > 0);
    assert_eq!((cluster.leader(), term(&mut cluster, leader)), (Some(leader), before));
    cluster.ticks(3);
    assert_eq!(cluster.at(others[0]).group.leader(), Some(leader));
    // What it was told has no effect any more: it waits as long as everybody.
    cluster.ticks(30);
    assert_eq!((cluster.leader(), term(&mut cluster, leader)), (Some(leader), before));
    assert_eq!(cluster.at(others[0]).group.followed(), Some(leader));
}

#[test]
fn nobody_hurries_who_follows_nobody() {
    let mut cluster = Cluster::founded(3);
    let all = [node(1), node(2), node(3)];
    (0..SOON).for_each(|_| tick(&mut cluster, &all));
    assert_eq!(cluster.leader(), None);
    assert!(all.iter().all(|id| cluster.nodes[id].group.followed().is_none()));
}
