//! INV-43: a skip happens only over offsets that are no longer stored.
//!
//! Nothing is deleted from a topic in this world, so a record that somebody has read is given to everybody else
//! whose place lies before it.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a record that a reader was not given where it is due; `read` says that somebody has read it.
pub fn skipped(reader: impl Display, record: impl Display, read: bool) -> Result<(), Violation> {
    ensure(!read, "INV-43", || format!("{reader} is not given {record}, which is stored: it was read before"))
}

/// Judges a reader that was moved over `skipped` offsets while `gone` in front of it were stored no more, of which the
/// node has counted `counted`; `first`: nobody was moved from there before in this lifetime of the node.
pub fn moved(
    reader: impl Display,
    skipped: u64,
    gone: u64,
    counted: u64,
    first: bool,
) -> Result<(), Violation> {
    ensure(skipped <= gone, "INV-43", || {
        format!("{reader} is moved over {skipped} offsets, and {gone} in front of it are gone")
    })?;
    // A reader that lost its cursor may come to the same place again: that is not counted twice.
    ensure(counted <= skipped && (counted > 0 || skipped == 0 || !first), "INV-43", || {
        format!("{reader} is moved over {skipped} offsets, and {counted} are counted")
    })
}
