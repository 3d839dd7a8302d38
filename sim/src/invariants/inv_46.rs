//! INV-46: the metadata of a topic is on at least one vnode at all times.
//!
//! Judged when a vnode is first seen to have let a topic go: it must be seen on another by then, because nobody may
//! take it off one before it has seen it on the other. A topic whose removal was asked for may be nowhere.

use types::VnodeId;

use super::{Violation, ensure};

/// Judges a topic that a vnode has no more.
pub fn still_somewhere(topic: &str, left: VnodeId, is_elsewhere: bool) -> Result<(), Violation> {
    ensure(is_elsewhere, "INV-46", || format!("vnode {left} has let {topic} go, and no other has it"))
}
