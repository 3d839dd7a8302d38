//! INV-22: rot is never truncated and never appended over.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges the platter: from the damaged frame on, the log holds what it held when the bit flipped.
pub fn check(segment: SegmentId, position: u64, then: &[u8], now: &[u8]) -> Result<(), Violation> {
    let from = usize::try_from(position).unwrap_or(usize::MAX);
    let (then, now) = (then.get(from..).unwrap_or_default(), now.get(from..).unwrap_or_default());
    ensure(now == then, "INV-22", || {
        format!("{segment}: the bytes from {position} on, which are damaged, changed")
    })
}
