//! INV-40: a directory of a segment exists only after its registration committed.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a directory that is about to be made.
pub fn registered(segment: SegmentId, listed: bool) -> Result<(), Violation> {
    ensure(listed, "INV-40", || format!("a directory of {segment} is made, and nobody has registered it"))
}
