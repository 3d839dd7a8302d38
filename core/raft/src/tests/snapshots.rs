//! Snapshots on their way to members that lag.

use bytes::Bytes;

use super::harness::{Cluster, Node, node, settings};
use crate::*;

/// A leader with a snapshot that covers its log, and a member that was away.
fn lagging() -> (Cluster, types::NodeId, types::NodeId) {
    let (mut cluster, leader) = Cluster::led(3);
    let away = cluster.others(leader)[0];
    cluster.cut_off = vec![away];
    for id in 0..40 {
        cluster.propose(leader, id, "some fifty bytes, so that a snapshot is due one day");
    }
    assert!(cluster.at(leader).ordered.is_some());
    // Nobody waits for a member that is not heard of.
    cluster.ticks(15);
    cluster.at(leader).save_snapshot();
    (cluster, leader, away)
}

fn restored(node: &Node) -> usize {
    node.actions.iter().filter(|action| matches!(action, Action::Restore { .. })).count()
}

#[test]
fn a_member_that_lags_behind_the_log_is_sent_a_snapshot() {
    let (mut cluster, leader, away) = lagging();
    cluster.cut_off.clear();
    cluster.ticks(20);
    let texts = vec!["some fifty bytes, so that a snapshot is due one day"; 40];
    cluster.agree_on(&texts);
    assert_eq!(restored(cluster.at(away)), 1);
    let mark = cluster.at(leader).group.snapshot();
    let node = cluster.at(away);
    assert_eq!((node.stored.snapshot, node.group.snapshot()), (mark, mark));
    // And it is a member like any other, also after a restart.
    cluster.restart(away);
    cluster.propose(leader, 50, "after");
    assert_eq!(cluster.at(away).texts().last(), Some(&"after"));
}

#[test]
fn a_snapshot_is_acknowledged_and_applied_once_it_is_durable() {
    let (mut cluster, leader, away) = lagging();
    cluster.cut_off.clear();
    for _ in 0..200 {
        for id in [leader, away] {
            cluster.at(id).step(Event::Tick);
            cluster.at(id).load_snapshot();
            for (to, message) in std::mem::take(&mut cluster.at(id).sent) {
                cluster.deliver(id, to, message);
            }
        }
        cluster.at(leader).write_all();
        if cluster.at(away).writing.iter().any(|persist| persist.snapshot.is_some()) {
            break;
        }
        cluster.at(away).write_all();
    }
    let node = cluster.at(away);
    let at = node.writing.iter().position(|persist| persist.snapshot.is_some()).expect("it was sent");
    let mark = node.writing[at].snapshot.as_ref().unwrap().mark;
    let tells = |node: &Node| {
        node.sent
            .iter()
            .any(|(_, message)| matches!(message.body, Body::Appended { index, .. } if index >= mark.index))
    };
    assert_eq!((tells(node), restored(node)), (false, 0));
    node.write_all();
    assert_eq!((tells(node), restored(node)), (true, 1));
}

#[test]
fn a_snapshot_survives_lost_repeated_and_reordered_parts() {
    let (mut cluster, _, away) = lagging();
    cluster.cut_off.clear();
    let mut round = 0_usize;
    while restored(cluster.at(away)) == 0 {
        round += 1;
        assert!(round < 400, "it never arrives");
        let ids: Vec<_> = cluster.nodes.keys().copied().collect();
        for id in ids {
            let node = cluster.at(id);
            node.step(Event::Tick);
            node.write_all();
            node.load_snapshot();
            for (at, (to, message)) in std::mem::take(&mut node.sent).into_iter().rev().enumerate() {
                if !(at + round).is_multiple_of(3) {
                    cluster.deliver(id, to, message.clone());
                }
                if !(at + round).is_multiple_of(2) {
                    cluster.deliver(id, to, message);
                }
            }
        }
    }
    let texts = vec!["some fifty bytes, so that a snapshot is due one day"; 40];
    cluster.agree_on(&texts);
}

#[test]
fn a_snapshot_that_cannot_be_read_is_asked_for_again() {
    let (mut cluster, leader, away) = lagging();
    cluster.cut_off.clear();
    let mut failed = 0;
    for _ in 0..100 {
        let is_load = |action: &Action| matches!(action, Action::LoadSnapshot { .. });
        if failed < 3 && cluster.at(leader).actions.iter().any(is_load) {
            failed += 1;
            cluster.at(leader).actions.retain(|action| !is_load(action));
            let mark = cluster.at(leader).group.snapshot();
            cluster.at(leader).step(Event::SnapshotNotLoaded { mark });
        }
        if failed < 3 {
            cluster.at(leader).step(Event::Tick);
            let ids: Vec<_> = cluster.nodes.keys().copied().collect();
            for id in ids {
                cluster.at(id).write_all();
                for (to, message) in std::mem::take(&mut cluster.at(id).sent) {
                    cluster.deliver(id, to, message);
                }
            }
        } else {
            cluster.tick();
        }
    }
    assert_eq!((failed, restored(cluster.at(away))), (3, 1));
}

#[test]
fn a_part_that_is_not_what_it_says_installs_nothing() {
    let (mut cluster, leader, away) = lagging();
    let from = Member { replica: cluster.at(leader).group.replica(), node: leader };
    let (to, term) = (cluster.at(away).group.replica(), cluster.at(leader).group.term());
    let Snapshot { mark, image } =
        Snapshot { mark: cluster.at(leader).stored.snapshot, image: cluster.at(leader).image.clone() };
    let mut torn = image.to_vec();
    torn[20] ^= 1;
    let none = Image::encode(&Members::founding(&[node(7), node(8), node(9)]), b"a list this node is not in");
    for bytes in [Bytes::from(torn), none] {
        let body = Body::Part { mark, total: bytes.len() as u64, offset: 0, bytes };
        cluster.at(away).sent.clear();
        cluster.at(away).step(Event::Receive(Message { from, to, term, body }));
        let (_, reply) = cluster.at(away).sent.pop_front().unwrap();
        assert_eq!(reply.body, Body::PartReply { mark, received: 0 });
        assert!(cluster.at(away).writing.is_empty());
    }
}

#[test]
fn a_new_member_is_sent_the_snapshot_and_knows_the_members() {
    let (mut cluster, leader, away) = lagging();
    cluster.cut_off.clear();
    cluster.ticks(20);
    cluster.reconfigure(leader, 100, Change::AddLearner(node(4)));
    cluster.join(4, leader);
    assert_eq!(restored(cluster.at(node(4))), 1);
    cluster.reconfigure(leader, 101, Change::Promote(node(4)));
    let members = cluster.at(leader).group.members().clone();
    assert_eq!(*cluster.at(node(4)).group.members(), members);
    // Two of four are away: what is agreed needs the new one.
    cluster.cut_off = vec![away];
    cluster.propose(leader, 102, "with the new one");
    assert_eq!(cluster.at(node(4)).texts().last(), Some(&"with the new one"));
}

#[test]
fn a_snapshot_from_a_leader_waits_for_the_one_that_is_being_taken() {
    let (mut cluster, leader, away) = lagging();
    let mut config = Config { snapshot_entries: 1, ..settings(1) };
    config.node = away;
    let stored = cluster.at(away).stored.clone();
    let mut node = Node::new(config, stored);
    node.step(Event::Start);
    cluster.nodes.insert(away, node);
    // What it is sent first it applies, and takes a snapshot of.
    let from = Member { replica: cluster.at(leader).group.replica(), node: leader };
    let (to, term) = (cluster.at(away).group.replica(), cluster.at(leader).group.term());
    let send = |body| Event::Receive(Message { from, to, term, body });
    let last = cluster.at(away).stored.entries.last().unwrap().clone();
    let previous = EntryId { index: last.index, term: last.term };
    let append = Body::Append { previous, commit: last.index, entries: Vec::new() };
    cluster.at(away).step(send(append));
    assert!(cluster.at(away).ordered.is_some());
    let (mark, bytes) = (cluster.at(leader).stored.snapshot, cluster.at(leader).image.clone());
    let part = Body::Part { mark, total: bytes.len() as u64, offset: 0, bytes };
    cluster.at(away).step(send(part));
    assert!(cluster.at(away).writing.is_empty());
    cluster.at(away).save_snapshot();
    assert!(cluster.at(away).writing.iter().any(|persist| persist.snapshot.is_some()));
}

// Seed 24472 of the first long run.
#[test]
fn a_member_does_not_stand_for_election_while_it_installs_a_snapshot() {
    let (mut cluster, leader, away) = lagging();
    let from = Member { replica: cluster.at(leader).group.replica(), node: leader };
    let (to, term) = (cluster.at(away).group.replica(), cluster.at(leader).group.term());
    let (mark, bytes) = (cluster.at(leader).stored.snapshot, cluster.at(leader).image.clone());
    let part = Body::Part { mark, total: bytes.len() as u64, offset: 0, bytes };
    for body in [part, Body::TakeOver] {
        cluster.at(away).step(Event::Receive(Message { from, to, term, body }));
    }
    assert!(cluster.at(away).writing.iter().any(|persist| persist.snapshot.is_some()));
    for _ in 0..100 {
        cluster.at(away).step(Event::Tick);
    }
    assert_eq!(cluster.at(away).group.role(), Role::Follower);
    cluster.at(away).write_all();
    (0..40).for_each(|_| cluster.at(away).step(Event::Tick));
    assert_eq!(cluster.at(away).group.role(), Role::Candidate);
}
