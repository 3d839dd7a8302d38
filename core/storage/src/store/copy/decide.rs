//! Decisions about a copy that must be durable before they are told: fence, seal, latch, whole again.

use types::{Epoch, Offset, WallTime};

use super::log::Mark;
use super::{Copy, Task, reason_of};
use crate::disk::{self, ErrorKind, Output, Step};
use crate::segment::scan::{Scan, Stop};
use crate::store::desk::{Desk, Owner};
use crate::store::{Damage, DamageClass, Error, FailReason, Reply, RequestId};

/// A fence being recorded.
#[derive(Debug)]
pub(super) struct Fence {
    request: RequestId,
}

/// A latch being recorded.
#[derive(Debug)]
pub(super) struct Latch {
    request: RequestId,
}

/// That the copy is not being rebuilt any more, being recorded.
#[derive(Debug)]
pub(super) struct Rebuilt {
    request: RequestId,
}

/// A seal under way.
#[derive(Debug)]
pub(super) struct Seal {
    request: RequestId,
    end: Offset,
    at: WallTime,
    /// What the copy was before: one that is sealed holds what the segment holds.
    rebuilding: bool,
    /// Looking for the byte position of `end`; `None` once the seal is being recorded.
    scan: Option<Scan>,
}

impl Copy {
    pub(super) fn start_fence(&mut self, desk: &mut Desk, request: RequestId, epoch: Epoch) {
        if epoch < self.meta.epoch {
            return desk.reply(request, Reply::Failed(Error::Fenced { epoch: self.meta.epoch }));
        }
        // Raised in memory at once and for good: if the record fails, refusing too much is safe.
        self.meta.epoch = epoch;
        self.note_end(desk);
        self.task = Some(Box::new(Task::Fence(Fence { request })));
        self.replace_meta(desk, Owner::Task(self.meta.segment));
    }

    pub(super) fn fence_done(&mut self, desk: &mut Desk, task: Fence, result: Result<Output, disk::Error>) {
        let reply = self.recorded(result).map_or_else(Reply::Failed, |()| Reply::Fenced(self.extent()));
        desk.reply(task.request, reply);
    }

    pub(super) fn start_latch(&mut self, desk: &mut Desk, request: RequestId, reason: FailReason) {
        self.meta.latched.get_or_insert(reason);
        self.note_end(desk);
        self.task = Some(Box::new(Task::Latch(Latch { request })));
        self.replace_meta(desk, Owner::Task(self.meta.segment));
    }

    pub(super) fn latch_done(&mut self, desk: &mut Desk, task: Latch, result: Result<Output, disk::Error>) {
        let reply = self.recorded(result).map_or_else(Reply::Failed, |()| Reply::Latched);
        desk.reply(task.request, reply);
    }

    pub(super) fn start_rebuilt(&mut self, desk: &mut Desk, request: RequestId) {
        if let Some(reason) = self.meta.latched {
            return desk.reply(request, Reply::Failed(Error::Latched(reason)));
        }
        if !self.meta.rebuilding {
            return desk.reply(request, Reply::Rebuilt(self.extent()));
        }
        self.meta.rebuilding = false;
        self.note_end(desk);
        self.task = Some(Box::new(Task::Rebuilt(Rebuilt { request })));
        self.replace_meta(desk, Owner::Task(self.meta.segment));
    }

    pub(super) fn rebuilt_done(
        &mut self,
        desk: &mut Desk,
        task: &Rebuilt,
        result: Result<Output, disk::Error>,
    ) {
        let result = self.recorded(result);
        // What the disk says is not known; nobody counts on the copy before this is recorded.
        self.meta.rebuilding = result.is_err();
        desk.reply(task.request, result.map_or_else(Reply::Failed, |()| Reply::Rebuilt(self.extent())));
    }

    pub(super) fn start_seal(&mut self, desk: &mut Desk, request: RequestId, end: Offset, at: WallTime) {
        let extent = self.extent();
        if self.meta.sealed_at.is_some() {
            let reply = if end == extent.end {
                Reply::Sealed(extent)
            } else {
                Reply::Failed(Error::Sealed { end: extent.end })
            };
            return desk.reply(request, reply);
        }
        if let Some(reason) = self.meta.latched {
            return desk.reply(request, Reply::Failed(Error::Latched(reason)));
        }
        if end < extent.base || end > extent.end {
            return desk.reply(request, Reply::Failed(Error::CannotSeal { end: extent.end }));
        }
        let task = Seal { request, end, at, rebuilding: self.meta.rebuilding, scan: None };
        if end == extent.end {
            return self.record_seal(desk, task, extent.bytes);
        }
        let start = self.entry_for(end);
        let scan = Scan::new(self.meta.identity(), start.position, start.offset, extent.bytes);
        self.locate(desk, task, scan);
    }

    /// Finds the byte position of the seal's end.
    fn locate(&mut self, desk: &mut Desk, mut task: Seal, scan: Scan) {
        if scan.next_offset() == task.end {
            let position = scan.byte_position();
            return self.record_seal(desk, task, position);
        }
        match (scan.stop(), scan.wants()) {
            (Some(Stop::Bad(damage)), _) => {
                self.latch_damaged(desk, damage);
                desk.reply(task.request, Reply::Failed(Error::Damaged(damage)));
            }
            (None, Some((at, len))) => {
                let segment = self.meta.segment;
                let file =
                    self.log.as_mut().expect("a copy is opened before it is sealed").file(desk, segment);
                task.scan = Some(scan);
                self.task = Some(Box::new(Task::Seal(task)));
                desk.run(Owner::Task(segment), vec![Step::Read { file, at, len }]);
            }
            (Some(Stop::Limit { .. }) | None, _) => {
                desk.reply(task.request, Reply::Failed(Error::CannotSeal { end: self.extent().end }));
            }
        }
    }

    fn record_seal(&mut self, desk: &mut Desk, task: Seal, position: u64) {
        self.meta.sealed_at = Some(task.at);
        self.meta.rebuilding = false;
        self.meta.durable_position = position;
        self.meta.durable_end = task.end;
        self.task = Some(Box::new(Task::Seal(Seal { scan: None, ..task })));
        self.replace_meta(desk, Owner::Task(self.meta.segment));
    }

    pub(super) fn seal_done(&mut self, desk: &mut Desk, mut task: Seal, result: Result<Output, disk::Error>) {
        if let Some(mut scan) = task.scan.take() {
            return match result {
                Ok(Output::Data(data)) => {
                    let end = task.end;
                    scan.feed(data, &mut |frame| frame.header.end_offset() < end);
                    self.locate(desk, task, scan);
                }
                Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => {
                    desk.reply(task.request, Reply::Failed(Error::Overloaded));
                }
                Err(error) => desk.reply(task.request, Reply::Failed(Error::Storage(error))),
            };
        }
        if let Err(error) = self.recorded(result) {
            // The new `copy.meta` may or may not be the one on the disk: nothing may be appended behind it.
            self.meta.sealed_at = None;
            self.meta.rebuilding = task.rebuilding;
            self.note_end(desk);
            if let (Some(log), Error::Storage(error)) = (&mut self.log, &error) {
                log.stopped.get_or_insert(reason_of(error));
            }
            return desk.reply(task.request, Reply::Failed(error));
        }
        self.trim(desk);
        desk.reply(task.request, Reply::Sealed(self.extent()));
    }

    /// Brings the log of a copy that has just been sealed to exactly its sealed length, and writes its index.
    ///
    /// Nobody waits for either: the record in `copy.meta` decides, and opening the copy trims again.
    fn trim(&mut self, desk: &mut Desk) {
        let segment = self.meta.segment;
        let mark = Mark { end: self.meta.durable_end, position: self.meta.durable_position };
        desk.unrecorded.remove(&segment);
        let Some(mut log) = self.log.take() else { return };
        log.trim(mark);
        self.write_index(desk, &log.index);
        if log.stopped.is_some() {
            // The file takes no more writes under its present number.
            let file = desk.new_file();
            let path = log.path();
            log.close(desk);
            let open = Step::Open { file, path };
            desk.run(
                Owner::Nobody,
                vec![open, Step::Truncate { file, len: mark.position }, Step::Sync(file)],
            );
            desk.run(Owner::Nobody, vec![Step::Close(file)]);
            return;
        }
        if log.has_file() {
            let file = log.file(desk, segment);
            desk.run(Owner::Nobody, vec![Step::Truncate { file, len: mark.position }, Step::Sync(file)]);
        }
        self.log = Some(log);
    }

    /// Takes the durable end into `meta`, to be recorded with whatever is recorded next.
    ///
    /// Never of a damaged copy: what its log holds before the damage is less than what was once synced, and
    /// what `copy.meta` says of that is the evidence that it is damage.
    fn note_end(&mut self, desk: &Desk) {
        if self.meta.sealed_at.is_none()
            && self.log.is_some()
            && !self.is_evidence(desk)
            && let Some(log) = &self.log
        {
            self.meta.durable_position = log.written.position;
            self.meta.durable_end = log.written.end;
        }
    }

    fn recorded(&mut self, result: Result<Output, disk::Error>) -> Result<(), Error> {
        result.map(drop).map_err(|error| {
            self.aside_clean = false;
            match error.kind {
                // Somebody removed the directory while its log was open: nothing of this copy will be there after a
                // start, and whoever mends copies has to make it anew.
                ErrorKind::NotFound => {
                    let (position, offset, class) = (0, self.meta.base, DamageClass::Meta);
                    Error::Damaged(Damage { position, offset, class })
                }
                ErrorKind::Full
                | ErrorKind::Io
                | ErrorKind::ReadOnly
                | ErrorKind::Exists
                | ErrorKind::NotEmpty
                | ErrorKind::Poisoned
                | ErrorKind::NotOpen
                | ErrorKind::Other => Error::Storage(error),
            }
        })
    }
}
