//! Snapshot files: written aside, synced, renamed, the directory synced, and only then recorded in the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{RaftIndex, VnodeId, limits};

use super::flush::{Body, Pending};
use super::reading::{Next, Reading};
use super::request::{Action, Error, Notice, Reply, SnapshotMark, Status};
use super::{JobResult, RaftLog, Task, group, names};
use crate::disk::{self, FileId, Step};
use crate::format::raft_snapshot::{self, Id};
use crate::store::RequestId;

/// Snapshots on the disk, and those on their way to or from it.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// Files with a durable name, recorded or not.
    pub(super) on_disk: BTreeMap<VnodeId, BTreeSet<RaftIndex>>,
    saves: BTreeMap<VnodeId, Save>,
    loads: BTreeMap<RequestId, Load>,
}

#[derive(Debug)]
struct Save {
    id: RequestId,
    mark: SnapshotMark,
    data: Bytes,
    file: FileId,
    /// Payload bytes written.
    at: usize,
    /// Which step of the job under way makes the name durable.
    dir_sync_step: Option<usize>,
    /// The group left meanwhile.
    abandoned: bool,
}

#[derive(Debug)]
struct Load {
    group: VnodeId,
    mark: SnapshotMark,
    reading: Reading,
}

impl RaftLog {
    pub(super) fn start_save(
        &mut self,
        id: RequestId,
        group: VnodeId,
        mark: SnapshotMark,
        data: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Error> {
        self.check_open()?;
        self.check_group(group)?;
        match self.groups.get(&group) {
            Some(state) => state.check_snapshot(mark)?,
            None => self.new_group(group).check_snapshot(mark)?,
        }
        if self.snapshots.saves.contains_key(&group) {
            return Err(Error::Stale);
        }
        let unproven = self.unproven.iter_mut();
        let flushing = self.flush.iter_mut().flat_map(|flush| flush.needs.iter_mut());
        unproven.chain(flushing).for_each(|need| need.keep(group, mark.index));
        let file = self.ids.file();
        let header = raft_snapshot::encode_header(Id { group, index: mark.index, term: mark.term }, &data);
        let path = names::unfinished(group, mark.index);
        let steps = vec![Step::Create { file, path }, Step::Write { file, at: 0, data: vec![header] }];
        self.snapshots
            .saves
            .insert(group, Save { id, mark, data, file, at: 0, dir_sync_step: None, abandoned: false });
        self.save_more(group, steps, out);
        Ok(())
    }

    /// Writes the next piece; the last one also gives the file its name.
    fn save_more(&mut self, group: VnodeId, mut steps: Vec<Step>, out: &mut Vec<Action>) {
        let skips_dir_sync = self.skips_snapshot_dir_sync();
        let Some(save) = self.snapshots.saves.get_mut(&group) else { return };
        let end = save.data.len().min(save.at + limits::SCAN_WINDOW_BYTES);
        let piece = save.data.slice(save.at..end);
        if !piece.is_empty() {
            let at = (raft_snapshot::HEADER_BYTES + save.at) as u64;
            steps.push(Step::Write { file: save.file, at, data: vec![piece] });
        }
        steps.push(Step::Sync(save.file));
        save.at = end;
        if end == save.data.len() {
            let (from, to) =
                (names::unfinished(group, save.mark.index), names::snapshot(group, save.mark.index));
            steps.extend([Step::Close(save.file), Step::Rename { from, to }]);
            if !skips_dir_sync {
                save.dir_sync_step = Some(steps.len());
                steps.push(Step::SyncDir(None));
            }
        }
        self.submit(Task::Save(group), steps, out);
    }

    pub(super) fn save_step(&mut self, group: VnodeId, result: JobResult, out: &mut Vec<Action>) {
        let Some(save) = self.snapshots.saves.get(&group) else { return };
        if result.is_ok() && save.at < save.data.len() {
            self.save_more(group, Vec::new(), out);
            return;
        }
        let Some(save) = self.snapshots.saves.remove(&group) else { return };
        let saved = match result {
            Ok(_) => {
                self.snapshots.on_disk.entry(group).or_default().insert(save.mark.index);
                self.record_snapshot(group, &save)
            }
            // No name becomes durable in this directory any more: neither a snapshot nor a log file could be made.
            Err(error) if save.dir_sync_step == Some(error.step) => {
                self.fail(error.clone(), out);
                Err(Error::Storage(error))
            }
            Err(error) => {
                let unfinished = names::unfinished(group, save.mark.index);
                self.submit(Task::CleanUp, vec![Step::Close(save.file), Step::Remove(unfinished)], out);
                Err(Error::Storage(error))
            }
        };
        match saved {
            Ok(()) => self.flush(out),
            Err(error) => {
                out.push(Action::Reply(save.id, Reply::Failed(error)));
                // Without an open log nothing is certain; the next start tells what the file is worth.
                if self.check_open().is_ok() {
                    self.drop_snapshots(group, &BTreeSet::from([save.mark.index]), out);
                }
            }
        }
    }

    /// Tells the log of a file that is durable. The group may have moved on while it was written.
    fn record_snapshot(&mut self, group: VnodeId, save: &Save) -> Result<(), Error> {
        self.check_open()?;
        self.check_group(group)?;
        if save.abandoned {
            return Err(Error::NoSuchGroup);
        }
        if !self.groups.contains_key(&group) {
            let state = self.new_group(group);
            self.forgotten.remove(&group);
            self.groups.insert(group, state);
        }
        let state = self.groups.get_mut(&group).expect("it was just added");
        state.check_snapshot(save.mark)?;
        let update = state.take_snapshot(save.mark);
        state.serial += 1;
        let group_serial = state.serial;
        let done = Some((save.id, Reply::SnapshotSaved));
        self.gather.push(Pending { done, group, group_serial, body: Body::Update(update) });
        Ok(())
    }

    /// Removes the files of snapshots that nothing durable refers to.
    pub(super) fn drop_snapshots(
        &mut self,
        group: VnodeId,
        drop: &BTreeSet<RaftIndex>,
        out: &mut Vec<Action>,
    ) {
        let Some(on_disk) = self.snapshots.on_disk.get_mut(&group) else { return };
        let drop = drop.iter().filter(|index| on_disk.remove(index));
        let mut steps: Vec<Step> = drop.map(|index| Step::Remove(names::snapshot(group, *index))).collect();
        if on_disk.is_empty() {
            self.snapshots.on_disk.remove(&group);
        }
        if !steps.is_empty() {
            steps.push(Step::SyncDir(None));
            self.submit(Task::CleanUp, steps, out);
        }
    }

    /// The group leaves: a snapshot of it that is being written is worth nothing.
    pub(super) fn abandon_save(&mut self, group: VnodeId) {
        if let Some(save) = self.snapshots.saves.get_mut(&group) {
            save.abandoned = true;
        }
    }

    pub(super) fn start_load(
        &mut self,
        id: RequestId,
        group: VnodeId,
        out: &mut Vec<Action>,
    ) -> Result<(), Error> {
        group::check_number(group)?;
        let state = self.groups.get(&group).ok_or(Error::NoSuchGroup)?;
        let mark = state.snapshot();
        if state.status == Status::Damaged {
            return Err(Error::Damaged);
        }
        if mark.index == RaftIndex::ZERO {
            return Err(Error::NoSnapshot);
        }
        let (reading, open) = Reading::open(self.ids.file(), names::snapshot(group, mark.index));
        self.snapshots.loads.insert(id, Load { group, mark, reading });
        self.submit(Task::Load(id), vec![open], out);
        Ok(())
    }

    pub(super) fn load_step(&mut self, id: RequestId, result: JobResult, out: &mut Vec<Action>) {
        let Some(load) = self.snapshots.loads.get_mut(&id) else { return };
        let whole = match result.map(|output| load.reading.step(output)) {
            Ok(Next::Step(step)) => {
                self.submit(Task::Load(id), vec![step], out);
                return;
            }
            Ok(Next::Whole(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        let Some(Load { group, mark, reading }) = self.snapshots.loads.remove(&id) else { return };
        self.submit(Task::CleanUp, vec![Step::Close(reading.file)], out);
        let reply = match whole {
            Ok(bytes) => self.judge(group, mark, &bytes, out),
            Err(error) if error.kind == disk::ErrorKind::NotFound => self.lost(group, mark, "missing", out),
            Err(error) => Reply::Failed(Error::Storage(error)),
        };
        out.push(Action::Reply(id, reply));
    }

    fn judge(&mut self, group: VnodeId, mark: SnapshotMark, bytes: &Bytes, out: &mut Vec<Action>) -> Reply {
        match raft_snapshot::decode(Id { group, index: mark.index, term: mark.term }, bytes) {
            Ok(data) => Reply::Snapshot { mark, data },
            Err(error) => self.lost(group, mark, &error.to_string(), out),
        }
    }

    /// The snapshot is not what was saved: the group cannot be vouched for, unless a later one replaced it.
    fn lost(&mut self, group: VnodeId, mark: SnapshotMark, why: &str, out: &mut Vec<Action>) -> Reply {
        let current = self.groups.get_mut(&group).filter(|state| state.snapshot() == mark);
        if let Some(state) = current {
            state.status = Status::Damaged;
            let detail = format!("snapshot at index {} is {why}", mark.index);
            out.push(Action::Notice(Notice::GroupDamaged { group, detail }));
        }
        Reply::Failed(Error::Damaged)
    }

    #[cfg(feature = "planted")]
    fn skips_snapshot_dir_sync(&self) -> bool {
        self.config.planted.skip_snapshot_dir_sync
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self)]
    fn skips_snapshot_dir_sync(&self) -> bool {
        false
    }
}
