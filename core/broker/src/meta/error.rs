//! Why metadata did not take something, in the words of the node.

use metadata::vnode::Refusal;

use super::Fate;

/// Why metadata did not take something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The topic exists.
    #[error("the topic exists")]
    AlreadyExists,
    /// Not a topic name.
    #[error("not a topic name")]
    InvalidTopicName,
    /// There is no such topic or segment.
    #[error("no such topic")]
    NoSuchTopic,
    /// There is no such range.
    #[error("no such range")]
    NoSuchRange,
    /// The range is a single position wide.
    #[error("the range cannot be split")]
    CannotSplit,
    /// The ranges are not the halves of one block.
    #[error("the ranges are not halves of one block")]
    NotBuddies,
    /// The topic has as many ranges as it may have.
    #[error("too many ranges")]
    TooManyRanges,
    /// The range takes no more records.
    #[error("the range is sealed")]
    Sealed,
    /// The topic has as many groups as it may have.
    #[error("too many groups")]
    TooManyGroups,
    /// Refused for a reason that our own checks should have caught.
    #[error("refused")]
    Refused,
    /// The topic moves to another vnode, for longer than anybody waits.
    #[error("the topic moves")]
    Migrating,
    /// Copies shall lie in more failure domains than there are.
    #[error("too few failure domains for a new segment")]
    InsufficientDomains,
    /// It certainly was not and will not be recorded.
    #[error("metadata takes no writes now")]
    Unavailable,
    /// It may have been recorded.
    #[error("the outcome is not known")]
    Unknown,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AlreadyExists => Self::AlreadyExists,
            Refusal::InvalidTopicName => Self::InvalidTopicName,
            Refusal::NoSuchTopic | Refusal::NoSuchSegment => Self::NoSuchTopic,
            Refusal::NoSuchRange => Self::NoSuchRange,
            Refusal::CannotSplit => Self::CannotSplit,
            Refusal::NotBuddies => Self::NotBuddies,
            Refusal::TooManyRanges => Self::TooManyRanges,
            Refusal::Sealed => Self::Sealed,
            Refusal::TooManyGroups => Self::TooManyGroups,
            Refusal::NotOwner | Refusal::Migrating => Self::Migrating,
            Refusal::TooManyTopics | Refusal::LaterVersion | Refusal::StaleTerm => Self::Unavailable,
            Refusal::UnknownCommand
            | Refusal::InvalidCommand
            | Refusal::AlreadyApplied
            | Refusal::InvalidKeyspaceBits
            | Refusal::InvalidKeyHash
            | Refusal::DifferentTopic
            | Refusal::SegmentExists
            | Refusal::InvalidSegmentId
            | Refusal::InvalidReplicaSet
            | Refusal::StaleReplicaSet
            | Refusal::RangeHasActiveSegment
            | Refusal::OffsetMismatch
            | Refusal::AlreadySealed
            | Refusal::InvalidLength
            | Refusal::SegmentActive
            | Refusal::SegmentNotOldest
            | Refusal::InvalidGroup
            | Refusal::NoSuchGroup
            | Refusal::GroupNotIdle
            | Refusal::InvalidPolicy
            | Refusal::NotFenced
            | Refusal::TopicTooLarge
            | Refusal::StaleExport
            | Refusal::StaleRing
            | Refusal::StaleFence
            | Refusal::InvalidPosition
            | Refusal::TooManyTiles => Self::Refused,
        }
    }
}

impl From<Fate> for Error {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::NotRecorded => Self::Unavailable,
            Fate::Unknown => Self::Unknown,
        }
    }
}
