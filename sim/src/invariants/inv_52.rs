//! INV-52: waiting for something slow or broken never blocks work that does not need it.
//!
//! One node's half of it: ranges that wait for a parent's segment to end hold back nothing but their own keys.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges a request to ranges that need nothing of what is stuck.
pub fn unrelated(what: impl Display, answered: bool) -> Result<(), Violation> {
    ensure(answered, "INV-52", || format!("{what} waits, and needs nothing of what is stuck"))
}
