//! C-7: while a group's members change, it never has fewer voters that can be reached than before the change began.
//!
//! The rule is the control plane's. Fewer are right only where fewer are wanted. Faults may take voters away as well;
//! so it is judged at the moment a voter leaves that could be reached itself, and reached counts whoever was within the
//! last moments: that is as much as a leader can know.

use std::collections::BTreeSet;

use types::{NodeId, VnodeId};

use super::{Violation, ensure};

/// A voter left: the voters that could be reached when the change began, and those that can be now.
pub fn enough(
    (group, left): (VnodeId, NodeId),
    before: &BTreeSet<NodeId>,
    after: &BTreeSet<NodeId>,
    wanted: usize,
) -> Result<(), Violation> {
    ensure(after.len() >= before.len().min(wanted), "C-7", || {
        format!(
            "{left} left {group}: of {wanted} voters {after:?} can be reached, and {before:?} could be before"
        )
    })
}
