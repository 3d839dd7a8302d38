//! INV-3: every acknowledged record is readable, at one offset, with identical bytes, from its acknowledgement on.
//!
//! One copy and a disk that loses nothing but unsynced changes: there is no excuse. That a batch is stored whole
//! or not at all is judged here too (`core/storage`, format of a batch).

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a batch that a reader did not get where it is due.
pub fn not_skipped(batch: impl Display, acknowledged: bool) -> Result<(), Violation> {
    ensure(!acknowledged, "INV-3", || format!("{batch} was acknowledged, and is not where it is due"))
}

/// Judges what is stored together with a record that was read.
pub fn whole(record: impl Display, absent: bool) -> Result<(), Violation> {
    ensure(!absent, "INV-3", || format!("{record} was absent, and what it was to be stored with was read"))
}

/// Judges a record by where it lies: a key's home.
pub fn at_home(record: impl Display, home: bool) -> Result<(), Violation> {
    ensure(home, "INV-3", || format!("{record} lies in a range that its key does not belong to"))
}

/// Judges how often a record lies in all ranges together.
pub fn once(record: impl Display, times: usize) -> Result<(), Violation> {
    ensure(times == 1, "INV-3", || format!("{record} is due, and lies in the ranges {times} times"))
}
