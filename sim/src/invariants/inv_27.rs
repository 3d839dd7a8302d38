//! INV-27: a storage error on one copy takes only that copy out of service.

use storage::store::{Error, Reply};
use types::SegmentId;

use super::{Violation, ensure};

/// Judges a reply from a copy on which no fault was ordered since it was last well.
pub fn check(segment: SegmentId, healthy: bool, reply: &Reply) -> Result<(), Violation> {
    let failed = matches!(reply, Reply::Failed(Error::Storage(_) | Error::Latched(_)));
    ensure(!(healthy && failed), "INV-27", || format!("{segment}: no fault touched it, and {reply:?}"))
}
