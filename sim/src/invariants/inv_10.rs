//! INV-10: records of one key are delivered in the order their acknowledgements imply.
//!
//! A topic of one range on one node promises more, and that is what is judged: all batches of a topic lie in the
//! order in which their requests reached the node.

use std::fmt::Display;

use super::{Violation, ensure};

/// Judges an acknowledgement: no later request's records may have been read without this one's.
pub fn check(batch: impl Display, passed: bool) -> Result<(), Violation> {
    ensure(!passed, "INV-10", || format!("{batch} is acknowledged, and a batch sent after it lies before it"))
}
