//! What `apply` answers.

use types::WallTime;

use super::{UserName, UserRevision};
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
}
