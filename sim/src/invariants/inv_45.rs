//! INV-45: members of a Raft group at equal applied index have equal state.

use std::fmt::Debug;

use types::{NodeId, RaftIndex};

use super::{Violation, ensure};

/// Judges a member's machine against what the entries up to its applied index make it.
pub fn equal<M: PartialEq + Debug>(
    node: NodeId,
    applied: RaftIndex,
    machine: M,
    expected: M,
) -> Result<(), Violation> {
    ensure(machine == expected, "INV-45", || {
        format!("node {node} has applied up to {applied} and is {machine:?}, others were {expected:?}")
    })
}
