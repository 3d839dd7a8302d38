//! Members that come and go.

use types::{NodeId, Term};

use super::harness::{Cluster, Node, node, outcome, settings};
use crate::*;

fn refused(cluster: &mut Cluster, at: types::NodeId, id: u64) -> Option<Refusal> {
    match outcome(&cluster.at(at).actions, id) {
        Some(Action::Refused { reason, .. }) => Some(reason),
        _ => None,
    }
}

#[test]
fn a_group_of_one_grows_to_three_and_survives_its_founder() {
    let (mut cluster, first) = Cluster::led(1);
    cluster.propose(first, 1, "a");
    for number in [2, 3] {
        cluster.reconfigure(first, 10 * number as u64, Change::AddLearner(node(number)));
        cluster.join(number, first);
        assert_eq!(cluster.at(node(number)).group.role(), Role::Learner);
        assert_eq!(cluster.at(node(number)).texts(), ["a"]);
        cluster.reconfigure(first, 10 * number as u64 + 1, Change::Promote(node(number)));
        assert_eq!(cluster.at(node(number)).group.role(), Role::Follower);
    }
    assert_eq!(cluster.at(first).group.members().voters().count(), 3);
    cluster.at(first).step(Event::Transfer { to: node(2) });
    cluster.settle();
    let leader = cluster.elect();
    cluster.reconfigure(leader, 40, Change::Remove(first));
    assert!(matches!(outcome(&cluster.at(leader).actions, 40), Some(Action::MembersChanged { .. })));
    cluster.nodes.remove(&first);
    cluster.propose(leader, 41, "b");
    cluster.agree_on(&["a", "b"]);
    for id in [node(2), node(3)] {
        assert_eq!(cluster.at(id).group.members().len(), 2);
    }
}

#[test]
fn changes_that_make_no_sense_are_refused_by_name() {
    let (mut cluster, leader) = Cluster::led(3);
    let other = cluster.others(leader)[0];
    for (id, change, reason) in [
        (1, Change::AddLearner(other), Unchangeable::AlreadyMember),
        (2, Change::Promote(other), Unchangeable::AlreadyVoter),
        (3, Change::Promote(node(9)), Unchangeable::NoSuchMember),
        (4, Change::Remove(node(9)), Unchangeable::NoSuchMember),
        (5, Change::Remove(leader), Unchangeable::IsLeader),
    ] {
        cluster.reconfigure(leader, id, change);
        assert_eq!(refused(&mut cluster, leader, id), Some(Refusal::Unchangeable(reason)));
    }
    cluster.reconfigure(other, 6, Change::AddLearner(node(9)));
    assert_eq!(refused(&mut cluster, other, 6), Some(Refusal::NotLeader { leader: Some(leader) }));
    // Nobody is there to catch up.
    cluster.reconfigure(leader, 7, Change::AddLearner(node(9)));
    cluster.reconfigure(leader, 8, Change::Promote(node(9)));
    assert_eq!(refused(&mut cluster, leader, 8), Some(Refusal::Unchangeable(Unchangeable::NotCaughtUp)));
    let (mut cluster, leader) = Cluster::led(1);
    cluster.reconfigure(leader, 1, Change::Remove(leader));
    assert_eq!(refused(&mut cluster, leader, 1), Some(Refusal::Unchangeable(Unchangeable::LastVoter)));
}

#[test]
fn one_change_at_a_time() {
    let (mut cluster, leader) = Cluster::led(3);
    let add = |number| Change::AddLearner(node(number));
    cluster.at(leader).step(Event::Reconfigure { id: ProposalId(1), change: add(8) });
    cluster.at(leader).step(Event::Reconfigure { id: ProposalId(2), change: add(9) });
    cluster.settle();
    assert_eq!(refused(&mut cluster, leader, 2), Some(Refusal::Busy));
    cluster.reconfigure(leader, 3, add(9));
    let members = cluster.at(leader).group.members().clone();
    assert_eq!(members.learners().map(|member| member.replica.0).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn a_learner_counts_for_nothing() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.reconfigure(leader, 1, Change::AddLearner(node(4)));
    cluster.join(4, leader);
    cluster.cut_off = cluster.others(leader).into_iter().filter(|id| *id != node(4)).collect();
    cluster.propose(leader, 2, "a");
    cluster.at(leader).step(Event::Read { id: ReadId(1) });
    cluster.settle();
    assert_eq!(outcome(&cluster.at(leader).actions, 2), None, "two copies of three voters");
    assert!(!cluster.at(leader).actions.contains(&Action::ReadReady { id: ReadId(1) }));
    cluster.ticks(60);
    assert_eq!(cluster.at(node(4)).group.role(), Role::Learner);
    assert_eq!(cluster.leader(), None);
}

#[test]
fn a_node_that_comes_back_is_another_replica_and_deaf_to_what_was_meant_for_the_first() {
    let (mut cluster, leader) = Cluster::led(3);
    let gone = cluster.others(leader)[0];
    let first = cluster.at(gone).group.replica();
    cluster.propose(leader, 1, "a");
    cluster.at(leader).propose(2, "b");
    let late: Vec<_> = cluster.at(leader).sent.iter().filter(|(to, _)| *to == gone).cloned().collect();
    assert!(!late.is_empty());
    cluster.settle();
    cluster.nodes.remove(&gone);
    cluster.reconfigure(leader, 3, Change::Remove(gone));
    cluster.reconfigure(leader, 4, Change::AddLearner(gone));
    let (second, _) = cluster.at(leader).group.members().of_node(gone).unwrap();
    assert!(second > first);
    let mut back =
        Node::new(Config { replica: Some(second), node: gone, ..settings(1) }, Recovered::default());
    back.step(Event::Start);
    for (_, message) in late {
        back.step(Event::Receive(message));
    }
    assert!(back.sent.is_empty() && back.writing.is_empty());
    cluster.nodes.insert(gone, back);
    cluster.agree_on(&["a", "b"]);
}

#[test]
fn a_leader_that_was_removed_stops_leading() {
    let (mut cluster, leader) = Cluster::led(3);
    // The next leader removes the old one; the old one is elected again with that entry in its log.
    let next = cluster.others(leader)[0];
    cluster.at(leader).step(Event::Transfer { to: next });
    cluster.settle();
    assert_eq!(cluster.elect(), next);
    cluster.at(next).step(Event::Reconfigure { id: ProposalId(1), change: Change::Remove(leader) });
    // Only the one that is to go hears of it, and is elected: it alone has the entry.
    let sent: Vec<_> = cluster.at(next).sent.drain(..).collect();
    for (to, message) in sent.into_iter().filter(|(to, _)| *to == leader) {
        cluster.deliver(next, to, message);
    }
    cluster.at(leader).write_all();
    cluster.cut_off = vec![next];
    assert_eq!(cluster.elect_any(), leader);
    cluster.ticks(1);
    assert_ne!(cluster.at(leader).group.role(), Role::Leader);
    assert_eq!(cluster.at(leader).group.members().of_node(leader), None);
    cluster.cut_off.clear();
    let now = cluster.elect();
    assert_ne!(now, leader);
    cluster.propose(now, 2, "a");
    assert_eq!(cluster.at(now).texts(), ["a"]);
}

#[test]
fn members_survive_restarts() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.reconfigure(leader, 1, Change::AddLearner(node(4)));
    cluster.join(4, leader);
    cluster.reconfigure(leader, 2, Change::Promote(node(4)));
    let members = cluster.at(leader).group.members().clone();
    for number in 1..=4 {
        cluster.restart(node(number));
    }
    let leader = cluster.elect();
    cluster.propose(leader, 3, "a");
    cluster.agree_on(&["a"]);
    for number in 1..=4 {
        assert_eq!(*cluster.at(node(number)).group.members(), members);
    }
}

#[test]
fn a_replica_that_left_may_forget_once_a_quorum_knows_durably_that_it_left() {
    let (mut cluster, leader) = Cluster::led(3);
    let gone = cluster.others(leader)[0];
    let stays = cluster.others(leader)[1];
    let replica = cluster.at(gone).group.replica();
    assert!(!cluster.at(leader).group.may_forget(replica), "it is a member");
    // The one that stays does not hear of it.
    cluster.cut_off = vec![stays];
    cluster.reconfigure(leader, 1, Change::Remove(gone));
    assert!(matches!(outcome(&cluster.at(leader).actions, 1), Some(Action::MembersChanged { .. })));
    assert!(!cluster.at(leader).group.may_forget(replica), "the other two may need its vote");
    cluster.cut_off.clear();
    cluster.ticks(3);
    assert!(cluster.at(leader).group.may_forget(replica));
    assert!(!cluster.at(stays).group.may_forget(replica), "only a leader knows");
    assert!(!cluster.at(leader).group.may_forget(ReplicaId(77)), "it may come yet");
    // Those that stay agree after a restart without it.
    cluster.nodes.remove(&gone);
    for id in [leader, stays] {
        cluster.restart(id);
    }
    let leader = cluster.elect();
    cluster.propose(leader, 2, "a");
    cluster.agree_on(&["a"]);
}

#[test]
fn a_group_that_shrinks_to_one_goes_on_after_a_restart() {
    let (mut cluster, leader) = Cluster::led(2);
    let gone = cluster.others(leader)[0];
    cluster.reconfigure(leader, 1, Change::Remove(gone));
    let replica = cluster.at(gone).group.replica();
    assert!(cluster.at(leader).group.may_forget(replica));
    cluster.nodes.remove(&gone);
    cluster.restart(leader);
    cluster.settle();
    assert!(cluster.at(leader).group.is_ready(), "it asks nobody");
}

/// A learner became a voter and has the longest log, and nobody has told it that the change is committed when the
/// leader is gone for good. It refused whoever asked for its vote, and never stood for election itself.
fn promoted_without_a_word() -> (Cluster, NodeId, NodeId) {
    let (mut cluster, leader) = Cluster::led(2);
    let other = cluster.others(leader)[0];
    let learner = node(3);
    cluster.reconfigure(leader, 1, Change::AddLearner(learner));
    cluster.join(3, leader);
    let send = |cluster: &mut Cluster, from: NodeId, heard: &[NodeId]| {
        cluster.at(from).write_all();
        for (to, message) in std::mem::take(&mut cluster.at(from).sent) {
            if heard.contains(&to) {
                cluster.deliver(from, to, message);
            }
        }
    };
    cluster.at(leader).step(Event::Reconfigure { id: ProposalId(2), change: Change::Promote(learner) });
    send(&mut cluster, leader, &[other, learner]);
    cluster.at(leader).propose(3, "late");
    send(&mut cluster, leader, &[learner]);
    send(&mut cluster, other, &[leader]);
    // It hears with a heartbeat how far of what it has is committed.
    send(&mut cluster, leader, &[]);
    (0..5).for_each(|_| cluster.at(leader).step(Event::Tick));
    send(&mut cluster, leader, &[other]);
    send(&mut cluster, learner, &[]);
    send(&mut cluster, other, &[]);
    assert_eq!(cluster.at(other).group.members().voters().count(), 3);
    assert_eq!(cluster.at(learner).group.role(), Role::Learner);
    cluster.nodes.remove(&leader);
    (cluster, other, learner)
}

#[test]
fn a_voter_learns_from_whoever_asks_for_its_vote_that_it_is_one() {
    let (mut cluster, _, learner) = promoted_without_a_word();
    let leader = cluster.elect();
    assert_eq!(leader, learner, "its log is the longer");
    cluster.propose(leader, 4, "a");
    cluster.agree_on(&["late", "a"]);
}

/// The same when whoever asks is in a later term, because its first real request was lost.
#[test]
fn a_voter_learns_it_from_a_later_term_too() {
    let (mut cluster, other, learner) = promoted_without_a_word();
    let term = cluster.at(other).group.term();
    cluster.at(other).stored.hard_state.term = Term(term.0 + 3);
    cluster.restart(other);
    let leader = cluster.elect();
    assert_eq!(leader, learner);
    cluster.propose(leader, 4, "a");
    cluster.agree_on(&["late", "a"]);
}
