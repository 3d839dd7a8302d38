//! INV-38: retention removes only sealed segments, only a prefix of a range, and only by the bounds that apply.
//!
//! The bounds are worked out anew from the tables of the moments that may have counted, and the clock is taken for as
//! far ahead as it ever was: a step of it may delete early by no more than the step.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges which of a range's segments went.
pub fn oldest(segment: SegmentId, active: bool, oldest: bool) -> Result<(), Violation> {
    ensure(!active, "INV-38", || format!("{segment} expired while it took records"))?;
    ensure(oldest, "INV-38", || format!("{segment} expired before an older one of its range"))
}

/// Judges why it went.
pub fn bounded(segment: SegmentId, allowed: bool) -> Result<(), Violation> {
    ensure(allowed, "INV-38", || format!("{segment} expired, and no bound that held says so"))
}
