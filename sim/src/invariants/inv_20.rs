//! INV-20: a copy is never trimmed below its recorded sealed length, nor below its durable end while active.
//!
//! Judged on the platter itself, not through the code that reads it: every acknowledged frame's bytes stand at
//! their place from its acknowledgement on.

use storage::format::batch::{Batch, HEADER_BYTES, SHARED_BYTES};
use types::SegmentId;

use super::{Violation, ensure};

/// Judges the platter's bytes of a log: `batch` was acknowledged at `position`.
///
/// The local bytes of the header are left out: only they may differ between copies.
pub fn check(segment: SegmentId, log: &[u8], position: u64, batch: &Batch) -> Result<(), Violation> {
    let held = usize::try_from(position).ok().and_then(|at| log.get(at..)).unwrap_or_default();
    let payload = held.get(HEADER_BYTES..HEADER_BYTES + batch.payload.len());
    let header = held.get(..SHARED_BYTES).map(|header| u64::from_be_bytes(field(header)));
    let same = payload == Some(&batch.payload[..]) && header == Some(batch.header.base_offset.0);
    ensure(same, "INV-20", || {
        format!(
            "{segment}: the acknowledged frame of offset {} is not on the platter",
            batch.header.base_offset
        )
    })
}

fn field(header: &[u8]) -> [u8; 8] {
    // The base offset's place in the frame, written down a second time on purpose.
    *header[12..].first_chunk().expect("the slice holds the shared header")
}
