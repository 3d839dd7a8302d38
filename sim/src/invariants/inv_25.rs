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

/// A reader was told that nothing is left, and a record is due.
pub fn left(reader: impl std::fmt::Display, record: impl std::fmt::Display) -> Violation {
    Violation::new("INV-25", format!("{reader} is told that nothing is left, and {record} is due"))
}

/// A reader was given nothing; `before_it` is what lies before it for sure.
pub fn no_end(reader: impl std::fmt::Display, before_it: Option<String>) -> Result<(), Violation> {
    before_it.map_or(Ok(()), |what| Err(left(reader, what)))
}
