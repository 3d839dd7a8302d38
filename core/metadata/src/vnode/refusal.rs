//! Why a command changed nothing. The texts are stable names, for logs and for the layers above.

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
    /// The topic's name hashes outside the vnode's arc.
    #[error("not_owner")]
    NotOwner,
    /// The topic is fenced for a move to another vnode, or for another move than the one named.
    #[error("migrating")]
    Migrating,
    /// Not a topic name.
    #[error("invalid_topic_name")]
    InvalidTopicName,
    /// The name, or the id, belongs to a topic.
    #[error("already_exists")]
    AlreadyExists,
    /// Not 1 to 32.
    #[error("invalid_keyspace_bits")]
    InvalidKeyspaceBits,
    /// A key hash this version does not have.
    #[error("invalid_key_hash")]
    InvalidKeyHash,
    /// The vnode is full.
    #[error("too_many_topics")]
    TooManyTopics,
    /// No such topic.
    #[error("no_such_topic")]
    NoSuchTopic,
    /// Not a policy name.
    #[error("invalid_policy")]
    InvalidPolicy,
    /// No such range.
    #[error("no_such_range")]
    NoSuchRange,
    /// The range takes no records any more.
    #[error("sealed")]
    Sealed,
    /// The range is a single position.
    #[error("cannot_split")]
    CannotSplit,
    /// The ranges belong to two topics.
    #[error("different_topic")]
    DifferentTopic,
    /// The ranges are not the halves of one block.
    #[error("not_buddies")]
    NotBuddies,
    /// The topic has had, or has, as many ranges as it may.
    #[error("too_many_ranges")]
    TooManyRanges,
    /// The segment is listed.
    #[error("segment_exists")]
    SegmentExists,
    /// Not the range's next segment.
    #[error("invalid_segment_id")]
    InvalidSegmentId,
    /// Empty, repeated or too many replicas.
    #[error("invalid_replica_set")]
    InvalidReplicaSet,
    /// The replicas are not the ones the new set was worked out from.
    #[error("stale_replica_set")]
    StaleReplicaSet,
    /// The range, or an ancestor of it, has an active segment.
    #[error("range_has_active_segment")]
    RangeHasActiveSegment,
    /// The segment does not start where the range ends.
    #[error("offset_mismatch")]
    OffsetMismatch,
    /// No such segment.
    #[error("no_such_segment")]
    NoSuchSegment,
    /// Sealed before, with other values: the recorded ones hold.
    #[error("already_sealed")]
    AlreadySealed,
    /// The segment's end cannot be counted.
    #[error("invalid_length")]
    InvalidLength,
    /// The segment is not sealed.
    #[error("segment_active")]
    SegmentActive,
    /// Records before it are still listed; removing it would leave a hole.
    #[error("segment_not_oldest")]
    SegmentNotOldest,
    /// Not a group name.
    #[error("invalid_group")]
    InvalidGroup,
    /// The group has no position on the topic.
    #[error("no_such_group")]
    NoSuchGroup,
    /// The group committed after the time named.
    #[error("group_not_idle")]
    GroupNotIdle,
    /// Tiles out of order, overlapping, or outside the range they name.
    #[error("invalid_position")]
    InvalidPosition,
    /// The topic has as many groups as it may have.
    #[error("too_many_groups")]
    TooManyGroups,
    /// The group's position would fall into too many tiles.
    #[error("too_many_tiles")]
    TooManyTiles,
    /// The topic is not fenced under the move named, or was not when it was exported.
    #[error("not_fenced")]
    NotFenced,
    /// The topic's rows would not fit one entry of the vnode it would move to.
    #[error("topic_too_large")]
    TopicTooLarge,
    /// The topic is here and differs from the export, or the vnode was told that the topic belongs here: the export
    /// is older than that.
    #[error("stale_export")]
    StaleExport,
    /// A later ring gave the vnode its arc, or it has another one than the step was worked out from.
    #[error("stale_ring")]
    StaleRing,
    /// Whoever decided it led the vnode's group in an earlier term than that of the entry.
    #[error("stale_term")]
    StaleTerm,
    /// A later holder of the cluster's lease has acted here.
    #[error("stale_fence")]
    StaleFence,
}
