//! INV-39: the search for orphans removes a copy only if nobody lists it, after so many passes in a row, and once it is
//! old enough.
//!
//! How long the running process can have known of the copy stands for both its age and the passes.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a copy that a sweep removed; times in microseconds.
pub fn patient(segment: SegmentId, listed: bool, known_for: u64, due: u64) -> Result<(), Violation> {
    ensure(!listed, "INV-39", || format!("{segment} was swept, and is listed"))?;
    ensure(known_for >= due, "INV-39", || {
        format!("{segment} was swept after {known_for} us of the {due} us that have to pass")
    })
}
