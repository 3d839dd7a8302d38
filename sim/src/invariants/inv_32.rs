//! INV-32: a copy is removed for repair only when another one is intact and complete, and not while it is the first that
//! readers are sent to.
//!
//! Judged from one look at the disks to the next: a copy that was whole, is listed as before and is not whole any more
//! was given up by the product, because nothing else harmed it.

use types::{NodeId, SegmentId};

use super::{Violation, ensure};

/// Judges a copy that was whole and is not any more; `others` are the whole copies there are beside it, `is_first` says
/// that it was the first of its set in both looks.
pub fn given_up(segment: SegmentId, node: NodeId, others: usize, is_first: bool) -> Result<(), Violation> {
    ensure(others > 0, "INV-32", || {
        format!("the copy of {segment} on node {node} was whole and is given up, and there is no other")
    })?;
    ensure(!is_first, "INV-32", || {
        format!(
            "the copy of {segment} on node {node} was whole and is given up, and readers are sent there first"
        )
    })
}
