//! What `apply` answers.

use types::{NodeId, RangeId, SegmentId};

use super::{Export, Refusal};
use crate::machine::Version;

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
    /// Two ranges took the place of one.
    RangeSplit {
        /// Over the lower half.
        left: RangeId,
        /// Over the upper half.
        right: RangeId,
    },
    /// One range took the place of two.
    RangesMerged {
        /// Over both slices.
        child: RangeId,
    },
    /// The segment is active.
    SegmentRegistered,
    /// The segment is sealed with the values of the command.
    SegmentSealed,
    /// The segment is gone from the tables.
    SegmentDeleted(Removed),
    /// The segment has the replicas of the command.
    ReplicasSet,
    /// The topic has the policy of the command, or none.
    PolicyBound,
    /// One answer for each commit, in the order of the command.
    PositionsCommitted(Vec<Result<(), Refusal>>),
    /// The group has no position on the topic any more.
    GroupExpired,
    /// The topic is fenced under the move.
    MigrationBegun,
    /// The topic is not fenced, or not here.
    MigrationEnded,
    /// Nothing of the topic is left in the tables; what was there, or `None` when nothing was.
    TopicExtracted(Option<Box<Export>>),
    /// The topic is in the tables as it was exported.
    TopicInserted,
    /// The vnode has the arc of the command.
    ArcSet,
    /// The effective version now.
    Upgraded(Version),
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
