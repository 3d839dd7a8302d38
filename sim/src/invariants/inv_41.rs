//! INV-41: no reader ever receives a record that is later absent: only committed records are delivered.
//!
//! A record is committed when its acknowledgement leaves the node, or when what is left after a failure or a
//! restart was made durable. So a record whose request is still waiting must not be delivered, and one that
//! readers have passed over must not turn up.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a batch that was read while its request waited for its answer.
pub fn committed(batch: impl Display, waiting: bool) -> Result<(), Violation> {
    ensure(!waiting, "INV-41", || format!("{batch} was read before it was acknowledged"))
}

/// Judges a batch that was read although earlier readers had passed its place.
pub fn not_back(batch: impl Display, absent: bool) -> Result<(), Violation> {
    ensure(!absent, "INV-41", || format!("{batch} was read, and had been absent before"))
}

/// Judges a record that a reader is given where another was given one.
pub fn same_for_all(record: impl Display, other: impl Display, same: bool) -> Result<(), Violation> {
    ensure(same, "INV-41", || format!("a reader is given {record} where another was given {other}"))
}
