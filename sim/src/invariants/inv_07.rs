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

/// Judges a page: the reader stands as many offsets further on as it got records.
pub fn contiguous(place: impl Display, start: u64, count: u64, next: u64) -> Result<(), Violation> {
    ensure(start + count == next, "INV-7", || {
        format!("{place}: {count} records from offset {start} lead to offset {next}")
    })
}
