//! INV-12: identities are never used again for something else.

use types::{SegmentId, TopicId};

use super::{Violation, ensure};

/// Judges the id of a topic against the one it had.
pub fn topic(name: &str, id: TopicId, known: TopicId) -> Result<(), Violation> {
    ensure(id == known, "INV-12", || format!("topic {name} was {known} and is {id}"))
}

/// Judges a segment that is opened.
pub fn segment(segment: SegmentId, seen: bool) -> Result<(), Violation> {
    ensure(!seen, "INV-12", || format!("{segment} is opened a second time"))
}

/// Judges a creation: there has been one of that name, and names are not given back.
pub fn created_once(name: &str, exists: bool) -> Result<(), Violation> {
    ensure(!exists, "INV-12", || format!("topic {name} exists, and was created again"))
}
