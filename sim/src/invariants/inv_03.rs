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

/// Judges a record against the one that was sent, or read before at that offset.
pub fn same(place: impl Display, read: &[u8], expected: &[u8]) -> Result<(), Violation> {
    ensure(read == expected, "INV-3", || {
        format!("{place}: {:?} is due, {:?} was read", brief(expected), brief(read))
    })
}

fn brief(record: &[u8]) -> String {
    record[..record.len().min(48)].escape_ascii().to_string()
}
