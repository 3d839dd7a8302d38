//! Replicas that come, go, and come back as others, with the process ending between any two durable steps.

use raft::{Change, ReplicaId};
use types::{NodeId, VnodeId};

use super::world::{GROUP, World, node};

fn three_of_four() -> World {
    let mut world = World::new(4);
    world.found(&[node(1), node(2), node(3)]);
    world.propose("a");
    world
}

/// A member that does not lead.
fn follower(world: &mut World) -> NodeId {
    let leader = world.lead();
    [node(1), node(2), node(3)].into_iter().find(|id| *id != leader).unwrap()
}

#[test]
fn a_node_becomes_a_replica_by_a_message_and_gets_its_vote() {
    let mut world = three_of_four();
    world.add(node(4));
    assert_eq!(world.replica(node(4)), Some(ReplicaId(4)));
    world.propose("b");
    world.ticks(5);
    assert_eq!(world.texts(node(4)), "a b");
    let leader = world.lead();
    assert_eq!(world.node(leader).host.group(GROUP).unwrap().members().voters().count(), 4);
}

#[test]
fn a_removed_replica_is_told_and_forgets() {
    let mut world = three_of_four();
    let removed = follower(&mut world);
    world.change(Change::Remove(removed));
    world.ticks(30);
    assert!(!world.node(removed).host.has(GROUP));
    assert!(world.nodes[&removed].told.iter().any(|told| told.starts_with("left")));
    assert_eq!(world.node(removed).host.stored(GROUP), None);
    // Also after a restart, and whoever founds it again.
    world.restart(removed);
    world.ask(removed, |host| host.found_group(GROUP, &[removed]));
    world.settle();
    assert!(!world.node(removed).host.has(GROUP));
}

#[test]
fn one_removed_and_added_again_while_it_is_away_comes_back_as_another() {
    let mut world = three_of_four();
    let moved = follower(&mut world);
    let before = world.replica(moved).unwrap();
    world.away.insert(moved);
    world.ticks(40);
    world.change(Change::Remove(moved));
    world.propose("b");
    world.change(Change::AddLearner(moved));
    world.away.clear();
    world.ticks(60);
    assert_eq!(world.replica(moved), Some(ReplicaId(4)));
    assert!(world.replica(moved) > Some(before));
    world.change(Change::Promote(moved));
    world.propose("c");
    world.ticks(5);
    assert_eq!(world.texts(moved), "a b c");
    world.restart(moved);
    world.ticks(40);
    assert_eq!((world.replica(moved), world.texts(moved)), (Some(ReplicaId(4)), "a b c".to_owned()));
}

#[test]
fn one_that_left_while_it_was_away_is_told_when_it_asks() {
    let mut world = three_of_four();
    world.change(Change::AddLearner(node(4)));
    world.ticks(5);
    // A learner never asks for votes, so nobody hears of it by itself.
    world.away.insert(node(4));
    world.change(Change::Remove(node(4)));
    world.ticks(300);
    world.away.clear();
    world.ticks(60);
    assert!(world.node(node(4)).host.has(GROUP));
    world.ask(node(4), |host| host.ask_around(&[node(1), node(2), node(3), node(4)]));
    world.settle();
    assert!(!world.node(node(4)).host.has(GROUP));
}

/// Ends the process after each number of jobs on the way from one replica to its successor.
#[test]
fn the_way_to_a_successor_can_be_cut_anywhere() {
    let mut was_cut = 0;
    for cut in 0..12 {
        let mut world = three_of_four();
        let moved = follower(&mut world);
        world.away.insert(moved);
        world.ticks(40);
        world.change(Change::Remove(moved));
        world.change(Change::AddLearner(moved));
        world.away.clear();
        // The leader speaks until the node hears that it is another replica now.
        let leader = world.lead();
        let letter = raft::Message {
            from: member(&mut world, leader),
            to: ReplicaId(4),
            term: world.node(leader).host.group(GROUP).unwrap().term(),
            body: raft::Body::Heartbeat { commit: types::RaftIndex(0), round: None },
        };
        world.tell(leader, moved, GROUP, &crate::Letter::Message(letter));
        for _ in 0..cut {
            world.run_job(moved);
        }
        was_cut += usize::from(world.node(moved).host.requests_waiting() > 0);
        world.restart(moved);
        world.ticks(60);
        assert_eq!(world.replica(moved), Some(ReplicaId(4)), "cut {cut}");
        world.propose("b");
        world.ticks(5);
        assert_eq!(world.texts(moved), "a b", "cut {cut}");
    }
    assert!(was_cut >= 3, "it takes several writes to become another replica: {was_cut}");
}

/// Nothing more is sent to a learner that has everything, so nothing more can tell that it has.
#[test]
fn a_learner_that_came_by_a_snapshot_gets_its_vote_while_nothing_happens() {
    let mut world = World::with_snapshots_after(4, 4);
    world.found(&[node(1), node(2), node(3)]);
    world.away.insert(node(4));
    world.change(Change::AddLearner(node(4)));
    world.ticks(30);
    // The snapshot covers everything, the entry that adds the learner included.
    let leader = world.lead();
    for number in 0..40 {
        world.propose(&number.to_string());
        let view = world.node(leader).host.stored(GROUP).unwrap();
        if number > 30 && view.snapshot.index == view.last.index {
            break;
        }
    }
    // That it has the snapshot is heard of before that it has arrived.
    world.loses_part_replies = true;
    world.away.clear();
    world.ticks(5);
    world.loses_part_replies = false;
    world.ticks(30);
    assert!(world.nodes[&node(4)].told.iter().any(|told| told.starts_with("restored")));
    world.change(Change::Promote(node(4)));
    let leader = world.lead();
    assert_eq!(world.node(leader).host.group(GROUP).unwrap().members().voters().count(), 4);
}

fn member(world: &mut World, id: NodeId) -> raft::Member {
    raft::Member { replica: world.replica(id).unwrap(), node: id }
}

/// The same on the way out.
#[test]
fn the_way_out_can_be_cut_anywhere() {
    for cut in 0..6 {
        let mut world = three_of_four();
        let removed = follower(&mut world);
        let replica = world.replica(removed).unwrap();
        world.change(Change::Remove(removed));
        world.tell(node(1), removed, GROUP, &crate::Letter::Forget(replica));
        for _ in 0..cut {
            world.run_job(removed);
        }
        world.restart(removed);
        world.ticks(60);
        assert!(!world.node(removed).host.has(GROUP), "cut {cut}");
        assert_eq!(world.node(removed).host.stored(GROUP), None, "cut {cut}");
    }
}

#[test]
fn the_list_is_written_as_a_whole_now_and_then() {
    let mut world = World::new(1);
    for group in 0..600 {
        world.ask(node(1), |host| host.found_group(VnodeId(group), &[node(1)]));
        world.settle();
    }
    assert!(world.node(node(1)).disk.names("snap").len() == 1, "the list's own");
    world.restart(node(1));
    assert_eq!(world.node(node(1)).host.groups().count(), 600);
    world.ticks(1);
    assert!(world.node(node(1)).host.groups().all(|(_, group)| group.is_ready()));
}
