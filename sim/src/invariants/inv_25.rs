//! INV-25: damage is never presented as the end of data.

use storage::store::{Error, Reply};
use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges the reply to a read at `from` of a copy whose data was acknowledged up to `acknowledged`.
pub fn check(segment: SegmentId, from: Offset, acknowledged: Offset, reply: &Reply) -> Result<(), Violation> {
    let ended = matches!(reply, Reply::Failed(Error::EndOfData { .. } | Error::OutOfRange { .. }));
    ensure(!ended || from >= acknowledged, "INV-25", || {
        format!("{segment}: a read at {from} got the end of data, {acknowledged} was acknowledged")
    })
}

/// Judges an answer without records to a reader at `position` of a topic of which so much can be read.
pub fn nothing_left(topic: &str, position: u64, readable: bool) -> Result<(), Violation> {
    ensure(!readable, "INV-25", || format!("{topic}: nothing at {position}, where an acknowledged record is"))
}
