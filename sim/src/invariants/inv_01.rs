//! INV-1: a batch is acknowledged only when every record of it is synced on a quorum of its segment's copies.
//!
//! Judged by reading back: what was acknowledged before a power loss is there after it.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a batch that a reader did not get where it is due.
pub fn check(batch: impl Display, acknowledged: bool, power_lost_since: bool) -> Result<(), Violation> {
    ensure(!(acknowledged && power_lost_since), "INV-1", || {
        format!("{batch} was acknowledged, and is gone after a power loss")
    })
}

/// Judges a record that was acknowledged just now, by who holds it on a disk.
pub fn on_a_quorum(
    record: impl Display,
    enough: bool,
    found: impl FnOnce() -> String,
) -> Result<(), Violation> {
    ensure(enough, "INV-1", || format!("{record} is acknowledged, and only {} hold it", found()))
}
