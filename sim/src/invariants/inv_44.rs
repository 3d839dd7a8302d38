//! INV-44: a committed position survives every fault that leaves its metadata a quorum.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges where a group's page begins: what was acknowledged last, or something whose answer never came.
pub fn check(group: impl Display, start: u64, allowed: &[u64]) -> Result<(), Violation> {
    ensure(allowed.contains(&start), "INV-44", || {
        format!("{group} reads from {start}, and its position can be {allowed:?}")
    })
}
