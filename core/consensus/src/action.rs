//! What the groups of a node ask for, and tell of.

use bytes::Bytes;
use raft::{Entry, Members, ProposalId, ReadId, Refusal, ReplicaId, Role, SnapshotOrder};
use storage::disk::Job;
use storage::raft_log;
use types::{NodeId, RaftIndex, Term, VnodeId};

/// Something the caller must do or may want to know, in this order and one at a time: a snapshot is of the machine as
/// it is when it is asked for.
#[derive(Debug)]
pub enum Action {
    /// Run a job on the log's disk; hand its completion to [`crate::Host::complete`].
    Disk(Job),
    /// The log was read: every group this node is a replica of was told of.
    Listed,
    /// The node is a replica of the group, which waits for [`crate::Host::begin`]. What the caller has of an earlier
    /// replica of the group is of no use any more; it need not have been told that it left.
    Found {
        /// Which group.
        group: VnodeId,
        /// The machine to begin with, encoded; `None` for one that nothing was applied to.
        state: Option<Bytes>,
        /// Whether nothing was ever decided as far as the log tells: an earlier start may have left what the group
        /// begins with, and gone no further.
        is_blank: bool,
    },
    /// What the replica had stored is damaged or gone. It takes no part any more; the group's leader has to replace
    /// it by another replica, on this node or elsewhere.
    Lost {
        /// Which group.
        group: VnodeId,
        /// What this node was in it.
        replica: ReplicaId,
    },
    /// A member of a group that is led here says that what it had stored is gone: it has to be replaced. Told again and
    /// again as long as it is a member.
    MemberLost {
        /// Which group.
        group: VnodeId,
        /// Where the member is.
        node: NodeId,
    },
    /// The node is no replica of the group any more, and has forgotten what it had of it.
    Left {
        /// Which group.
        group: VnodeId,
    },
    /// Apply a committed entry to the group's machine, now.
    Apply {
        /// Which group.
        group: VnodeId,
        /// The entry, with the data that was proposed.
        entry: Entry,
        /// The proposal it came from, when it was made here in this process.
        proposal: Option<ProposalId>,
    },
    /// Replace the group's machine.
    Restore {
        /// Which group.
        group: VnodeId,
        /// The last entry it covers.
        index: RaftIndex,
        /// The encoded machine.
        state: Bytes,
    },
    /// Encode the group's machine as it is now and hand it to [`crate::Host::save`], or say
    /// [`crate::Host::not_saved`].
    TakeSnapshot {
        /// Which group.
        group: VnodeId,
        /// Echoed.
        order: SnapshotOrder,
    },
    /// The group has other members.
    MembersChanged {
        /// Which group.
        group: VnodeId,
        /// The entry that changed them.
        index: RaftIndex,
        /// The members now.
        members: Members,
        /// The proposal it came from, when it was made here in this process: it succeeded.
        proposal: Option<ProposalId>,
    },
    /// The replica's part in the group changed.
    RoleChanged {
        /// Which group.
        group: VnodeId,
        /// Its part now.
        role: Role,
        /// In which term.
        term: Term,
    },
    /// The proposal certainly did not, and will not, become an entry.
    Refused {
        /// Which group.
        group: VnodeId,
        /// Which proposal.
        id: ProposalId,
        /// Why.
        reason: Refusal,
    },
    /// Nobody here will learn whether the proposal becomes an entry.
    Unknown {
        /// Which group.
        group: VnodeId,
        /// Which proposal.
        id: ProposalId,
    },
    /// Everything committed when the read was asked for is applied.
    ReadReady {
        /// Which group.
        group: VnodeId,
        /// Which read.
        id: ReadId,
    },
    /// The read cannot be answered here.
    ReadRefused {
        /// Which group.
        group: VnodeId,
        /// Which read.
        id: ReadId,
        /// Why.
        reason: Refusal,
    },
    /// A replica stopped, because another said what cannot be true if everything that was durable here still is. One
    /// that lacks what it had is [`Action::Lost`] as well.
    Contradiction {
        /// Which group.
        group: VnodeId,
        /// What was said.
        what: raft::Contradiction,
    },
    /// The log takes no more writes in this process: every replica stops.
    Failed {
        /// For people.
        detail: String,
    },
    /// What was found cannot be used.
    Stop(Stop),
    /// Something an operator would ask about.
    Notice(raft_log::Notice),
}

/// Why what was found cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The directory cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A later build wrote it.
    #[error("{0}")]
    LaterFormat(String),
    /// It does not decode, or contradicts itself.
    #[error("{0}")]
    Damaged(String),
}
