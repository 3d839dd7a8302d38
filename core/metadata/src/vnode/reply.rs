//! What `apply` answers.

use types::{NodeId, RangeId, SegmentId};

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The topic exists.
    TopicCreated {
        /// Its one range.
        root: RangeId,
    },
    /// Every range of the topic is sealed.
    TopicSealed,
    /// Nothing of the topic is left in the tables.
    TopicDeleted {
        /// Segments whose bytes may be deleted now, in the order of their ids.
        segments: Vec<Removed>,
    },
    /// The segment is active.
    SegmentRegistered,
    /// The segment is sealed with the values of the command.
    SegmentSealed,
    /// The segment is gone from the tables.
    SegmentDeleted(Removed),
    /// One answer for each commit, in the order of the command.
    PositionsCommitted(Vec<Result<(), Refusal>>),
    /// Nothing changed.
    Refused(Refusal),
}

/// A segment that is no longer listed, and who may still hold its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Which segment.
    pub segment: SegmentId,
    /// Its replicas.
    pub replicas: Vec<NodeId>,
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
    /// No such range.
    #[error("no_such_range")]
    NoSuchRange,
    /// The range takes no records any more.
    #[error("sealed")]
    Sealed,
    /// The segment is listed.
    #[error("segment_exists")]
    SegmentExists,
    /// Not the range's next segment.
    #[error("invalid_segment_id")]
    InvalidSegmentId,
    /// Empty, repeated or too many replicas.
    #[error("invalid_replica_set")]
    InvalidReplicaSet,
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
    /// Tiles out of order, overlapping, or outside the range they name.
    #[error("invalid_position")]
    InvalidPosition,
    /// The topic has as many groups as it may have.
    #[error("too_many_groups")]
    TooManyGroups,
    /// The group's position would fall into too many tiles.
    #[error("too_many_tiles")]
    TooManyTiles,
}
