//! INV-37: the removal of a segment that was refused, or not answered yet, deletes nothing.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a log that is about to be removed; `undecided`: the metadata was asked to forget its segment and has not.
pub fn undecided(segment: SegmentId, undecided: bool) -> Result<(), Violation> {
    ensure(!undecided, "INV-37", || {
        format!("the log of {segment} is removed, and the metadata has not forgotten it")
    })
}
