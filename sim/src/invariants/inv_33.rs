//! INV-33: a copy that was made anew counts only once it was verified and sealed at the recorded length.
//!
//! Judged by the disk when some node first applies a set that the copy is in.

use storage::store::{Extent, State};
use types::{NodeId, Offset, SegmentId};

use super::{Violation, ensure};

/// Judges a copy that was taken into the set of a sealed segment, as its disk has it.
pub fn sealed(
    segment: SegmentId,
    node: NodeId,
    extent: Option<&Extent>,
    end: Offset,
) -> Result<(), Violation> {
    let is_sealed =
        |extent: &Extent| extent.state == State::Sealed && extent.end == end && !extent.rebuilding;
    ensure(extent.is_some_and(is_sealed), "INV-33", || {
        format!("the copy of {segment} on node {node} counts, and is not sealed at {end}: {extent:?}")
    })
}
