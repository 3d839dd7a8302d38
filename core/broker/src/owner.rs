//! Whose request to a store it was, here or on another node.
//!
//! Owns the list of those who ask. What becomes of an answer is said where it is handed on, one arm for each.

use types::{NodeId, Offset, RangeId, SegmentId};

use crate::event::{CallId, RequestId};
use crate::explain::Spot;

/// Whose request to the store it was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// The appends of a range from one offset to another (exclusive). Named, because one that finds the store full is
    /// answered before those that were made earlier.
    Append { segment: SegmentId, from: Offset, end: Offset },
    /// The copy a range is about to open.
    Create(SegmentId),
    /// An ending's fence.
    Fence(SegmentId),
    /// An ending that found the copy sealed.
    Inspect(SegmentId),
    /// An ending's seal.
    Seal(SegmentId),
    /// An ending whose only copy is out of service.
    Loss(SegmentId),
    /// A copy on another node, of a segment that this node is primary of; the answer is of no consequence when the
    /// segment has ended.
    Follow { segment: SegmentId, follower: usize, round: u32, bulk: bool },
    /// What a follower lacks.
    FollowRead { segment: SegmentId, follower: usize, round: u32 },
    /// A copy nobody lists any more.
    Delete(SegmentId),
    /// A sealed copy that is read through.
    Scrub(SegmentId),
    /// A search for a time.
    Seek { id: RequestId, segment: SegmentId },
    /// Everybody who waits for this read.
    Read { segment: SegmentId, from: Offset },
    /// Another node. Of what it asked: the bytes it is counted with, and whether it goes behind what is urgent.
    Served { node: NodeId, call: CallId, segment: SegmentId, bulk: bool, bytes: usize },
    /// What is done so that segments end and copies are whole.
    Heal { step: u64, bulk: bool },
    /// Somebody who wants to know how copies are.
    Look { number: u64, spot: Spot },
    /// A range that begins a segment and wants to know what earlier ones say of producers.
    Producers { range: RangeId, turn: u64 },
}

impl Owner {
    /// Whether what it sends to other nodes goes behind what is urgent.
    pub(crate) fn is_bulk(self) -> bool {
        match self {
            Self::Heal { bulk, .. } | Self::Follow { bulk, .. } => bulk,
            Self::Append { .. }
            | Self::FollowRead { .. }
            | Self::Create(_)
            | Self::Fence(_)
            | Self::Inspect(_)
            | Self::Seal(_)
            | Self::Loss(_)
            | Self::Delete(_)
            | Self::Scrub(_)
            | Self::Seek { .. }
            | Self::Read { .. }
            | Self::Look { .. }
            | Self::Producers { .. }
            | Self::Served { .. } => false,
        }
    }

    /// Whose request it is when both are one; `None` when they cannot be.
    pub(crate) fn joined(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Append { segment, from, end }, Self::Append { segment: of, from: begins, end: to }) => {
                (segment == of && begins == end).then_some(Self::Append { segment, from, end: to })
            }
            (
                Self::Follow { segment, follower, round, bulk },
                Self::Follow { segment: of, follower: who, round: when, bulk: how },
            ) => ((segment, follower, round, bulk) == (of, who, when, how)).then_some(self),
            _ => None,
        }
    }
}
