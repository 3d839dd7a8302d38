//! INV-12: identities are never used again for something else.
//!
//! A topic that was deleted and made again has another id, and shares no record, cursor or position with the first.

use types::{Offset, SegmentId, TopicId};

use super::{Violation, ensure};

/// Judges the id of a new topic.
pub fn new_topic(name: &str, id: TopicId, seen: bool) -> Result<(), Violation> {
    ensure(!seen, "INV-12", || format!("topic {name} is made under {id}, which another one had"))
}

/// Judges what a start finds under a name against what was there.
pub fn topic(
    name: &str,
    id: Option<TopicId>,
    known: Option<TopicId>,
    allowed: bool,
) -> Result<(), Violation> {
    ensure(allowed, "INV-12", || format!("topic {name} was {known:?} and is {id:?} after a start"))
}

/// Judges a segment that is opened.
pub fn segment(segment: SegmentId, seen: bool) -> Result<(), Violation> {
    ensure(!seen, "INV-12", || format!("{segment} is opened a second time"))
}

/// Judges where a segment starts, against where it did.
pub fn same_start(segment: SegmentId, before: Offset, now: Offset) -> Result<(), Violation> {
    ensure(before == now, "INV-12", || format!("{segment} starts at {now}, and at {before} before"))
}
