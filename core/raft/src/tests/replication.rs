//! Several members: elections, entries, reads, hand-overs, and members that were away.

use types::Term;

use super::harness::{Cluster, index, node, outcome};
use crate::*;

#[test]
fn a_group_elects_one_leader_and_all_apply_the_same() {
    for count in [2, 3, 5] {
        let (mut cluster, leader) = Cluster::led(count);
        for (id, text) in [(1, "a"), (2, "b"), (3, "c")] {
            cluster.propose(leader, id, text);
        }
        assert_eq!(cluster.at(leader).applied(), [("a", Some(1)), ("b", Some(2)), ("c", Some(3))]);
        cluster.agree_on(&["a", "b", "c"]);
        for id in cluster.others(leader) {
            assert_eq!(cluster.at(id).group.leader(), Some(leader));
        }
    }
}

#[test]
fn a_follower_says_who_leads() {
    let (mut cluster, leader) = Cluster::led(3);
    let follower = cluster.others(leader)[0];
    cluster.propose(follower, 1, "a");
    let reason = Refusal::NotLeader { leader: Some(leader) };
    assert_eq!(
        outcome(&cluster.at(follower).actions, 1),
        Some(Action::Refused { id: ProposalId(1), reason })
    );
    cluster.at(follower).step(Event::Read { id: ReadId(1) });
    assert!(cluster.at(follower).actions.contains(&Action::ReadRefused { id: ReadId(1), reason }));
}

#[test]
fn a_minority_that_is_away_is_missed_by_nobody_and_catches_up() {
    let (mut cluster, leader) = Cluster::led(5);
    cluster.cut_off = cluster.others(leader)[..2].to_vec();
    cluster.propose(leader, 1, "a");
    cluster.agree_on(&["a"]);
    cluster.cut_off.clear();
    cluster.agree_on(&["a"]);
}

#[test]
fn a_leader_without_a_quorum_steps_down_and_says_what_it_does_not_know() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.cut_off = vec![leader];
    cluster.propose(leader, 1, "never committed");
    cluster.at(leader).step(Event::Read { id: ReadId(1) });
    assert!(!cluster.at(leader).actions.contains(&Action::ReadReady { id: ReadId(1) }), "nobody confirmed");
    cluster.ticks(25);
    let old = cluster.at(leader);
    assert_ne!(old.group.role(), Role::Leader);
    assert_eq!(outcome(&old.actions, 1), Some(Action::Unknown { id: ProposalId(1) }));
    let refused = |action: &&Action| matches!(action, Action::ReadRefused { id: ReadId(1), .. });
    assert_eq!(old.actions.iter().filter(refused).count(), 1);
    let new = cluster.elect();
    assert_ne!(new, leader);
    cluster.propose(new, 2, "b");
    cluster.cut_off.clear();
    cluster.agree_on(&["b"]);
    // It was away, and did not raise its term meanwhile: the leader is left alone.
    assert_eq!(cluster.leader(), Some(new));
}

#[test]
fn a_read_waits_for_a_quorum_and_is_answered_with_others() {
    let (mut cluster, leader) = Cluster::led(3);
    for id in 1..=3 {
        cluster.at(leader).step(Event::Read { id: ReadId(id) });
    }
    let ready = |cluster: &mut Cluster| {
        let is_ready = |action: &&Action| matches!(action, Action::ReadReady { .. });
        cluster.at(leader).actions.iter().filter(is_ready).count()
    };
    assert_eq!(ready(&mut cluster), 0);
    // One round for the first, and one for those that came while it was under way.
    cluster.settle();
    assert_eq!(ready(&mut cluster), 3);
}

#[test]
fn a_read_is_repeated_until_it_is_heard() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.cut_off = cluster.others(leader);
    cluster.at(leader).step(Event::Read { id: ReadId(1) });
    cluster.settle();
    cluster.cut_off.clear();
    cluster.ticks(2);
    assert!(cluster.at(leader).actions.contains(&Action::ReadReady { id: ReadId(1) }));
}

#[test]
fn a_leader_hands_over_to_whom_it_is_told() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.propose(leader, 1, "a");
    let next = cluster.others(leader)[1];
    cluster.at(leader).step(Event::Transfer { to: next });
    cluster.propose(leader, 2, "refused while handing over");
    assert_eq!(cluster.leader(), Some(next));
    cluster.propose(next, 3, "b");
    cluster.agree_on(&["a", "b"]);
    // To nobody, to itself: nothing happens.
    for to in [node(9), next] {
        cluster.at(next).step(Event::Transfer { to });
        cluster.settle();
    }
    assert_eq!(cluster.leader(), Some(next));
}

#[test]
fn a_proposal_is_refused_while_the_leader_hands_over_to_somebody_silent() {
    let (mut cluster, leader) = Cluster::led(3);
    let next = cluster.others(leader)[0];
    cluster.cut_off = vec![next];
    cluster.propose(leader, 1, "a");
    cluster.at(leader).step(Event::Transfer { to: next });
    cluster.propose(leader, 2, "b");
    let refused = Action::Refused { id: ProposalId(2), reason: Refusal::Busy };
    assert_eq!(outcome(&cluster.at(leader).actions, 2), Some(refused));
    // It is given up after an election timeout.
    cluster.ticks(11);
    cluster.propose(leader, 3, "c");
    assert!(matches!(outcome(&cluster.at(leader).actions, 3), Some(Action::Apply { .. })));
}

#[test]
fn a_member_that_restarts_catches_up_and_leads_only_in_a_later_term() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.propose(leader, 1, "a");
    let term = cluster.at(leader).group.term();
    cluster.restart(leader);
    assert_eq!((cluster.at(leader).group.role(), cluster.at(leader).group.term()), (Role::Follower, term));
    for (id, text) in [(2, "b"), (3, "c")] {
        let leader = cluster.elect();
        assert!(cluster.at(leader).group.term() > term);
        cluster.propose(leader, id, text);
    }
    cluster.agree_on(&["a", "b", "c"]);
}

#[test]
fn everybody_restarts_at_once() {
    let (mut cluster, leader) = Cluster::led(5);
    cluster.propose(leader, 1, "a");
    cluster.ticks(3);
    for number in 1..=5 {
        cluster.restart(node(number));
    }
    let leader = cluster.elect();
    cluster.propose(leader, 2, "b");
    cluster.agree_on(&["a", "b"]);
}

#[test]
fn an_entry_that_one_member_has_is_replaced_when_others_go_on_without_it() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.cut_off = vec![leader];
    cluster.propose(leader, 1, "lost");
    assert_eq!(cluster.at(leader).stored.entries.last().unwrap().index, index(3));
    cluster.restart(leader);
    let new = cluster.elect();
    cluster.propose(new, 2, "b");
    cluster.cut_off.clear();
    cluster.agree_on(&["b"]);
    let (ours, theirs) = (cluster.at(leader).stored.entries.clone(), cluster.at(new).stored.entries.clone());
    assert_eq!(ours, theirs);
}

#[test]
fn a_group_that_is_idle_writes_nothing() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.propose(leader, 1, "a");
    cluster.ticks(3);
    let writes: Vec<_> = (1..=3).map(|number| cluster.at(node(number)).stored.hard_state).collect();
    for _ in 0..50 {
        for id in (1..=3).map(node) {
            cluster.at(id).step(Event::Tick);
            assert!(cluster.at(id).writing.is_empty());
        }
        cluster.settle();
    }
    let now: Vec<_> = (1..=3).map(|number| cluster.at(node(number)).stored.hard_state).collect();
    assert_eq!(now, writes);
}

#[test]
fn terms_do_not_grow_while_a_member_is_cut_off() {
    let (mut cluster, leader) = Cluster::led(3);
    let away = cluster.others(leader)[0];
    let term = cluster.at(leader).group.term();
    cluster.cut_off = vec![away];
    cluster.ticks(200);
    assert_eq!(cluster.at(away).group.term(), term, "it only asks whether it would be elected");
    cluster.cut_off.clear();
    cluster.ticks(20);
    assert_eq!((cluster.leader(), cluster.at(leader).group.term()), (Some(leader), term));
    assert!(term < Term(6), "elections were not repeated for ever");
}

#[test]
fn a_member_sees_the_progress_of_others() {
    let (mut cluster, leader) = Cluster::led(3);
    cluster.propose(leader, 1, "a");
    let last = cluster.at(leader).group.applied();
    let peers: Vec<PeerView> = cluster.at(leader).group.peers().collect();
    assert_eq!(peers.len(), 2);
    assert!(peers.iter().all(|peer| peer.matched == last && peer.is_active && peer.part == Part::Voter));
}
