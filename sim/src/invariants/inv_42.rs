//! INV-42: a group that commits only positions it received never skips a record.
//!
//! Across splits, merges, changes of members and restarts: whatever lies at or behind a committed position is
//! given to whoever reads the group next, unless somebody of the group was given it before.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a record that a reader was not given where it is due; `group` says that it reads for a group.
pub fn skipped(reader: impl Display, record: impl Display, group: bool) -> Result<(), Violation> {
    ensure(!group, "INV-42", || format!("{reader} is not given {record}, and nobody of the group was"))
}
