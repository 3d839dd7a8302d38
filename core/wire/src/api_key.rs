//! The operations a client can ask for, by number. 17 to 30 are left free.

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
    /// Says what the client and the broker are.
    Hello = 31,
    /// Gives a user its role.
    SetRole = 32,
    /// Lists users, their roles and their permissions.
    ListUsersV2 = 33,
    /// Defines a storage policy, or puts another in its place.
    DefinePolicy = 34,
    /// Removes a storage policy.
    DeletePolicy = 35,
    /// Points a topic at a storage policy, or at none.
    BindTopicPolicy = 36,
    /// What holds for a topic, and where it comes from.
    GetPolicy = 37,
    /// Lists storage policies.
    ListPolicies = 38,
    /// Lists topics.
    ListTopics = 40,
    /// Describes a topic and its ranges.
    DescribeTopic = 41,
    /// Ends a topic for writers.
    SealTopic = 42,
    /// Removes a topic.
    DeleteTopic = 43,
    /// Replaces a range by its halves.
    SplitRange = 44,
    /// Replaces two buddies by one range.
    MergeRanges = 45,
    /// Appends records that carry their checksum.
    ProduceBatch = 46,
    /// Reads records with their checksums.
    FetchBatches = 47,
    /// The cursor of a point in time.
    SeekTime = 48,
    /// Lists a topic's groups.
    ListGroups = 49,
    /// Describes a group.
    DescribeGroup = 50,
    /// Ends a user's lockouts.
    UnlockUser = 51,
    /// Lists users, their roles and their permissions, some at a time.
    ListUsersPage = 52,
    /// The nodes of the cluster and how it is.
    ClusterStatus = 53,
    /// Drains a node, takes that back, or removes it.
    ChangeNode = 54,
    /// Lists the vnodes of the ring.
    DescribeRing = 55,
    /// Gives the ring another number of vnodes.
    Reshard = 56,
    /// Lists a topic's segments and their copies.
    ListSegments = 57,
    /// Why something does or does not move.
    Explain = 58,
    /// Gives a producer its name and the time.
    NewProducer = 59,
    /// Appends records unless they were appended already.
    ProduceOnce = 60,
    /// Puts a group somewhere else.
    MoveGroup = 61,
    /// Forgets a group.
    DeleteGroup = 62,
    /// Brings the members of vnodes to where they would be placed now.
    Rebalance = 64,
    /// The switches of the cluster.
    ListFlags = 65,
    /// Puts one on, for good.
    EnableFlag = 66,
}

impl ApiKey {
    /// Every operation, by number.
    pub const ALL: [Self; 51] = [
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
        Self::Hello,
        Self::SetRole,
        Self::ListUsersV2,
        Self::DefinePolicy,
        Self::DeletePolicy,
        Self::BindTopicPolicy,
        Self::GetPolicy,
        Self::ListPolicies,
        Self::ListTopics,
        Self::DescribeTopic,
        Self::SealTopic,
        Self::DeleteTopic,
        Self::SplitRange,
        Self::MergeRanges,
        Self::ProduceBatch,
        Self::FetchBatches,
        Self::SeekTime,
        Self::ListGroups,
        Self::DescribeGroup,
        Self::UnlockUser,
        Self::ListUsersPage,
        Self::ClusterStatus,
        Self::ChangeNode,
        Self::DescribeRing,
        Self::Reshard,
        Self::ListSegments,
        Self::Explain,
        Self::NewProducer,
        Self::ProduceOnce,
        Self::MoveGroup,
        Self::DeleteGroup,
        Self::Rebalance,
        Self::ListFlags,
        Self::EnableFlag,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The operation with that number, if this build knows one.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        // `ALL` is sorted by number, which a test checks.
        Self::ALL.binary_search_by_key(&number, |key| key.number()).ok().map(|at| Self::ALL[at])
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
            Self::Hello => "hello",
            Self::SetRole => "set_role",
            Self::ListUsersV2 => "list_users_v2",
            Self::DefinePolicy => "define_policy",
            Self::DeletePolicy => "delete_policy",
            Self::BindTopicPolicy => "bind_topic_policy",
            Self::GetPolicy => "get_policy",
            Self::ListPolicies => "list_policies",
            Self::ListTopics => "list_topics",
            Self::DescribeTopic => "describe_topic",
            Self::SealTopic => "seal_topic",
            Self::DeleteTopic => "delete_topic",
            Self::SplitRange => "split_range",
            Self::MergeRanges => "merge_ranges",
            Self::ProduceBatch => "produce_batch",
            Self::FetchBatches => "fetch_batches",
            Self::SeekTime => "seek_time",
            Self::ListGroups => "list_groups",
            Self::DescribeGroup => "describe_group",
            Self::UnlockUser => "unlock_user",
            Self::ListUsersPage => "list_users_page",
            Self::ClusterStatus => "cluster_status",
            Self::ChangeNode => "change_node",
            Self::DescribeRing => "describe_ring",
            Self::Reshard => "reshard",
            Self::ListSegments => "list_segments",
            Self::Explain => "explain",
            Self::NewProducer => "new_producer",
            Self::ProduceOnce => "produce_once",
            Self::MoveGroup => "move_group",
            Self::DeleteGroup => "delete_group",
            Self::Rebalance => "rebalance",
            Self::ListFlags => "list_flags",
            Self::EnableFlag => "enable_flag",
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
        assert!(ApiKey::ALL.is_sorted_by(|a, b| a.number() < b.number()));
        for number in 0..=u16::MAX {
            let key = ApiKey::ALL.into_iter().find(|key| key.number() == number);
            assert_eq!(ApiKey::from_number(number), key);
        }
        let frozen: Vec<u16> = ApiKey::ALL.iter().map(|key| key.number()).collect();
        let known = (0..=16).chain(31..=38).chain(40..=62).chain(64..=66);
        assert_eq!(frozen, known.collect::<Vec<_>>());
    }
}
