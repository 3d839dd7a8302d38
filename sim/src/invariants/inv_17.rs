//! INV-17: nothing at or past a sealed segment's end is ever acknowledged or delivered.

use std::fmt::Display;

use types::Offset;

use super::{Violation, ensure};

/// Judges a cursor that stands at `next` in a range whose segments all ended, the last one at `end`.
pub fn check(range: impl Display, next: Offset, end: Option<Offset>) -> Result<(), Violation> {
    ensure(end.is_none_or(|end| next <= end), "INV-17", || {
        format!("{range}: a reader stands at {next}, and its last segment ended at {end:?}")
    })
}
