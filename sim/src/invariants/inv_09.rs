//! INV-9: a copy's content is a gap-free run from the segment's base, made of what was appended, in order.

use storage::format::batch::Batch;
use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges batches read from `base` on against the batches submitted, in order.
pub fn check(segment: SegmentId, base: Offset, read: &[Batch], submitted: &[Batch]) -> Result<(), Violation> {
    let mut next = base;
    for (at, batch) in read.iter().enumerate() {
        ensure(batch.header.base_offset == next, "INV-9", || {
            format!("{segment}: a batch at {} where {next} is due", batch.header.base_offset)
        })?;
        next = batch.header.end_offset();
        let same = submitted.get(at).is_some_and(|sent| sent.header.base_offset == batch.header.base_offset);
        ensure(same, "INV-9", || {
            format!("{segment}: a batch at {} nobody appended there", batch.header.base_offset)
        })?;
    }
    Ok(())
}
