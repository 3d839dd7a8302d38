//! One member of one group: the step function and its state.
//!
//! Invariants:
//! - nothing binding is acted upon before its [`Event::Persisted`]: a vote counts, an entry commits, only
//!   once it is durable here;
//! - a member that restarts is a follower of a term it has already seen, and leads, if at all, in a *later*
//!   one: entries it had sent but not stored are never taken up again under their old term;
//! - an entry commits by being stored on a quorum only if it is of the leader's own term (Raft, section
//!   5.4.2), so what a restart finds commits with the empty entry that opens the new term;
//! - a read waits for that entry: before it, the leader cannot know what is committed;
//! - entries are applied in order, each once.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term, quorum};

use crate::event::{
    Action, Entry, Event, HardState, Persist, PersistId, ProposalId, ReadId, Refusal, Role, SnapshotMark,
};

/// What a member must be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member.
    pub node: NodeId,
    /// All voters, this one included.
    pub voters: Vec<NodeId>,
    /// A snapshot is asked for when the entries applied since the last one hold this many bytes.
    pub snapshot_bytes: u64,
    /// Or when there are this many of them.
    pub snapshot_entries: u64,
}

/// What storage holds of the member.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// All zero for a new member.
    pub hard_state: HardState,
    /// The snapshot the machine was restored from; all zero when there is none.
    pub snapshot: SnapshotMark,
    /// Contiguous, from the entry after the snapshot.
    pub entries: Vec<Entry>,
}

/// Why a member cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This build agrees among one.
    #[error("a group of {0} members: this build supports one, the node itself")]
    Unsupported(usize),
    /// What was recovered contradicts itself.
    #[error("recovered state is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// One member of one group.
#[derive(Debug)]
pub struct Group {
    config: Config,
    hard_state: HardState,
    role: Role,
    snapshot: SnapshotMark,
    /// The last entry in the log, stored or on its way.
    last: SnapshotMark,
    /// Entries not applied yet, contiguous up to `last`.
    unapplied: VecDeque<Entry>,
    /// The last entry applied.
    applied: SnapshotMark,
    /// What each voter holds durably; the leader's own copy counts like any other.
    matched: BTreeMap<NodeId, RaftIndex>,
    /// Index of the empty entry that opens the term this member leads.
    opened: RaftIndex,
    persists: Persists,
    proposals: BTreeMap<RaftIndex, ProposalId>,
    reads: VecDeque<ReadId>,
    since_snapshot: Applied,
    /// A snapshot that was asked for and not reported yet.
    taking: Option<SnapshotMark>,
}

/// Persists on their way to storage, in order, with what each makes true.
#[derive(Debug, Default)]
struct Persists {
    next: u64,
    waiting: VecDeque<(PersistId, Promise)>,
}

#[derive(Clone, Copy, Debug)]
enum Promise {
    /// The vote for itself in this term.
    Vote(Term),
    /// Every entry up to this one.
    Entries(RaftIndex),
}

#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    bytes: u64,
    entries: u64,
}

impl Group {
    /// The member as storage has it: a follower, until [`Event::Start`].
    pub fn new(config: Config, recovered: Recovered) -> Result<Self, Error> {
        if config.voters != [config.node] {
            return Err(Error::Unsupported(config.voters.len()));
        }
        let Recovered { hard_state, snapshot, entries } = recovered;
        let last = check(hard_state, snapshot, &entries)?;
        let matched = BTreeMap::from([(config.node, last.index)]);
        let mut hard_state = hard_state;
        hard_state.commit = hard_state.commit.max(snapshot.index);
        Ok(Self {
            config,
            hard_state,
            role: Role::Follower,
            snapshot,
            last,
            unapplied: entries.into(),
            applied: snapshot,
            matched,
            opened: RaftIndex::ZERO,
            persists: Persists::default(),
            proposals: BTreeMap::new(),
            reads: VecDeque::new(),
            since_snapshot: Applied::default(),
            taking: None,
        })
    }

    /// Takes one event and adds what must be done about it.
    pub fn step(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Start => self.campaign(out),
            Event::Propose { id, data } => self.propose(id, data, out),
            Event::Persisted(id) => self.persisted(id, out),
            Event::PersistFailed(id) => self.persist_failed(id, out),
            Event::Read { id } => self.read(id, out),
            Event::SnapshotSaved { index } => self.snapshot_saved(index),
            Event::SnapshotFailed { index } => self.snapshot_failed(index),
        }
    }

    /// The member's part.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The member's term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.hard_state.term
    }

    /// Who leads, if known.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        (self.role == Role::Leader).then_some(self.config.node)
    }

    /// Whether the member leads and has applied everything that earlier leaders committed, so that proposals
    /// and reads are answered without waiting for the start of its term.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.role == Role::Leader && self.applied.index >= self.opened
    }

    /// Highest index known to be committed.
    #[must_use]
    pub fn commit(&self) -> RaftIndex {
        self.hard_state.commit
    }

    /// Highest index applied.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied.index
    }

    /// The last durable snapshot.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotMark {
        self.snapshot
    }

    fn campaign(&mut self, out: &mut Vec<Action>) {
        if self.role != Role::Follower {
            return;
        }
        self.hard_state.term = self.hard_state.term.next();
        self.hard_state.voted_for = Some(self.config.node);
        self.turn(Role::Candidate, out);
        self.persist(Vec::new(), Promise::Vote(self.hard_state.term), out);
        // What an earlier life knew to be committed is so still.
        self.apply_committed(out);
    }

    fn turn(&mut self, role: Role, out: &mut Vec<Action>) {
        self.role = role;
        out.push(Action::RoleChanged { role, term: self.hard_state.term });
    }

    fn lead(&mut self, out: &mut Vec<Action>) {
        self.turn(Role::Leader, out);
        self.opened = self.append(Bytes::new(), out);
    }

    fn propose(&mut self, id: ProposalId, data: Bytes, out: &mut Vec<Action>) {
        assert!(!data.is_empty(), "an empty entry opens a leader's term");
        match self.refusal() {
            Some(reason) => out.push(Action::Refused { id, reason }),
            None => {
                let index = self.append(data, out);
                self.proposals.insert(index, id);
            }
        }
    }

    fn append(&mut self, data: Bytes, out: &mut Vec<Action>) -> RaftIndex {
        let entry = Entry { index: self.last.index.next(), term: self.hard_state.term, data };
        self.last = SnapshotMark { index: entry.index, term: entry.term };
        self.unapplied.push_back(entry.clone());
        self.persist(vec![entry], Promise::Entries(self.last.index), out);
        self.last.index
    }

    fn persist(&mut self, entries: Vec<Entry>, promise: Promise, out: &mut Vec<Action>) {
        let id = PersistId(self.persists.next);
        self.persists.next += 1;
        self.persists.waiting.push_back((id, promise));
        out.push(Action::Persist(Persist { id, hard_state: self.hard_state, entries }));
    }

    fn persisted(&mut self, id: PersistId, out: &mut Vec<Action>) {
        if self.role == Role::Stopped {
            return;
        }
        let (expected, promise) =
            self.persists.waiting.pop_front().expect("only what was asked for is reported");
        assert_eq!(id, expected, "persists complete in the order they were asked for");
        match promise {
            Promise::Vote(term) => {
                let votes = usize::from(term == self.hard_state.term && self.role == Role::Candidate);
                if votes >= quorum::ack_count(self.config.voters.len()) {
                    self.lead(out);
                }
            }
            Promise::Entries(index) => {
                self.matched.insert(self.config.node, index);
                self.advance_commit(out);
            }
        }
    }

    fn advance_commit(&mut self, out: &mut Vec<Action>) {
        let ends: Vec<_> = self.config.voters.iter().map(|voter| self.matched.get(voter).copied()).collect();
        let Some(stored) = quorum::committed(&ends) else { return };
        // Entries of earlier terms commit only with one of the own term behind them.
        if self.role == Role::Leader && stored >= self.opened && stored > self.hard_state.commit {
            self.hard_state.commit = stored;
            self.apply_committed(out);
        }
    }

    fn apply_committed(&mut self, out: &mut Vec<Action>) {
        while self.unapplied.front().is_some_and(|entry| entry.index <= self.hard_state.commit) {
            let entry = self.unapplied.pop_front().expect("it was looked at");
            self.applied = SnapshotMark { index: entry.index, term: entry.term };
            self.since_snapshot.entries += 1;
            self.since_snapshot.bytes += entry.data.len() as u64;
            let proposal = self.proposals.remove(&entry.index);
            if !entry.data.is_empty() {
                out.push(Action::Apply { entry, proposal });
            }
        }
        self.answer_reads(out);
        self.ask_for_snapshot(out);
    }

    fn read(&mut self, id: ReadId, out: &mut Vec<Action>) {
        match self.refusal() {
            Some(reason) => out.push(Action::ReadRefused { id, reason }),
            None => {
                self.reads.push_back(id);
                self.answer_reads(out);
            }
        }
    }

    /// A group of one hears from its quorum by asking itself, so a read only waits for the term to open.
    fn answer_reads(&mut self, out: &mut Vec<Action>) {
        if self.is_ready() {
            out.extend(self.reads.drain(..).map(|id| Action::ReadReady { id }));
        }
    }

    fn refusal(&self) -> Option<Refusal> {
        match self.role {
            Role::Leader => None,
            Role::Follower | Role::Candidate => Some(Refusal::NotLeader { leader: None }),
            Role::Stopped => Some(Refusal::Stopped),
        }
    }

    fn persist_failed(&mut self, _id: PersistId, out: &mut Vec<Action>) {
        if self.role == Role::Stopped {
            return;
        }
        self.turn(Role::Stopped, out);
        self.persists.waiting.clear();
        let proposals = std::mem::take(&mut self.proposals);
        out.extend(proposals.into_values().map(|id| Action::Unknown { id }));
        let reason = Refusal::Stopped;
        out.extend(self.reads.drain(..).map(|id| Action::ReadRefused { id, reason }));
    }

    fn ask_for_snapshot(&mut self, out: &mut Vec<Action>) {
        let Applied { bytes, entries } = self.since_snapshot;
        let due = bytes >= self.config.snapshot_bytes || entries >= self.config.snapshot_entries;
        if due && self.taking.is_none() && self.applied.index > self.snapshot.index {
            self.taking = Some(self.applied);
            self.since_snapshot = Applied::default();
            out.push(Action::TakeSnapshot(self.applied));
        }
    }

    fn snapshot_saved(&mut self, index: RaftIndex) {
        if let Some(mark) = self.taking.take_if(|mark| mark.index == index) {
            self.snapshot = mark;
        }
    }

    fn snapshot_failed(&mut self, index: RaftIndex) {
        self.taking.take_if(|mark| mark.index == index);
    }
}

/// The last entry of a recovered log, when the log makes sense.
fn check(hard: HardState, snapshot: SnapshotMark, entries: &[Entry]) -> Result<SnapshotMark, Error> {
    let mut last = snapshot;
    for entry in entries {
        if entry.index.0 != last.index.0 + 1 {
            return Err(Error::Inconsistent("a gap in the entries"));
        }
        if entry.term < last.term {
            return Err(Error::Inconsistent("terms go backwards"));
        }
        last = SnapshotMark { index: entry.index, term: entry.term };
    }
    if last.term > hard.term {
        return Err(Error::Inconsistent("an entry of a term not seen yet"));
    }
    if hard.commit > last.index {
        return Err(Error::Inconsistent("the commit index is past the log"));
    }
    Ok(last)
}
