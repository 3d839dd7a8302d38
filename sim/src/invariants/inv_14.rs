//! INV-14: a copy that acknowledged a fence never accepts an append under a lower epoch again, across restarts.

use storage::store::Reply;
use types::{Epoch, SegmentId};

use super::{Violation, ensure};

/// Judges the reply to an append made under `epoch`, when a fence at `fenced` had been acknowledged before.
pub fn check(segment: SegmentId, epoch: Epoch, fenced: Epoch, reply: &Reply) -> Result<(), Violation> {
    let accepted = matches!(reply, Reply::Appended { .. });
    ensure(!accepted || epoch >= fenced, "INV-14", || {
        format!("{segment}: fenced at epoch {fenced}, and an append under {epoch} was accepted")
    })
}
