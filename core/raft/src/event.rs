//! All that can happen to a group, and all it can ask for.

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term};

/// One entry of the group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1, without gaps.
    pub index: RaftIndex,
    /// Term of the leader that appended it.
    pub term: Term,
    /// What was proposed; empty for the entry with which a leader opens its term, which is applied by nobody.
    pub data: Bytes,
}

/// What binds a member across restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term seen.
    pub term: Term,
    /// Whom this member voted for in it.
    pub voted_for: Option<NodeId>,
    /// Highest index known to be committed; a hint, never ahead of what is durable here.
    pub commit: RaftIndex,
}

/// Where a snapshot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The last entry it covers.
    pub index: RaftIndex,
    /// That entry's term.
    pub term: Term,
}

/// Chosen by the group, echoed by [`Event::Persisted`]. Grows with each [`Persist`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistId(pub u64);

/// Chosen by the proposer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// Chosen by the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The node serves: the member may stand for election. Given once, after [`crate::Group::new`].
    Start,
    /// Somebody wants `data` in the log. Empty data is refused by assertion: it marks a leader's own entry.
    Propose {
        /// Echoed in the outcome.
        id: ProposalId,
        /// The entry.
        data: Bytes,
    },
    /// What [`Action::Persist`] asked for is durable. In the order the actions were given.
    Persisted(PersistId),
    /// It is not, and never will be: the member stops.
    PersistFailed(PersistId),
    /// Somebody wants to read what is committed now.
    Read {
        /// Echoed in the outcome.
        id: ReadId,
    },
    /// A snapshot at `index` is durable; entries up to it are not needed any more.
    SnapshotSaved {
        /// As asked for by [`Action::TakeSnapshot`].
        index: RaftIndex,
    },
    /// The snapshot asked for was not saved; it is asked for again once more entries were applied.
    SnapshotFailed {
        /// As asked for by [`Action::TakeSnapshot`].
        index: RaftIndex,
    },
}

/// Something the caller must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this durable, all of it or nothing, after everything asked for before.
    Persist(Persist),
    /// Apply a committed entry to the machine, now: actions that follow rely on it.
    Apply {
        /// The entry; its data is never empty.
        entry: Entry,
        /// The proposal it came from, when it was made here in this life: answer it with the machine's reply.
        proposal: Option<ProposalId>,
    },
    /// The proposal certainly did not, and will not, become an entry.
    Refused {
        /// Which proposal.
        id: ProposalId,
        /// Why.
        reason: Refusal,
    },
    /// Nobody here will learn whether the proposal becomes an entry.
    Unknown {
        /// Which proposal.
        id: ProposalId,
    },
    /// Everything committed when the read was asked for is applied: answer it from the machine.
    ReadReady {
        /// Which read.
        id: ReadId,
    },
    /// The read cannot be answered here.
    ReadRefused {
        /// Which read.
        id: ReadId,
        /// Why.
        reason: Refusal,
    },
    /// Encode the machine as it is now, save it durably under this mark, and report.
    TakeSnapshot(SnapshotMark),
    /// The member's part changed.
    RoleChanged {
        /// Its part now.
        role: Role,
        /// In which term.
        term: Term,
    },
}

/// One atomic change of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// Echoed by [`Event::Persisted`].
    pub id: PersistId,
    /// Replaces the stored one.
    pub hard_state: HardState,
    /// Contiguous; entries stored at the first one's index and after it are dropped.
    pub entries: Vec<Entry>,
}

/// Why a proposal or a read was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another member leads, or none does yet.
    #[error("not the leader")]
    NotLeader {
        /// Who does, if known.
        leader: Option<NodeId>,
    },
    /// The member's storage failed: it takes no part until it is restarted.
    #[error("the member stopped")]
    Stopped,
}

/// A member's part in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows, or waits.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Orders the entries.
    Leader,
    /// Its storage failed.
    Stopped,
}
