//! INV-5: every request gets exactly one reply.
//!
//! Judged where the node answers, and again where the client gets the answer as bytes: the same one, once.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges an answer: the request was waiting for one.
pub fn once(what: impl Display, waited: bool) -> Result<(), Violation> {
    ensure(waited, "INV-5", || format!("{what} was answered, and was not waiting for an answer"))
}

/// Judges a node that has nothing on its way: no request that does not wait for a time may be unanswered.
pub fn all_answered(unanswered: Option<impl Display>) -> Result<(), Violation> {
    match unanswered {
        None => Ok(()),
        Some(what) => {
            Err(Violation::new("INV-5", format!("{what} is not answered, and nothing is on its way")))
        }
    }
}

/// Judges what a client was told against what the node said.
pub fn same(what: impl Display, same: bool) -> Result<(), Violation> {
    ensure(same, "INV-5", || format!("{what} was answered otherwise than the node did"))
}
