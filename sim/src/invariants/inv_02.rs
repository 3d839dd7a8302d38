//! INV-2: the sync behind an acknowledgement also covers the file's existence and its directory entry.
//!
//! The store's half of it: a copy whose creation was answered is there after any crash, whatever was written to
//! it since. (That its bytes are there too is INV-23's to say.)

use storage::store::{Error, Reply};
use types::SegmentId;

use super::{Violation, ensure};

/// Judges the first reply about a copy after a crash; `created` says its creation had been answered.
pub fn check(segment: SegmentId, created: bool, reply: &Reply) -> Result<(), Violation> {
    let lost = matches!(reply, Reply::Failed(Error::NoSuchSegment));
    ensure(!(created && lost), "INV-2", || format!("{segment} was created and is gone"))
}
