//! The open log, and appending to it.

use std::collections::VecDeque;

use types::{Epoch, Offset, WallTime};

use super::{Copy, reason_of};
use crate::disk::{self, FileId, Output, Path, Step};
use crate::format::batch::Batch;
use crate::planted::Bug;
use crate::segment::index::{Entry, Sparse};
use crate::store::desk::{Desk, Owner};
use crate::store::{Error, FailReason, Notice, Reply, RequestId};

/// A place between two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Mark {
    /// Offset of the next record.
    pub(in crate::store) end: Offset,
    /// Its byte position.
    pub(in crate::store) position: u64,
}

/// A log whose end is known. `synced <= appended`; the difference is on its way to the disk.
#[derive(Debug)]
pub(in crate::store) struct Log {
    path: Path,
    file: Option<(FileId, u64)>,
    /// The file is being opened by the first append under way: reads wait for that.
    opening: bool,
    /// Bytes that have blocks: writing below this does not change the file's length.
    pub(super) allocated: u64,
    pub(super) appended: Mark,
    pub(super) synced: Mark,
    pub(super) last_time: WallTime,
    pub(super) index: Sparse,
    in_flight: VecDeque<InFlight>,
    cache: VecDeque<Batch>,
    /// A write failed.
    pub(super) stopped: Option<FailReason>,
    /// Opened while latched, so only read: its tail may be in the page cache alone.
    pub(super) unproven: bool,
}

#[derive(Debug)]
struct InFlight {
    request: RequestId,
    mark: Mark,
}

impl Log {
    pub(super) fn new(path: Path, mark: Mark, index: Sparse, allocated: u64, last_time: WallTime) -> Self {
        Self {
            path,
            file: None,
            opening: false,
            allocated,
            appended: mark,
            synced: mark,
            last_time,
            index,
            in_flight: VecDeque::new(),
            cache: VecDeque::new(),
            stopped: None,
            unproven: false,
        }
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn is_writing(&self) -> bool {
        !self.in_flight.is_empty()
    }

    pub(super) fn is_opening(&self) -> bool {
        self.opening
    }

    /// The open file, noting its use. Only while [`has_file`](Self::has_file).
    pub(super) fn file(&mut self, desk: &mut Desk, segment: types::SegmentId) -> FileId {
        let (file, stamp) = self.file.expect("the caller has checked that the file is open");
        self.file = Some((file, desk.used(segment, Some(stamp))));
        file
    }

    pub(super) fn set_file(&mut self, desk: &mut Desk, segment: types::SegmentId, file: FileId) {
        let stamp = desk.used(segment, self.file.map(|(_, stamp)| stamp));
        self.file = Some((file, stamp));
    }

    pub(super) fn close(&mut self, desk: &mut Desk) {
        if let Some((file, stamp)) = self.file.take() {
            desk.closed(stamp);
            desk.run(Owner::Nobody, vec![Step::Close(file)]);
        }
    }

    pub(super) fn path(&self) -> Path {
        self.path.clone()
    }

    /// Forgets everything past `mark`, which is now the end for good.
    pub(super) fn trim(&mut self, mark: Mark) {
        self.appended = mark;
        self.synced = mark;
        self.allocated = mark.position;
        self.index.truncate(mark.position);
        while self.cache.back().is_some_and(|batch| batch.header.end_offset() > mark.end) {
            self.cache.pop_back();
        }
    }

    pub(super) fn uncache(&mut self, base: Offset) {
        if self.cache.front().is_some_and(|batch| batch.header.base_offset == base) {
            self.cache.pop_front();
        }
    }

    /// Durable batches from the one that holds `from`, out of memory; `None` if it is not there.
    pub(super) fn cached(&self, from: Offset, bytes_max: usize) -> Option<Vec<Batch>> {
        let first = self.cache.partition_point(|batch| batch.header.end_offset() <= from);
        let held = self.cache.get(first).is_some_and(|batch| batch.header.base_offset <= from);
        let mut bytes = 0;
        let mut batches = Vec::new();
        for batch in self.cache.range(first..).filter(|_| held) {
            bytes += batch.header.frame_len();
            let fits = batches.is_empty() || bytes <= bytes_max as u64;
            if !fits || batch.header.end_offset() > self.synced.end {
                break;
            }
            batches.push(batch.clone());
        }
        (!batches.is_empty()).then_some(batches)
    }

    /// Zeros to write behind a flush that ends at `end`, so that later ones need not grow the file.
    fn zeros_ahead(&self, desk: &Desk, end: u64, flush_bytes: u64) -> u64 {
        let (least, most) = desk.config.preallocate_bytes;
        let grows = end > self.allocated;
        if !grows || flush_bytes >= desk.config.preallocate_below_bytes { 0 } else { end.clamp(least, most) }
    }
}

impl Copy {
    /// Why the copy takes no append under `epoch`, if it does not.
    fn refusal(&self, epoch: Epoch) -> Option<Error> {
        if let Some(reason) = self.meta.latched {
            return Some(Error::Latched(reason));
        }
        if self.meta.sealed_at.is_some() {
            return Some(Error::Sealed { end: self.meta.durable_end });
        }
        if epoch < self.meta.epoch {
            return Some(Error::Fenced { epoch: self.meta.epoch });
        }
        self.log.as_ref().and_then(|log| log.stopped).map(Error::Latched)
    }

    pub(super) fn append(&mut self, desk: &mut Desk, id: RequestId, epoch: Epoch, batch: Batch) {
        if let Some(error) = self.refusal(epoch) {
            return desk.reply(id, Reply::Failed(error));
        }
        let segment = self.meta.segment;
        let identity = self.meta.identity();
        let log = self.log.as_mut().expect("an unsealed copy is opened before its first append");
        if batch.header.base_offset != log.appended.end {
            return desk.reply(id, Reply::Failed(Error::OutOfSync { end: log.appended.end }));
        }
        let at = log.appended.position;
        let mark = Mark { end: batch.header.end_offset(), position: at + batch.header.frame_len() };
        let mut steps = Vec::with_capacity(3);
        let file = if log.has_file() {
            log.file(desk, segment)
        } else {
            let file = desk.new_file();
            steps.push(Step::Open { file, path: log.path.clone() });
            log.set_file(desk, segment, file);
            log.opening = true;
            file
        };
        let header = batch.header.encode(identity, log.synced.position);
        steps.push(Step::Write { file, at, data: vec![header, batch.payload.clone()] });
        let zeros = log.zeros_ahead(desk, mark.position, batch.header.frame_len());
        if zeros > 0 {
            steps.push(Step::Zero { file, at: mark.position, len: zeros });
        }
        if !desk.config.has_bug(Bug::SkipSync) {
            steps.push(Step::Sync(file));
        }
        log.allocated = log.allocated.max(mark.position + zeros);
        log.appended = mark;
        log.last_time = log.last_time.max(batch.header.append_time);
        log.index.note(Entry { offset: batch.header.base_offset, time: batch.header.append_time, position: at });
        log.in_flight.push_back(InFlight { request: id, mark });
        desk.cache(segment, batch.header.base_offset, batch.payload.len());
        log.cache.push_back(batch);
        desk.run(Owner::Append(segment), steps);
    }

    /// Takes the completion of the oldest append under way.
    pub(in crate::store) fn append_done(&mut self, desk: &mut Desk, result: Result<Output, disk::Error>) {
        let segment = self.meta.segment;
        let Some(log) = &mut self.log else { return };
        let Some(done) = log.in_flight.pop_front() else { return };
        log.opening = false;
        match result {
            Ok(_) if log.stopped.is_none() => {
                log.synced = done.mark;
                desk.unrecorded.insert(segment, desk.now);
                desk.reply(done.request, Reply::Appended { end: done.mark.end });
            }
            // A write behind one that failed would be acknowledged behind a hole.
            Ok(_) => desk.reply(done.request, Reply::Failed(Error::Latched(FailReason::Other))),
            Err(error) => {
                let reason = reason_of(&error);
                if log.stopped.is_none() {
                    log.stopped = Some(reason);
                    log.appended = log.synced;
                    log.index.truncate(log.synced.position);
                    while log.cache.back().is_some_and(|batch| batch.header.end_offset() > log.synced.end) {
                        log.cache.pop_back();
                    }
                    let detail = format!("failed in storage: {error}");
                    desk.notice(Notice::Stopped { segment, reason, detail });
                }
                desk.reply(done.request, Reply::Failed(Error::Storage(error)));
            }
        }
        self.drain(desk);
    }
}
