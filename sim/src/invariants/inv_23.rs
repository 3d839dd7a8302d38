//! INV-23: only a tail that was never acknowledged is dropped at recovery.

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges where a recovered log ends against what was acknowledged of it (and not damaged since).
pub fn check(segment: SegmentId, end: Offset, acknowledged: Offset) -> Result<(), Violation> {
    ensure(end >= acknowledged, "INV-23", || {
        format!("{segment}: acknowledged up to {acknowledged}, ends at {end}")
    })
}
