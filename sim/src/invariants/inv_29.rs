//! INV-29: a committed replica set names only copies that were complete when it committed, or were in the set before.
//!
//! Judged by the disks when some node first applies the set.

use types::{NodeId, SegmentId};

use super::{Violation, ensure};

/// Judges a copy that was taken into the set.
pub fn complete(segment: SegmentId, node: NodeId, whole: bool) -> Result<(), Violation> {
    ensure(whole, "INV-29", || format!("node {node} is listed for {segment}, and its copy is not whole"))
}
