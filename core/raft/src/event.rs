//! All that can happen to a group, and all it can ask for.

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term};

use crate::image::Image;
use crate::members::{Change, Members, Unchangeable};
use crate::message::Message;

/// One entry of the group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1, without gaps.
    pub index: RaftIndex,
    /// Term of the leader that appended it.
    pub term: Term,
    /// In [`Persist`], in [`crate::Recovered`] and between members: what is stored, which begins with what kind
    /// of entry it is; empty for the entry with which a leader opens its term. In [`Action::Apply`]: what was
    /// proposed, without that.
    pub data: Bytes,
}

/// Names one entry beyond doubt: two logs that hold it agree on everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// 0 stands for the place before the first entry.
    pub index: RaftIndex,
    /// Term of the leader that appended it.
    pub term: Term,
}

/// What binds a member across restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term seen.
    pub term: Term,
    /// Whom this member voted for in it: a replica's number in the shape in which storage keeps a vote. A node
    /// may hold another replica of the group one day, and a vote for one is none for the other.
    pub voted_for: Option<NodeId>,
    /// Highest index known to be committed; a hint, never ahead of what is durable here.
    pub commit: RaftIndex,
}

/// Where a snapshot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The node serves: the member takes part. Given once, after [`crate::Group::new`]; what is given before it
    /// is ignored or refused. A member that is alone leads as soon as what that takes is durable.
    Start,
    /// Time goes on. Elections, heartbeats and repeated messages hang on it; a group of one needs none.
    Tick,
    /// A member sent this. Whoever it claims to be from, it is checked before it changes anything.
    Receive(Message),
    /// The connection to a node broke: what was last sent there may be lost.
    Unreachable(NodeId),
    /// There is no connection to the node of [`crate::Group::followed`]: it is not waited for until the next tick.
    /// Given before every tick of which that is true.
    LeaderAway,
    /// Somebody wants `data` in the log.
    Propose {
        /// Echoed in the outcome.
        id: ProposalId,
        /// The command.
        data: Bytes,
    },
    /// Somebody wants other members. One change at a time: the next is refused until this one is applied.
    Reconfigure {
        /// Echoed in the outcome.
        id: ProposalId,
        /// Which change.
        change: Change,
    },
    /// Somebody wants another leader. There is no answer: it shows in [`Action::RoleChanged`], or is given up
    /// after an election timeout.
    Transfer {
        /// Who shall lead; ignored when this member does not lead or that one has no vote.
        to: NodeId,
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
    /// The stored snapshot, as asked for by [`Action::LoadSnapshot`].
    SnapshotLoaded {
        /// Which one it is, which may be a later one than was asked for.
        mark: SnapshotMark,
        /// As it was saved.
        image: Bytes,
    },
    /// The stored snapshot cannot be read.
    SnapshotNotLoaded {
        /// As asked for.
        mark: SnapshotMark,
    },
}

/// Something the caller must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this durable, all of it or nothing, after everything asked for before.
    Persist(Persist),
    /// Send a message. It may be lost, repeated, or overtaken.
    Send {
        /// Where to.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Apply a committed entry to the machine, now: actions that follow rely on it.
    Apply {
        /// The entry, with the data that was proposed.
        entry: Entry,
        /// The proposal it came from, when it was made here in this life: answer it with the machine's reply.
        proposal: Option<ProposalId>,
    },
    /// Other members from this entry on. Told when it is applied, like any other entry.
    MembersChanged {
        /// Of the entry.
        index: RaftIndex,
        /// The members now; this one may not be among them any more, then its node forgets the group.
        members: Members,
        /// The proposal it came from, when it was made here in this life: it succeeded.
        proposal: Option<ProposalId>,
    },
    /// Replace the machine by what a leader sent, which is durable.
    Restore {
        /// The last entry it covers.
        mark: SnapshotMark,
        /// The encoded machine.
        state: Bytes,
        /// The members at that entry.
        members: Members,
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
    /// Encode the machine as it is now, save the image of it durably under the order's mark, and report.
    TakeSnapshot(SnapshotOrder),
    /// Read the stored snapshot, for a member that lags behind it.
    LoadSnapshot {
        /// Which one; a later one will do.
        mark: SnapshotMark,
    },
    /// The member's part changed.
    RoleChanged {
        /// Its part now.
        role: Role,
        /// In which term.
        term: Term,
    },
    /// What a member said cannot be true of this log if everything that was ever durable here still is. The
    /// member stops rather than going on with a history it may have lost.
    Contradiction(Contradiction),
}

/// What cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Another member leads in the term in which this one does.
    #[error("two members lead in one term")]
    TwoLeaders,
    /// The leader was told that this member stored what it does not have: what it had is gone, an older copy of its
    /// files took their place perhaps. It may have forgotten a vote as well.
    #[error("the leader was told that entries are stored here, and they are not")]
    Lacking,
    /// The leader's log is another one below what is committed.
    #[error("the leader's log differs from what is committed here")]
    Differs,
}

/// One atomic change of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// Echoed by [`Event::Persisted`].
    pub id: PersistId,
    /// Replaces the stored one.
    pub hard_state: HardState,
    /// A snapshot that replaces the whole log, and is durable before anything else in this change is: there are
    /// no entries beside it.
    pub snapshot: Option<Snapshot>,
    /// Contiguous; entries stored at the first one's index and after it are dropped.
    pub entries: Vec<Entry>,
}

/// A snapshot as it is stored and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry it covers.
    pub mark: SnapshotMark,
    /// An encoded [`Image`].
    pub image: Bytes,
}

/// A snapshot that shall be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOrder {
    /// The last entry it covers, which is the last one applied.
    pub mark: SnapshotMark,
    /// The members at that entry.
    pub members: Members,
}

impl SnapshotOrder {
    /// What is stored for the machine's encoded state. Read back with [`Image::decode`].
    #[must_use]
    pub fn image(&self, state: &[u8]) -> Bytes {
        Image::encode(&self.members, state)
    }
}

/// Why a proposal or a read was turned away. Nothing came of it.
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
    /// Too much waits already, a change of members is on its way, or the leader is handing over.
    #[error("too much waits already")]
    Busy,
    /// A command larger than [`types::limits::RAFT_COMMAND_BYTES_MAX`].
    #[error("the command is too large")]
    TooLarge,
    /// The change of members makes no sense.
    #[error(transparent)]
    Unchangeable(#[from] Unchangeable),
}

/// A member's part in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows and has no vote, or does not know yet that it is a member.
    Learner,
    /// Follows, or waits.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Orders the entries.
    Leader,
    /// Its storage failed, or its log contradicts the group's.
    Stopped,
}
