//! INV-44: a committed position survives every fault that leaves its metadata a quorum.

use std::fmt::Display;

use super::Violation;

/// A group is given a record that its committed position is past.
pub fn repeated(group: impl Display, record: impl Display) -> Violation {
    Violation::new("INV-44", format!("{group} gets {record}, and has committed a position behind it"))
}
