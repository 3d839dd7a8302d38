//! A segment whose only copy is damaged: the range goes on behind everything that may have been acknowledged.
//!
//! Owns how far that is, and what readers are told. Does not touch the copy: its bytes stay as they are, and what lies
//! before the damage is read as ever.
//!
//! ```text
//! ├── intact ──┤╳╳╳ damaged, or behind it ╳╳╳├── the next segment
//!              end                            goes on: `lost` offsets later
//! ```
//!
//! Invariants:
//! - no offset that may have been acknowledged is given out twice;
//! - only records that were read and are not what was written count as lost. A device that does not answer, and bytes of
//!   a later format, may give everything back one day: then the range stands still and waits for a person;
//! - what is lost is in the tables before the range goes on; a reader that comes to it is moved behind it, and that is
//!   counted and told apart from what expired.

use storage::store::{self, Damage, DamageClass, Extent, Report};
use types::{Offset, RangeId, SegmentId, limits};

use crate::action::Notice;
use crate::ending::Step;
use crate::node::{Node, Owner};
use crate::segments::EPOCH_FIRST;

impl Node {
    /// The only copy of the range's segment is out of service: it is read through, to see whether records are damaged.
    pub(crate) fn look_for_loss(&mut self, id: RangeId, detail: &str) {
        let Some((ending, _)) = self.ending(id) else { return self.stop_for_good(id, detail) };
        ending.step = Step::Verifying;
        let segment = ending.segment;
        self.core.ask(Owner::Loss(segment), store::Request::Verify { segment });
    }

    /// The copy was read through, as far as that went.
    pub(crate) fn loss_seen(&mut self, segment: SegmentId, result: Result<Report, store::Error>) {
        let id = segment.range;
        let Some((ending, _)) = self.ending(id) else { return };
        if ending.segment != segment || !matches!(ending.step, Step::Verifying) {
            return;
        }
        match result {
            Ok(Report { records, bytes, damage: Some(damage) }) if is_rot(damage) => {
                self.end_with_loss(id, records, bytes);
            }
            Ok(report) => self.stop_for_good(id, &format!("out of service, {:?}", report.damage)),
            Err(error) => self.stop_for_good(id, &error.to_string()),
        }
    }

    /// The segment ends with what is intact of it, and the range goes on behind what its copy may have held.
    fn end_with_loss(&mut self, id: RangeId, records: u64, bytes: u64) {
        let roll_at = self.core.config.segment_bytes.max(limits::SEGMENT_BYTES_DEFAULT);
        // Whatever it took last may be as large as a request.
        let held_max = roll_at.saturating_add(self.core.config.frame_bytes_max as u64);
        let Some((ending, _)) = self.ending(id) else { return };
        let (base, end) = (ending.base, ending.base.plus(records));
        // Who opened it knows what it has acknowledged; after a restart only the bytes it can have held say how many
        // records these may have been. Another try must not take the end it found for that.
        let lost = match (ending.lost, ending.committed_end) {
            (Some(lost), _) => lost,
            (None, Some(committed)) => committed.0.saturating_sub(end.0),
            (None, None) => held_max.saturating_sub(bytes) / limits::RECORD_BYTES_MIN as u64,
        };
        ending.lost = Some(lost);
        let (epoch, state, rebuilding) = (EPOCH_FIRST, store::State::Sealed, false);
        self.record(id, Extent { base, end, bytes, epoch, last_append: None, rebuilding, state });
    }

    /// That a segment ended with a loss is in the tables.
    pub(crate) fn loss_recorded(&mut self, segment: SegmentId) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let Some((end, goes_on)) = listed.and_then(|listed| Some((listed.end()?, listed.goes_on()?))) else {
            return;
        };
        if goes_on > end {
            self.core.notice(Notice::RecordsLost { segment, end, goes_on });
        }
    }

    /// Offsets between two places of a range that are recorded as lost: the rest of them expired, or is there.
    pub(crate) fn lost_between(&self, range: RangeId, from: Offset, to: Offset) -> u64 {
        let vnode = self.core.meta.of(range.topic);
        // Whoever stands in what is lost stands behind the segment that lost it.
        let segments = vnode.segments_of(range).rev();
        let behind = segments.take_while(|(_, segment)| segment.goes_on().is_none_or(|end| end > from));
        let lost = behind.map(|(_, segment)| match (segment.end(), segment.goes_on()) {
            (Some(end), Some(goes_on)) => goes_on.min(to).0.saturating_sub(end.max(from).0),
            (None, _) | (_, None) => 0,
        });
        lost.sum()
    }
}

/// Whether records are not what was written, whatever is done about the device.
fn is_rot(damage: Damage) -> bool {
    match damage.class {
        DamageClass::Header | DamageClass::Payload | DamageClass::Order | DamageClass::Short => true,
        // A later build reads it; what describes a copy can be written anew by hand.
        DamageClass::Unsupported | DamageClass::Meta => false,
    }
}
