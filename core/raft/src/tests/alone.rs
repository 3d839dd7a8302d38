//! A group of one: it leads at once, without ticks and without anybody.

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term};

use super::harness::{Node, index, outcome};
use crate::entry::Payload;
use crate::*;

const NODE: NodeId = NodeId(7);
/// The number of a group's only founder, in the shape of a stored vote.
const ITSELF: Option<NodeId> = Some(NodeId(1));

fn config() -> Config {
    Config { snapshot_bytes: 1000, snapshot_entries: 5, ..Config::alone(NODE) }
}

fn started() -> Node {
    let mut node = Node::new(config(), Recovered::default());
    node.step(Event::Start);
    node.write_all();
    node.actions.clear();
    node
}

fn command(text: &'static str) -> Bytes {
    Payload::Command(Bytes::from_static(text.as_bytes())).encode().freeze()
}

#[test]
fn a_new_group_leads_once_its_vote_is_durable() {
    let mut node = Node::new(config(), Recovered::default());
    assert_eq!((node.group.role(), node.group.leader()), (Role::Follower, None));
    node.step(Event::Start);
    assert_eq!(node.group.role(), Role::Candidate);
    assert_eq!(node.actions, [Action::RoleChanged { role: Role::Candidate, term: Term(2) }]);
    // One write: who founded it, the vote, and the entry that opens the term.
    assert_eq!(node.writing.len(), 1);
    let vote = HardState { term: Term(2), voted_for: ITSELF, commit: index(1) };
    assert_eq!(node.writing[0].hard_state, vote);
    let terms: Vec<_> = node.writing[0].entries.iter().map(|entry| (entry.index.0, entry.term.0)).collect();
    assert_eq!(terms, [(1, 1), (2, 2)]);
    node.propose(1, "too early");
    let reason = Refusal::NotLeader { leader: None };
    assert!(node.actions.contains(&Action::Refused { id: ProposalId(1), reason }));
    node.write_one();
    assert_eq!((node.group.role(), node.group.leader()), (Role::Leader, Some(NODE)));
    assert!(node.group.is_ready());
    assert!(node.writing.is_empty() && node.sent.is_empty());
    assert_eq!(node.applied(), [], "the entry that opens a term is applied by nobody");
}

#[test]
fn an_entry_is_applied_when_it_is_durable_and_in_order() {
    let mut node = started();
    node.propose(1, "a");
    node.propose(2, "b");
    assert_eq!(node.applied(), []);
    node.write_one();
    assert_eq!(node.applied(), [("a", Some(1))]);
    node.write_one();
    assert_eq!(node.applied(), [("a", Some(1)), ("b", Some(2))]);
    assert_eq!(node.group.applied(), index(4));
    assert!(node.writing.is_empty(), "a commit alone is not worth a write");
}

#[test]
fn a_restart_leads_in_a_later_term_and_commits_what_it_finds() {
    let mut node = started();
    node.propose(1, "a");
    node.write_all();
    node.propose(2, "stored and not known to be committed");
    let persist = node.writing.pop_front().unwrap();
    node.store(&persist);
    let mut node = node.restarted();
    node.step(Event::Start);
    // Its commit index says this much: it was stored with the entry after it.
    assert_eq!(node.applied(), [("a", None)]);
    assert_eq!(node.group.term(), Term(3));
    node.write_one();
    assert_eq!(node.applied()[1], ("stored and not known to be committed", None));
    assert!(node.group.is_ready());
}

#[test]
fn an_entry_that_was_not_stored_is_gone_and_its_index_is_used_again() {
    let mut node = started();
    node.propose(1, "never stored");
    let lost = node.writing[0].entries[0].clone();
    let mut node = node.restarted();
    node.step(Event::Start);
    node.write_all();
    let opening = node.stored.entries.last().unwrap();
    assert_eq!(opening.index, lost.index);
    assert!(opening.term > lost.term);
    assert_eq!(node.applied(), []);
}

#[test]
fn a_start_that_was_not_stored_founds_the_same_group_again() {
    let mut node = Node::new(config(), Recovered::default());
    node.step(Event::Start);
    let first = node.writing[0].clone();
    let mut node = node.restarted();
    node.step(Event::Start);
    assert_eq!(node.writing[0], first);
}

#[test]
fn a_read_waits_until_the_term_is_open() {
    let mut node = Node::new(config(), Recovered::default());
    node.step(Event::Start);
    node.actions.clear();
    node.step(Event::Read { id: ReadId(1) });
    let reason = Refusal::NotLeader { leader: None };
    assert_eq!(node.actions, [Action::ReadRefused { id: ReadId(1), reason }]);
    node.write_one();
    node.actions.clear();
    node.step(Event::Read { id: ReadId(2) });
    node.step(Event::Read { id: ReadId(3) });
    let ready = |id| Action::ReadReady { id: ReadId(id) };
    assert_eq!(node.actions, [ready(2), ready(3)]);
}

#[test]
fn a_read_waits_for_nothing_that_was_proposed_before_and_is_not_committed() {
    let mut node = started();
    node.propose(1, "a");
    node.step(Event::Read { id: ReadId(1) });
    assert_eq!(node.actions, [Action::ReadReady { id: ReadId(1) }]);
}

#[test]
fn a_failed_write_stops_the_member_and_nobody_knows_what_became_of_its_proposals() {
    let mut node = started();
    node.propose(1, "a");
    node.propose(2, "b");
    let failed = node.writing[0].id;
    node.step(Event::PersistFailed(failed));
    let role = Action::RoleChanged { role: Role::Stopped, term: Term(2) };
    let unknown = |id| Action::Unknown { id: ProposalId(id) };
    assert_eq!(node.actions, [role, unknown(1), unknown(2)]);
    node.actions.clear();
    // The second write may still report; nothing comes of it.
    node.step(Event::Persisted(node.writing[1].id));
    node.step(Event::PersistFailed(node.writing[1].id));
    node.step(Event::Tick);
    assert_eq!(node.actions, []);
    node.propose(3, "c");
    node.step(Event::Read { id: ReadId(1) });
    node.step(Event::Start);
    let reason = Refusal::Stopped;
    assert_eq!(
        node.actions,
        [Action::Refused { id: ProposalId(3), reason }, Action::ReadRefused { id: ReadId(1), reason }]
    );
}

#[test]
fn a_snapshot_is_asked_for_when_enough_was_applied_and_once_at_a_time() {
    let mut node = started();
    for id in 0..20 {
        node.propose(id, "x");
        node.write_all();
    }
    let asked =
        |node: &Node| node.actions.iter().filter(|action| matches!(action, Action::TakeSnapshot(_))).count();
    assert_eq!(asked(&node), 1);
    let mark = SnapshotMark { index: index(6), term: Term(2) };
    let members = node.group.members().clone();
    assert!(node.actions.contains(&Action::TakeSnapshot(SnapshotOrder { mark, members })));
    node.step(Event::SnapshotFailed { index: mark.index });
    node.propose(20, "x");
    node.write_all();
    assert_eq!(asked(&node), 2);
    node.step(Event::SnapshotSaved { index: index(6) });
    assert_eq!(node.group.snapshot(), SnapshotMark::default(), "that one failed");
    node.step(Event::SnapshotSaved { index: node.group.applied() });
    assert_eq!(node.group.snapshot().index, node.group.applied());
}

#[test]
fn a_restart_from_a_snapshot_goes_on_after_it() {
    let mut node = started();
    for id in 0..5 {
        node.propose(id, "before");
        node.write_all();
    }
    node.save_snapshot();
    node.propose(5, "after");
    node.write_all();
    let mut node = node.restarted();
    assert!(
        node.group.applied() < node.group.commit() || node.group.applied() == node.group.snapshot().index
    );
    node.step(Event::Start);
    node.write_all();
    assert_eq!(node.texts().last(), Some(&"after"));
    assert_eq!(node.texts().len(), 6);
    assert_eq!(node.group.term(), Term(3));
    assert_eq!(node.group.members().voters().count(), 1);
}

#[test]
fn a_command_may_say_anything_and_be_empty() {
    let mut node = started();
    for (id, text) in [(1, ""), (2, "\u{2}"), (3, "\u{3}\u{1}")] {
        node.propose(id, text);
        node.write_all();
        assert_eq!(node.applied().last(), Some(&(text, Some(id))));
    }
    let large = Bytes::from(vec![0; types::limits::RAFT_COMMAND_BYTES_MAX + 1]);
    node.step(Event::Propose { id: ProposalId(4), data: large });
    let refused = Action::Refused { id: ProposalId(4), reason: Refusal::TooLarge };
    assert_eq!(outcome(&node.actions, 4), Some(refused));
}

#[test]
fn only_commands_make_a_log_that_is_not_blank() {
    let mut node = started();
    assert!(Recovered::default().is_blank() && node.stored.is_blank());
    node.propose(1, "a");
    node.write_all();
    assert!(!node.stored.is_blank());
}

#[test]
fn what_cannot_be_is_refused() {
    let new = |config, recovered| Group::new(config, recovered).err();
    let stranger = Config { voters: vec![NodeId(8)], ..config() };
    assert_eq!(new(stranger, Recovered::default()), Some(Error::NotAMember(NODE)));
    assert_eq!(new(Config::joining(NODE), Recovered::default()), Some(Error::NotAMember(NODE)));
    let many = Config { voters: (1..20).map(NodeId).collect(), ..config() };
    assert_eq!(new(many, Recovered::default()), Some(Error::TooManyMembers(19)));
    let hasty = Config { election_ticks: 4, heartbeat_ticks: 2, ..config() };
    assert_eq!(new(hasty, Recovered::default()), Some(Error::Timing));

    let founding = started().stored.entries[0].clone();
    let entry = |index, term| Entry { index: RaftIndex(index), term: Term(term), data: command("x") };
    let hard = |term, commit| HardState { term: Term(term), voted_for: None, commit: RaftIndex(commit) };
    let voted = |replica| HardState { voted_for: Some(NodeId(replica)), ..hard(5, 0) };
    let strange = Entry { data: Bytes::from_static(&[9]), ..entry(2, 1) };
    let second = Entry { index: RaftIndex(2), ..founding.clone() };
    for (hard_state, entries) in [
        (hard(5, 0), vec![entry(1, 1)]),
        (hard(5, 0), vec![entry(2, 1)]),
        (hard(5, 0), vec![founding.clone(), entry(3, 2)]),
        (hard(5, 0), vec![founding.clone(), entry(2, 2), entry(3, 1)]),
        (hard(5, 0), vec![founding.clone(), strange]),
        (hard(5, 0), vec![founding.clone(), second]),
        (hard(1, 0), vec![founding.clone(), entry(2, 2)]),
        (hard(5, 2), vec![founding.clone()]),
        (voted(0), vec![founding.clone()]),
        (voted(u128::MAX), vec![founding.clone()]),
    ] {
        let recovered = Recovered { hard_state, entries, ..Recovered::default() };
        let outcome = Group::new(config(), recovered.clone()).err();
        assert!(matches!(outcome, Some(Error::Inconsistent(_))), "{recovered:?}: {outcome:?}");
    }
    let snapshot = SnapshotMark { index: RaftIndex(3), term: Term(1) };
    let memberless = Recovered { hard_state: hard(5, 0), snapshot, ..Recovered::default() };
    assert!(matches!(new(config(), memberless), Some(Error::Inconsistent(_))));
}

#[test]
fn proposals_that_wait_are_bounded() {
    let mut node = started();
    for id in 0..=types::limits::RAFT_PROPOSALS_MAX as u64 {
        node.propose(id, "x");
        node.writing.truncate(1);
    }
    let last = types::limits::RAFT_PROPOSALS_MAX as u64;
    let refused = Action::Refused { id: ProposalId(last), reason: Refusal::Busy };
    assert_eq!(node.actions, [refused]);
}
