//! What `apply` answers.

use types::{FenceToken, NodeId, WallTime};

use super::{NodesRevision, UserName, UserRevision};
use crate::machine::Version;

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The user exists.
    UserCreated {
        /// Of its password.
        revision: UserRevision,
    },
    /// There is no such user, no right and no lockout of that name.
    UserDeleted {
        /// `None` when the name cannot be a user's.
        user: Option<UserName>,
        /// Sessions of lower revisions are over; a user created again begins here or later.
        revision: UserRevision,
    },
    /// The user has the new password.
    PasswordChanged {
        /// Whose.
        user: UserName,
        /// Sessions of lower revisions are over.
        revision: UserRevision,
    },
    /// The user has the new permissions, or the new role.
    UserChanged,
    /// The user has the right.
    Granted,
    /// The user does not have the right.
    Revoked,
    /// The failure was taken into account.
    FailureRecorded {
        /// Failures that count now.
        count: u32,
        /// When the user may try again from this address.
        locked_until: Option<WallTime>,
        /// Whether this failure made the lock.
        locked_now: bool,
    },
    /// What was counted for a user, at one address or all, is gone.
    LockoutsCleared {
        /// How many addresses had something counted.
        addresses: usize,
    },
    /// What had to be forgotten by then is forgotten.
    LockoutsForgotten {
        /// How many pairs of user and address.
        pairs: usize,
    },
    /// The policy is as in the command.
    PolicyDefined,
    /// There is no such policy any more.
    PolicyDeleted,
    /// The list of nodes is as the command wants it.
    NodesChanged(NodesRevision),
    /// The topology is as the command wants it.
    RingChanged {
        /// Of the topology now.
        version: u64,
    },
    /// The candidate holds the lease.
    LeaseGranted(FenceToken),
    /// Another node holds the lease; nothing changed.
    LeaseHeld {
        /// Which.
        holder: NodeId,
    },
    /// The candidate does not hold the lease under that fence.
    LeaseReleased,
    /// The switch is on.
    FlagEnabled,
    /// The effective version from the next entry on.
    Upgraded(Version),
    /// Nothing changed.
    Refused(Refusal),
}

/// Why a command changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// No command of the effective version, or bytes too short to be one.
    #[error("unknown_command")]
    UnknownCommand,
    /// A known command whose arguments do not decode.
    #[error("invalid_command")]
    InvalidCommand,
    /// The index was applied before.
    #[error("already_applied")]
    AlreadyApplied,
    /// The group runs at a version this build does not have: this member applies nothing more.
    #[error("later_version")]
    LaterVersion,
    /// Not a user name.
    #[error("invalid_username")]
    InvalidUserName,
    /// The name belongs to a user.
    #[error("user_exists")]
    UserExists,
    /// No such user.
    #[error("user_not_found")]
    NoSuchUser,
    /// There are as many users as there may be.
    #[error("too_many_users")]
    TooManyUsers,
    /// A pattern that no topic name can match.
    #[error("invalid_acl")]
    InvalidPattern,
    /// The user, or all users together, have as many rights as they may have.
    #[error("too_many_grants")]
    TooManyGrants,
    /// Not the text of an address.
    #[error("invalid_address")]
    InvalidAddress,
    /// Not the name of a policy, or an attribute key that cannot be one.
    #[error("invalid_policy")]
    InvalidPolicy,
    /// No such policy.
    #[error("no_such_policy")]
    NoSuchPolicy,
    /// There are as many policies as there may be.
    #[error("too_many_policies")]
    TooManyPolicies,
    /// Not a name, an address or an attribute of a node.
    #[error("invalid_node")]
    InvalidNode,
    /// The id belongs to a node that is listed.
    #[error("node_exists")]
    NodeExists,
    /// The name belongs to another node that is listed.
    #[error("node_name_taken")]
    NodeNameTaken,
    /// The node was removed; its id is not used again.
    #[error("node_removed")]
    NodeRemoved,
    /// No such node.
    #[error("no_such_node")]
    NoSuchNode,
    /// There are as many nodes as there may be, or have been.
    #[error("too_many_nodes")]
    TooManyNodes,
    /// The list of nodes changed since it was read.
    #[error("stale_revision")]
    StaleRevision,
    /// A later life of the node has spoken.
    #[error("stale_incarnation")]
    StaleIncarnation,
    /// No other node is active: somebody has to hold what there is.
    #[error("last_node")]
    LastNode,
    /// The node is not drained, or a vnode has it for a member.
    #[error("not_drained")]
    NotDrained,
    /// There is a ring.
    #[error("already_seeded")]
    AlreadySeeded,
    /// There is no ring yet.
    #[error("no_topology")]
    NoTopology,
    /// The topology changed since it was read.
    #[error("stale_ring")]
    StaleRing,
    /// Not the fence of the lease that was given last.
    #[error("stale_fence")]
    StaleFence,
    /// A change of the ring is under way.
    #[error("change_pending")]
    ChangePending,
    /// No change of the ring is under way.
    #[error("nothing_pending")]
    NothingPending,
    /// Another vnode has that token.
    #[error("token_taken")]
    TokenTaken,
    /// No such vnode on the ring.
    #[error("no_such_vnode")]
    NoSuchVnode,
    /// A ring has one vnode at least.
    #[error("last_vnode")]
    LastVnode,
    /// There are as many vnodes as there may be.
    #[error("too_many_vnodes")]
    TooManyVnodes,
    /// Empty, repeated or too many members.
    #[error("invalid_replica_set")]
    InvalidReplicaSet,
    /// Not the name of a switch, or too many of them.
    #[error("invalid_flag")]
    InvalidFlag,
    /// A node's build does not honour the switch.
    #[error("flag_unsupported")]
    FlagUnsupported,
    /// A node was not asked, or says something else by now.
    #[error("capabilities_changed")]
    CapabilitiesChanged,
    /// There are as many switches as there may be.
    #[error("too_many_flags")]
    TooManyFlags,
}
