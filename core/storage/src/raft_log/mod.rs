//! The Raft log of a node: entries, votes, commit indexes and snapshots of all its groups in one log, so that
//! one sync serves everything that changed.
//!
//! A pure machine: requests in, disk jobs out, completions in, replies out. It owns its data directory. It
//! does not know what an entry says, who leads, or what a group agrees on; it only refuses changes that could
//! not follow from what is stored.
//!
//! ```text
//!   append ─┐                    ┌────────── one job: write, sync ──────────┐
//!   append ─┼─▶ gather ─▶ flush ─┤ [record][record][record]                 ├─▶ replies
//!   forget ─┘   (while the last  └──────────────────────────────────────────┘
//!                flush runs)
//!
//!   …wal   [########][########][####......]   [........]
//!           oldest              ▲ current      spare, zeroed ahead
//! ```
//!
//! Invariants:
//! - a reply leaves only after the sync that covers its record; records of one flush lie in one file, and
//!   there is one flush at a time, so everything before a flush is durable when it is written;
//! - every record says up to where the log was durable when it was written. With `S` the largest such place
//!   in any record that decodes: what does not decode below `S` was once durable (damage: the groups it may
//!   concern are out of service and their bytes are kept), what does not decode at or after `S` is a flush
//!   that did not complete (dropped, erased before the log goes on);
//! - a group's latest record and its live entries are all that it needs; a log file goes when nobody needs a
//!   record in it, the oldest first;
//! - a snapshot file is durable, name included, before the log mentions it, and stays until a later one is
//!   mentioned durably;
//! - what a flush replaced goes only when a later flush testifies to it;
//! - after a failed write or sync nothing is written and nothing succeeds until the log is opened again.
//!
//! Entries after the last snapshot stay in memory: [`GroupView::bytes`] tells the owner when to take one.

mod files;
mod flush;
mod group;
mod names;
mod reading;
mod recovery;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{RaftIndex, Term, VnodeId};

#[cfg(feature = "planted")]
pub use request::Planted;
pub use request::{
    Action, Append, Config, Entry, Error, Gauges, GroupView, HardState, Notice, Reply, SnapshotMark,
    StartError, Status,
};

use crate::disk::{self, Completion, FileId, Job, JobId, Output, Step};
use crate::store::RequestId;
use files::{Files, Spare};
use flush::{Body, Flush, Need, Pending, Tail};
use group::Group;
use recovery::Recovery;

/// The Raft log of one data directory.
#[derive(Debug)]
pub struct RaftLog {
    config: Config,
    phase: Phase,
    ids: Ids,
    tasks: BTreeMap<JobId, Task>,
    groups: BTreeMap<VnodeId, Group>,
    /// Numbers of groups that left, whose records may still lie in the log: a new life goes on counting.
    forgotten: BTreeMap<VnodeId, Forgotten>,
    /// Lost records may have been of groups that are not listed.
    unlisted_possible: bool,
    gather: Vec<Pending>,
    flush: Option<Flush>,
    /// What the last durable flush lets go of, once another one is durable.
    unproven: Vec<Need>,
    tail: Tail,
    /// `None` until the log is open.
    files: Option<Files>,
    snapshots: snapshot::Snapshots,
}

#[derive(Debug)]
enum Phase {
    New,
    Starting(Box<Recovery>),
    Open,
    /// Of the first failure.
    Failed(disk::Error),
}

/// What a job was submitted for.
#[derive(Debug)]
enum Task {
    Recover,
    Flush,
    Spare,
    RemoveFront(u64),
    Save(VnodeId),
    Load(RequestId),
    /// Files or descriptors that are not needed any more.
    CleanUp,
    /// Something whose failure changes nothing.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Forgotten {
    serial: u64,
    file: u64,
}

#[derive(Debug, Default)]
struct Ids {
    next_job: u64,
    next_file: u64,
}

impl Ids {
    fn file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    fn job(&mut self) -> JobId {
        self.next_job += 1;
        JobId(self.next_job)
    }
}

impl RaftLog {
    /// A log that has not looked at its directory yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::New,
            ids: Ids::default(),
            tasks: BTreeMap::new(),
            groups: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            unlisted_possible: false,
            gather: Vec::new(),
            flush: None,
            unproven: Vec::new(),
            tail: Tail::default(),
            files: None,
            snapshots: snapshot::Snapshots::default(),
        }
    }

    /// Reads what the directory holds; answered by [`Action::Started`] or [`Action::StartFailed`].
    pub fn start(&mut self, out: &mut Vec<Action>) {
        assert!(matches!(self.phase, Phase::New), "a log is started once");
        self.phase = Phase::Starting(Box::new(Recovery::new()));
        self.submit(Task::Recover, vec![Step::SyncDir(None), Step::List(None)], out);
    }

    /// Changes a group, which begins with its first change. Answered by [`Reply::Appended`].
    pub fn append(&mut self, id: RequestId, group: VnodeId, append: Append, out: &mut Vec<Action>) {
        match self.accept(group, append) {
            Ok((group_serial, update)) => {
                let done = Some((id, Reply::Appended));
                self.gather.push(Pending { done, group, group_serial, body: Body::Update(update) });
                self.flush(out);
            }
            Err(error) => out.push(Action::Reply(id, Reply::Failed(error))),
        }
    }

    fn accept(
        &mut self,
        group: VnodeId,
        append: Append,
    ) -> Result<(u64, crate::format::raft_log::Update), Error> {
        self.check_open()?;
        self.check_group(group)?;
        if let Some(state) = self.groups.get_mut(&group) {
            let update = state.append(append)?;
            state.serial += 1;
            return Ok((state.serial, update));
        }
        let mut state = self.new_group(group);
        let update = state.append(append)?;
        state.serial += 1;
        let serial = state.serial;
        self.forgotten.remove(&group);
        self.groups.insert(group, state);
        Ok((serial, update))
    }

    fn new_group(&self, group: VnodeId) -> Group {
        Group::new(self.forgotten.get(&group).map_or(0, |forgotten| forgotten.serial))
    }

    /// Removes a group, damaged or not, and its snapshots. Answered by [`Reply::Forgotten`].
    pub fn forget(&mut self, id: RequestId, group: VnodeId, out: &mut Vec<Action>) {
        let Err(error) = self.check_open().and_then(|()| group::check_number(group)) else {
            self.forget_group(id, group, out);
            return;
        };
        out.push(Action::Reply(id, Reply::Failed(error)));
    }

    fn forget_group(&mut self, id: RequestId, group: VnodeId, out: &mut Vec<Action>) {
        let serial = match self.groups.remove(&group) {
            Some(state) => state.serial,
            None => self.forgotten.get(&group).map_or(0, |forgotten| forgotten.serial),
        };
        self.abandon_save(group);
        let group_serial = serial + 1;
        self.forgotten.insert(group, Forgotten { serial: group_serial, file: u64::MAX });
        let done = Some((id, Reply::Forgotten));
        self.gather.push(Pending { done, group, group_serial, body: Body::Forget });
        self.flush(out);
    }

    /// Writes a snapshot file and records it. Answered by [`Reply::SnapshotSaved`]. A snapshot past the log's
    /// end, or one whose last entry differs from the log's, replaces the log (a leader sent it).
    pub fn save_snapshot(
        &mut self,
        id: RequestId,
        group: VnodeId,
        mark: SnapshotMark,
        data: Bytes,
        out: &mut Vec<Action>,
    ) {
        if let Err(error) = self.start_save(id, group, mark, data, out) {
            out.push(Action::Reply(id, Reply::Failed(error)));
        }
    }

    /// Reads a group's snapshot. Answered by [`Reply::Snapshot`]; a damaged one damages the group.
    pub fn load_snapshot(&mut self, id: RequestId, group: VnodeId, out: &mut Vec<Action>) {
        if let Err(error) = self.start_load(id, group, out) {
            out.push(Action::Reply(id, Reply::Failed(error)));
        }
    }

    /// What the log holds and is busy with; costs nothing but a walk over the groups.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let files = self.files.as_ref();
        Gauges {
            groups: self.groups.len(),
            groups_damaged: self.groups.values().filter(|group| group.status == Status::Damaged).count(),
            entry_bytes: self.groups.values().map(|group| group.view().bytes).sum(),
            waiting: self.gather.len(),
            files: files.map_or(0, Files::used),
            spare_files: files.map_or(0, |files| usize::from(matches!(files.spare, Spare::Ready { .. }))),
            snapshots: self.snapshots.on_disk.values().map(BTreeSet::len).sum(),
            failed: matches!(self.phase, Phase::Failed(_)),
        }
    }

    /// Lets the last flush be testified for, so that recovery can tell its loss from a flush that never
    /// completed, and that what it replaced can go. For a log that has been idle for a moment, or is about to
    /// be closed, a few times a second; does nothing when there is nothing to testify for. A next file that could
    /// not be made is tried again.
    pub fn mark(&mut self, out: &mut Vec<Action>) {
        let idle = self.gather.is_empty() && self.flush.is_none();
        if self.check_open().is_err() || !idle {
            return;
        }
        self.retry_spare(true, out);
        if self.tail.untestified {
            self.gather.push(self.tail.mark());
            self.flush(out);
        }
    }

    /// The owner knows of every group that should be here: records that were lost can be of no other, and the
    /// files kept for that doubt may go.
    pub fn every_group_is_listed(&mut self, out: &mut Vec<Action>) {
        self.unlisted_possible = false;
        self.hold_front_for_doubt(false);
        self.remove_front(out);
    }

    /// Takes the completion of a job of ours.
    pub fn complete(&mut self, completion: Completion, out: &mut Vec<Action>) {
        let Some(task) = self.tasks.remove(&completion.job) else { return };
        match task {
            Task::Recover => self.recover(completion.result, out),
            Task::Flush => self.flushed(completion.result, out),
            Task::Spare => self.spare_done(completion.result, out),
            Task::RemoveFront(file) => self.front_removed(file, completion.result, out),
            Task::Save(group) => self.save_step(group, completion.result, out),
            Task::Load(id) => self.load_step(id, completion.result, out),
            Task::CleanUp => self.cleaned_up(completion.result, out),
            Task::Nothing => {}
        }
    }

    /// Where a group stands; `None` for one this log has no trace of.
    #[must_use]
    pub fn group(&self, group: VnodeId) -> Option<GroupView> {
        self.groups.get(&group).map(Group::view)
    }

    /// Every group, in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = (VnodeId, GroupView)> {
        self.groups.iter().map(|(id, group)| (*id, group.view()))
    }

    /// Entries of a group from `from` up to but not including `end`, fewer at the end of the log. `None` for
    /// an unknown or damaged group, or when the snapshot covers `from`.
    #[must_use]
    pub fn entries(&self, group: VnodeId, from: RaftIndex, end: RaftIndex) -> Option<Vec<Entry>> {
        self.intact(group)?.entries(from, end)
    }

    /// The term of an entry, or of the snapshot's last.
    #[must_use]
    pub fn term_at(&self, group: VnodeId, index: RaftIndex) -> Option<Term> {
        self.intact(group)?.term_at(index)
    }

    /// Whether records were lost that may have been of groups that are not listed.
    #[must_use]
    pub fn unlisted_groups_possible(&self) -> bool {
        self.unlisted_possible
    }

    fn intact(&self, group: VnodeId) -> Option<&Group> {
        self.groups.get(&group).filter(|group| group.status == Status::Intact)
    }

    fn check_open(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::New | Phase::Starting(_) => Err(Error::NotStarted),
            Phase::Open => Ok(()),
            Phase::Failed(error) => Err(Error::Storage(error.clone())),
        }
    }

    fn check_group(&self, group: VnodeId) -> Result<(), Error> {
        group::check_number(group)?;
        match self.groups.get(&group).map(|group| group.status) {
            Some(Status::Damaged) => Err(Error::Damaged),
            Some(Status::Intact) => Ok(()),
            // One that was forgotten here is known to be new.
            None if self.unlisted_possible && !self.forgotten.contains_key(&group) => Err(Error::Damaged),
            None => Ok(()),
        }
    }

    fn submit(&mut self, task: Task, steps: Vec<Step>, out: &mut Vec<Action>) {
        let id = self.ids.job();
        self.tasks.insert(id, task);
        out.push(Action::Disk(Job { id, steps }));
    }

    fn files(&mut self) -> &mut Files {
        self.files.as_mut().expect("an open log has files")
    }

    /// Gives up for good; everything that waits is told.
    fn fail(&mut self, error: disk::Error, out: &mut Vec<Action>) {
        if let Phase::Failed(_) = self.phase {
            return;
        }
        out.push(Action::Notice(Notice::Failed { detail: error.to_string() }));
        let flushing = self.flush.take().into_iter().flat_map(|flush| flush.done);
        let gathered = self.gather.drain(..).filter_map(|pending| pending.done);
        for (id, _) in flushing.chain(gathered) {
            out.push(Action::Reply(id, Reply::Failed(Error::Storage(error.clone()))));
        }
        self.phase = Phase::Failed(error);
    }
}

type JobResult = Result<Output, disk::Error>;
