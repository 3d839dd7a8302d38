//! INV-28: where a range's committed records end never goes back.
//!
//! Judged within one process lifetime, in ranges it has appended to: of others it may not know the end yet.

use types::RangeId;

use super::{Violation, ensure};

/// Judges a description that says where a range ends; so much of it was acknowledged, read or described before.
pub fn check(range: RangeId, before: u64, end: u64) -> Result<(), Violation> {
    ensure(end >= before, "INV-28", || format!("{range} ends at {end}, and ended at {before} before"))
}
