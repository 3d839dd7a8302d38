//! What was asked of each copy, and what was answered: all the truth there is.
//!
//! The model knows no file formats and no recovery rules; only where each frame must lie (they are laid end to
//! end) and which answers speak for which bytes.

use std::collections::BTreeMap;

use storage::format::batch::Batch;
use types::{Epoch, Offset, SegmentId, WallTime};

/// Whether a copy exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exists {
    No,
    /// A creation or removal was asked for and not answered.
    Maybe,
    Yes,
}

/// One appended batch.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) batch: Batch,
    pub(super) acked: bool,
    /// Bytes of log that had been acknowledged when this one was submitted: what the frame testifies.
    pub(super) testimony: u64,
}

/// A flipped bit in a frame of the log.
#[derive(Clone, Debug)]
pub(super) struct Rot {
    /// First byte of the frame.
    pub(super) position: u64,
    /// The log's bytes right after the flip, if nothing may change them: `[.., len)`.
    pub(super) frozen: Option<Vec<u8>>,
}

/// One copy.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) exists: Exists,
    pub(super) base: Offset,
    pub(super) frames: Vec<Frame>,
    /// Highest epoch of an acknowledged fence, and of any fence asked for.
    pub(super) fenced: Epoch,
    pub(super) epoch_max: Epoch,
    pub(super) sealed: Option<Offset>,
    /// Seals asked for that failed or were not answered.
    pub(super) seals_pending: Vec<Offset>,
    pub(super) latched: bool,
    pub(super) latch_pending: bool,
    pub(super) delete_pending: bool,
    /// Whether it was made in the place of another and not told to be whole; `None` when that is not known.
    pub(super) rebuilding: Option<bool>,
    /// Bytes a fence's answer recorded.
    pub(super) recorded: u64,
    pub(super) rot: Option<Rot>,
    pub(super) meta_flipped: bool,
    /// A bit of the journal flipped while the copy took appends: it may leave service.
    pub(super) journal_rot: bool,
    /// The same for a bit of one of the two headers of a journal file.
    pub(super) journal_header_flipped: bool,
    /// Appends may be durable in the journal alone: then their frames say less of the log's own file.
    pub(super) journaled: bool,
    /// Nobody touched anything but data that is asked for: the copy has no excuse.
    pub(super) may_fail: bool,
    /// Its state has been looked at in this life.
    pub(super) known: bool,
    /// `copy.meta` is unreadable: nothing more can be learned.
    pub(super) dead: bool,
    /// A write failed in this life.
    pub(super) stopped: bool,
    /// A creation failed: its leftovers may turn up as an empty copy after a restart.
    pub(super) half_created: bool,
    /// A write failed in an earlier life, and the copy has not been looked at since.
    pub(super) poisoned: bool,
}

impl Copy {
    pub(super) fn new() -> Self {
        Self {
            exists: Exists::No,
            base: Offset::ZERO,
            frames: Vec::new(),
            fenced: Epoch(1),
            epoch_max: Epoch(1),
            sealed: None,
            seals_pending: Vec::new(),
            latched: false,
            latch_pending: false,
            delete_pending: false,
            rebuilding: Some(false),
            recorded: 0,
            journaled: false,
            rot: None,
            meta_flipped: false,
            journal_rot: false,
            journal_header_flipped: false,
            may_fail: false,
            known: true,
            dead: false,
            stopped: false,
            half_created: false,
            poisoned: false,
        }
    }

    /// That it is whole was asked to be recorded, and nobody knows whether it was.
    pub(super) fn doubt_rebuilding(&mut self) {
        self.rebuilding = self.rebuilding.filter(|rebuilding| !rebuilding);
    }

    /// Where the next batch goes, if everything submitted is there.
    pub(super) fn submitted_end(&self) -> Offset {
        self.frames.last().map_or(self.base, |frame| frame.batch.header.end_offset())
    }

    /// Everything below was acknowledged.
    pub(super) fn acked_end(&self) -> Offset {
        let acked = self.frames.iter().take_while(|frame| frame.acked).last();
        acked.map_or(self.base, |frame| frame.batch.header.end_offset())
    }

    /// Bytes of the acknowledged frames.
    pub(super) fn acked_bytes(&self) -> u64 {
        self.frames.iter().take_while(|frame| frame.acked).map(|frame| frame.batch.header.frame_len()).sum()
    }

    /// Each frame with its first byte.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u64, &Frame)> {
        self.frames.iter().scan(0, |position, frame| {
            let at = *position;
            *position += frame.batch.header.frame_len();
            Some((at, frame))
        })
    }

    /// A copy that is not there, or not yet: only what outlives it is kept.
    pub(super) fn absent(&self) -> Self {
        Self {
            may_fail: self.may_fail,
            half_created: self.half_created,
            base: if self.half_created { self.base } else { Offset::ZERO },
            journaled: self.journaled,
            // A creation nobody has answered yet may have made it before the journal was damaged.
            journal_rot: self.journal_rot,
            journal_header_flipped: self.journal_header_flipped,
            ..Self::new()
        }
    }

    /// The frame that byte `at` of the log belongs to: its first byte.
    pub(super) fn frame_at(&self, at: u64) -> Option<u64> {
        self.placed()
            .find(|(position, frame)| (*position..*position + frame.batch.header.frame_len()).contains(&at))
            .map(|(p, _)| p)
    }

    /// How far surviving evidence says the log was synced: acknowledged frames other than the rotten one, and
    /// recorded fences and seals.
    pub(super) fn testimony(&self) -> u64 {
        let rotten = self.rot.as_ref().map(|rot| rot.position);
        let frames =
            self.placed().filter(|(at, frame)| !self.journaled && frame.acked && Some(*at) != rotten);
        frames.map(|(_, frame)| frame.testimony).max().unwrap_or(0).max(self.recorded)
    }

    /// Whether the rotten frame must be recognized as rot.
    pub(super) fn rot_is_provable(&self) -> bool {
        self.rot.as_ref().is_some_and(|rot| rot.position < self.testimony() || self.sealed.is_some())
    }

    /// The offset of the frame that begins at a byte.
    pub(super) fn offset_at(&self, position: u64) -> Option<Offset> {
        self.placed().find(|(at, _)| *at == position).map(|(_, frame)| frame.batch.header.base_offset)
    }

    /// Everything below can be read: acknowledged, and before any rot.
    pub(super) fn readable_end(&self) -> Offset {
        let rotten = self.rot.as_ref().and_then(|rot| self.offset_at(rot.position));
        rotten.map_or(self.acked_end(), |rotten| rotten.min(self.acked_end()))
    }

    /// The submitted batches in order.
    pub(super) fn batches(&self) -> Vec<Batch> {
        self.frames.iter().map(|frame| frame.batch.clone()).collect()
    }

    /// Nothing wrong was done to it and nothing is known to be wrong with it.
    pub(super) fn is_healthy(&self) -> bool {
        !self.may_fail
            && self.rot.is_none()
            && !self.meta_flipped
            && !self.latched
            && !self.latch_pending
            && !self.stopped
            && !self.journal_rot
    }

    /// When the last batch was appended.
    pub(super) fn last_time(&self) -> WallTime {
        self.frames.last().map_or(WallTime(1000), |frame| frame.batch.header.append_time)
    }

    /// Takes note that the log ends at `end`: everything below is durable, the rest never was.
    pub(super) fn cut(&mut self, end: Offset) {
        self.frames.retain(|frame| frame.batch.header.end_offset() <= end);
        for frame in &mut self.frames {
            frame.acked = true;
        }
    }
}

impl Copy {
    /// Takes note that the copy is sealed at `end`: what lies past it is gone, whatever was wrong with it.
    pub(super) fn seal(&mut self, end: Offset) {
        let rotten = self.rot.as_ref().and_then(|rot| self.offset_at(rot.position));
        if rotten.is_some_and(|at| at >= end) {
            self.rot = None;
        }
        self.cut(end);
        let bytes = usize::try_from(self.acked_bytes()).unwrap_or(usize::MAX);
        if let Some(frozen) = self.rot.as_mut().and_then(|rot| rot.frozen.as_mut()) {
            frozen.truncate(bytes);
        }
    }
}

/// All copies, by segment.
pub(super) type Model = BTreeMap<SegmentId, Copy>;
