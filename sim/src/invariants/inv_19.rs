//! INV-19: when a seal commits, at least `R` intact copies hold every record below the end.
//!
//! Judged by the disks when some node first applies the seal.

use types::{Offset, SegmentId};

use super::{Violation, ensure};

/// Judges how many copies were found whole.
pub fn held(segment: SegmentId, end: Offset, whole: usize, wanted: usize) -> Result<(), Violation> {
    ensure(whole >= wanted, "INV-19", || {
        format!("{segment} is sealed at {end}, {whole} disks hold all of it, {wanted} have to")
    })
}
