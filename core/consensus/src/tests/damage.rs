//! Files that are damaged, full volumes, disks that fail.

use raft::{Change, ReplicaId};
use types::{NodeId, VnodeId};

use super::world::{GROUP, World, node};

/// Three members of which one, named, has a snapshot and does not lead.
fn three_with_snapshots() -> (World, NodeId) {
    let mut world = World::with_snapshots_after(4, 4);
    world.found(&[node(1), node(2), node(3)]);
    for text in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        world.propose(text);
    }
    world.ticks(5);
    let leader = world.lead();
    let other = [node(1), node(2), node(3)].into_iter().find(|id| *id != leader).unwrap();
    (world, other)
}

fn damage_snapshot(world: &mut World, id: NodeId) {
    let disk = &mut world.node(id).disk;
    let name = disk.names("snap").pop().unwrap();
    let bytes = disk.bytes(&name);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
}

#[test]
fn a_damaged_group_is_lost_and_can_be_replaced_on_the_same_node() {
    let (mut world, hurt) = three_with_snapshots();
    let replica = world.replica(hurt).unwrap();
    damage_snapshot(&mut world, hurt);
    world.restart(hurt);
    assert_eq!(world.times_told(hurt, &format!("lost {GROUP} {}", replica.0)), 1);
    world.ticks(40);
    assert!(world.node(hurt).host.group(GROUP).is_none(), "it takes no part");
    // Whoever leads goes on talking to it, and hears from it that it is lost.
    let leader = world.lead();
    assert!(world.times_told(leader, &format!("member lost {GROUP} {}", hurt.0)) > 0);
    world.change(Change::Remove(hurt));
    world.add(hurt);
    world.propose("i");
    world.ticks(5);
    assert_eq!(world.replica(hurt), Some(ReplicaId(4)));
    assert_eq!(world.texts(hurt), "a b c d e f g h i");
    world.restart(hurt);
    world.ticks(40);
    assert_eq!(world.texts(hurt), "a b c d e f g h i");
}

#[test]
fn a_replica_over_older_files_is_lost_and_can_be_replaced() {
    let (mut world, hurt) = three_with_snapshots();
    let older = world.nodes[&hurt].disk.clone();
    world.propose("i");
    world.ticks(5);
    world.restart_from(hurt, older);
    world.ticks(40);
    let replica = world.replica(hurt).unwrap();
    assert_eq!(world.times_told(hurt, &format!("lost {GROUP} {}", replica.0)), 1);
    let leader = world.lead();
    assert!(world.times_told(leader, &format!("member lost {GROUP} {}", hurt.0)) > 0);
    world.change(Change::Remove(hurt));
    world.add(hurt);
    world.propose("j");
    world.ticks(5);
    assert_eq!(
        (world.replica(hurt), world.texts(hurt)),
        (Some(ReplicaId(4)), "a b c d e f g h i j".to_owned())
    );
}

#[test]
fn a_lost_replica_that_left_is_told_when_it_asks() {
    let (mut world, hurt) = three_with_snapshots();
    damage_snapshot(&mut world, hurt);
    world.restart(hurt);
    world.change(Change::Remove(hurt));
    let leader = world.lead();
    world.restart(leader);
    world.lead();
    world.ask(hurt, |host| host.ask_around(&[node(1), node(2), node(3)]));
    world.settle();
    assert!(!world.node(hurt).host.has(GROUP));
}

/// Two groups, of which one has a snapshot that is found to be damaged while it is running.
#[test]
fn a_group_that_is_found_damaged_while_it_runs_takes_no_other_with_it() {
    let (mut world, _) = three_with_snapshots();
    let leader = world.lead();
    let other = VnodeId(9);
    world.ask(leader, |host| host.found_group(other, &[leader]));
    world.settle();
    damage_snapshot(&mut world, leader);
    // Somebody new has to be sent the snapshot.
    world.ask(leader, |host| host.reconfigure(GROUP, raft::ProposalId(1000), Change::AddLearner(node(4))));
    world.settle();
    world.ticks(30);
    assert!(world.nodes[&leader].told.iter().any(|told| told.starts_with("lost")));
    assert!(!world.has_told(leader, "failed"));
    assert!(world.node(leader).host.group(other).unwrap().is_ready());
    let next = world.lead();
    assert_ne!(next, leader);
    world.propose("after");
}

#[test]
fn a_snapshot_that_finds_no_room_is_taken_later() {
    let (mut world, laggard) = three_with_snapshots();
    world.away.insert(laggard);
    world.ticks(60);
    for number in 0..20 {
        world.propose(&number.to_string());
    }
    world.node(laggard).disk.refuses_snapshots = true;
    world.away.clear();
    world.ticks(60);
    assert!(!world.has_told(laggard, "failed"), "only one file could not be made");
    world.node(laggard).disk.refuses_snapshots = false;
    world.ticks(80);
    world.propose("last");
    world.ticks(5);
    let leader = world.lead();
    assert_eq!(world.texts(laggard), world.texts(leader));
}

#[test]
fn a_log_that_fails_stops_every_replica_and_is_told_of_once() {
    let mut world = World::new(1);
    world.found(&[node(1)]);
    for group in 10..20 {
        world.ask(node(1), |host| host.found_group(VnodeId(group), &[node(1)]));
    }
    world.settle();
    world.node(node(1)).disk.is_broken = true;
    let proposal = world.propose_at(node(1), "a");
    world.settle();
    assert_eq!(world.times_told(node(1), "failed"), 1);
    assert!(world.has_told(node(1), &format!("unknown {proposal}")));
    let host = &world.nodes[&node(1)].host;
    assert!(host.groups().all(|(_, group)| group.role() == raft::Role::Stopped));
    let late = world.propose_at(node(1), "b");
    assert!(world.has_told(node(1), &format!("refused {late}")));
}
