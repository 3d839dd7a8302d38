//! The commands of the machine.
//!
//! Arguments that the machine judges (a name, a width, a hash, a replica set) are carried as the proposer
//! gave them: a bad one is a refusal of `apply`, the same on every member, not a decoding error.

mod decode;
mod encode;

use bytes::Bytes;
use types::{FenceToken, RangeId, SegmentId, TopicId};

use super::{
    Commit, CreateTopic, ExpireGroup, Export, Migration, RegisterSegment, SealSegment, SetArc,
    SetSegmentReplicas,
};
use crate::machine::Version;

/// Numbers of the kinds; never reused.
mod kind {
    pub(super) const CREATE_TOPIC: u16 = 1;
    pub(super) const SEAL_TOPIC: u16 = 2;
    pub(super) const DELETE_TOPIC: u16 = 3;
    pub(super) const REGISTER_SEGMENT: u16 = 4;
    pub(super) const SEAL_SEGMENT: u16 = 5;
    pub(super) const DELETE_SEGMENT: u16 = 6;
    pub(super) const COMMIT_POSITIONS: u16 = 7;
    pub(super) const SPLIT_RANGE: u16 = 8;
    pub(super) const MERGE_RANGES: u16 = 9;
    pub(super) const SET_SEGMENT_REPLICAS: u16 = 10;
    pub(super) const BIND_TOPIC_POLICY: u16 = 11;
    pub(super) const EXPIRE_GROUP: u16 = 12;
    pub(super) const BEGIN_MIGRATION: u16 = 13;
    pub(super) const END_MIGRATION: u16 = 14;
    pub(super) const EXTRACT_TOPIC: u16 = 15;
    pub(super) const INSERT_TOPIC: u16 = 16;
    pub(super) const SET_ARC: u16 = 17;
    pub(super) const UPGRADE: u16 = 18;
    pub(super) const SPLIT_BY_LOAD: u16 = 19;
    pub(super) const MERGE_BY_LOAD: u16 = 20;
}

/// Something to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a topic with one range over its whole keyspace.
    CreateTopic(CreateTopic),
    /// Ends every range of a topic for appends, for good. Repeating it changes nothing.
    SealTopic {
        /// Which topic.
        topic: TopicId,
    },
    /// Removes a topic, its ranges, segments and positions.
    DeleteTopic {
        /// Which topic.
        topic: TopicId,
    },
    /// Points a topic at a storage policy by name, or at none. The policy may be defined later, or never.
    BindTopicPolicy {
        /// Which topic.
        topic: TopicId,
        /// As the client gave it.
        policy: Option<Bytes>,
    },
    /// Replaces an active range by the two halves of its slice.
    SplitRange {
        /// Which range.
        range: RangeId,
    },
    /// Replaces two active ranges, the halves of one block, by one range over both.
    MergeRanges {
        /// One half.
        a: RangeId,
        /// The other.
        b: RangeId,
    },
    /// The same as a split that nobody asked for: what comes of it may be merged the same way.
    SplitByLoad {
        /// Which range.
        range: RangeId,
    },
    /// Replaces two active ranges that came of such splits by one range over both.
    MergeByLoad {
        /// One half.
        a: RangeId,
        /// The other.
        b: RangeId,
    },
    /// Opens the next segment of a range.
    RegisterSegment(RegisterSegment),
    /// Records where a segment ended.
    SealSegment(SealSegment),
    /// Says who holds a sealed segment from now on.
    SetSegmentReplicas(SetSegmentReplicas),
    /// Forgets the oldest segment of a range, which must be sealed; its bytes may go after the ok.
    DeleteSegment {
        /// Which segment.
        segment: SegmentId,
    },
    /// Moves groups' positions; each commit is judged on its own.
    CommitPositions {
        /// Applied in this order.
        commits: Vec<Commit>,
    },
    /// Forgets the position of a group that has not committed for long.
    ExpireGroup(ExpireGroup),
    /// Fences a topic for a move. Repeating it changes nothing.
    BeginMigration(Migration),
    /// Lifts the fence of a move; fine when there is none.
    EndMigration(Migration),
    /// Removes a fenced topic and gives what it was; fine when it is not there.
    ExtractTopic(Migration),
    /// Adds a topic as another vnode exported it. Repeating it changes nothing.
    InsertTopic {
        /// Everything of the topic.
        export: Box<Export>,
        /// Token of the lease under which it is proposed.
        lease: FenceToken,
    },
    /// Says which topics belong to this vnode.
    SetArc(SetArc),
    /// Raises the effective version; a lower one changes nothing.
    Upgrade {
        /// What every member of the group supports.
        to: Version,
    },
}
