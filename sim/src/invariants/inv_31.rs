//! INV-31: healing never lowers the number of intact complete copies of a sealed segment below what it was, except by
//! copies that were replaced before.
//!
//! Judged by the disks when some node first applies a set that somebody has left: as many as are listed, of those that
//! there were, are among them.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges how many whole copies a new set has against the old one, so far as the new one has room for them.
pub fn not_fewer(segment: SegmentId, before: usize, now: usize) -> Result<(), Violation> {
    ensure(now >= before, "INV-31", || {
        format!("{segment} had {before} whole copies to keep, and those listed for it now are {now}")
    })
}
