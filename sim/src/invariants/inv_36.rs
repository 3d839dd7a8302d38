//! INV-36: stored bytes of a listed segment are deleted only by a repair, or because another copy took the place; bytes
//! of one that is not listed only after its removal committed.
//!
//! One node repairs nothing and has no other copy: there nothing that is listed is ever deleted.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a log that is about to be removed, or put aside for other records.
pub fn kept(segment: SegmentId, listed: bool) -> Result<(), Violation> {
    ensure(!listed, "INV-36", || format!("the log of {segment} is removed, and the segment is listed"))
}
