//! INV-15: where a segment ends is chosen only from at least `R` fenced, intact answers that are not being made anew.
//!
//! Judged by the disks when some node first applies the seal. Two other ways are right: the primary ended the segment
//! itself, with nothing on its way, and its copy is sealed there; or every copy there is was fenced, those that were
//! made anew included, so that nobody is left who could know more.

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// What the copies say of how an end was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Copies that are fenced or sealed, and answer for what they held.
    pub sound: usize,
    /// Copies that are fenced or sealed.
    pub fenced: usize,
    /// Copies there are.
    pub all: usize,
    /// As many as have to answer.
    pub needed: usize,
    /// The first of them is sealed at the end.
    pub by_primary: bool,
}

/// Judges a seal.
pub fn chosen(segment: SegmentId, end: Offset, of: Fenced) -> Result<(), Violation> {
    let Fenced { sound, fenced, all, needed, by_primary } = of;
    ensure(sound >= needed || fenced >= all || by_primary, "INV-15", || {
        format!("{segment} is sealed at {end}: {sound} of {all} copies can answer, {needed} have to")
    })
}
