//! Blocks written ahead of need, while nothing else wants the disk.
//!
//! An append that changes its file's length costs about two syncs instead of one. So a range that has filled a
//! segment finds the file of its next one made of written zeros already, as large as it will get; and a copy that
//! grows gets zeros behind its end in the moments in which nothing is appended.
//!
//! - Nothing is made before some copy was expected to fill, or has filled a part of what it may: a store whose copies
//!   stay small keeps no spare file.
//! - One piece is under way at a time, synced by itself, so that a flush never waits for more. While flushes go on,
//!   a piece is written only with each tick.
//! - A failure costs nothing but the attempt, and the next one waits for a while.
//! - Like a file put aside for reuse, a spare file does not outlive the process: the start removes it.

use std::ops::Bound;
use std::time::Duration;

use types::limits::SPARE_REST_MS;
use types::{Instant, SegmentId};

use super::Store;
use super::desk::{Desk, Owner};
use crate::disk::{self, FileId, Name, Output, Path, Step};

/// Who has filled such a part of a spare file will soon want one.
const FILLING_SHARE: u64 = 4;
/// Growing copies that are looked at with each tick.
const GROWING_PER_TICK: usize = 8;

/// The spare files of one store.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Files that are ready.
    pub(super) ready: Vec<Name>,
    /// Some copy was expected to fill, or is filling.
    wanted: bool,
    making: Option<Making>,
    /// A piece is under way.
    pub(super) busy: bool,
    /// The growing copy that was looked at last.
    looked_at: Option<SegmentId>,
    /// Nothing is tried before: something failed.
    rest_until: Option<Instant>,
}

#[derive(Debug)]
struct Making {
    name: Name,
    file: FileId,
    /// Zeros are written and synced up to here.
    at: u64,
}

/// A piece of zeros under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// Of the spare file that is being made, up to here.
    Spare(u64),
    /// Of a copy's log, open as this file, up to here.
    Ahead(SegmentId, FileId, u64),
}

impl Desk {
    /// The file of a copy that is expected to fill: one put aside, else one made of zeros, else none.
    pub(super) fn take_file(&mut self) -> Option<Name> {
        self.spares.wanted = true;
        self.recycled.pop().or_else(|| self.spares.ready.pop())
    }

    /// Takes note that a copy has grown to so many bytes.
    pub(super) fn has_grown(&mut self, bytes: u64) {
        let filling = self.config.spare_bytes / FILLING_SHARE;
        self.spares.wanted |= filling > 0 && bytes >= filling;
    }
}

impl Store {
    /// Writes the next piece, if there is a reason to and the disk has time.
    pub(super) fn write_ahead(&mut self, is_tick: bool) {
        let now = self.desk.now;
        let busy = self.desk.is_flushing();
        let spares = &self.desk.spares;
        let rests = spares.rest_until.is_some_and(|until| now < until);
        if spares.busy || rests || (busy && !is_tick) {
            return;
        }
        let grown = is_tick && !busy && self.grow_ahead();
        if !grown {
            self.make_spare();
        }
    }

    /// Zeros behind the end of a copy that is about to outgrow its blocks; false when there is none.
    fn grow_ahead(&mut self) -> bool {
        let after = self.desk.spares.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let growing = self.desk.unrecorded.range((after, Bound::Unbounded)).take(GROWING_PER_TICK);
        let growing: Vec<SegmentId> = growing.map(|(segment, _)| *segment).collect();
        // After the last comes the first again.
        self.desk.spares.looked_at = growing.last().copied().filter(|_| growing.len() == GROWING_PER_TICK);
        for segment in growing {
            let Some(copy) = self.copies.get_mut(&segment) else { continue };
            if let Some((file, at, len)) = copy.wants_ahead(&mut self.desk) {
                let piece = Piece::Ahead(segment, file, at + len);
                self.write_piece(piece, vec![Step::Zero { file, at, len }, Step::Sync(file)]);
                return true;
            }
        }
        false
    }

    fn make_spare(&mut self) {
        let desk = &mut self.desk;
        let kept = desk.recycled.len() + desk.spares.ready.len();
        if !desk.spares.wanted || kept >= desk.config.spare_files_max || desk.config.spare_bytes == 0 {
            return;
        }
        let mut steps = Vec::with_capacity(4);
        if desk.spares.making.is_none() {
            let (dir, name, file) = (desk.recycle_dir(), desk.new_recycled(), desk.new_file());
            desk.run(Owner::Nobody, vec![Step::CreateDir(dir.clone()), Step::SyncDir(None)]);
            steps.push(Step::Create { file, path: Path { dir: Some(dir), name: name.clone() } });
            desk.spares.making = Some(Making { name, file, at: 0 });
        }
        let Some(Making { file, at, .. }) = desk.spares.making else { return };
        let len = desk.config.spare_piece_bytes.clamp(1, desk.config.spare_bytes - at);
        let end = at + len;
        steps.extend([Step::Zero { file, at, len }, Step::Sync(file)]);
        if end == desk.config.spare_bytes {
            steps.extend([Step::Close(file), Step::SyncDir(Some(desk.recycle_dir()))]);
        }
        self.write_piece(Piece::Spare(end), steps);
    }

    fn write_piece(&mut self, piece: Piece, steps: Vec<Step>) {
        self.desk.spares.busy = true;
        self.desk.run(Owner::Piece(piece), steps);
    }

    /// Takes the completion of a piece.
    pub(super) fn piece_done(&mut self, piece: Piece, result: Result<Output, disk::Error>) {
        let failed = result.is_err();
        self.desk.spares.busy = false;
        if failed {
            self.desk.spares.rest_until = Some(self.desk.now.plus(Duration::from_millis(SPARE_REST_MS)));
        }
        match piece {
            Piece::Spare(end) => self.spare_grown(end, failed),
            Piece::Ahead(segment, file, end) => {
                self.with(segment, |copy, desk| copy.grown_ahead(desk, file, end, failed));
            }
        }
        self.write_ahead(false);
    }

    fn spare_grown(&mut self, end: u64, failed: bool) {
        let desk = &mut self.desk;
        let Some(mut making) = desk.spares.making.take() else { return };
        if failed {
            let path = Path { dir: Some(desk.recycle_dir()), name: making.name };
            desk.run(Owner::Nobody, vec![Step::Close(making.file)]);
            desk.run(Owner::Nobody, vec![Step::Remove(path)]);
        } else if end == desk.config.spare_bytes {
            desk.spares.ready.push(making.name);
        } else {
            making.at = end;
            desk.spares.making = Some(making);
        }
    }
}
