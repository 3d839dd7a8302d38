//! INV-11: after a split or merge nothing is appended to a parent once any child has accepted a record.
//!
//! Judged by the segments the node tells of, as they happen. That a key's records lie in a parent and its children in
//! the order they were asked for is INV-10's to say, at the end, when every range is read by itself.

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a segment that is opened in a range; `closed` says that a descendant of it has had one.
pub fn closed(segment: SegmentId, closed: bool) -> Result<(), Violation> {
    ensure(!closed, "INV-11", || format!("{segment} is opened, and a descendant of its range takes records"))
}

/// Judges a segment that is opened against that of an ancestor of its range.
pub fn parent_ended(segment: SegmentId, open: Option<SegmentId>) -> Result<(), Violation> {
    ensure(open.is_none(), "INV-11", || {
        format!("{segment} is opened, and its ancestor's {open:?} takes records")
    })
}
