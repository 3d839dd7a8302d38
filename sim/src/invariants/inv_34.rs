//! INV-34: with enough nodes and no further faults every sealed segment comes to as many copies as it shall have.
//!
//! That each of them is intact, complete and sealed is INV-35's to say.

use types::{NodeId, SegmentId};

/// What a segment lacks of it; `None` when nothing.
#[must_use]
pub fn short(segment: SegmentId, replicas: &[NodeId], wanted: usize) -> Option<String> {
    (replicas.len() < wanted)
        .then(|| format!("{}: {segment} is on {replicas:?}, {wanted} are wanted", "INV-34"))
}
