//! One member, driven event by event; the test plays the storage.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term};

use crate::*;

const NODE: NodeId = NodeId(7);

fn config() -> Config {
    Config { node: NODE, voters: vec![NODE], snapshot_bytes: 1000, snapshot_entries: 5 }
}

/// A member and what its storage would hold after a power loss now.
struct Member {
    group: Group,
    stored: Recovered,
    /// Asked for and not durable yet.
    writing: Vec<Persist>,
    /// Everything else it asked for.
    actions: Vec<Action>,
}

impl Member {
    fn new(stored: Recovered) -> Self {
        let group = Group::new(config(), stored.clone()).unwrap();
        Self { group, stored, writing: Vec::new(), actions: Vec::new() }
    }

    fn started() -> Self {
        let mut member = Self::new(Recovered::default());
        member.step(Event::Start);
        member.write_all();
        member.actions.clear();
        member
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.group.step(event, &mut out);
        for action in out {
            if let Action::Persist(persist) = action {
                self.writing.push(persist);
            } else {
                self.actions.push(action);
            }
        }
    }

    fn write_one(&mut self) {
        let persist = self.writing.remove(0);
        self.stored.hard_state = persist.hard_state;
        self.stored.entries.extend(persist.entries);
        self.step(Event::Persisted(persist.id));
    }

    fn write_all(&mut self) {
        while !self.writing.is_empty() {
            self.write_one();
        }
    }

    fn restarted(self) -> Self {
        Self::new(self.stored)
    }

    fn propose(&mut self, id: u64, text: &'static str) {
        self.step(Event::Propose { id: ProposalId(id), data: Bytes::from_static(text.as_bytes()) });
    }

    fn applied(&self) -> Vec<(&str, Option<u64>)> {
        let applied = |action: &Action| match action {
            Action::Apply { entry, proposal } => {
                let text = std::str::from_utf8(&entry.data).unwrap().to_owned();
                Some((&*text.leak(), proposal.map(|id| id.0)))
            }
            Action::Persist(_)
            | Action::Refused { .. }
            | Action::Unknown { .. }
            | Action::ReadReady { .. }
            | Action::ReadRefused { .. }
            | Action::TakeSnapshot(_)
            | Action::RoleChanged { .. } => None,
        };
        self.actions.iter().filter_map(applied).collect()
    }
}

#[test]
fn a_new_member_leads_once_its_vote_is_durable() {
    let mut member = Member::new(Recovered::default());
    assert_eq!((member.group.role(), member.group.leader()), (Role::Follower, None));
    member.step(Event::Start);
    assert_eq!(member.group.role(), Role::Candidate);
    let vote = HardState { term: Term(1), voted_for: Some(NODE), commit: RaftIndex(0) };
    assert_eq!(member.writing[0].hard_state, vote);
    member.propose(1, "too early");
    let reason = Refusal::NotLeader { leader: None };
    assert!(member.actions.contains(&Action::Refused { id: ProposalId(1), reason }));
    member.write_one();
    assert_eq!((member.group.role(), member.group.leader()), (Role::Leader, Some(NODE)));
    assert!(!member.group.is_ready());
    member.write_one();
    assert!(member.group.is_ready());
    assert_eq!(member.applied(), [], "the entry that opens a term is applied by nobody");
}

#[test]
fn an_entry_is_applied_when_it_is_durable_and_in_order() {
    let mut member = Member::started();
    member.propose(1, "a");
    member.propose(2, "b");
    assert_eq!(member.applied(), []);
    member.write_one();
    assert_eq!(member.applied(), [("a", Some(1))]);
    member.write_one();
    assert_eq!(member.applied(), [("a", Some(1)), ("b", Some(2))]);
    assert_eq!(member.group.applied(), RaftIndex(3));
}

#[test]
fn a_restart_leads_in_a_later_term_and_commits_what_it_finds() {
    let mut member = Member::started();
    member.propose(1, "a");
    member.write_all();
    member.propose(2, "stored and not known to be committed");
    let persist = member.writing.remove(0);
    member.stored.hard_state = persist.hard_state;
    member.stored.entries.extend(persist.entries);
    let mut member = member.restarted();
    member.step(Event::Start);
    // Its commit index says this much: it was stored with the entry after it.
    assert_eq!(member.applied(), [("a", None)]);
    assert_eq!(member.group.term(), Term(2));
    member.write_one();
    assert_eq!(member.applied().len(), 1, "an entry of an earlier term waits for one of this term");
    member.write_one();
    assert_eq!(member.applied()[1], ("stored and not known to be committed", None));
}

#[test]
fn an_entry_that_was_not_stored_is_gone_and_its_index_is_used_again() {
    let mut member = Member::started();
    member.propose(1, "never stored");
    let lost = member.writing[0].entries[0].clone();
    let mut member = member.restarted();
    member.step(Event::Start);
    member.write_all();
    let opening = member.stored.entries.last().unwrap();
    assert_eq!(opening.index, lost.index);
    assert!(opening.term > lost.term);
    assert_eq!(member.applied(), []);
}

#[test]
fn a_read_waits_until_the_term_is_open() {
    let mut member = Member::new(Recovered::default());
    member.step(Event::Read { id: ReadId(1) });
    let reason = Refusal::NotLeader { leader: None };
    assert_eq!(member.actions, [Action::ReadRefused { id: ReadId(1), reason }]);
    member.step(Event::Start);
    member.write_one();
    member.actions.clear();
    member.step(Event::Read { id: ReadId(2) });
    assert_eq!(member.actions, []);
    member.write_one();
    assert_eq!(member.actions, [Action::ReadReady { id: ReadId(2) }]);
    member.step(Event::Read { id: ReadId(3) });
    assert_eq!(member.actions[1], Action::ReadReady { id: ReadId(3) });
}

#[test]
fn a_failed_write_stops_the_member_and_nobody_knows_what_became_of_its_proposals() {
    let mut member = Member::started();
    member.propose(1, "a");
    member.propose(2, "b");
    let failed = member.writing[0].id;
    member.step(Event::PersistFailed(failed));
    let role = Action::RoleChanged { role: Role::Stopped, term: Term(1) };
    let unknown = |id| Action::Unknown { id: ProposalId(id) };
    assert_eq!(member.actions, [role, unknown(1), unknown(2)]);
    member.actions.clear();
    // The second write may still report; nothing comes of it.
    member.step(Event::Persisted(member.writing[1].id));
    member.step(Event::PersistFailed(member.writing[1].id));
    assert_eq!(member.actions, []);
    member.propose(3, "c");
    member.step(Event::Read { id: ReadId(1) });
    member.step(Event::Start);
    let reason = Refusal::Stopped;
    assert_eq!(
        member.actions,
        [Action::Refused { id: ProposalId(3), reason }, Action::ReadRefused { id: ReadId(1), reason }]
    );
}

#[test]
fn a_snapshot_is_asked_for_when_enough_was_applied_and_once_at_a_time() {
    let mut member = Member::started();
    for id in 0..20 {
        member.propose(id, "x");
        member.write_all();
    }
    let asked = |member: &Member| {
        member.actions.iter().filter(|action| matches!(action, Action::TakeSnapshot(_))).count()
    };
    assert_eq!(asked(&member), 1);
    let mark = SnapshotMark { index: RaftIndex(5), term: Term(1) };
    assert!(member.actions.contains(&Action::TakeSnapshot(mark)));
    member.step(Event::SnapshotFailed { index: mark.index });
    member.propose(20, "x");
    member.write_all();
    assert_eq!(asked(&member), 2);
    member.step(Event::SnapshotSaved { index: RaftIndex(5) });
    assert_eq!(member.group.snapshot(), SnapshotMark::default(), "that one failed");
    member.step(Event::SnapshotSaved { index: member.group.applied() });
    assert_eq!(member.group.snapshot().index, member.group.applied());
}

#[test]
fn a_restart_from_a_snapshot_goes_on_after_it() {
    let hard_state = HardState { term: Term(3), voted_for: Some(NODE), commit: RaftIndex(8) };
    let snapshot = SnapshotMark { index: RaftIndex(9), term: Term(3) };
    let entry = Entry { index: RaftIndex(10), term: Term(3), data: Bytes::from_static(b"after") };
    let mut member = Member::new(Recovered { hard_state, snapshot, entries: vec![entry] });
    assert_eq!((member.group.applied(), member.group.commit()), (RaftIndex(9), RaftIndex(9)));
    member.step(Event::Start);
    member.write_all();
    assert_eq!(member.applied(), [("after", None)]);
    assert_eq!(member.group.term(), Term(4));
}

#[test]
fn what_cannot_be_is_refused() {
    for voters in [vec![], vec![NodeId(8)], vec![NODE, NodeId(8)]] {
        let count = voters.len();
        let config = Config { voters, ..config() };
        assert_eq!(Group::new(config, Recovered::default()).err(), Some(Error::Unsupported(count)));
    }
    let entry = |index, term| Entry { index: RaftIndex(index), term: Term(term), data: Bytes::new() };
    let hard = |term, commit| HardState { term: Term(term), voted_for: None, commit: RaftIndex(commit) };
    let snapshot = SnapshotMark::default();
    for (hard_state, entries) in [
        (hard(5, 0), vec![entry(2, 1)]),
        (hard(5, 0), vec![entry(1, 2), entry(3, 2)]),
        (hard(5, 0), vec![entry(1, 2), entry(2, 1)]),
        (hard(1, 0), vec![entry(1, 2)]),
        (hard(5, 2), vec![entry(1, 2)]),
    ] {
        let outcome = Group::new(config(), Recovered { hard_state, snapshot, entries });
        assert!(matches!(outcome, Err(Error::Inconsistent(_))));
    }
}
