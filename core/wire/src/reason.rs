//! Why a request failed, and what that means for whoever sent it.
//!
//! Owns the tokens: clients compare them byte for byte, so a token is never renamed and never used again for
//! another meaning. Where one token can come from several operations, the answers here are the safe ones
//! for all of them.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $token:literal,)*) => {
        /// Why a request failed. `docs/wire.md` lists them for people, and a test compares the two lists.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason, by token.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The token on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $token,)*
                }
            }
        }
    };
}

reasons! {
    /// Too many failed logins; wait until the lock ends.
    AccountLocked = "account_locked",
    /// The topic exists.
    AlreadyExists = "already_exists",
    /// The first frame did not authenticate.
    AuthRequired = "auth_required",
    /// The range is a single key position.
    CannotSplit = "cannot_split",
    /// This address has too many connections.
    ConnectionLimitExceeded = "connection_limit_exceeded",
    /// A node is not alive, or its build cannot honour the switch.
    FlagUnsupported = "flag_unsupported",
    /// The length prefix was above the limit.
    FrameTooLarge = "frame_too_large",
    /// The node has too many connections.
    GlobalLimitExceeded = "global_limit_exceeded",
    /// The group has members, and it was not asked for in spite of them.
    GroupActive = "group_active",
    /// Too few failure domains for a new segment under the placement policy.
    InsufficientDomains = "insufficient_domains",
    /// A failure inside the broker that nothing else names.
    InternalError = "internal_error",
    /// The pattern is not allowed.
    InvalidAcl = "invalid_acl",
    /// Unknown user, wrong password, or a certificate or token that names no user.
    InvalidCredentials = "invalid_credentials",
    /// Not a cursor that was issued for this topic.
    InvalidCursor = "invalid_cursor",
    /// Not the name of a switch.
    InvalidFlag = "invalid_flag",
    /// The group's name is null or too long.
    InvalidGroup = "invalid_group",
    /// The right is neither `produce` nor `consume`.
    InvalidOperation = "invalid_operation",
    /// The password is not allowed.
    InvalidPassword = "invalid_password",
    /// A permission is not one of the known ones.
    InvalidPermissions = "invalid_permissions",
    /// The storage policy is not allowed.
    InvalidPolicy = "invalid_policy",
    /// The role is not one of the known ones.
    InvalidRole = "invalid_role",
    /// The topic's name is not allowed.
    InvalidTopicName = "invalid_topic_name",
    /// The user's name is not allowed.
    InvalidUsername = "invalid_username",
    /// No vnode, or more than there may be.
    InvalidVnodeCount = "invalid_vnode_count",
    /// No other node is active: somebody has to hold what there is.
    LastNode = "last_node",
    /// The bytes are not what the operation says they are.
    MalformedRequest = "malformed_request",
    /// The topic's metadata is being moved.
    Migrating = "migrating",
    /// Authentication by certificate is switched off.
    MtlsAuthDisabled = "mtls_auth_disabled",
    /// The listener does not check client certificates.
    MtlsAuthUnavailable = "mtls_auth_unavailable",
    /// No live broker to place a segment on.
    NoBrokers = "no_brokers",
    /// The client presented no certificate.
    NoPeerCertificate = "no_peer_certificate",
    /// Too few replicas stored the batch.
    NoQuorum = "no_quorum",
    /// The cluster has no ring yet.
    NoRing = "no_ring",
    /// The topic has no group of that name that has committed.
    NoSuchGroup = "no_such_group",
    /// The cluster has no node of that id, or has it no more.
    NoSuchNode = "no_such_node",
    /// There is no storage policy of that name.
    NoSuchPolicy = "no_such_policy",
    /// The topic has no range of that number.
    NoSuchRange = "no_such_range",
    /// There is no topic of that name.
    NoSuchTopic = "no_such_topic",
    /// Something is on the node still, or it was not asked to hand it on.
    NodeNotDrained = "node_not_drained",
    /// The two ranges are not the halves of one block.
    NotBuddies = "not_buddies",
    /// The node asked is not the one that changes the ring.
    NotLeaseHolder = "not_lease_holder",
    /// The node asked no longer coordinates the member's group.
    NotOwner = "not_owner",
    /// Authentication by token is switched off.
    OidcAuthDisabled = "oidc_auth_disabled",
    /// Authentication by token is not set up.
    OidcMisconfigured = "oidc_misconfigured",
    /// A part may be stored, and of the rest nobody remembers whether an earlier request with this stamp was.
    OutOfWindow = "out_of_window",
    /// The broker is saturated; nothing was stored.
    Overloaded = "overloaded",
    /// The user may not do that.
    PermissionDenied = "permission_denied",
    /// The user store did not commit.
    PersistFailed = "persist_failed",
    /// A topic is bound to the storage policy.
    PolicyInUse = "policy_in_use",
    /// The producer has begun a later life.
    ProducerFenced = "producer_fenced",
    /// Nobody remembers far enough back whether an earlier request with this stamp was stored; this one was not.
    ProducerForgotten = "producer_forgotten",
    /// Too many logins from this address.
    RateLimitExceeded = "rate_limit_exceeded",
    /// The user is over its own allowance; nothing was stored.
    RateLimited = "rate_limited",
    /// The range was split or merged while the request ran, or is named and no longer active.
    Sealed = "sealed",
    /// The node is shutting down.
    ServerShutdown = "server_shutdown",
    /// A disk failed or holds damaged bytes.
    Storage = "storage",
    /// An internal deadline passed.
    Timeout = "timeout",
    /// The topic has as many groups as it may.
    TooManyGroups = "too_many_groups",
    /// The topic has as many ranges as it may.
    TooManyRanges = "too_many_ranges",
    /// There are as many topics as there may be.
    TooManyTopics = "too_many_topics",
    /// The topic's metadata does not fit one entry: it stays on the vnode it is on.
    TopicTooLarge = "topic_too_large",
    /// The metadata could not be written now.
    Unavailable = "unavailable",
    /// An open stream takes no such frame.
    UnexpectedFrame = "unexpected_frame",
    /// No operation has that number.
    UnknownApiKey = "unknown_api_key",
    /// The segment's primary did not answer.
    Unreachable = "unreachable",
    /// No range takes the record: the topic is sealed.
    Unroutable = "unroutable",
    /// A feature the request asks for is not in this build.
    Unsupported = "unsupported",
    /// The cluster's upgrade is not finished.
    UpgradePending = "upgrade_pending",
    /// The user exists.
    UserExists = "user_exists",
    /// There is no user of that name.
    UserNotFound = "user_not_found",
}

/// What a failed request may have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Certainly nothing: sending the request again cannot duplicate.
    None,
    /// All of it, a part or nothing, now or later: sending a produce again can duplicate records.
    Unknown,
}

/// Whether the same request may succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It will be refused again.
    Never,
    /// Only after somebody changed something, or a window passed.
    AfterChange,
    /// Yes, with a growing delay.
    BackOff,
    /// Yes, about 200 ms apart: routing is settling.
    Soon,
}

impl Reason {
    /// The reason with that token, if this build knows it.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Option<Self> {
        // `ALL` is sorted by token, which a test checks.
        Self::ALL
            .binary_search_by(|reason| reason.as_str().as_bytes().cmp(token))
            .ok()
            .map(|at| Self::ALL[at])
    }

    /// Whether a client that sends the same request again, without anybody changing anything, may expect
    /// another answer within seconds.
    #[must_use]
    pub fn retry_helps(self) -> bool {
        match self.retry() {
            Retry::Never | Retry::AfterChange => false,
            Retry::BackOff | Retry::Soon => true,
        }
    }

    /// When the same request may succeed.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self {
            Self::Migrating | Self::NotLeaseHolder | Self::NotOwner | Self::Sealed => Retry::Soon,
            Self::InternalError
            | Self::NoBrokers
            | Self::NoQuorum
            | Self::NoRing
            | Self::Overloaded
            | Self::PersistFailed
            | Self::ServerShutdown
            | Self::Storage
            | Self::Timeout
            | Self::Unavailable
            | Self::Unreachable => Retry::BackOff,
            Self::AccountLocked
            | Self::ConnectionLimitExceeded
            | Self::GlobalLimitExceeded
            | Self::FlagUnsupported
            | Self::GroupActive
            | Self::InsufficientDomains
            | Self::LastNode
            | Self::NoSuchGroup
            | Self::NoSuchNode
            | Self::NoSuchPolicy
            | Self::NoSuchTopic
            | Self::NodeNotDrained
            | Self::OutOfWindow
            | Self::PolicyInUse
            | Self::RateLimitExceeded
            | Self::RateLimited
            | Self::TooManyRanges
            | Self::TooManyTopics
            | Self::TopicTooLarge
            | Self::UpgradePending => Retry::AfterChange,
            Self::AlreadyExists
            | Self::AuthRequired
            | Self::CannotSplit
            | Self::FrameTooLarge
            | Self::InvalidAcl
            | Self::InvalidCredentials
            | Self::InvalidCursor
            | Self::InvalidFlag
            | Self::InvalidGroup
            | Self::InvalidOperation
            | Self::InvalidPassword
            | Self::InvalidPermissions
            | Self::InvalidPolicy
            | Self::InvalidRole
            | Self::InvalidTopicName
            | Self::InvalidUsername
            | Self::InvalidVnodeCount
            | Self::MalformedRequest
            | Self::MtlsAuthDisabled
            | Self::MtlsAuthUnavailable
            | Self::NoPeerCertificate
            | Self::NoSuchRange
            | Self::NotBuddies
            | Self::OidcAuthDisabled
            | Self::OidcMisconfigured
            | Self::PermissionDenied
            | Self::ProducerFenced
            | Self::ProducerForgotten
            | Self::TooManyGroups
            | Self::UnexpectedFrame
            | Self::UnknownApiKey
            | Self::Unroutable
            | Self::Unsupported
            | Self::UserExists
            | Self::UserNotFound => Retry::Never,
        }
    }

    /// What the failed request may have left behind.
    #[must_use]
    pub fn effect(self) -> Effect {
        match self {
            // The write was sent on its way and its end was not seen.
            Self::InternalError
            | Self::NoQuorum
            | Self::PersistFailed
            | Self::ServerShutdown
            | Self::Storage
            | Self::Timeout
            | Self::Unavailable
            | Self::Unreachable => Effect::Unknown,
            // Met after routing: when the request spans ranges, other ranges may have taken their part.
            Self::InsufficientDomains
            | Self::Migrating
            | Self::NoBrokers
            | Self::OutOfWindow
            | Self::Sealed => Effect::Unknown,
            // Judged before anything is done; every record is routed before any is appended.
            Self::AccountLocked
            | Self::AlreadyExists
            | Self::AuthRequired
            | Self::CannotSplit
            | Self::ConnectionLimitExceeded
            | Self::FlagUnsupported
            | Self::FrameTooLarge
            | Self::GlobalLimitExceeded
            | Self::GroupActive
            | Self::InvalidAcl
            | Self::InvalidCredentials
            | Self::InvalidCursor
            | Self::InvalidFlag
            | Self::InvalidGroup
            | Self::InvalidOperation
            | Self::InvalidPassword
            | Self::InvalidPermissions
            | Self::InvalidPolicy
            | Self::InvalidRole
            | Self::InvalidTopicName
            | Self::InvalidUsername
            | Self::InvalidVnodeCount
            | Self::LastNode
            | Self::MalformedRequest
            | Self::MtlsAuthDisabled
            | Self::MtlsAuthUnavailable
            | Self::NoPeerCertificate
            | Self::NoRing
            | Self::NoSuchGroup
            | Self::NoSuchNode
            | Self::NoSuchPolicy
            | Self::NoSuchRange
            | Self::NoSuchTopic
            | Self::NodeNotDrained
            | Self::NotBuddies
            | Self::NotLeaseHolder
            | Self::NotOwner
            | Self::OidcAuthDisabled
            | Self::OidcMisconfigured
            | Self::Overloaded
            | Self::PermissionDenied
            | Self::PolicyInUse
            | Self::ProducerFenced
            | Self::ProducerForgotten
            | Self::RateLimitExceeded
            | Self::RateLimited
            | Self::TooManyGroups
            | Self::TooManyRanges
            | Self::TooManyTopics
            | Self::TopicTooLarge
            | Self::UnexpectedFrame
            | Self::UnknownApiKey
            | Self::Unroutable
            | Self::Unsupported
            | Self::UpgradePending
            | Self::UserExists
            | Self::UserNotFound => Effect::None,
        }
    }

    /// Whether the connection closes after it. Any error that answers an authentication closes too, and so
    /// does one that ends an open stream.
    #[must_use]
    pub fn closes(self) -> bool {
        match self {
            Self::AccountLocked
            | Self::AuthRequired
            | Self::ConnectionLimitExceeded
            | Self::FrameTooLarge
            | Self::GlobalLimitExceeded
            | Self::InvalidCredentials
            | Self::MtlsAuthDisabled
            | Self::MtlsAuthUnavailable
            | Self::NoPeerCertificate
            | Self::OidcAuthDisabled
            | Self::OidcMisconfigured
            | Self::RateLimitExceeded
            | Self::ServerShutdown => true,
            Self::AlreadyExists
            | Self::CannotSplit
            | Self::FlagUnsupported
            | Self::InsufficientDomains
            | Self::InternalError
            | Self::InvalidAcl
            | Self::InvalidCursor
            | Self::InvalidFlag
            | Self::InvalidGroup
            | Self::InvalidOperation
            | Self::InvalidPassword
            | Self::InvalidPermissions
            | Self::InvalidPolicy
            | Self::InvalidRole
            | Self::InvalidTopicName
            | Self::InvalidUsername
            | Self::InvalidVnodeCount
            | Self::LastNode
            | Self::MalformedRequest
            | Self::Migrating
            | Self::NoBrokers
            | Self::NoQuorum
            | Self::NoRing
            | Self::GroupActive
            | Self::NoSuchGroup
            | Self::NoSuchNode
            | Self::NoSuchPolicy
            | Self::NoSuchRange
            | Self::NoSuchTopic
            | Self::NodeNotDrained
            | Self::NotBuddies
            | Self::NotLeaseHolder
            | Self::NotOwner
            | Self::OutOfWindow
            | Self::Overloaded
            | Self::PermissionDenied
            | Self::PersistFailed
            | Self::PolicyInUse
            | Self::ProducerFenced
            | Self::ProducerForgotten
            | Self::RateLimited
            | Self::Sealed
            | Self::Storage
            | Self::Timeout
            | Self::TooManyGroups
            | Self::TooManyRanges
            | Self::TooManyTopics
            | Self::TopicTooLarge
            | Self::Unavailable
            | Self::UnexpectedFrame
            | Self::UnknownApiKey
            | Self::Unreachable
            | Self::Unroutable
            | Self::Unsupported
            | Self::UpgradePending
            | Self::UserExists
            | Self::UserNotFound => false,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sorted_well_formed_and_found_again() {
        assert!(Reason::ALL.is_sorted_by(|a, b| a.as_str() < b.as_str()));
        for reason in Reason::ALL {
            let token = reason.as_str();
            assert!(
                token.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{token}"
            );
            assert_eq!(Reason::from_token(token.as_bytes()), Some(*reason));
        }
        assert_eq!(Reason::from_token(b"Timeout"), None);
        assert_eq!(Reason::from_token(b""), None);
    }

    #[test]
    fn a_refusal_that_will_not_change_has_left_nothing_behind() {
        for reason in Reason::ALL.iter().filter(|reason| reason.retry() == Retry::Never) {
            assert_eq!(reason.effect(), Effect::None, "{reason}");
        }
    }

    #[test]
    fn the_two_protections_of_the_produce_path_promise_that_nothing_was_stored() {
        assert_eq!(Reason::Overloaded.effect(), Effect::None);
        assert_eq!(Reason::RateLimited.effect(), Effect::None);
        assert_eq!(Reason::NoQuorum.effect(), Effect::Unknown);
    }
}
