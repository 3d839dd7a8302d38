//! INV-18: a seal never changes, and the sealed length is that of the records.

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges a seal against an earlier one of the same segment.
pub fn once(segment: SegmentId, sealed: Option<Offset>) -> Result<(), Violation> {
    ensure(sealed.is_none(), "INV-18", || format!("{segment} is sealed a second time, it was at {sealed:?}"))
}

/// Judges a sealed end once everything was read: a batch ends there.
pub fn at_a_boundary(segment: SegmentId, end: Offset, boundary: bool) -> Result<(), Violation> {
    ensure(boundary, "INV-18", || format!("{segment} is sealed at {end}, where no batch ends"))
}

/// Judges what a seal recorded against what it did before.
pub fn unchanged(segment: SegmentId, same: bool) -> Result<(), Violation> {
    ensure(same, "INV-18", || format!("what the seal of {segment} recorded has changed"))
}
