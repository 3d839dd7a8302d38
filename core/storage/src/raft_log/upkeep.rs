//! Upkeep: the spare file made ahead, idle groups moved forward, old files removed.
//!
//! A spare file that cannot be made (the volume is full, say) is no failure of the log: nothing of it is lost, and
//! the present file may grow. It is tried again as the log grows, and while nothing happens.

use types::VnodeId;

use super::files::Spare;
use super::flush::{Body, Pending};
use super::names;
use super::request::{Action, Notice, Status};
use super::{JobResult, RaftLog, Task};
use crate::disk::{self, FileId, Step};
use crate::format::raft_log::{self, MARK_GROUP, Stamp};

/// Zeroed by one job: bounds how long a flush waits behind it.
const ZERO_CHUNK_BYTES: u64 = 1024 * 1024;
/// Bytes of log after which a spare file that could not be made is tried again.
const SPARE_RETRY_BYTES: u64 = 1024 * 1024;

impl RaftLog {
    /// Begins to make the file after the current one.
    pub(super) fn make_spare(&mut self, out: &mut Vec<Action>) {
        let file = self.ids.file();
        let seed = self.config.seed;
        let files = self.files();
        let stamp = files.next_stamp(seed);
        files.all.insert(stamp.sequence, stamp);
        self.zero_spare(stamp, file, 0, vec![Step::Create { file, path: names::log_file(stamp) }], out);
    }

    fn zero_spare(
        &mut self,
        stamp: Stamp,
        file: FileId,
        at: u64,
        mut steps: Vec<Step>,
        out: &mut Vec<Action>,
    ) {
        let len = ZERO_CHUNK_BYTES.min(self.config.file_bytes - at);
        let end = at + len;
        steps.extend([Step::Zero { file, at, len }, Step::Sync(file)]);
        if end == self.config.file_bytes {
            steps.push(Step::SyncDir(None));
        }
        self.files().spare = Spare::Making { stamp, file, at: end };
        self.submit(Task::Spare, steps, out);
    }

    pub(super) fn spare_done(&mut self, result: JobResult, out: &mut Vec<Action>) {
        let Spare::Making { stamp, file, at } = self.files().spare else { return };
        if let Err(error) = result {
            self.give_up_spare(stamp, file, &error, out);
        } else if at == self.config.file_bytes {
            self.files().spare = Spare::Ready { stamp, file };
            self.files().spare_failures = 0;
        } else {
            self.zero_spare(stamp, file, at, Vec::new(), out);
        }
    }

    /// Removes what there is of a spare file that could not be made.
    fn give_up_spare(&mut self, stamp: Stamp, file: FileId, error: &disk::Error, out: &mut Vec<Action>) {
        self.submit(Task::Nothing, vec![Step::Close(file)], out);
        // Where it stays, its name is in the way of the next attempt, which then fails and removes it again.
        self.submit(Task::Nothing, vec![Step::Remove(names::log_file(stamp)), Step::SyncDir(None)], out);
        let files = self.files();
        files.all.remove(&stamp.sequence);
        files.spare = Spare::Failed { until: files.current.at + SPARE_RETRY_BYTES };
        files.spare_failures += 1;
        if files.spare_failures == 1 {
            out.push(Action::Notice(Notice::SpareFailed { detail: error.to_string() }));
        }
    }

    /// Tries again to make a spare file, if the last attempt failed and the log has grown since, or is `idle`.
    pub(super) fn retry_spare(&mut self, idle: bool, out: &mut Vec<Action>) {
        let files = self.files();
        let Spare::Failed { until } = files.spare else { return };
        if idle || files.current.at >= until {
            self.make_spare(out);
        }
    }

    /// When there are too many files, writes the state of the groups that hold the oldest one again, as far
    /// as the bound on one flush allows; the others follow with later flushes.
    pub(super) fn move_forward(&mut self) {
        let files = self.files.as_ref().expect("an open log has files");
        if files.used() <= self.config.files_max || files.used() <= self.files_of_live_state() * 2 {
            return;
        }
        let front = files.front();
        let holding: Vec<VnodeId> = files.holding_front().collect();
        let (mut moved, mut proving) = (0, false);
        for id in holding {
            let Some(group) = self.groups.get_mut(&id).filter(|group| group.status == Status::Intact) else {
                continue;
            };
            if group.oldest_file() > front {
                proving = true;
                continue;
            }
            // One group goes whatever its size, or a large idle one would hold every later file.
            if moved > 0 && moved + group.live_bytes() > self.config.move_bytes_max {
                continue;
            }
            moved += group.live_bytes().max(1);
            group.serial += 1;
            let (group_serial, body) = (group.serial, Body::Update(group.rewrite()));
            self.gather.push(Pending { done: None, group: id, group_serial, body });
        }
        // What was moved already lets go of the file once something testifies to it.
        if proving && self.gather.is_empty() {
            self.gather.push(self.tail.mark());
        }
    }

    /// Files that the live state of all groups would fill. Moving groups forward while the log is not larger
    /// than twice that would chase its own tail.
    fn files_of_live_state(&self) -> usize {
        let per_group = raft_log::HEADER_BYTES + 64;
        let bytes: usize = self.groups.values().map(|group| group.live_bytes() + per_group).sum();
        let file_bytes = usize::try_from(self.config.file_bytes).unwrap_or(usize::MAX);
        bytes.div_ceil(file_bytes)
    }

    /// Removes the oldest file if nobody needs it; the next one follows when that is durable.
    pub(super) fn remove_front(&mut self, out: &mut Vec<Action>) {
        if self.check_open().is_err() || self.files().removing {
            return;
        }
        let Some(stamp) = self.files().removable() else { return };
        self.files().removing = true;
        let steps = vec![Step::Remove(names::log_file(stamp)), Step::SyncDir(None)];
        self.submit(Task::RemoveFront(stamp.sequence), steps, out);
    }

    pub(super) fn front_removed(&mut self, file: u64, result: JobResult, out: &mut Vec<Action>) {
        if let Err(error) = result {
            // `removing` stays set: removing the next one would leave a gap.
            out.push(Action::Notice(Notice::NotRemoved { detail: error.to_string() }));
            return;
        }
        self.files().all.remove(&file);
        self.files().removing = false;
        let front = self.files().front();
        self.forgotten.retain(|_, forgotten| forgotten.file >= front);
        self.remove_front(out);
        let idle = self.flush.is_none() && self.gather.is_empty();
        if idle && !self.files().removing && self.check_open().is_ok() {
            self.move_forward();
            self.flush(out);
        }
    }

    /// Keeps the oldest file, or lets it go, for groups that nobody knows of.
    pub(super) fn hold_front_for_doubt(&mut self, hold: bool) {
        if let Some(files) = &mut self.files {
            let front = files.front();
            files.need(MARK_GROUP, hold.then_some(front));
        }
    }

    pub(super) fn cleaned_up(&mut self, result: JobResult, out: &mut Vec<Action>) {
        if let Err(error) = result {
            out.push(Action::Notice(Notice::NotRemoved { detail: error.to_string() }));
        }
    }
}
