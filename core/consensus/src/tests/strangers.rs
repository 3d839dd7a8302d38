//! Letters that nobody should have sent.

use bytes::Bytes;
use proptest::prelude::*;
use raft::{Body, Member, Message, ReplicaId};
use types::{RaftIndex, Term, VnodeId};

use super::world::{GROUP, World, node};
use crate::{Action, Config, Host, Letter};

fn heartbeat(from: u128, to: u64) -> Letter {
    let from = Member { replica: ReplicaId(77), node: node(from) };
    let body = Body::Heartbeat { commit: RaftIndex(0), round: None };
    Letter::Message(Message { from, to: ReplicaId(to), term: Term(1), body })
}

/// What a letter could have changed.
fn facts(world: &World) -> String {
    let node = &world.nodes[&node(1)];
    let groups: Vec<_> = node.host.groups().map(|(group, state)| (group, format!("{state:?}"))).collect();
    format!("{groups:?} {:?} {}", node.host.replica(GROUP), node.host.requests_waiting())
}

#[test]
fn letters_of_nobody_change_nothing() {
    let mut world = World::new(2);
    world.found(&[node(1)]);
    let before = facts(&world);
    // It speaks for another node.
    assert!(!world.tell(node(2), node(1), GROUP, &heartbeat(3, 9)));
    // It is for an earlier replica, or nobody's number.
    world.tell(node(2), node(1), GROUP, &heartbeat(2, 0));
    // Groups that are none.
    for number in [u64::MAX, u64::MAX - 1] {
        world.tell(node(2), node(1), VnodeId(number), &heartbeat(2, 5));
        world.tell(node(2), node(1), VnodeId(number), &Letter::Forget(ReplicaId(1)));
    }
    // Another replica, or another group.
    world.tell(node(2), node(1), GROUP, &Letter::Forget(ReplicaId(2)));
    world.tell(node(2), node(1), VnodeId(3), &Letter::Forget(ReplicaId(1)));
    world.tell(node(2), node(1), GROUP, &Letter::Asking(ReplicaId(1)));
    world.settle();
    assert_eq!(facts(&world), before);
    assert!(!world.has_told(node(1), "failed"));
}

proptest! {
    #[test]
    fn garbage_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..120), group in any::<u64>()) {
        prop_assume!(Letter::decode(bytes.clone().into()).is_err());
        let mut world = World::new(1);
        world.found(&[node(1)]);
        let before = facts(&world);
        world.ask(node(1), |host| {
            assert!(!host.receive(node(2), GROUP, bytes.clone().into()));
            assert!(!host.receive(node(2), VnodeId(group), bytes.into()));
        });
        world.settle();
        prop_assert_eq!(facts(&world), before);
    }
}

#[test]
fn letters_that_come_before_the_log_was_read_change_nothing() {
    let mut host = Host::new(Config::new(node(1), 1));
    host.start();
    // A leader wants to be heard by a replica that is here, as the log is about to say.
    assert!(host.receive(node(2), GROUP, heartbeat(2, 1).encode()));
    assert!(host.replica(GROUP).is_none() && !host.has(GROUP));
    let told: Vec<Action> = std::iter::from_fn(|| host.next_action()).collect();
    assert!(told.iter().all(|told| matches!(told, Action::Disk(_))), "{told:?}");
}

#[test]
fn a_cut_letter_is_no_letter() {
    let whole = heartbeat(2, 9).encode();
    for end in 0..whole.len() {
        assert!(Letter::decode(whole.slice(..end)).is_err());
    }
    assert!(Letter::decode(Bytes::from_static(&[9])).is_err());
}
