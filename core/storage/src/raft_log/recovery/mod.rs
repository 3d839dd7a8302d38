//! Opening the log: list, scan, judge, verify snapshots, repair the end, and only then serve.
//!
//! Everything here may be cut short by a power loss and done again: what is repaired is at or past the last
//! durable place, what is removed is worth nothing to any outcome of the judgement.
//!
//! The end is repaired in this order, each part durable before the next: files past the end are removed, the
//! last first; what was written but never known to be durable is written again (a sync that failed before
//! may have left it in memory only); the rest of the file is zeroed, so that remains of a torn flush never
//! follow a later record; and a mark testifies that all of this is durable.

mod replay;
mod scan;

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use types::{RaftIndex, VnodeId};

use super::files::{Current, Files, salt};
use super::flush::{self, Body, Pending, Tail};
use super::group::Group;
use super::names::{self, Found};
use super::reading::{Next, Reading};
use super::request::{Action, Notice, SnapshotMark, StartError, Status};
use super::{Forgotten, JobResult, Phase, RaftLog, Task};
use crate::disk::{self, FileId, Output, Step};
use crate::format::raft_log::{MARK_GROUP, Spot, Stamp};
use crate::format::raft_snapshot::{self, Id};
use replay::Verdict;
use scan::Scan;

/// A log being opened.
#[derive(Debug)]
pub(super) struct Recovery {
    stage: Stage,
    found: Vec<Found>,
    foreign: Vec<String>,
    logs: BTreeMap<u64, Stamp>,
    /// Log files as read, and the ids they stay open under until the last one is known.
    data: BTreeMap<u64, (FileId, Bytes)>,
    scan: Scan,
    verdict: Verdict,
    current: Option<Current>,
}

#[derive(Debug)]
enum Stage {
    Listing,
    Scanning { left: VecDeque<Stamp>, reading: Option<(Stamp, Reading)> },
    Verifying { left: VecDeque<(VnodeId, SnapshotMark)>, reading: Option<(VnodeId, SnapshotMark, Reading)> },
    Repairing,
}

/// Writes `[from, to)` of a file again, as it was read.
fn rewrite(file: FileId, data: &Bytes, from: u64, to: u64, steps: &mut Vec<Step>) {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
    let bytes = &data[place(from)..place(to)];
    if !bytes.is_empty() {
        // Copied, so that the whole file does not stay in memory with it.
        steps.push(Step::Write { file, at: from, data: vec![Bytes::copy_from_slice(bytes)] });
    }
}

impl Recovery {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Listing,
            found: Vec::new(),
            foreign: Vec::new(),
            logs: BTreeMap::new(),
            data: BTreeMap::new(),
            scan: Scan::default(),
            verdict: Verdict::default(),
            current: None,
        }
    }

    fn list(&mut self, entries: Vec<disk::Entry>) -> Result<(), StartError> {
        for entry in entries {
            match names::parse(&entry.name) {
                _ if entry.is_dir => self.foreign.push(entry.name),
                Found::Foreign => self.foreign.push(entry.name),
                Found::Log(stamp) => {
                    if self.logs.insert(stamp.sequence, stamp).is_some() {
                        return Err(StartError::Ambiguous(stamp.sequence));
                    }
                }
                found @ (Found::Snapshot(..) | Found::Unfinished(..)) => self.found.push(found),
            }
        }
        self.foreign.sort_unstable();
        let snapshot = |found: &Found| matches!(found, Found::Snapshot(..));
        if self.logs.is_empty() && self.found.iter().any(snapshot) {
            return Err(StartError::LogMissing);
        }
        Ok(())
    }
}

impl RaftLog {
    /// Takes the output of the last recovery job.
    pub(super) fn recover(&mut self, result: JobResult, out: &mut Vec<Action>) {
        let Phase::Starting(mut recovery) = std::mem::replace(&mut self.phase, Phase::New) else { return };
        match self.recover_step(&mut recovery, result, out) {
            Ok(false) => self.phase = Phase::Starting(recovery),
            Ok(true) => self.open(*recovery, out),
            Err(error) => out.push(Action::StartFailed(error)),
        }
    }

    /// Goes on by one job; `true` when there is nothing left to do.
    fn recover_step(
        &mut self,
        recovery: &mut Recovery,
        result: JobResult,
        out: &mut Vec<Action>,
    ) -> Result<bool, StartError> {
        match &mut recovery.stage {
            Stage::Listing => {
                if let Output::Entries(entries) = result? {
                    recovery.list(entries)?;
                }
                let left = recovery.logs.values().copied().collect();
                recovery.stage = Stage::Scanning { left, reading: None };
                self.scan_next(recovery, None, out)?;
            }
            Stage::Scanning { .. } => self.scan_next(recovery, Some(result?), out)?,
            Stage::Verifying { .. } => self.verify_next(recovery, Some(result), out),
            Stage::Repairing => {
                result?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scan_next(
        &mut self,
        recovery: &mut Recovery,
        output: Option<Output>,
        out: &mut Vec<Action>,
    ) -> Result<(), StartError> {
        let Stage::Scanning { left, reading } = &mut recovery.stage else { return Ok(()) };
        if let (Some((stamp, current)), Some(output)) = (reading, output) {
            match current.step(output) {
                Next::Step(step) => {
                    self.submit(Task::Recover, vec![step], out);
                    return Ok(());
                }
                Next::Whole(bytes) => {
                    recovery.scan.file(*stamp, &bytes).map_err(StartError::LaterVersion)?;
                    recovery.data.insert(stamp.sequence, (current.file, bytes));
                }
            }
        }
        if let Some(stamp) = left.pop_front() {
            let (next, open) = Reading::open(self.ids.file(), names::log_file(stamp));
            recovery.stage = Stage::Scanning { left: std::mem::take(left), reading: Some((stamp, next)) };
            self.submit(Task::Recover, vec![open], out);
            return Ok(());
        }
        let scan = std::mem::take(&mut recovery.scan);
        recovery.verdict = replay::replay(scan, self.trusts_first_bad());
        let referred = |(id, group): (&VnodeId, &replay::Replayed)| {
            let wanted = group.damage.is_none() && !group.forgotten && group.snapshot().index.0 > 0;
            wanted.then(|| (*id, group.snapshot()))
        };
        let left = recovery.verdict.groups.iter().filter_map(referred).collect();
        recovery.stage = Stage::Verifying { left, reading: None };
        self.verify_next(recovery, None, out);
        Ok(())
    }

    /// Reads each snapshot the log refers to. One that is missing, damaged or unreadable damages its group.
    fn verify_next(&mut self, recovery: &mut Recovery, result: Option<JobResult>, out: &mut Vec<Action>) {
        let Stage::Verifying { left, reading } = &mut recovery.stage else { return };
        if let (Some((group, mark, current)), Some(result)) = (reading, result) {
            let verified = match result.map(|output| current.step(output)) {
                Ok(Next::Step(step)) => {
                    self.submit(Task::Recover, vec![step], out);
                    return;
                }
                Ok(Next::Whole(bytes)) => {
                    let id = Id { group: *group, index: mark.index, term: mark.term };
                    raft_snapshot::decode(id, &bytes).map(|_| ()).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            self.submit(Task::CleanUp, vec![Step::Close(current.file)], out);
            if let (Err(why), Some(state)) = (verified, recovery.verdict.groups.get_mut(group)) {
                state.damage = Some(format!("snapshot at index {}: {why}", mark.index));
            }
        }
        if let Some((group, mark)) = left.pop_front() {
            let (next, open) = Reading::open(self.ids.file(), names::snapshot(group, mark.index));
            let left = std::mem::take(left);
            recovery.stage = Stage::Verifying { left, reading: Some((group, mark, next)) };
            self.submit(Task::Recover, vec![open], out);
            return;
        }
        recovery.stage = Stage::Repairing;
        self.repair(recovery, out);
    }

    /// Makes the end of the log one that records can follow.
    fn repair(&mut self, recovery: &mut Recovery, out: &mut Vec<Action>) {
        let unfinished = recovery.found.iter().filter_map(|found| match found {
            Found::Unfinished(group, index) => Some(Step::Remove(names::unfinished(*group, *index))),
            Found::Log(_) | Found::Snapshot(..) | Found::Foreign => None,
        });
        let mut steps: Vec<Step> = unfinished.collect();
        let first = recovery.logs.keys().next().copied();
        let end = recovery.verdict.end.or(first.map(|file| Spot { file, at: 0 }));
        let current = match end {
            Some(end) => self.repair_end(recovery, end, &mut steps),
            None => self.first_file(recovery, &mut steps),
        };
        let Current { file, at, stamp } = current;
        let verdict = &mut recovery.verdict;
        let mut tail = Tail { serial: verdict.serial, mark_serial: verdict.mark_serial, ..Tail::default() };
        tail.durable = current.spot();
        let mut mark = BytesMut::new();
        flush::encode(&[tail.mark()], &current, &tail, &mut mark);
        tail.serial += 1;
        let end = at + mark.len() as u64;
        tail.durable = Spot { file: stamp.sequence, at: end };
        steps.extend([Step::Write { file, at, data: vec![mark.freeze()] }, Step::Sync(file)]);
        self.tail = tail;
        recovery.current = Some(Current { at: end, ..current });
        self.submit(Task::Recover, steps, out);
    }

    fn repair_end(&mut self, recovery: &mut Recovery, end: Spot, steps: &mut Vec<Step>) -> Current {
        let past = recovery.logs.split_off(&(end.file + 1));
        for stamp in past.values().rev() {
            steps.extend([Step::Remove(names::log_file(*stamp)), Step::SyncDir(None)]);
        }
        let stamp = recovery.logs[&end.file];
        // Usually only the last file has bytes that nothing testifies to; two when the last flush ended at the
        // very end of a file.
        let known = recovery.verdict.durable;
        for (sequence, (file, data)) in recovery.data.range(known.file.min(end.file)..end.file) {
            let from = if *sequence == known.file { known.at } else { 0 };
            rewrite(*file, data, from, data.len() as u64, steps);
            steps.push(Step::Sync(*file));
        }
        let (file, data) = recovery.data.remove(&end.file).expect("every listed file was read");
        let from = if known.file == end.file { known.at.min(end.at) } else { 0 };
        rewrite(file, &data, from, end.at, steps);
        let len = (data.len() as u64).max(self.config.file_bytes).saturating_sub(end.at);
        if len > 0 && !self.skips_zeroing() {
            steps.push(Step::Zero { file, at: end.at, len });
        }
        steps.push(Step::Sync(file));
        Current { stamp, file, at: end.at }
    }

    fn first_file(&mut self, recovery: &mut Recovery, steps: &mut Vec<Step>) -> Current {
        let stamp = Stamp { sequence: 1, salt: salt(self.config.seed, 1) };
        let file = self.ids.file();
        let len = self.config.file_bytes;
        recovery.logs.insert(stamp.sequence, stamp);
        steps.extend([
            Step::Create { file, path: names::log_file(stamp) },
            Step::Zero { file, at: 0, len },
            Step::Sync(file),
            Step::SyncDir(None),
        ]);
        Current { stamp, file, at: 0 }
    }

    /// Begins to serve.
    fn open(&mut self, recovery: Recovery, out: &mut Vec<Action>) {
        let Recovery { found, foreign, logs, data, verdict, current, .. } = recovery;
        let current = current.expect("repairing chose the file that takes records");
        self.phase = Phase::Open;
        let torn_at = verdict.end.filter(|_| verdict.torn);
        self.files = Some(Files::new(logs, current));
        self.adopt(verdict, out);
        if let Some(Spot { file, at: position }) = torn_at {
            out.push(Action::Notice(Notice::TornTail { file, position }));
        }
        let closes: Vec<Step> = data.into_values().map(|(file, _)| Step::Close(file)).collect();
        if !closes.is_empty() {
            self.submit(Task::CleanUp, closes, out);
        }
        self.adopt_snapshots(&found, out);
        self.make_spare(out);
        out.push(Action::Started { foreign });
        self.remove_front(out);
        if self.gather.is_empty() && !self.files().removing {
            self.move_forward();
        }
        self.flush(out);
    }

    fn adopt(&mut self, verdict: Verdict, out: &mut Vec<Action>) {
        out.extend(verdict.damage.into_iter().map(Action::Notice));
        self.unlisted_possible = verdict.unlisted_possible;
        if self.unlisted_possible {
            out.push(Action::Notice(Notice::UnlistedGroupsPossible));
            self.hold_front_for_doubt(true);
        }
        let front = self.files().front();
        for (id, replayed) in verdict.groups {
            let (serial, file) = (replayed.group_serial, replayed.file);
            match &replayed.damage {
                Some(detail) => {
                    let mut group = Group::new(serial);
                    group.status = Status::Damaged;
                    self.groups.insert(id, group);
                    self.files().need(id, Some(front));
                    out.push(Action::Notice(Notice::GroupDamaged { group: id, detail: detail.clone() }));
                }
                None if replayed.forgotten => {
                    self.forgotten.insert(id, Forgotten { serial, file });
                }
                None => {
                    let whole = replayed.whole();
                    let mut group = Group::recovered(whole.hard, whole.snapshot, whole.entries, file, serial);
                    self.files().need(id, Some(group.oldest_file()));
                    // A record after the loss shows every later recovery that the loss did not concern it.
                    if replayed.serial < verdict.lost_upto {
                        group.serial += 1;
                        let (group_serial, body) = (group.serial, Body::Update(group.rewrite()));
                        self.gather.push(Pending { done: None, group: id, group_serial, body });
                    }
                    self.groups.insert(id, group);
                }
            }
        }
    }

    /// Keeps the snapshots that the log refers to, and those of groups that cannot be judged.
    fn adopt_snapshots(&mut self, found: &[Found], out: &mut Vec<Action>) {
        let mut steps = Vec::new();
        for found in found {
            let Found::Snapshot(group, index) = *found else { continue };
            if self.is_worthless(group, index) {
                steps.push(Step::Remove(names::snapshot(group, index)));
            } else {
                self.snapshots.on_disk.entry(group).or_default().insert(index);
            }
        }
        if !steps.is_empty() {
            steps.push(Step::SyncDir(None));
            self.submit(Task::CleanUp, steps, out);
        }
    }

    fn is_worthless(&self, group: VnodeId, index: RaftIndex) -> bool {
        match self.groups.get(&group) {
            Some(state) => state.status == Status::Intact && state.snapshot().index != index,
            None => group == MARK_GROUP || self.forgotten.contains_key(&group) || !self.unlisted_possible,
        }
    }

    #[cfg(feature = "planted")]
    fn trusts_first_bad(&self) -> bool {
        self.config.planted.truncate_at_first_bad
    }

    #[cfg(feature = "planted")]
    fn skips_zeroing(&self) -> bool {
        self.config.planted.skip_zeroing
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self)]
    fn trusts_first_bad(&self) -> bool {
        false
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self)]
    fn skips_zeroing(&self) -> bool {
        false
    }
}
