//! Appending: accepted at once, sent to the disk with whatever else waits, answered when it is durable.

use bytes::Bytes;
use types::{Epoch, Offset};

use super::log::{Held, Log, Mark, Unanswered};
use super::{Copy, Task, reason_of};
use crate::disk::{self, FileId, Output, Step};
use crate::format::batch::Batch;
use crate::planted::Bug;
use crate::segment::index::Entry;
use crate::store::desk::{Desk, Owner};
use crate::store::{Error, FailReason, Notice, Reply, RequestId};

impl Copy {
    /// Why the copy takes no append under `epoch`, if it does not.
    fn refusal(&self, desk: &Desk, epoch: Epoch) -> Option<Error> {
        if let Some(reason) = self.meta.latched {
            return Some(Error::Latched(reason));
        }
        if self.meta.sealed_at.is_some() {
            return Some(Error::Sealed { end: self.meta.durable_end });
        }
        if epoch < self.meta.epoch && !desk.config.has_bug(Bug::AppendPastFence) {
            return Some(Error::Fenced { epoch: self.meta.epoch });
        }
        self.log.as_ref().and_then(|log| log.stopped).map(Error::Latched)
    }

    pub(super) fn append(&mut self, desk: &mut Desk, id: RequestId, epoch: Epoch, batches: Vec<Batch>) {
        if let Some(error) = self.refusal(desk, epoch) {
            return desk.reply(id, Reply::Failed(error));
        }
        let (segment, identity) = (self.meta.segment, self.meta.identity());
        let log = self.log.as_mut().expect("an unsealed copy is opened before its first append");
        if !follow_on(log.appended.end, &batches) {
            return desk.reply(id, Reply::Failed(Error::OutOfSync { end: log.appended.end }));
        }
        for batch in batches {
            let position = log.appended.position;
            let mark = Mark { end: batch.header.end_offset(), position: position + batch.header.frame_len() };
            let header = batch.header.encode(identity, log.written.position);
            let (offset, time) = (batch.header.base_offset, batch.header.append_time);
            log.appended = mark;
            log.last_time = log.last_time.max(time);
            log.index.note(Entry { offset, time, position });
            log.held.push_back(Held { header, batch, mark });
        }
        log.unanswered.push_back(Unanswered { request: id, mark: log.appended });
        desk.wants_flush(segment);
    }

    /// Bytes accepted and not yet sent to the disk.
    pub(in crate::store) fn unsent_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.unsent_bytes())
    }

    /// Whether what waits may go to the journal, now that it is at `use_sequence`: not while somebody waits until
    /// everything is in the file.
    pub(in crate::store) fn may_journal(&self, use_sequence: u64) -> bool {
        self.queue.is_empty()
            && self.meta.born <= use_sequence
            && self.log.as_ref().is_some_and(|log| log.may_journal())
    }

    /// Sends everything that is not in the file to the file, and syncs it. False when there is nothing to send.
    pub(in crate::store) fn flush(&mut self, desk: &mut Desk, flight: u64) -> bool {
        let segment = self.meta.segment;
        if matches!(self.task.as_deref(), Some(Task::Open(_))) {
            return false;
        }
        let Some(log) = &mut self.log else { return false };
        // After a failure only what the journal has is left to send, all of it again. One attempt has to end before
        // the next begins: whoever waits for the file is told of a failure once nothing is under way.
        if log.stopped.is_some() && log.flushes > 0 {
            return false;
        }
        let from = log.file_submitted.position;
        let data: Vec<Bytes> = log
            .held
            .iter()
            .filter(|held| held.mark.position > from)
            .flat_map(|held| [held.header.clone(), held.batch.payload.clone()])
            .collect();
        if data.is_empty() {
            return false;
        }
        let mark = log.appended;
        let bytes = mark.position - from;
        let mut steps = Vec::with_capacity(4);
        let file = log.file_or_open(desk, segment, &mut steps);
        steps.push(Step::Write { file, at: from, data });
        let zeros = log.zeros_ahead(desk, mark.position, bytes);
        if zeros > 0 {
            steps.push(Step::Zero { file, at: mark.position, len: zeros });
        }
        if !desk.config.has_bug(Bug::SkipSync) {
            steps.push(Step::Sync(file));
        }
        log.allocated = log.allocated.max(mark.position + zeros);
        if mark.position > log.submitted.position {
            log.file_only = mark.position;
        }
        (log.submitted, log.file_submitted) = (mark, mark);
        log.flushes += 1;
        desk.run(Owner::Flush { flight, segment, mark }, steps);
        true
    }

    /// Where zeros should be written behind the log's end, `(file, position, length)`, so that the next appends
    /// need not make the file longer. Not while the copy is in use.
    pub(in crate::store) fn wants_ahead(&mut self, desk: &mut Desk) -> Option<(FileId, u64, u64)> {
        let segment = self.meta.segment;
        let fit = self.task.is_none() && self.meta.sealed_at.is_none() && self.meta.latched.is_none();
        let log = self.log.as_mut().filter(|_| fit)?;
        let len = log.ahead(desk)?;
        let at = log.allocated.max(log.appended.position);
        Some((log.file(desk, segment), at, len))
    }

    /// Zeros were written behind the log's end, or could not be: then the file is opened anew for the next append,
    /// under a number that did not fail.
    pub(in crate::store) fn grown_ahead(&mut self, desk: &mut Desk, file: FileId, end: u64, failed: bool) {
        let idle = self.task.is_none() && self.reads == 0;
        let Some(log) = self.log.as_mut().filter(|log| log.is_file(file)) else { return };
        if !failed {
            log.allocated = log.allocated.max(end);
        } else if idle && log.flushes == 0 {
            log.close(desk);
        }
    }

    /// The frames that go to the journal, with where they belong. They stay held until the file has them.
    pub(in crate::store) fn take_unsent(&mut self) -> Option<(u64, Mark, Vec<Bytes>)> {
        let log = self.log.as_mut()?;
        let from = log.submitted.position;
        let unsent = log.held.iter().filter(|held| held.mark.position > from);
        let data = unsent.flat_map(|held| [held.header.clone(), held.batch.payload.clone()]).collect();
        log.submitted = log.appended;
        log.flushes += 1;
        Some((from, log.appended, data))
    }

    /// Takes the completion of a flush to the file.
    pub(in crate::store) fn flush_done(
        &mut self,
        desk: &mut Desk,
        mark: Mark,
        result: Result<Output, disk::Error>,
    ) {
        let segment = self.meta.segment;
        let Some(log) = &mut self.log else { return };
        log.flushes -= 1;
        log.opening = false;
        match result {
            // Behind a write that failed there is a hole.
            Ok(_) if log.stopped.is_none() || mark.position <= log.synced.position => {
                log.wrote(desk, segment, mark);
                let written = log.written.position;
                desk.has_grown(written);
                desk.journal.settled(segment, &log.journaled, written);
                self.durable(desk, mark);
                desk.unrecorded.insert(segment, desk.now);
            }
            Ok(_) => {}
            Err(error) => self.flush_failed(desk, &error),
        }
        self.drain(desk);
    }

    /// Takes note that the journal holds everything below `mark`.
    pub(in crate::store) fn journaled(&mut self, desk: &mut Desk, mark: Mark) {
        if let Some(log) = &mut self.log {
            log.flushes -= 1;
            if log.stopped.is_none() {
                self.durable(desk, mark);
            }
        }
        self.drain(desk);
    }

    /// The journal failed: what it should have held goes to the file.
    pub(in crate::store) fn not_journaled(&mut self, desk: &mut Desk) {
        if let Some(log) = &mut self.log {
            log.flushes -= 1;
            desk.wants_flush(self.meta.segment);
        }
        self.drain(desk);
    }

    /// Answers what is durable now.
    fn durable(&mut self, desk: &mut Desk, mark: Mark) {
        let Some(log) = &mut self.log else { return };
        if mark.position > log.synced.position {
            log.synced = mark;
        }
        while log.unanswered.front().is_some_and(|append| append.mark.position <= log.synced.position) {
            let Some(append) = log.unanswered.pop_front() else { break };
            desk.reply(append.request, Reply::Appended { end: append.mark.end });
        }
    }

    fn flush_failed(&mut self, desk: &mut Desk, error: &disk::Error) {
        let segment = self.meta.segment;
        let reason = reason_of(error);
        let Some(log) = &mut self.log else { return };
        if log.stopped.is_none() {
            desk.notice(Notice::Stopped { segment, reason, detail: format!("failed in storage: {error}") });
        }
        let unanswered = stop(log, reason);
        // The file takes no more writes under its number; a read under way still needs it.
        if self.reads == 0 {
            log.close(desk);
        }
        for append in unanswered {
            desk.reply(append.request, Reply::Failed(Error::Storage(error.clone())));
        }
        // Whoever waits for the file to be whole hears that it is not; asking again tries again.
        if !log.held.is_empty()
            && self.log.as_ref().is_some_and(|log| log.flushes == 0)
            && let Some((id, _)) = self.queue.pop_front()
        {
            desk.reply(id, Reply::Failed(Error::Storage(error.clone())));
        }
    }
}

/// Whether there is something to append, and it begins at `end` and has no gaps.
fn follow_on(end: Offset, batches: &[Batch]) -> bool {
    let mut next = end;
    let follows = |batch: &Batch| {
        let fits = batch.header.base_offset == next;
        next = batch.header.end_offset();
        fits
    };
    !batches.is_empty() && batches.iter().all(follows)
}

fn stop(log: &mut Log, reason: FailReason) -> Vec<Unanswered> {
    log.stop(log.stopped.unwrap_or(reason));
    log.unanswered.drain(..).collect()
}
