//! INV-53: a request of a producer that repeats itself is stored once, however often it was sent.
//!
//! Our own; `docs/idempotence.md` says what it rests on. Nothing of such a request is ever readable twice, and a
//! repetition is refused for want of memory by a name that says so.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges what a reader is given of such a request.
pub fn once(what: impl Display, again: bool) -> Result<(), Violation> {
    ensure(!again, "INV-53", || format!("{what} was sent again and is there twice"))
}
