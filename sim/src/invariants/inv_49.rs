//! INV-49: what a holder whose lease was taken over does is refused everywhere, and nobody believes to hold the lease
//! while somebody else does (C-1, P-33).
//!
//! The rule is the control plane's. The first half is what fences promise, whatever clocks do; it is judged by changes
//! that are proposed under a fence that is known to be old. The second half holds as long as the clocks that only
//! measure how much time passes run equally fast, which they do in every world: wall clocks may show anything.

use std::fmt::Debug;

use types::{FenceToken, NodeId};

use super::{Violation, ensure};

/// Judges a belief to hold the lease against every other one at the same instant.
pub fn alone(
    holder: (NodeId, FenceToken),
    others: impl IntoIterator<Item = (NodeId, FenceToken)>,
) -> Result<(), Violation> {
    match others.into_iter().find(|(other, _)| *other != holder.0) {
        None => Ok(()),
        Some(other) => Err(Violation::new(
            "INV-49",
            format!("{holder:?} and {other:?} believe to hold the lease at once"),
        )),
    }
}

/// Judges what is there against what was proposed under an old fence, and nobody else would propose.
pub fn refused<T: PartialEq + Debug>(found: &T, old: &T, fence: FenceToken) -> Result<(), Violation> {
    ensure(found != old, "INV-49", || {
        format!("what was proposed under {fence:?}, which is over, is done: {old:?}")
    })
}
