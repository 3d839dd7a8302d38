//! The operations a client can ask for, by number.

/// An operation. The numbers are never changed and never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ApiKey {
    /// Password authentication; first frame only.
    Auth = 0,
    /// Makes a topic.
    CreateTopic = 1,
    /// Appends records.
    Produce = 2,
    /// Reads records.
    Fetch = 3,
    /// Stores a group's positions.
    Commit = 4,
    /// Turns the connection into a push stream.
    Subscribe = 5,
    /// Commits and returns credit on a push stream.
    StreamAck = 6,
    /// Takes a member out of its group.
    LeaveGroup = 7,
    /// Makes a user.
    CreateUser = 8,
    /// Removes a user.
    DeleteUser = 9,
    /// Sets a user's password.
    ChangePassword = 10,
    /// Lists users and their permissions.
    ListUsers = 11,
    /// Authentication by client certificate; first frame only.
    MtlsAuth = 12,
    /// Authentication by token; first frame only.
    TokenAuth = 13,
    /// Gives a user a right on topics.
    GrantAcl = 14,
    /// Takes it away.
    RevokeAcl = 15,
    /// Lists a user's rights on topics.
    ListAcls = 16,
}

impl ApiKey {
    /// Every operation, by number.
    pub const ALL: [Self; 17] = [
        Self::Auth,
        Self::CreateTopic,
        Self::Produce,
        Self::Fetch,
        Self::Commit,
        Self::Subscribe,
        Self::StreamAck,
        Self::LeaveGroup,
        Self::CreateUser,
        Self::DeleteUser,
        Self::ChangePassword,
        Self::ListUsers,
        Self::MtlsAuth,
        Self::TokenAuth,
        Self::GrantAcl,
        Self::RevokeAcl,
        Self::ListAcls,
    ];

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The operation with that number, if this build knows one.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The operation's name in documents, logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::CreateTopic => "create_topic",
            Self::Produce => "produce",
            Self::Fetch => "fetch",
            Self::Commit => "commit",
            Self::Subscribe => "subscribe",
            Self::StreamAck => "stream_ack",
            Self::LeaveGroup => "leave_group",
            Self::CreateUser => "create_user",
            Self::DeleteUser => "delete_user",
            Self::ChangePassword => "change_password",
            Self::ListUsers => "list_users",
            Self::MtlsAuth => "mtls_auth",
            Self::TokenAuth => "token_auth",
            Self::GrantAcl => "grant_acl",
            Self::RevokeAcl => "revoke_acl",
            Self::ListAcls => "list_acls",
        }
    }

    /// Whether it may only be a connection's first frame, and nothing else may be.
    #[must_use]
    pub fn authenticates(self) -> bool {
        matches!(self, Self::Auth | Self::MtlsAuth | Self::TokenAuth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_operations_match_both_ways() {
        for (number, key) in (0_u16..).zip(ApiKey::ALL) {
            assert_eq!((key.number(), ApiKey::from_number(number)), (number, Some(key)));
        }
        assert_eq!(ApiKey::from_number(17), None);
        assert_eq!(ApiKey::from_number(u16::MAX), None);
    }
}
