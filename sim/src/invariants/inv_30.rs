//! INV-30: a copy that is out of service, or is being made anew, is no answer and no source.
//!
//! Whoever counts copies on disks counts by this: for an acknowledgement, a seal, a set of copies, a loss. That readers
//! are given from such a copy only what its checksums vouch for is INV-24's and INV-25's to say.

use storage::store::{Extent, State};
use types::{NodeId, SegmentId};

use super::{Violation, ensure};

/// Whether a copy counts.
#[must_use]
pub fn answers(extent: &Extent) -> bool {
    !extent.rebuilding && !matches!(extent.state, State::Latched(_))
}

/// Judges a copy that was taken into the set of a sealed segment, as its disk has it.
pub fn counted(segment: SegmentId, node: NodeId, extent: Option<&Extent>) -> Result<(), Violation> {
    ensure(extent.is_none_or(answers), "INV-30", || {
        format!("the copy of {segment} on node {node} counts, and cannot answer: {extent:?}")
    })
}
