//! INV-10: records of one key are delivered in the order their acknowledgements imply.
//!
//! One node promises more: records of one key lie in the order in which their requests reached it, through any
//! splits and merges, and so do all records of a topic that never had more than one range.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges an acknowledgement: nothing that was asked for later may have been read without this.
pub fn check(record: impl Display, passed: bool) -> Result<(), Violation> {
    ensure(!passed, "INV-10", || {
        format!("{record} is acknowledged, and a later one of its key was read without it")
    })
}

/// Judges a record by the one read before it.
pub fn in_order(record: impl Display, earlier: bool) -> Result<(), Violation> {
    ensure(!earlier, "INV-10", || format!("{record} was read behind one that was asked for later"))
}

/// Judges a record that a reader is given; `before` says that it was given it already.
pub fn not_twice(record: impl Display, before: bool) -> Result<(), Violation> {
    ensure(!before, "INV-10", || format!("{record} is given to one reader twice"))
}
