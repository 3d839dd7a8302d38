//! INV-11: after a split or merge nothing is appended to a parent once any child has accepted a record.
//!
//! Judged by the segments the node tells of, as they happen, and at the end by the records themselves: what lies
//! in a parent was asked for before anything that lies in its children.

use std::fmt::Display;

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a segment that is opened in a range; `closed` says that a descendant of it has had one.
pub fn closed(segment: SegmentId, closed: bool) -> Result<(), Violation> {
    ensure(!closed, "INV-11", || format!("{segment} is opened, and a descendant of its range takes records"))
}

/// Judges a segment that is opened against that of an ancestor of its range.
pub fn parent_ended(segment: SegmentId, open: Option<SegmentId>) -> Result<(), Violation> {
    ensure(open.is_none(), "INV-11", || format!("{segment} is opened, and its ancestor's {open:?} takes records"))
}

/// Judges a record with a key by the last one in the ranges that held the key before: numbers of their requests. A
/// request over several ranges may have had one part stored when another had to wait until the two were merged.
pub fn after_parent(range: impl Display, request: usize, parents_last: Option<usize>) -> Result<(), Violation> {
    ensure(parents_last.is_none_or(|last| last <= request), "INV-11", || {
        format!("{range} holds a record of request {request}, and a parent one of request {parents_last:?}")
    })
}
