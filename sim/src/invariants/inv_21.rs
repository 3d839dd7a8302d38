//! INV-21: recovery never removes a frame that continues the log, unless it lies past a recorded seal.
//!
//! The rule in the specification speaks of any frame that decodes. Frames of a flush that did not complete may
//! decode behind a torn one; nothing in that flush was acknowledged, and keeping them would need a hole in the
//! log. What must not happen is that a frame goes away whose predecessors are all there.

use storage::format::batch::Batch;
use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges where a recovered log ends. `held` are the frames found intact on the platter, in order from the
/// base, when the process started.
pub fn check(segment: SegmentId, end: Offset, held: &[Batch]) -> Result<(), Violation> {
    let whole = held.last().map(|batch| batch.header.end_offset());
    ensure(whole.is_none_or(|whole| end >= whole), "INV-21", || {
        format!("{segment}: ends at {end}, and intact frames reached {:?}", whole)
    })
}
