//! Whose request to the store it was: what an answer of it goes by.
//!
//! Owns the list of those who ask. What each does with its answer is in its own file.

use types::{NodeId, Offset, RangeId, SegmentId};

use crate::event::{CallId, RequestId};
use crate::explain::Spot;

/// Whose request to the store it was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// The append of a range that ends there (exclusive). Named, because one that finds the store full is
    /// answered before those that were made earlier.
    Append { segment: SegmentId, end: Offset },
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
}
