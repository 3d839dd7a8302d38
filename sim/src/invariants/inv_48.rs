//! INV-48: a command of a later version of the rules changes nothing below that version.
//!
//! The rule is the metadata's. A command is proposed again and again in a layout that no version has yet: whatever it
//! asks for must not be there, on any node, and the tables of all nodes must stay equal over it, which INV-45 judges.
//! That a format above the understood one is never opened is a promise about files and judged by the tests of the boot.

use super::{Violation, ensure};

/// How what a later version would make is named.
pub const NAME: &str = "later";

/// Judges the names that are there.
pub fn unchanged<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Violation> {
    let made = names.into_iter().find(|name| name.starts_with(NAME));
    ensure(made.is_none(), "INV-48", || format!("a command of a later version made {made:?}"))
}
