//! INV-13: at most one active segment per range, and one process lifetime assigns all its offsets.

use std::fmt::Display;

use types::SegmentId;

use super::{Violation, ensure};

/// Judges a segment that is opened while another of its range takes records.
pub fn one_active(segment: SegmentId, active: Option<SegmentId>) -> Result<(), Violation> {
    ensure(active.is_none(), "INV-13", || format!("{segment} is opened, and {active:?} takes records"))
}

/// Judges an acknowledgement: a segment opened in this process lifetime took the records.
pub fn opened_here(batch: impl Display, open: bool) -> Result<(), Violation> {
    ensure(open, "INV-13", || {
        format!("{batch} is acknowledged, and no segment was opened for it in this lifetime")
    })
}
