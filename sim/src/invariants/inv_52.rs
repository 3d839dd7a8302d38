//! INV-52: waiting for something slow or broken never blocks work that does not need it.
//!
//! One node's half of it: ranges that wait for a parent's segment to end hold back nothing but their own keys. In
//! some lifetimes nothing is wrong but that one segment, and then no request to other ranges may fail.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a request to ranges that need nothing of what is stuck.
pub fn unrelated(what: impl Display, needs_it: bool) -> Result<(), Violation> {
    ensure(needs_it, "INV-52", || format!("{what} is refused, and needs nothing of what is stuck"))
}
