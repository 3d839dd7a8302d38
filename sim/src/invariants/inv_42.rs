//! INV-42: a group that commits only positions it received never skips a record.
//!
//! Every page of a group begins exactly where the group has committed; what lies there is INV-3's to say.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges where a group's page begins against the positions it may have.
pub fn check(group: impl Display, start: u64, allowed: &[u64]) -> Result<(), Violation> {
    let skips = allowed.iter().all(|position| *position < start);
    ensure(!skips, "INV-42", || format!("{group} reads from {start}, and has committed {allowed:?}"))
}
