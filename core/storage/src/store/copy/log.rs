//! The open log of a copy: where it ends, in memory, in the file, on the platter.
//!
//! ```text
//! 0 ───── written ───── synced ───── submitted ───── appended
//!   in the file,     durable: by      on its way       accepted
//!   and synced       the file or
//!                    the journal
//! ```
//!
//! Frames past `written` are held in memory; readers find them there. `written <= synced <= appended`.

use std::collections::VecDeque;

use bytes::Bytes;
use types::{Offset, SegmentId, WallTime};

use crate::disk::{FileId, Path, Step};
use crate::format::batch::Batch;
use crate::segment::index::Sparse;
use crate::store::desk::{Desk, Owner};
use crate::store::{FailReason, RequestId};

/// A place between two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Mark {
    /// Offset of the next record.
    pub(in crate::store) end: Offset,
    /// Its byte position.
    pub(in crate::store) position: u64,
}

/// A frame that is not known to be in the file.
#[derive(Debug)]
pub(in crate::store) struct Held {
    pub(in crate::store) header: Bytes,
    pub(in crate::store) batch: Batch,
    /// Where it ends.
    pub(in crate::store) mark: Mark,
}

/// An append that has not been answered.
#[derive(Debug)]
pub(in crate::store) struct Unanswered {
    pub(in crate::store) request: RequestId,
    pub(in crate::store) mark: Mark,
}

/// A log whose end is known.
#[derive(Debug)]
pub(in crate::store) struct Log {
    path: Path,
    file: Option<(FileId, u64)>,
    /// The file is being opened by a flush under way: reads wait for that.
    pub(super) opening: bool,
    /// Bytes that have blocks: writing below this does not change the file's length.
    pub(super) allocated: u64,
    pub(in crate::store) appended: Mark,
    /// Sent to the disk, by whichever way.
    pub(in crate::store) submitted: Mark,
    /// Sent to the file itself.
    pub(in crate::store) file_submitted: Mark,
    /// Up to here something was sent to the file that never went to the journal.
    pub(in crate::store) file_only: u64,
    pub(in crate::store) synced: Mark,
    pub(in crate::store) written: Mark,
    /// The furthest byte recorded in each of the two journal files.
    pub(in crate::store) journaled: [u64; 2],
    pub(super) last_time: WallTime,
    pub(super) index: Sparse,
    pub(super) held: VecDeque<Held>,
    pub(super) unanswered: VecDeque<Unanswered>,
    /// Flushes of this copy under way.
    pub(super) flushes: u32,
    cache: VecDeque<Batch>,
    /// A write failed.
    pub(super) stopped: Option<FailReason>,
    /// Opened while latched, so only read: its tail may be in the page cache alone.
    pub(super) unproven: bool,
}

impl Log {
    pub(super) fn new(path: Path, mark: Mark, index: Sparse, allocated: u64, last_time: WallTime) -> Self {
        Self {
            path,
            file: None,
            opening: false,
            allocated,
            appended: mark,
            submitted: mark,
            file_submitted: mark,
            file_only: mark.position,
            synced: mark,
            written: mark,
            journaled: [0; 2],
            last_time,
            index,
            held: VecDeque::new(),
            unanswered: VecDeque::new(),
            flushes: 0,
            cache: VecDeque::new(),
            stopped: None,
            unproven: false,
        }
    }

    pub(super) fn path(&self) -> Path {
        self.path.clone()
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Everything accepted is in the file, and nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.flushes == 0 && self.held.is_empty()
    }

    /// Some append has not been answered.
    pub(super) fn is_answering(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Whether everything sent is durable, or in the journal before whatever goes there next.
    ///
    /// Only then may the journal take more of this copy: what recovery finds in it is believed to follow on what
    /// is durable, so that something bad before it is known to be rot.
    pub(in crate::store) fn may_journal(&self) -> bool {
        self.file_only <= self.synced.position
    }

    /// Bytes accepted and not yet sent to the disk.
    pub(in crate::store) fn unsent_bytes(&self) -> u64 {
        self.appended.position - self.submitted.position
    }

    /// The open file, noting its use. Only while [`has_file`](Self::has_file).
    pub(super) fn file(&mut self, desk: &mut Desk, segment: SegmentId) -> FileId {
        let (file, stamp) = self.file.expect("the caller has checked that the file is open");
        self.file = Some((file, desk.used(segment, Some(stamp))));
        file
    }

    /// The open file; if there is none, a number under which `steps` opens it.
    pub(super) fn file_or_open(
        &mut self,
        desk: &mut Desk,
        segment: SegmentId,
        steps: &mut Vec<Step>,
    ) -> FileId {
        if self.has_file() {
            return self.file(desk, segment);
        }
        let file = desk.new_file();
        steps.push(Step::Open { file, path: self.path.clone() });
        self.set_file(desk, segment, file);
        self.opening = true;
        file
    }

    pub(super) fn set_file(&mut self, desk: &mut Desk, segment: SegmentId, file: FileId) {
        let stamp = desk.used(segment, self.file.map(|(_, stamp)| stamp));
        self.file = Some((file, stamp));
    }

    pub(super) fn close(&mut self, desk: &mut Desk) {
        if let Some((file, stamp)) = self.file.take() {
            desk.closed(stamp);
            desk.run(Owner::Nobody, vec![Step::Close(file)]);
        }
    }

    /// Forgets everything past `mark`, which is now the end for good. Only of a settled log.
    pub(super) fn trim(&mut self, mark: Mark) {
        (self.appended, self.submitted, self.file_submitted) = (mark, mark, mark);
        (self.synced, self.written, self.file_only) = (mark, mark, mark.position);
        self.allocated = mark.position;
        self.index.truncate(mark.position);
        while self.cache.back().is_some_and(|batch| batch.header.end_offset() > mark.end) {
            self.cache.pop_back();
        }
    }

    /// Forgets what is not durable: a write failed, and nothing can be appended behind it.
    pub(super) fn stop(&mut self, reason: FailReason) {
        self.stopped = Some(reason);
        self.appended = self.synced;
        self.submitted = self.synced;
        self.file_submitted = self.written;
        self.index.truncate(self.synced.position);
        let synced = self.synced.position;
        self.held.retain(|held| held.mark.position <= synced);
    }

    /// Takes note that the file holds everything below `mark`, synced.
    pub(super) fn wrote(&mut self, desk: &mut Desk, segment: SegmentId, mark: Mark) {
        self.written = mark;
        while self.held.front().is_some_and(|held| held.mark.position <= mark.position) {
            let Some(held) = self.held.pop_front() else { break };
            desk.cache(segment, held.batch.header.base_offset, held.batch.payload.len());
            self.cache.push_back(held.batch);
        }
    }

    /// Gives back the memory that only a log in use needs. Of a settled one.
    pub(super) fn rest(&mut self) {
        self.held = VecDeque::new();
        self.unanswered.shrink_to_fit();
        self.cache.shrink_to_fit();
        self.index.rest();
    }

    pub(super) fn uncache(&mut self, base: Offset) {
        if self.cache.front().is_some_and(|batch| batch.header.base_offset == base) {
            self.cache.pop_front();
        }
    }

    /// Durable batches from the one that holds `from`, out of memory; `None` if it is not there.
    pub(super) fn cached(&self, from: Offset, bytes_max: usize) -> Option<Vec<Batch>> {
        let first = self.cache.partition_point(|batch| batch.header.end_offset() <= from);
        let first_held = self.held.partition_point(|held| held.mark.end <= from);
        let mut in_memory =
            self.cache.range(first..).chain(self.held.range(first_held..).map(|held| &held.batch)).peekable();
        let held = in_memory.peek().is_some_and(|batch| batch.header.base_offset <= from);
        let mut bytes = 0;
        let mut batches: Vec<Batch> = Vec::new();
        for batch in in_memory.filter(|_| held) {
            bytes += batch.header.frame_len();
            let follows =
                batches.last().is_none_or(|last| last.header.end_offset() == batch.header.base_offset);
            let fits = batches.is_empty() || bytes <= bytes_max as u64;
            if !fits || !follows || batch.header.end_offset() > self.synced.end {
                break;
            }
            batches.push(batch.clone());
        }
        (!batches.is_empty()).then_some(batches)
    }

    /// Whether the log is open as this file.
    pub(super) fn is_file(&self, file: FileId) -> bool {
        self.file.is_some_and(|(open, _)| open == file)
    }

    /// Zeros to write behind the end while nothing is appended: as many as a flush would be followed by, once half of
    /// them are used up. `None` when there are enough, or the log is in use or has failed.
    pub(super) fn ahead(&self, desk: &Desk) -> Option<u64> {
        let (least, most) = desk.config.preallocate_bytes;
        let (end, len) = (self.appended.position, self.appended.position.clamp(least, most));
        let fit = self.has_file() && self.is_settled() && self.stopped.is_none() && !self.unproven;
        (fit && len > 0 && self.allocated.saturating_sub(end) < len / 2).then_some(len)
    }

    /// Zeros to write behind a flush that ends at `end`, so that later ones need not grow the file.
    pub(super) fn zeros_ahead(&self, desk: &Desk, end: u64, flush_bytes: u64) -> u64 {
        let (least, most) = desk.config.preallocate_bytes;
        let grows = end > self.allocated;
        if !grows || flush_bytes >= desk.config.preallocate_below_bytes { 0 } else { end.clamp(least, most) }
    }
}
