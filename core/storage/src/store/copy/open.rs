//! Opening a copy: recovery of an unsealed log, the index of a sealed one.

use bytes::Bytes;
use types::WallTime;

use super::log::{Log, Mark};
use super::{Copy, Task, reason_of};
use crate::disk::{self, ErrorKind, FileId, Output, Step};
use crate::format::index as index_file;
use crate::recovery::{Next, Recovery};
use crate::segment::index::Sparse;
use crate::segment::layout;
use crate::segment::scan::{Scan, Stop};
use crate::store::desk::{Desk, Owner};
use crate::store::replay::Lives;
use crate::store::{Damage, DamageClass, Error, Notice, Reply, RequestId};

/// A copy being opened for the request at the head of its queue.
#[derive(Debug)]
pub(super) struct Opening {
    ticket: Ticket,
    stage: Stage,
}

/// Who wants the copy open, and under which number its log is.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    /// `None` when the start brings the journal's frames home.
    request: Option<RequestId>,
    file: FileId,
}

#[derive(Debug)]
enum Stage {
    /// The log file is being opened, to find its end.
    Log,
    /// The log file, whose end is known, is being opened again.
    Reopen,
    /// The log file never became durable: it is made anew, empty.
    Remake,
    /// An unsealed log is being recovered.
    Recover(Box<Recovery>),
    /// The index file of a sealed copy is being opened, then read.
    IndexOpen(FileId),
    IndexRead(FileId),
    /// The index is being rebuilt from the log.
    Rebuild(Box<Scan>, Sparse),
}

impl Copy {
    pub(in crate::store) fn start_opening(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        let file = desk.new_file();
        let path = layout::log(self.meta.segment, self.meta.base);
        let stage = if self.log.is_some() { Stage::Reopen } else { Stage::Log };
        desk.opening += 1;
        let mut steps = vec![Step::Open { file, path }];
        if self.name_in_doubt {
            steps.insert(0, Step::SyncDir(Some(layout::dir(self.meta.segment))));
        }
        self.opening(desk, Ticket { request, file }, stage, steps);
    }

    /// Takes what the journal holds for this copy; the next opening puts it in its place. False when there is
    /// nothing to put there.
    pub(in crate::store) fn owe(&mut self, lives: &Lives) -> bool {
        let takes_appends = !self.is_out_of_reach() && self.meta.sealed_at.is_none() && !self.meta.deleting;
        self.owed = lives.get(&self.meta.nonce).filter(|_| takes_appends).cloned().map(Box::new);
        self.owed.is_some()
    }

    /// Has what the journal holds for this copy put in its place.
    pub(in crate::store) fn bring_home(&mut self, desk: &mut Desk) {
        self.start_opening(desk, None);
    }

    /// Whether nobody can say that the copy lost nothing, now that uses of the journal up to `sequence` have.
    pub(in crate::store) fn may_have_lost(&self, sequence: u64) -> bool {
        !self.is_out_of_reach()
            && self.meta.born <= sequence
            && self.meta.sealed_at.is_none()
            && !self.meta.deleting
            && self.meta.latched.is_none()
    }

    /// Takes the copy out of service because nobody can say whether it lost frames.
    pub(in crate::store) fn suspect(&mut self, desk: &mut Desk) {
        self.latch(desk, "the journal is damaged".to_owned());
    }

    fn opening(&mut self, desk: &mut Desk, ticket: Ticket, stage: Stage, steps: Vec<Step>) {
        self.task = Some(Box::new(Task::Open(Opening { ticket, stage })));
        desk.run(Owner::Task(self.meta.segment), steps);
    }

    pub(super) fn open_done(&mut self, desk: &mut Desk, task: Opening, result: Result<Output, disk::Error>) {
        let Opening { ticket, stage } = task;
        match (stage, result) {
            (Stage::Log, Ok(output)) => {
                self.name_in_doubt = false;
                self.log_opened(desk, ticket, length(&output));
            }
            (Stage::Log, Err(error)) if error.kind == ErrorKind::NotFound => self.log_missing(desk, ticket),
            (Stage::Remake, Ok(_)) => {
                self.name_in_doubt = false;
                self.log_opened(desk, ticket, 0);
            }
            (Stage::Reopen, Ok(_)) => {
                if let Some(log) = &mut self.log {
                    log.set_file(desk, self.meta.segment, ticket.file);
                }
                // What waited while the file was being opened.
                desk.wants_flush(self.meta.segment);
            }
            (Stage::Recover(mut recovery), Ok(output)) => {
                if let Output::Data(data) = output {
                    recovery.read(data);
                }
                self.recover(desk, ticket, recovery);
            }
            (Stage::IndexOpen(index), Ok(output)) => {
                // A file longer than any index of this log can be is not one.
                let len =
                    usize::try_from(length(&output)).unwrap_or(usize::MAX).min(self.index_len_max() + 1);
                self.opening(
                    desk,
                    ticket,
                    Stage::IndexRead(index),
                    vec![Step::Read { file: index, at: 0, len }],
                );
            }
            (Stage::IndexOpen(_), Err(_)) => self.rebuild_index(desk, ticket),
            (Stage::IndexRead(index), result) => {
                desk.run(Owner::Nobody, vec![Step::Close(index)]);
                let seed = self.meta.identity().seed;
                match result.map(|output| index_file::decode(seed, data(output))) {
                    Ok(Ok(entries)) => self.sealed_opened(desk, ticket, Sparse::from_entries(entries)),
                    Ok(Err(_)) | Err(_) => self.rebuild_index(desk, ticket),
                }
            }
            (Stage::Rebuild(scan, index), Ok(output)) => {
                self.rebuild(desk, ticket, scan, index, Some(data(output)))
            }
            (
                Stage::Log | Stage::Reopen | Stage::Remake | Stage::Recover(_) | Stage::Rebuild(..),
                Err(error),
            ) => {
                self.open_failed(desk, ticket, error);
            }
        }
    }

    /// The request that wanted the copy open fails; the next one tries again.
    fn open_failed(&mut self, desk: &mut Desk, ticket: Ticket, error: disk::Error) {
        desk.run(Owner::Nobody, vec![Step::Close(ticket.file)]);
        let (segment, reason) = (self.meta.segment, reason_of(&error));
        desk.notice(Notice::OpenFailed { segment, reason, detail: error.to_string() });
        // A flush that found the file being opened stood back for it: it opens the file itself now, or fails.
        desk.wants_flush(segment);
        let Some(request) = ticket.request else { return };
        if let Some(at) = self.queue.iter().position(|(id, _)| *id == request) {
            self.queue.remove(at);
            desk.reply(request, Reply::Failed(Error::Storage(error)));
        }
    }

    /// No log file. If nothing was ever synced into it, it is made anew; otherwise the copy is damaged.
    fn log_missing(&mut self, desk: &mut Desk, ticket: Ticket) {
        let segment = self.meta.segment;
        let path = layout::log(segment, self.meta.base);
        if self.meta.durable_position == 0 && self.meta.sealed_at.is_none() && self.meta.latched.is_none() {
            let create = Step::Create { file: ticket.file, path };
            self.name_in_doubt = true;
            return self.opening(
                desk,
                ticket,
                Stage::Remake,
                vec![create, Step::SyncDir(Some(layout::dir(segment)))],
            );
        }
        self.latch_damaged(desk, Damage { position: 0, offset: self.meta.base, class: DamageClass::Short });
        let mark = Mark { end: self.meta.base, position: 0 };
        let mut log = Log::new(path, mark, Sparse::default(), 0, WallTime::default());
        // Reads of this number fail as "not open": there is nothing to read before the damage.
        log.set_file(desk, segment, ticket.file);
        self.log = Some(Box::new(log));
    }

    fn log_opened(&mut self, desk: &mut Desk, ticket: Ticket, file_len: u64) {
        let file = ticket.file;
        if self.meta.sealed_at.is_none() {
            let owed = self.owed.as_deref().cloned().unwrap_or_default();
            let recovery = Recovery::new(&desk.config, self.meta, file, file_len, owed);
            return self.recover(desk, ticket, Box::new(recovery));
        }
        if file_len > self.meta.durable_position && self.meta.latched.is_none() {
            // What lies past a recorded seal was never acknowledged, or is preallocation.
            let trim = Step::Truncate { file, len: self.meta.durable_position };
            desk.run(Owner::Nobody, vec![trim, Step::Sync(file)]);
        }
        let index = desk.new_file();
        let path = layout::index(self.meta.segment, self.meta.base);
        self.opening(desk, ticket, Stage::IndexOpen(index), vec![Step::Open { file: index, path }]);
    }

    fn recover(&mut self, desk: &mut Desk, ticket: Ticket, mut recovery: Box<Recovery>) {
        let steps = match recovery.advance() {
            Next::Read(at, len) => vec![Step::Read { file: ticket.file, at, len }],
            Next::Run(steps) => steps,
            Next::Done => return self.recovered(desk, ticket, *recovery),
        };
        self.opening(desk, ticket, Stage::Recover(recovery), steps);
    }

    fn recovered(&mut self, desk: &mut Desk, ticket: Ticket, recovery: Recovery) {
        let segment = self.meta.segment;
        let file_len = recovery.file_len();
        let verdict = recovery.into_verdict();
        // Only now are they not needed any more: an attempt that fails is made again.
        self.owed = None;
        let mark = Mark { end: verdict.end, position: verdict.position };
        let path = layout::log(segment, self.meta.base);
        let mut log = Log::new(path, mark, verdict.index, file_len, verdict.last_time);
        log.set_file(desk, segment, ticket.file);
        log.unproven = self.meta.latched.is_some();
        self.log = Some(Box::new(log));
        if let Some(damage) = verdict.damage {
            return self.latch_damaged(desk, damage);
        }
        if verdict.torn_bytes > 0 {
            desk.notice(Notice::TornTail { segment, position: verdict.position, bytes: verdict.torn_bytes });
        }
        // The idle rule records the end in `copy.meta`; until then nothing new depends on it.
        desk.unrecorded.insert(segment, desk.now);
    }

    /// Largest index file a log of this copy's size can have.
    fn index_len_max(&self) -> usize {
        let entries = self.meta.durable_position / types::limits::INDEX_INTERVAL_BYTES + 2;
        index_file::encoded_len(usize::try_from(entries).unwrap_or(usize::MAX / 64))
    }

    fn rebuild_index(&mut self, desk: &mut Desk, ticket: Ticket) {
        desk.notice(Notice::IndexRebuilt { segment: self.meta.segment });
        let scan = Scan::new(self.meta.identity(), 0, self.meta.base, self.meta.durable_position);
        self.rebuild(desk, ticket, Box::new(scan), Sparse::default(), None);
    }

    fn rebuild(
        &mut self,
        desk: &mut Desk,
        ticket: Ticket,
        mut scan: Box<Scan>,
        mut index: Sparse,
        data: Option<Bytes>,
    ) {
        if let Some(data) = data {
            scan.feed(data, &mut |found| {
                index.note(found.entry());
                true
            });
        }
        if let Some((at, len)) = scan.wants() {
            let read = Step::Read { file: ticket.file, at, len };
            return self.opening(desk, ticket, Stage::Rebuild(scan, index), vec![read]);
        }
        match scan.stop() {
            Some(Stop::Bad(damage)) => self.latch_damaged(desk, damage),
            Some(Stop::Limit { .. }) | None => self.write_index(desk, &index),
        }
        self.sealed_opened(desk, ticket, index);
    }

    fn sealed_opened(&mut self, desk: &mut Desk, ticket: Ticket, index: Sparse) {
        let mark = Mark { end: self.meta.durable_end, position: self.meta.durable_position };
        let path = layout::log(self.meta.segment, self.meta.base);
        let mut log = Log::new(path, mark, index, mark.position, WallTime::default());
        log.set_file(desk, self.meta.segment, ticket.file);
        self.log = Some(Box::new(log));
    }

    /// Writes the index file of a sealed copy. Nothing depends on it, so nobody waits and nothing is synced.
    pub(super) fn write_index(&self, desk: &mut Desk, index: &Sparse) {
        let path = layout::index(self.meta.segment, self.meta.base);
        let file = desk.new_file();
        let data = vec![index_file::encode(self.meta.identity().seed, index.entries())];
        desk.run(Owner::Nobody, vec![Step::Remove(path.clone())]);
        desk.run(Owner::Nobody, vec![Step::Create { file, path }, Step::Write { file, at: 0, data }]);
        desk.run(Owner::Nobody, vec![Step::Close(file)]);
    }
}

fn length(output: &Output) -> u64 {
    match output {
        Output::Length(len) => *len,
        Output::Done | Output::Data(_) | Output::Entries(_) => 0,
    }
}

fn data(output: Output) -> Bytes {
    match output {
        Output::Data(data) => data,
        Output::Done | Output::Length(_) | Output::Entries(_) => Bytes::new(),
    }
}
