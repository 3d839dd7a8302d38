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
