//! What an operator is told of healing.

pub use replication::repair::Failure;
use types::{NodeId, Offset, SegmentId};

/// Something an operator would ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A segment was ended for a primary that could not.
    Sealed {
        /// Which one.
        segment: SegmentId,
        /// Exclusive.
        end: Offset,
        /// Copies that held everything when it ended.
        whole: usize,
    },
    /// A segment cannot be ended now: too few of its copies can tell where. It is tried again.
    Unavailable {
        /// Which one.
        segment: SegmentId,
        /// Copies that answered and count.
        counted: usize,
        /// Copies that have to.
        needed: usize,
    },
    /// A copy of an ended segment is whole again, or for the first time.
    Mended {
        /// Which segment.
        segment: SegmentId,
        /// Whose copy.
        node: NodeId,
    },
    /// A copy of an ended segment is not whole. It is tried again.
    NotMended {
        /// Which segment.
        segment: SegmentId,
        /// Whose copy.
        node: NodeId,
        /// Why.
        failure: Failure,
    },
    /// A segment is held by others now.
    Moved {
        /// Which one.
        segment: SegmentId,
        /// Who holds it.
        replicas: Vec<NodeId>,
    },
    /// A copy is to go elsewhere, and nobody can take it.
    NoSpare {
        /// Which segment.
        segment: SegmentId,
        /// Whose copy.
        node: NodeId,
    },
}
