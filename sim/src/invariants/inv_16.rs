//! INV-16: a sealed segment's end lies above every acknowledged offset of it.

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges the end of a range's last segment; so many records of the range were acknowledged or read.
pub fn check(segment: SegmentId, end: Offset, kept: u64) -> Result<(), Violation> {
    ensure(end.0 >= kept, "INV-16", || {
        format!("{segment} ends at {end}, and {kept} records were acknowledged")
    })
}
