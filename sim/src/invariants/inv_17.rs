//! INV-17: nothing at or past a sealed segment's end is ever acknowledged or delivered.

use std::fmt::Display;

use types::Offset;

use super::{Violation, ensure};

/// Judges a record that is delivered at `offset` of a range whose segments all ended, the last one at `end`.
pub fn check(topic: impl Display, offset: u64, end: Option<Offset>) -> Result<(), Violation> {
    ensure(end.is_none_or(|end| offset < end.0), "INV-17", || {
        format!("{topic}: offset {offset} is delivered, and its last segment ended at {end:?}")
    })
}
