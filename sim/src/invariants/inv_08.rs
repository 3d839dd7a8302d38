//! INV-8: two copies of a segment hold byte-identical frames at every offset both hold.
//!
//! Judged by what their disks hold: batches from the base on, without a gap in either (INV-9). The local bytes of a
//! header, which may differ, are no part of a batch.

use storage::format::batch::Batch;
use types::{NodeId, Offset, SegmentId};

use super::{Violation, ensure};

/// Judges the batches of one copy: each begins where the one before it ends.
pub fn gapless(segment: SegmentId, node: NodeId, base: Offset, batches: &[Batch]) -> Result<(), Violation> {
    let mut next = base;
    for batch in batches {
        let at = batch.header.base_offset;
        ensure(at == next, "INV-9", || format!("{segment} on node {node}: a batch at {at}, {next} is due"))?;
        next = batch.header.end_offset();
    }
    Ok(())
}

/// Judges the batches of two copies from the same base on.
pub fn same(
    segment: SegmentId,
    (one, first): (NodeId, &[Batch]),
    (other, second): (NodeId, &[Batch]),
) -> Result<(), Violation> {
    for (a, b) in first.iter().zip(second) {
        ensure(a == b, "INV-8", || {
            let (a, b) = (&a.header, &b.header);
            format!("{segment}: node {one} holds {a:?} where node {other} holds {b:?}")
        })?;
    }
    Ok(())
}
