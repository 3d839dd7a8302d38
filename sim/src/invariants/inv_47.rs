//! INV-47: a topic is never created on a vnode that it does not belong to, and no two vnodes have one name at once.
//!
//! A vnode refuses by the arc it was told. So what is judged is that a topic is created only inside an arc, that arcs
//! are told before anything is created where the ring has several vnodes, and that no two vnodes are told the same
//! place.

use metadata::vnode::Share;
use types::{RingArc, VnodeId};

use super::{Violation, ensure};

/// Judges a topic that was created on a vnode while it had this share, of a ring of so many.
pub fn created_inside(
    topic: &str,
    place: u32,
    on: VnodeId,
    share: Share,
    vnodes: usize,
) -> Result<(), Violation> {
    let was_told = share != Share::Whole || vnodes <= 1;
    ensure(was_told && share.covers(place), "INV-47", || {
        format!("{topic}, at {place}, is created on vnode {on}, which has {share:?} of a ring of {vnodes}")
    })
}

/// Judges the arcs of two vnodes.
pub fn apart(one: (VnodeId, RingArc), other: (VnodeId, RingArc)) -> Result<(), Violation> {
    let overlap = one.1.covers(other.1.upto) || other.1.covers(one.1.upto);
    ensure(!overlap, "INV-47", || format!("{one:?} and {other:?} cover the same places"))
}
