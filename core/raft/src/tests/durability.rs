//! Nothing is disclosed before it is durable.

use super::harness::{Cluster, Node, node, settings};
use crate::*;

/// Three founders, before anything was delivered.
fn founders() -> Vec<Node> {
    let voters: Vec<_> = (1..=3).map(node).collect();
    let config = |number| Config { voters: voters.clone(), ..settings(number) };
    let mut nodes: Vec<Node> =
        (1..=3).map(|number| Node::new(config(number), Recovered::default())).collect();
    for node in &mut nodes {
        node.step(Event::Start);
    }
    nodes
}

fn tick_until_it_asks(node: &mut Node) {
    for _ in 0..50 {
        node.step(Event::Tick);
        if node.group.role() == Role::Candidate {
            return;
        }
    }
    panic!("it never stands for election");
}

#[test]
fn a_founder_asks_for_nothing_before_its_group_is_durable() {
    let mut node = founders().remove(0);
    tick_until_it_asks(&mut node);
    assert!(node.sent.is_empty());
    node.write_one();
    assert_eq!(node.sent.len(), 2);
}

#[test]
fn a_vote_is_asked_for_and_given_once_the_term_is_durable() {
    let mut nodes = founders();
    nodes.iter_mut().for_each(Node::write_all);
    let [candidate, voter, _] = &mut nodes[..] else { panic!("there are three") };
    tick_until_it_asks(candidate);
    // Whether it would be elected binds nobody.
    let (_, ask) = candidate.sent.pop_front().unwrap();
    assert!(matches!(ask.body, Body::Vote { pre: true, .. }));
    voter.step(Event::Receive(ask));
    assert!(voter.writing.is_empty());
    let (_, would) = voter.sent.pop_front().unwrap();
    candidate.sent.clear();
    candidate.step(Event::Receive(would));
    // The request reveals the candidate's term and its vote for itself.
    assert_eq!((candidate.writing.len(), candidate.sent.len()), (1, 0));
    candidate.write_one();
    let (_, ask) = candidate.sent.pop_front().unwrap();
    assert!(matches!(ask.body, Body::Vote { pre: false, .. }));
    candidate.sent.clear();
    voter.step(Event::Receive(ask.clone()));
    assert_eq!((voter.writing.len(), voter.sent.len()), (1, 0));
    assert_eq!(voter.writing[0].hard_state.term, ask.term);
    assert!(voter.writing[0].hard_state.voted_for.is_some());
    voter.write_one();
    let (_, given) = voter.sent.pop_front().unwrap();
    assert!(matches!(given.body, Body::VoteReply { pre: false, granted: true, .. }));
    candidate.step(Event::Receive(given));
    assert_eq!(candidate.group.role(), Role::Leader);
    // The leader's entries travel while its own copy is on its way to the disk.
    assert_eq!((candidate.writing.len(), candidate.sent.len()), (1, 2));
}

#[test]
fn an_entry_counts_on_whom_it_is_durable() {
    let (mut cluster, leader) = Cluster::led(3);
    let follower = cluster.others(leader)[0];
    cluster.at(leader).propose(1, "a");
    let sent: Vec<_> = cluster.at(leader).sent.drain(..).collect();
    let (_, append) = sent.into_iter().find(|(to, _)| *to == follower).unwrap();
    cluster.at(follower).step(Event::Receive(append));
    assert!(cluster.at(follower).sent.is_empty(), "it is not durable there");
    cluster.at(follower).write_one();
    let (_, reply) = cluster.at(follower).sent.pop_front().unwrap();
    cluster.at(leader).step(Event::Receive(reply));
    assert_eq!(cluster.at(leader).applied(), [], "one copy of three; the leader's own is on its way");
    cluster.at(leader).write_one();
    assert_eq!(cluster.at(leader).applied(), [("a", Some(1))]);
}

#[test]
fn a_quorum_without_the_leader_commits_and_the_leader_applies_when_it_has_it_itself() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.at(leader).propose(1, "a");
    for (to, message) in std::mem::take(&mut cluster.at(leader).sent) {
        cluster.at(to).step(Event::Receive(message));
        cluster.at(to).write_all();
        for (_, message) in std::mem::take(&mut cluster.at(to).sent) {
            cluster.at(leader).step(Event::Receive(message));
        }
    }
    let commit = cluster.at(leader).group.commit();
    assert_eq!(commit, cluster.at(leader).writing[0].entries[0].index, "two of three have it");
    assert_eq!(cluster.at(leader).applied(), []);
    cluster.at(leader).write_one();
    assert_eq!(cluster.at(leader).applied(), [("a", Some(1))]);
}

#[test]
fn a_leader_by_its_own_vote_alone_says_nothing_before_its_term_is_durable() {
    // One voter and one learner: the voter wins without asking anybody.
    let (mut cluster, voter) = Cluster::led(1);
    cluster.reconfigure(voter, 1, Change::AddLearner(node(2)));
    cluster.join(2, voter);
    cluster.restart(voter);
    let leader = cluster.at(voter);
    assert_eq!(leader.group.role(), Role::Candidate);
    assert!(leader.sent.is_empty(), "a restart could use the term again");
    leader.write_one();
    assert_eq!(leader.group.role(), Role::Leader);
    assert!(!leader.sent.is_empty());
    cluster.agree_on(&[]);
}

#[test]
fn every_write_carries_the_commit_index() {
    let (mut cluster, leader) = Cluster::led(3);
    for id in 1..5 {
        cluster.propose(leader, id, "x");
        let stored = &cluster.at(leader).stored;
        let last = stored.entries.last().unwrap().index;
        assert_eq!(stored.hard_state.commit.0, last.0 - 1, "what was committed when it was written");
    }
}
