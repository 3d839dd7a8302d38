//! P-37, and the liveness that goes with it: nothing that somebody lists is ever removed, and what nobody lists is
//! gone once the faults are over.
//!
//! The first half is INV-1's and INV-3's to see: a listed copy that was removed is missing when it is read. One node
//! knows of every topic, so here "somebody" is its own metadata.

use super::{Violation, ensure};

/// Judges what a healed node still has of copies that no topic lists.
pub fn gone(unlisted: usize) -> Result<(), Violation> {
    ensure(unlisted == 0, "P-37", || format!("{unlisted} copies are here that no topic lists"))
}

/// Judges a healed node's directory: there is one for each copy it knows of, and no other.
pub fn explained(directories: usize, copies: usize) -> Result<(), Violation> {
    ensure(directories == copies, "P-37", || {
        format!("{directories} directories of copies are here, and the node knows of {copies}")
    })
}
