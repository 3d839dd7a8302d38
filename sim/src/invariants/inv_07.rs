//! INV-7: offsets of a range are contiguous across segments: each starts where the one before it ended.

use std::fmt::Display;

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges a segment that is opened after another ended at `previous_end`.
pub fn follows(segment: SegmentId, base: Offset, previous_end: Offset) -> Result<(), Violation> {
    ensure(base == previous_end, "INV-7", || {
        format!("{segment} starts at {base}, the one before it ended at {previous_end}")
    })
}

/// Judges a page of a reader that stays in ranges it reads whole: it stands as many offsets further on as it got
/// records.
pub fn contiguous(place: impl Display, count: u64, moved: u64) -> Result<(), Violation> {
    ensure(count == moved, "INV-7", || format!("{place}: {count} records move it by {moved} offsets"))
}

/// Judges what lies in a range: as many records as offsets.
pub fn no_hole(range: impl Display, records: u64, end: u64) -> Result<(), Violation> {
    ensure(records == end, "INV-7", || {
        format!("{range} ends at {end}, and {records} records were read from it")
    })
}
