//! INV-43: a skip happens only over offsets that are no longer stored.
//!
//! Nothing is ever deleted in this world, so there is no skip: a reader gets the record it stands before.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges where a page begins against the reader's position.
pub fn check(reader: impl Display, start: u64, position: u64) -> Result<(), Violation> {
    ensure(start == position, "INV-43", || {
        format!("{reader} stands at {position} and gets records from {start} on")
    })
}
