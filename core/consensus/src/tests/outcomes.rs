//! Whatever becomes of a replica, who asked it for something is answered once.

use raft::Change;

use super::world::{GROUP, World, node};
use crate::Letter;

#[test]
fn an_old_leader_that_is_replaced_answers_what_it_was_asked() {
    let mut world = World::new(3);
    world.found(&[node(1), node(2), node(3)]);
    let old = world.lead();
    let replica = world.replica(old).unwrap();
    world.away.insert(old);
    let (proposal, read) = (world.propose_at(old, "never"), world.read_at(old));
    // It still believes to lead when it is told that it left.
    world.tell(node(1), old, GROUP, &Letter::Forget(replica));
    world.settle();
    assert_eq!(world.times_told(old, &format!("unknown {proposal}")), 1);
    assert_eq!(world.times_told(old, &format!("read refused {read}")), 1);
    let late = world.propose_at(old, "later");
    assert!(world.has_told(old, &format!("refused {late}")));
}

#[test]
fn what_waits_when_a_successor_is_wanted_is_answered_too() {
    let mut world = World::new(4);
    world.found(&[node(1), node(2), node(3)]);
    let old = world.lead();
    world.away.insert(old);
    let proposal = world.propose_at(old, "never");
    world.ticks(1);
    world.change(Change::Remove(old));
    world.change(Change::AddLearner(old));
    world.away.clear();
    world.ticks(40);
    assert_eq!(world.times_told(old, &format!("unknown {proposal}")), 1);
    assert_eq!(world.replica(old).unwrap().0, 4);
}

#[test]
fn a_snapshot_of_an_earlier_replica_is_not_saved_as_its_successors() {
    let mut world = World::with_snapshots_after(1, 2);
    world.found(&[node(1)]);
    world.propose("a");
    let members = world.node(node(1)).host.group(GROUP).unwrap().members().clone();
    let mark = raft::SnapshotMark { index: types::RaftIndex(900), term: types::Term(1) };
    let order = raft::SnapshotOrder { mark, members };
    world.ask(node(1), |host| host.save(GROUP, &order, b"a stranger's"));
    world.ask(node(1), |host| host.not_saved(GROUP, &order));
    world.settle();
    world.propose("b");
    world.restart(node(1));
    assert_eq!(world.texts(node(1)), "a b");
}
