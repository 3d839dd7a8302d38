//! One segment copy: what it is, what it is busy with, and who waits.
//!
//! ```text
//!           Create           Append, Read, SeekTime, Verify (side by side)
//!  (none) ─────────▶ open ◀────────────────────────────────────────────┐
//!              first use │ after the start, or after its file was closed │
//!  closed ──── open ─────┘                                               │
//!  open ── Fence ─────────────── refuses lower epochs ───────────────────┤
//!  open ── a write fails ──────▶ stopped: no appends until the process starts again
//!  open ── Seal ───────────────▶ sealed: only reads                      │
//!  any  ── damage found, Latch ▶ latched: kept, read up to the damage ───┘
//!  any  ── Delete ─────────────▶ (none)
//! ```
//!
//! Requests take effect in the order they arrive. A *task* (opening, fencing, sealing, ...) has the copy for
//! itself: it starts once every append and read under way is done, and what arrives meanwhile waits in the
//! queue. Appends are pipelined; each is acknowledged by the completion of its own write and sync.

mod append;
mod decide;
mod lifecycle;
mod log;
mod open;
mod read;
mod standing;
mod unread;

use std::collections::VecDeque;

use types::Offset;

use self::decide::{Fence, Latch, Rebuilt, Seal};
use self::lifecycle::{Create, Delete};
use self::log::Log;
pub(super) use self::log::Mark;
use self::open::Opening;
pub(super) use self::read::ReadOp;
pub(super) use self::unread::read_meta;
use self::unread::{Identity, META_DAMAGED};
use super::desk::{Desk, Owner};
use super::replay::Owed;
use super::start::Lookup;
use super::{Damage, Error, FailReason, Notice, Reply, Request, RequestId};
use crate::disk::{self, ErrorKind, FileId, Output, Step};
use crate::format::batch::Nonce;
use crate::format::meta::Meta;
use crate::planted::Bug;
use crate::segment::layout;

/// One copy. Small while nobody uses it: its log, task and queue are allocated when they are needed.
#[derive(Debug)]
pub(super) struct Copy {
    meta: Meta,
    identity: Identity,
    /// The first damage found in the log.
    damage: Option<Damage>,
    /// The open log.
    log: Option<Box<Log>>,
    /// What the copy is busy with.
    task: Option<Box<Task>>,
    queue: VecDeque<(RequestId, Request)>,
    reads: u32,
    /// What the journal holds for it, found at the start; the next opening puts it in its place.
    owed: Option<Box<Owed>>,
    /// No `copy.meta.tmp` is in the way.
    aside_clean: bool,
    /// The log was made anew and its name may not be durable.
    name_in_doubt: bool,
    /// It waits until it may open or make its file.
    wants_open: bool,
    gone: bool,
}

/// What has a copy for itself.
#[derive(Debug)]
enum Task {
    Create(Create),
    /// Reading `copy.meta`, which could not be read at the start.
    Read(FileId),
    Open(Opening),
    Fence(Fence),
    Seal(Seal),
    Rebuilt(Rebuilt),
    Latch(Latch),
    Delete(Delete),
}

impl Task {
    /// Whether it opens or makes the copy's file.
    fn opens(&self) -> bool {
        match self {
            Self::Create(_) | Self::Open(_) => true,
            Self::Read(_)
            | Self::Fence(_)
            | Self::Seal(_)
            | Self::Rebuilt(_)
            | Self::Latch(_)
            | Self::Delete(_) => false,
        }
    }
}

/// Whether a request could be begun.
enum Begun {
    Yes,
    /// It waits at the head of the queue.
    Blocked(RequestId, Request),
}

impl Copy {
    /// A copy found at the start, or one about to be created.
    pub(super) fn new(meta: Meta) -> Self {
        Self {
            meta,
            identity: Identity::Known,
            damage: None,
            log: None,
            task: None,
            queue: VecDeque::new(),
            reads: 0,
            owed: None,
            aside_clean: false,
            name_in_doubt: false,
            wants_open: false,
            gone: false,
        }
    }

    /// Whether the copy does not exist any more (or never came to be).
    pub(super) fn is_gone(&self) -> bool {
        self.gone && self.task.is_none()
    }

    /// Requests that waited for a copy that is gone.
    pub(super) fn into_queue(self) -> VecDeque<(RequestId, Request)> {
        self.queue
    }

    /// Nothing has the copy for itself.
    pub(super) fn is_idle(&self) -> bool {
        self.task.is_none()
    }

    /// Its log is open.
    pub(super) fn is_open(&self) -> bool {
        self.log.is_some()
    }

    /// Which life of the copy this is.
    pub(super) fn nonce(&self) -> Nonce {
        self.meta.nonce
    }

    /// Takes note how far a journal file speaks of this copy.
    pub(super) fn is_journaled(&mut self, half: usize, mark: Mark) {
        if let Some(log) = &mut self.log {
            log.journaled[half] = mark.position;
        }
    }

    /// Takes a request.
    pub(super) fn request(&mut self, desk: &mut Desk, id: RequestId, request: Request) {
        if matches!(self.identity, Identity::Unreadable) {
            return desk.reply(id, Reply::Failed(Error::Damaged(META_DAMAGED)));
        }
        if self.queue.len() >= desk.config.queue_max {
            return desk.reply(id, Reply::Failed(Error::Overloaded));
        }
        self.queue.push_back((id, request));
        if self.is_unread() {
            return self.read_again(desk);
        }
        self.drain(desk);
    }

    /// Begins what waits, as far as it can be begun.
    fn drain(&mut self, desk: &mut Desk) {
        while self.task.is_none() && !self.gone {
            let Some((id, request)) = self.queue.pop_front() else { return };
            if let Begun::Blocked(id, request) = self.begin(desk, id, request) {
                self.queue.push_front((id, request));
                return;
            }
        }
    }

    fn begin(&mut self, desk: &mut Desk, id: RequestId, request: Request) -> Begun {
        if self.must_wait(desk, &request) {
            return Begun::Blocked(id, request);
        }
        if self.needs_log(&request) {
            if desk.may_open() {
                self.start_opening(desk, Some(id));
            } else {
                self.want_open(desk);
            }
            return Begun::Blocked(id, request);
        }
        if self.meta.deleting && !matches!(request, Request::Delete { .. }) {
            desk.reply(id, Reply::Failed(Error::NoSuchSegment));
            return Begun::Yes;
        }
        match request {
            Request::Create { .. } => desk.reply(id, Reply::Failed(Error::Exists)),
            Request::Append { epoch, batches, .. } => self.append(desk, id, epoch, batches),
            Request::Read { from, bytes_max, .. } => self.start_read(desk, id, from, bytes_max),
            Request::SeekTime { at, .. } => self.start_seek(desk, id, at),
            Request::Verify { .. } => self.start_verify(desk, id),
            Request::Fence { epoch, .. } => self.start_fence(desk, id, epoch),
            Request::Seal { end, at, .. } => self.start_seal(desk, id, end, at),
            Request::Rebuilt { .. } => self.start_rebuilt(desk, id),
            Request::Latch { reason, .. } => self.start_latch(desk, id, reason),
            Request::Delete { .. } => self.start_delete(desk, id),
            Request::Inspect { .. } => desk.reply(id, Reply::Inspected(self.extent())),
        }
        Begun::Yes
    }

    /// Whether the request must wait for what is under way.
    fn must_wait(&self, desk: &mut Desk, request: &Request) -> bool {
        let Some(log) = &self.log else { return self.reads > 0 };
        let settled = log.is_settled();
        let (alone, whole_file) = match request {
            Request::Append { .. } | Request::Inspect { .. } => return false,
            Request::Read { .. } => return log.opening,
            Request::SeekTime { .. } | Request::Verify { .. } => (false, true),
            // What is removed need not be whole.
            Request::Delete { .. } => (true, false),
            Request::Create { .. }
            | Request::Fence { .. }
            | Request::Seal { .. }
            | Request::Rebuilt { .. }
            | Request::Latch { .. } => (true, true),
        };
        let unanswered = alone && log.is_answering();
        if unanswered || (whole_file && !settled) {
            desk.wants_flush(self.meta.segment);
            return true;
        }
        log.opening || (alone && (self.reads > 0 || log.flushes > 0))
    }

    /// Whether the request can only be answered with the log open.
    fn needs_log(&self, request: &Request) -> bool {
        if self.meta.deleting {
            return false;
        }
        let open = self.log.as_ref().is_some_and(|log| log.has_file());
        let known = self.log.is_some() || self.meta.sealed_at.is_some();
        match request {
            Request::Create { .. } | Request::Latch { .. } | Request::Delete { .. } => false,
            // An append to an open log whose file was closed opens it in the same job.
            Request::Append { .. }
            | Request::Fence { .. }
            | Request::Rebuilt { .. }
            | Request::Inspect { .. } => !known,
            Request::Seal { .. } => self.meta.sealed_at.is_none() && !open,
            Request::Read { .. } | Request::SeekTime { .. } | Request::Verify { .. } => !open,
        }
    }

    /// Takes the completion of a job of the task.
    pub(super) fn task_done(&mut self, desk: &mut Desk, result: Result<Output, disk::Error>) {
        let Some(task) = self.task.take() else { return };
        let opened = task.opens();
        match *task {
            Task::Create(task) => self.create_done(desk, task, result),
            Task::Read(file) => self.read_again_done(desk, file, result),
            Task::Open(task) => self.open_done(desk, task, result),
            Task::Fence(task) => self.fence_done(desk, task, result),
            Task::Seal(task) => self.seal_done(desk, task, result),
            Task::Rebuilt(task) => self.rebuilt_done(desk, &task, result),
            Task::Latch(task) => self.latch_done(desk, task, result),
            Task::Delete(task) => self.delete_done(desk, task, result),
        }
        if opened && !self.task.as_deref().is_some_and(Task::opens) {
            desk.opening -= 1;
        }
        self.drain(desk);
    }

    /// Waits until fewer files are open.
    fn want_open(&mut self, desk: &mut Desk) {
        if !std::mem::replace(&mut self.wants_open, true) {
            desk.wanting.push_back(self.meta.segment);
        }
    }

    /// Goes on with what waited until fewer files are open.
    pub(super) fn may_open_now(&mut self, desk: &mut Desk) {
        self.wants_open = false;
        self.begin_creation(desk);
        self.drain(desk);
    }

    /// Replaces `copy.meta` by what `meta` says now.
    fn replace_meta(&mut self, desk: &mut Desk, owner: Owner) {
        assert!(!self.is_out_of_reach(), "nothing is written over what could not be read");
        if !self.aside_clean {
            desk.run(Owner::Nobody, vec![Step::Remove(layout::meta_aside(self.meta.segment))]);
        }
        let steps = self.meta_steps(desk);
        self.aside_clean = true;
        desk.run(owner, steps);
    }

    /// The steps that replace `copy.meta`: written aside, synced, renamed, and the name synced.
    fn meta_steps(&self, desk: &mut Desk) -> Vec<Step> {
        let segment = self.meta.segment;
        let (aside, file) = (layout::meta_aside(segment), desk.new_file());
        let mut steps = vec![
            Step::Create { file, path: aside.clone() },
            Step::Write { file, at: 0, data: vec![self.meta.encode()] },
            Step::Sync(file),
            Step::Close(file),
            Step::Rename { from: aside, to: layout::meta(segment) },
        ];
        if !desk.config.has_bug(Bug::SkipDirSync) {
            steps.push(Step::SyncDir(Some(layout::dir(segment))));
        }
        steps
    }

    /// Takes the copy out of service because of damage that was found in it.
    fn latch_damaged(&mut self, desk: &mut Desk, damage: Damage) {
        self.damage = Some(damage);
        if self.meta.latched.is_some() {
            return;
        }
        let Damage { class, position, offset } = damage;
        self.latch(desk, format!("damaged_tail: {class:?} at position {position} (offset {offset})"));
    }

    /// Takes the copy out of service. A start waits until that is durable: what it does next removes the evidence.
    fn latch(&mut self, desk: &mut Desk, detail: String) {
        let (segment, reason) = (self.meta.segment, FailReason::Other);
        self.meta.latched = Some(reason);
        desk.notice(Notice::Latched { segment, reason, detail });
        let owner = if desk.starting { Owner::Start(Lookup::Latch) } else { Owner::Nobody };
        desk.latching += usize::from(desk.starting);
        self.replace_meta(desk, owner);
    }

    /// Whether what `copy.meta` says of the durable end is not to be overwritten: it is the evidence of damage,
    /// or the log was opened without making its tail durable.
    fn is_evidence(&self, desk: &Desk) -> bool {
        let unproven = self.log.as_ref().is_some_and(|log| log.unproven);
        (self.damage.is_some() && !desk.config.has_bug(Bug::LowerEvidence)) || unproven
    }

    /// Records the durable end, of a copy that nobody uses now.
    pub(super) fn record_end(&mut self, desk: &mut Desk) {
        if let Some(log) = self.log.as_mut().filter(|log| log.is_settled()) {
            log.rest();
        }
        let Some(log) = self.log.as_ref().filter(|_| self.wants_record(desk) && self.task.is_none()) else {
            return;
        };
        self.meta.durable_position = log.written.position;
        self.meta.durable_end = log.written.end;
        self.replace_meta(desk, Owner::Nobody);
    }

    /// Whether `copy.meta` says less of the durable end than there is to say.
    fn wants_record(&self, desk: &Desk) -> bool {
        let settled = self.log.as_ref().filter(|log| log.is_settled());
        settled.is_some_and(|log| self.meta.durable_position != log.written.position)
            && self.meta.sealed_at.is_none()
            && !self.is_evidence(desk)
    }

    /// Closes the log's file, if nothing is under way. A sealed copy forgets its index too.
    ///
    /// The durable end is not recorded now: where more copies are in use than may be open, that would be two syncs
    /// for each that is opened. The idle rule needs no file.
    pub(super) fn close(&mut self, desk: &mut Desk) {
        let busy = self.task.is_some() || self.reads > 0;
        if busy || self.log.as_ref().is_none_or(|log| log.flushes > 0) {
            return;
        }
        if self.wants_record(desk) {
            desk.unrecorded.entry(self.meta.segment).or_insert(desk.now);
        }
        let forget = self.meta.sealed_at.is_some();
        if let Some(log) = &mut self.log {
            log.close(desk);
            if forget {
                self.log = None;
            }
        }
    }

    /// Drops a batch from the tail cache.
    pub(super) fn uncache(&mut self, base: Offset) {
        if let Some(log) = &mut self.log {
            log.uncache(base);
        }
    }
}

/// What a failed operation means for the copy.
fn reason_of(error: &disk::Error) -> FailReason {
    match error.kind {
        ErrorKind::Full => FailReason::Enospc,
        ErrorKind::Io => FailReason::Eio,
        ErrorKind::ReadOnly => FailReason::Erofs,
        ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::NotEmpty
        | ErrorKind::Poisoned
        | ErrorKind::NotOpen
        | ErrorKind::Other => FailReason::Other,
    }
}
