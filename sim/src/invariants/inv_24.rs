//! INV-24: no record whose checksum fails is ever returned: what is read is what was appended, to the byte.

use storage::format::batch::Batch;
use types::SegmentId;

use super::{Violation, ensure};

/// Judges one batch against the one that was appended at its place.
pub fn check(segment: SegmentId, read: &Batch, appended: &Batch) -> Result<(), Violation> {
    ensure(read == appended, "INV-24", || {
        format!("{segment}: the batch at {} is not the one appended there", read.header.base_offset)
    })
}
