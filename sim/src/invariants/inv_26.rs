//! INV-26: the result of a read does not depend on the index files.
//!
//! The world removes, damages and forges them; a copy whose log is untouched must read as if nothing happened.

use storage::store::{Error, Reply};
use types::SegmentId;

use super::{Violation, ensure};

/// Judges a reply from a copy whose log nobody damaged: it must not speak of damage.
pub fn check(segment: SegmentId, untouched: bool, reply: &Reply) -> Result<(), Violation> {
    let damaged = matches!(reply, Reply::Failed(Error::Damaged(_)));
    ensure(!(untouched && damaged), "INV-26", || {
        format!("{segment}: nothing but its index was touched, and {reply:?}")
    })
}
