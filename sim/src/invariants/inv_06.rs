//! INV-6: an ok reply to a request over several ranges implies that every part of it is acknowledged.
//!
//! Every record of an acknowledged request counts as acknowledged (INV-1 and INV-3 follow each of them); judged
//! here is the number in the reply.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges an ok reply: it speaks of the whole request.
pub fn whole(call: impl Display, stored: u32, sent: u32) -> Result<(), Violation> {
    ensure(stored == sent, "INV-6", || format!("{call}: {stored} of {sent} records are acknowledged"))
}
