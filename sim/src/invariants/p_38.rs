//! P-38: through any history of splits and merges a reader that commits every page, or goes on from every cursor,
//! is given each record exactly once.
//!
//! That none is left out is INV-3's and INV-42's to say.

use std::fmt::Display;

use super::Violation;

/// A record was given a second time.
pub fn repeated(reader: impl Display, record: impl Display) -> Violation {
    Violation::new("P-38", format!("{reader} gets {record} although it lies behind it"))
}
