//! Messages that cannot be true: they change nothing, or stop the member that may have lost something.

use bytes::Bytes;
use proptest::prelude::*;
use types::{RaftIndex, Term};

use super::harness::{Cluster, index, node};
use crate::entry::Payload;
use crate::message::tests::body;
use crate::*;

/// A follower of a group of three with some entries, who leads, and in which term.
struct Scene {
    cluster: Cluster,
    follower: types::NodeId,
    from: Member,
    term: Term,
}

impl Scene {
    fn new() -> Self {
        let (mut cluster, leader) = Cluster::led(3);
        for id in 1..5 {
            cluster.propose(leader, id, "x");
        }
        cluster.ticks(3);
        let follower = cluster.others(leader)[0];
        let from = Member { replica: cluster.at(leader).group.replica(), node: leader };
        let term = cluster.at(leader).group.term();
        Self { cluster, follower, from, term }
    }

    fn message(&mut self, body: Body) -> Message {
        let to = self.cluster.at(self.follower).group.replica();
        Message { from: self.from, to, term: self.term, body }
    }

    /// What the follower does about a message.
    fn receive(&mut self, message: Message) -> Role {
        let follower = self.cluster.at(self.follower);
        follower.sent.clear();
        follower.step(Event::Receive(message));
        follower.group.role()
    }

    fn is_untouched_by(&mut self, message: Message) {
        let before = format!("{:?}", self.cluster.at(self.follower).group);
        self.receive(message);
        let follower = self.cluster.at(self.follower);
        assert!(follower.sent.is_empty() && follower.writing.is_empty());
        assert_eq!(format!("{:?}", follower.group), before);
    }
}

fn heartbeat(commit: RaftIndex) -> Body {
    Body::Heartbeat { commit, round: None }
}

#[test]
fn what_is_for_somebody_else_or_from_nobody_is_dropped() {
    let mut scene = Scene::new();
    let good = scene.message(heartbeat(index(1)));
    let stranger = Member { node: node(9), ..good.from };
    for bad in [
        Message { to: ReplicaId(9), ..good.clone() },
        Message { from: Member { replica: good.to, node: scene.follower }, ..good.clone() },
        Message { from: stranger, ..good.clone() },
        Message { term: Term(1 << 40), ..good.clone() },
    ] {
        scene.is_untouched_by(bad);
    }
    assert_eq!(scene.receive(good), Role::Follower);
    assert_eq!(scene.cluster.at(scene.follower).sent.len(), 1, "a good one is answered");
}

#[test]
fn a_leader_that_takes_entries_for_stored_here_that_are_not_stops_the_member() {
    let mut scene = Scene::new();
    let message = scene.message(heartbeat(index(100)));
    assert_eq!(scene.receive(message), Role::Stopped);
    let actions = &scene.cluster.at(scene.follower).actions;
    assert!(actions.iter().any(|action| matches!(action, Action::Contradiction(Contradiction::Lacking))));
    // A late one, of a leader that is none any more, says nothing.
    let mut scene = Scene::new();
    let late = scene.message(heartbeat(index(100)));
    scene.is_untouched_by_but_answered(Message { term: Term(1), ..late });
}

impl Scene {
    fn is_untouched_by_but_answered(&mut self, message: Message) {
        assert_eq!(self.receive(message), Role::Follower);
        assert!(self.cluster.at(self.follower).writing.is_empty());
    }
}

#[test]
fn a_conflict_with_what_is_committed_stops_the_member() {
    let data = Payload::Command(Bytes::from_static(b"another")).encode().freeze();
    for previous in [EntryId { index: index(3), term: Term(2) }, EntryId { index: index(3), term: Term(9) }] {
        let mut scene = Scene::new();
        scene.term = Term(9);
        let entries = vec![Entry { index: index(4), term: Term(9), data: data.clone() }];
        let message = scene.message(Body::Append { previous, commit: index(3), entries });
        let before = scene.cluster.at(scene.follower).stored.entries.clone();
        assert_eq!(scene.receive(message), Role::Stopped);
        assert_eq!(scene.cluster.at(scene.follower).stored.entries, before);
        assert!(scene.cluster.at(scene.follower).writing.is_empty());
    }
}

#[test]
fn two_leaders_of_one_term_stop_the_one_that_hears_of_it() {
    let (mut cluster, leader) = Cluster::led(3);
    let other = cluster.others(leader)[0];
    let from = Member { replica: cluster.at(other).group.replica(), node: other };
    let (to, term) = (cluster.at(leader).group.replica(), cluster.at(leader).group.term());
    cluster.at(leader).step(Event::Receive(Message { from, to, term, body: heartbeat(index(0)) }));
    assert_eq!(cluster.at(leader).group.role(), Role::Stopped);
}

#[test]
fn an_answer_about_entries_that_are_not_there_is_dropped() {
    let (mut cluster, leader) = Cluster::led(3);
    let other = cluster.others(leader)[0];
    let from = Member { replica: cluster.at(other).group.replica(), node: other };
    let (to, term) = (cluster.at(leader).group.replica(), cluster.at(leader).group.term());
    let commit = cluster.at(leader).group.commit();
    for body in [
        Body::Appended { index: index(1000), commit },
        Body::Rejected { index: index(1000), hint: EntryId { index: index(999), term }, commit },
        Body::PartReply { mark: SnapshotMark { index: index(5), term }, received: 7 },
        Body::HeartbeatReply { commit: index(1000), round: Some(77) },
        Body::VoteReply { pre: true, granted: true, commit: EntryId::default() },
        Body::TakeOver,
    ] {
        cluster.at(leader).step(Event::Receive(Message { from, to, term, body }));
    }
    cluster.settle();
    assert_eq!((cluster.leader(), cluster.at(leader).group.commit()), (Some(leader), commit));
    cluster.propose(leader, 1, "a");
    cluster.agree_on(&["a"]);
}

#[test]
fn only_the_leader_makes_somebody_stand_for_election() {
    let mut scene = Scene::new();
    let other = scene.cluster.others(scene.from.node).into_iter().find(|id| *id != scene.follower).unwrap();
    let from = Member { replica: scene.cluster.at(other).group.replica(), node: other };
    let message = scene.message(Body::TakeOver);
    scene.is_untouched_by(Message { from, ..message.clone() });
    assert_eq!(scene.receive(message), Role::Candidate);
}

#[test]
fn a_pre_vote_tells_what_is_committed_together_with_its_term() {
    let (mut cluster, leader) = Cluster::led(3);
    let follower = cluster.others(leader)[0];
    cluster.at(leader).propose(1, "a");
    let sent: Vec<_> = cluster.at(leader).sent.drain(..).collect();
    for (to, message) in sent.into_iter().filter(|(to, _)| *to == follower) {
        cluster.deliver(leader, to, message);
    }
    cluster.at(follower).write_all();
    let (known, last) = (cluster.at(follower).group.commit(), cluster.at(follower).stored.entries.last());
    let last = last.map(|entry| EntryId { index: entry.index, term: entry.term }).unwrap();
    assert!(known < last.index);
    let other = cluster.others(leader)[1];
    let from = Member { replica: cluster.at(other).group.replica(), node: other };
    let (to, term) = (cluster.at(follower).group.replica(), cluster.at(follower).group.term());
    let body = Body::Vote {
        pre: true,
        transfer: false,
        last: EntryId { index: index(1), term: Term(1) },
        commit: last,
    };
    // What a member of a term six later knows; it stands for the one after that.
    let ask = || Event::Receive(Message { from, to, term: Term(term.0 + 7), body: body.clone() });
    let told = |cluster: &mut Cluster| {
        let group = &cluster.at(follower).group;
        (group.term(), group.commit())
    };
    cluster.at(follower).sent.clear();
    cluster.at(follower).step(ask());
    assert_eq!(told(&mut cluster), (term, known), "the leader is heard of");
    assert!(cluster.at(follower).sent.is_empty());
    // It is not for a while, so that the question is answered; with no, because of a shorter log.
    for _ in 0..10 {
        cluster.at(follower).step(Event::Tick);
    }
    cluster.at(follower).step(ask());
    cluster.at(follower).write_all();
    let (_, reply) = cluster.at(follower).sent.pop_front().unwrap();
    assert!(matches!(reply.body, Body::VoteReply { pre: true, granted: false, .. }));
    assert_eq!(told(&mut cluster), (Term(term.0 + 6), last.index));
    // Whoever led before it may lack what is committed: it is not followed any more.
    let from = Member { replica: cluster.at(leader).group.replica(), node: leader };
    let body = Body::Heartbeat { commit: known, round: None };
    cluster.at(follower).step(Event::Receive(Message { from, to, term, body }));
    assert_eq!(cluster.at(follower).group.leader(), None);
}

#[test]
fn nothing_happens_before_the_start() {
    let mut scene = Scene::new();
    let message = scene.message(heartbeat(index(1)));
    let follower = scene.cluster.nodes.remove(&scene.follower).unwrap();
    let mut follower = follower.restarted();
    follower.step(Event::Receive(message));
    follower.step(Event::Tick);
    follower.propose(1, "a");
    follower.step(Event::Read { id: ReadId(1) });
    assert!(follower.sent.is_empty() && follower.writing.is_empty());
    assert_eq!(follower.actions.len(), 2, "both are refused");
}

#[derive(Clone, Debug)]
enum Happening {
    Message { from: u64, term: u64, body: Body },
    Write,
    Tick,
    Propose,
    Read,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => (1_u64..5, 1_u64..6, small(body())).prop_map(|(from, term, body)| Happening::Message { from, term, body }),
        3 => Just(Happening::Write),
        3 => Just(Happening::Tick),
        1 => Just(Happening::Propose),
        1 => Just(Happening::Read),
    ]
}

/// Indexes where the log is, so that more than the first check is met.
fn small(body: impl Strategy<Value = Body>) -> impl Strategy<Value = Body> {
    body.prop_map(|body| match body {
        Body::Appended { index, commit } => {
            Body::Appended { index: RaftIndex(index.0 % 12), commit: RaftIndex(commit.0 % 12) }
        }
        Body::Heartbeat { commit, round } => Body::Heartbeat { commit: RaftIndex(commit.0 % 9), round },
        Body::Append { previous, commit, mut entries } => {
            let index = RaftIndex(2 + previous.index.0 % 8);
            let previous = EntryId { index, term: Term(1 + previous.term.0 % 3) };
            let founding =
                |entry: &Entry| crate::entry::is_about_members(&entry.data) && entry.index == RaftIndex(1);
            entries.retain(|entry| !founding(entry));
            for (entry, at) in entries.iter_mut().zip(1..) {
                entry.index = RaftIndex(index.0 + at);
                entry.term = previous.term;
            }
            Body::Append { previous, commit: RaftIndex(commit.0 % 12), entries }
        }
        other => other,
    })
}

proptest! {
    #[test]
    fn no_message_makes_a_member_panic(happenings in prop::collection::vec(happening(), 0..60), leads in any::<bool>()) {
        let (mut cluster, leader) = Cluster::led(3);
        cluster.propose(leader, 1, "a");
        let id = if leads { leader } else { cluster.others(leader)[0] };
        let member = cluster.at(id);
        let to = member.group.replica();
        for happening in happenings {
            match happening {
                Happening::Message { from, term, body } => {
                    let from = Member { replica: ReplicaId(from), node: node(from.into()) };
                    let message = Message { from, to, term: Term(term), body };
                    // Only what decodes gets this far.
                    if let Ok(message) = Message::decode(message.encode()) {
                        member.step(Event::Receive(message));
                    }
                }
                Happening::Write if !member.writing.is_empty() => member.write_one(),
                Happening::Write => {}
                Happening::Tick => member.step(Event::Tick),
                Happening::Propose => member.propose(9, "x"),
                Happening::Read => member.step(Event::Read { id: ReadId(9) }),
            }
            prop_assert!(member.group.applied() <= member.group.commit());
        }
    }
}
