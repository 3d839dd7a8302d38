//! One member of one group: the step function and its state.
//!
//! The engine decides who leads and what is committed; this drives it, and owns everything its contract leaves to
//! the caller. Invariants:
//! - nothing binding is disclosed before its [`Event::Persisted`]: a vote, a term, an entry taken or a snapshot
//!   installed is durable before a message that tells of it leaves, also when the member won an election by its own
//!   vote alone;
//! - a member's own copy of an entry counts, and is applied, only once it is durable;
//! - a member that restarts is a follower of a term it has already seen, and leads, if at all, in a *later* one:
//!   entries it had sent but not stored are never taken up again under their old term;
//! - every change of what is stored carries the commit index known by then. A member that holds a change of members
//!   therefore knows the one before to be committed, and never campaigns among members two changes old;
//! - entries are applied in order, each once, and a read waits for all that was committed when it was asked for;
//! - what contradicts the member's own durable log stops the member: it never goes on with a shortened history.
//!
//! Not here: who is a node and where it is, when time passes, how bytes are stored or sent.

mod apply;
mod drive;
mod election;
mod flights;
mod lead;
mod reads;
mod receive;
mod recover;
mod snapshots;
mod transfer;

use std::collections::BTreeMap;

use types::{NodeId, RaftIndex, Term, limits, quorum};

use crate::engine::{Engine, StateRole};
use crate::event::{Action, Entry, EntryId, Event, HardState, ProposalId, Refusal, Role, SnapshotMark};
use crate::members::{Member, Members, Part, ReplicaId};
#[cfg(feature = "planted")]
use crate::planted::Bug;
use election::Election;
use flights::Flights;
use reads::Reads;
use snapshots::Snapshots;

/// What a member must be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// The members of a group that begins, all with a vote, this node included; every founder is told the same.
    /// Looked at only when nothing is stored. Empty for a node that joins a group.
    pub voters: Vec<NodeId>,
    /// Which replica this is, for a node that joins or that storage does not tell: as the message that led to it
    /// says. A number under which this node may have forgotten something must not be used again.
    pub replica: Option<ReplicaId>,
    /// Election timeouts are drawn from it; different for each member and each life.
    pub seed: u64,
    /// A follower that hears from no leader for between one and two times this many ticks stands for election; a
    /// leader that hears from no quorum for so many steps down. How long a tick is, is the caller's to choose.
    pub election_ticks: u32,
    /// A leader is heard of this often; less than half of `election_ticks`.
    pub heartbeat_ticks: u32,
    /// A snapshot is asked for when the entries applied since the last one hold this many bytes.
    pub snapshot_bytes: u64,
    /// Or when there are this many of them.
    pub snapshot_entries: u64,
    /// Bytes of a snapshot that travel in one message; from 1 to [`types::limits::RAFT_SNAPSHOT_CHUNK_BYTES`].
    pub part_bytes: usize,
    /// A bug put in on purpose.
    #[cfg(feature = "planted")]
    pub bug: Option<Bug>,
}

impl Config {
    /// A group of this node alone, with the settings of most groups.
    #[must_use]
    pub fn alone(node: NodeId) -> Self {
        Self { voters: vec![node], ..Self::joining(node) }
    }

    /// A node that joins a group, or whose part in it is stored, with the settings of most groups.
    #[must_use]
    pub fn joining(node: NodeId) -> Self {
        Self {
            node,
            voters: Vec::new(),
            replica: None,
            seed: 0,
            election_ticks: 10,
            heartbeat_ticks: 2,
            snapshot_bytes: 8 * 1024 * 1024,
            snapshot_entries: 10_000,
            part_bytes: limits::RAFT_SNAPSHOT_CHUNK_BYTES,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// What storage holds of the member.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// All zero for a new member.
    pub hard_state: HardState,
    /// The snapshot the machine was restored from; all zero when there is none.
    pub snapshot: SnapshotMark,
    /// The members at the snapshot, out of its image; none when there is none.
    pub members: Members,
    /// Contiguous, from the entry after the snapshot.
    pub entries: Vec<Entry>,
}

impl Recovered {
    /// Whether nothing was ever decided: there is no snapshot, and no entry is a command. An earlier start may have
    /// left what a group begins with, and gone no further.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.snapshot.index == RaftIndex::ZERO
            && !self.entries.iter().any(|entry| crate::entry::is_command(&entry.data))
    }
}

/// Why a member cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The node is not among the members that are stored or given, and was not told which replica it is.
    #[error("node {0} is no member of the group")]
    NotAMember(NodeId),
    /// More founders than a group may have.
    #[error("{0} members are too many")]
    TooManyMembers(usize),
    /// Heartbeats would come too late to prevent elections.
    #[error("the heartbeat must be shorter than half of the election timeout")]
    Timing,
    /// What was recovered contradicts itself.
    #[error("recovered state is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// What is known of another member; a leader knows, others guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Who.
    pub member: Member,
    /// Its part.
    pub part: Part,
    /// Up to where it is known to hold the leader's log durably.
    pub matched: RaftIndex,
    /// Up to where it is known to know that entries are committed; durably, as far as they are about members.
    pub commit: RaftIndex,
    /// Whether it was heard of within the last election timeout.
    pub is_active: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    Stopped,
}

/// One member of one group.
pub struct Group {
    config: Config,
    me: Member,
    phase: Phase,
    engine: Engine,
    /// As of the last entry applied, or the snapshot being installed.
    members: Members,
    /// The entry that made them, or a later one.
    members_since: RaftIndex,
    /// Nodes of replicas that are not members as far as this one knows: a later list may know them.
    strangers: BTreeMap<ReplicaId, NodeId>,
    /// The last entry applied.
    applied: EntryId,
    /// The first entry of a new group, until it is handed to storage.
    founding: Option<Entry>,
    flights: Flights,
    /// By the index they got; only while this member leads.
    proposals: BTreeMap<RaftIndex, ProposalId>,
    reads: Reads,
    election: Election,
    snapshots: Snapshots,
    /// Index of the entry that opened the term this member leads or led last, and that term.
    opened: EntryId,
    /// What was last told of the member's part.
    told: (Role, Term),
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("me", &self.me)
            .field("role", &self.role())
            .field("term", &self.term())
            .field("commit", &self.commit())
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

impl Group {
    /// Takes one event and adds what must be done about it.
    pub fn step(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Start => self.start(out),
            Event::Tick => self.tick(out),
            Event::Receive(message) => self.receive(message, out),
            Event::Unreachable(node) => self.unreachable(node, out),
            Event::LeaderAway => self.leader_away(),
            Event::Propose { id, data } => self.propose(id, data, out),
            Event::Reconfigure { id, change } => self.reconfigure(id, change, out),
            Event::Transfer { to } => self.transfer(to, out),
            Event::Persisted(id) => self.persisted(id, out),
            Event::PersistFailed(_) => self.stop(out),
            Event::Read { id } => self.read(id, out),
            Event::SnapshotSaved { index } => self.snapshot_saved(index, out),
            Event::SnapshotFailed { index } => self.snapshot_failed(index, out),
            Event::SnapshotLoaded { mark, image } => self.snapshot_loaded(mark, &image, out),
            Event::SnapshotNotLoaded { mark } => self.snapshot_not_loaded(mark, out),
        }
    }

    /// The member's part.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.phase == Phase::Stopped {
            return Role::Stopped;
        }
        match self.engine.raft.state {
            // Won by its own vote alone, which is not durable yet.
            StateRole::Leader if self.flights.durable().term < self.term() => Role::Candidate,
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower => match self.members.of_replica(self.me.replica) {
                Some((_, Part::Voter)) => Role::Follower,
                Some((_, Part::Learner)) | None => Role::Learner,
            },
        }
    }

    /// The member's term.
    #[must_use]
    pub fn term(&self) -> Term {
        Term(self.engine.raft.term)
    }

    /// Who leads, if known.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        match self.role() {
            Role::Leader => Some(self.me.node),
            Role::Follower | Role::Learner => self.node_of(ReplicaId(self.engine.raft.leader_id)),
            Role::Candidate | Role::Stopped => None,
        }
    }

    /// Whether the member leads and has applied everything that earlier leaders committed, so that proposals
    /// and reads are answered without waiting for the start of its term.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.role() == Role::Leader && self.applied.index >= self.opened.index
    }

    /// Highest index known to be committed.
    #[must_use]
    pub fn commit(&self) -> RaftIndex {
        RaftIndex(self.engine.raft.raft_log.committed)
    }

    /// Highest index applied.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied.index
    }

    /// The last durable snapshot.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotMark {
        self.snapshots.latest()
    }

    /// This member's number.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.me.replica
    }

    /// The members, as of the last entry applied.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The other members, in the order of their numbers.
    pub fn peers(&self) -> impl Iterator<Item = PeerView> {
        let others = self.members.iter().filter(|(member, _)| *member != self.me);
        others.filter_map(|(member, part)| {
            let progress = self.engine.raft.prs().get(member.replica.0)?;
            let (matched, commit) = (RaftIndex(progress.matched), RaftIndex(progress.committed_index));
            Some(PeerView { member, part, matched, commit, is_active: progress.recent_active })
        })
    }

    /// Whether a replica that left may forget the group. Only a leader says so, and not before a quorum of those
    /// that stay knows durably that it left: until then they may need its vote to agree on anything at all.
    #[must_use]
    pub fn may_forget(&self, replica: ReplicaId) -> bool {
        let has_left = self.members.was_given(replica) && self.members.of_replica(replica).is_none();
        let knows = |peer: &PeerView| peer.part == Part::Voter && peer.commit >= self.members_since;
        let itself = self.members.voters().any(|voter| voter == self.me)
            && self.flights.durable().commit >= self.members_since;
        let knowing = self.peers().filter(knows).count() + usize::from(itself);
        has_left && self.is_ready() && knowing >= quorum::ack_count(self.members.voters().count())
    }

    #[cfg(feature = "planted")]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        let known = self.members.of_replica(replica).map(|(node, _)| node);
        known.or_else(|| self.strangers.get(&replica).copied())
    }

    fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether this member alone has a vote, so that its own vote and copy decide.
    fn is_alone(&self) -> bool {
        self.members.voters().all(|voter| voter.replica == self.me.replica) && self.engine.raft.promotable()
    }

    fn start(&mut self, out: &mut Vec<Action>) {
        if self.phase != Phase::New {
            return;
        }
        self.phase = Phase::Running;
        // What an earlier life knew to be committed is so still; it may also say who the members are.
        self.drive(out);
        if self.is_alone() {
            // What the group begins with goes to storage together with the vote.
            self.campaign(out);
        } else if let Some(founding) = self.founding.take() {
            let hard_state = self.hard_state();
            self.flights.depart(hard_state, None, vec![founding], 0, out);
        }
        self.drive(out);
    }

    /// Why this member takes no proposals and reads; `None` when it does.
    fn refusal(&self) -> Option<Refusal> {
        match (self.phase, self.role()) {
            (_, Role::Stopped) => Some(Refusal::Stopped),
            (Phase::Running, Role::Leader) => None,
            (_, Role::Leader | Role::Follower | Role::Learner | Role::Candidate) => {
                Some(Refusal::NotLeader { leader: self.leader() })
            }
        }
    }

    /// Takes no further part.
    fn stop(&mut self, out: &mut Vec<Action>) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.phase = Phase::Stopped;
        self.flights.ground();
        self.tell_role(out);
    }

    /// Tells of a change of the member's part; a leader that is none any more lets go of what waits for it.
    fn tell_role(&mut self, out: &mut Vec<Action>) {
        let now = (self.role(), self.term());
        if now == self.told {
            return;
        }
        let led = self.told.0 == Role::Leader;
        if self.told.1 != now.1 {
            self.election.redraw();
            self.election.forget_leader();
        }
        self.told = now;
        out.push(Action::RoleChanged { role: now.0, term: now.1 });
        if led && now.0 != Role::Leader {
            let proposals = std::mem::take(&mut self.proposals);
            out.extend(proposals.into_values().map(|id| Action::Unknown { id }));
            self.snapshots.stop_sending();
        }
        if let Some(reason) = self.refusal() {
            self.reads.refuse(reason, out);
        }
    }
}
