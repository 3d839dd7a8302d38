//! Flushes: what waits is encoded back to back, written and synced by one job, and answered.

use std::collections::BTreeSet;

use bytes::BytesMut;
use types::{RaftIndex, VnodeId};

use super::files::{Current, Spare};
use super::request::{Action, Reply};
use super::{JobResult, RaftLog, Task};
use crate::disk::Step;
use crate::format::raft_log::{self, MARK_GROUP, Place, Spot, Update};
use crate::store::RequestId;

/// A record that waits for its flush.
#[derive(Debug)]
pub(super) struct Pending {
    /// Whom to answer, and what, once it is durable.
    pub(super) done: Option<(RequestId, Reply)>,
    pub(super) group: VnodeId,
    pub(super) group_serial: u64,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Update(Update),
    Forget,
    Mark,
}

/// A flush on its way to the disk.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) done: Vec<(RequestId, Reply)>,
    /// Where the log ends when it is durable.
    end: Spot,
    /// What each group in it needs once a later record testifies to it.
    pub(super) needs: Vec<Need>,
    /// Whether it is a mark and nothing else.
    is_mark: bool,
}

/// Counters of the log's end.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Serial of the last record.
    pub(super) serial: u64,
    /// Serial of the last mark among the marks.
    pub(super) mark_serial: u64,
    /// Everything below is durable.
    pub(super) durable: Spot,
    /// The last flush has no record after it that says it was durable.
    pub(super) untestified: bool,
}

/// What a group's state in a flush lets go of.
///
/// Not before a later flush is durable: a flush that nothing testifies to can still be lost to rot without
/// anybody noticing, and what it replaced must then be there.
#[derive(Debug)]
pub(super) struct Need {
    group: VnodeId,
    /// The oldest log file it needs; none when the group is gone.
    oldest_file: Option<u64>,
    /// Snapshots it does not need.
    drop: BTreeSet<RaftIndex>,
}

impl Need {
    /// The file of this name is about to be written anew.
    pub(super) fn keep(&mut self, group: VnodeId, index: RaftIndex) {
        if self.group == group {
            self.drop.remove(&index);
        }
    }
}

impl Tail {
    pub(super) fn mark(&mut self) -> Pending {
        self.mark_serial += 1;
        Pending { done: None, group: MARK_GROUP, group_serial: self.mark_serial, body: Body::Mark }
    }
}

/// Encodes records back to back from `current.at`.
pub(super) fn encode(records: &[Pending], current: &Current, tail: &Tail, out: &mut BytesMut) {
    let start = out.len();
    for (serial, record) in (tail.serial + 1..).zip(records) {
        let place = Place {
            stamp: current.stamp,
            at: current.at + (out.len() - start) as u64,
            serial,
            group: record.group,
            group_serial: record.group_serial,
            durable_before: tail.durable,
        };
        match &record.body {
            Body::Update(update) => raft_log::encode_update(place, update, out),
            Body::Forget => raft_log::encode_forget(place, out),
            Body::Mark => raft_log::encode_mark(place, out),
        }
    }
}

impl RaftLog {
    /// Starts a flush of everything that waits, unless one is running.
    pub(super) fn flush(&mut self, out: &mut Vec<Action>) {
        if self.flush.is_some() || self.gather.is_empty() || self.check_open().is_err() {
            return;
        }
        let records = std::mem::take(&mut self.gather);
        let mut data = BytesMut::new();
        let current = self.files().current;
        encode(&records, &current, &self.tail, &mut data);
        if self.roll(data.len() as u64, out) {
            data.clear();
            let current = self.files().current;
            encode(&records, &current, &self.tail, &mut data);
        }
        self.tail.serial += records.len() as u64;
        let Current { file, at, stamp } = self.files().current;
        self.files().current.at = at + data.len() as u64;
        let end = self.files().current.spot();
        let needs = self.written(&records, stamp.sequence);
        let is_mark = records.iter().all(|record| matches!(record.body, Body::Mark));
        let done = records.into_iter().filter_map(|record| record.done).collect();
        self.flush = Some(Flush { done, end, needs, is_mark });
        let write = Step::Write { file, at, data: vec![data.freeze()] };
        let mut steps = vec![write];
        if !self.skips_sync() {
            steps.push(Step::Sync(file));
        }
        self.submit(Task::Flush, steps, out);
    }

    /// Everything accepted so far goes to the file `sequence`: what its groups need from then on.
    fn written(&mut self, records: &[Pending], sequence: u64) -> Vec<Need> {
        let mut needs = Vec::new();
        for record in records.iter().filter(|record| record.group != MARK_GROUP) {
            let group = record.group;
            if let Some(forgotten) = self.forgotten.get_mut(&group) {
                forgotten.file = sequence;
            }
            let mut drop = self.snapshots.on_disk.get(&group).cloned().unwrap_or_default();
            let oldest_file = self.groups.get_mut(&group).map(|state| {
                state.written_to(sequence);
                let _needed = drop.split_off(&state.snapshot().index);
                state.oldest_file()
            });
            needs.push(Need { group, oldest_file, drop });
        }
        needs
    }

    /// Moves on to the spare file when `len` more bytes do not fit into the present one. While the spare is
    /// still being made the present one grows instead: slower, and as safe.
    fn roll(&mut self, len: u64, out: &mut Vec<Action>) -> bool {
        let file_bytes = self.config.file_bytes;
        let files = self.files();
        let current = files.current;
        if current.at == 0 || current.at + len <= file_bytes {
            return false;
        }
        let Spare::Ready { stamp, file } = files.spare else { return false };
        files.current = Current { stamp, file, at: 0 };
        files.spare = Spare::None;
        self.submit(Task::CleanUp, vec![Step::Close(current.file)], out);
        self.make_spare(out);
        true
    }

    pub(super) fn flushed(&mut self, result: JobResult, out: &mut Vec<Action>) {
        if let Err(error) = result {
            self.fail(error, out);
            return;
        }
        let Some(flush) = self.flush.take() else { return };
        self.tail.durable = flush.end;
        self.tail.untestified = !flush.is_mark;
        let proven = std::mem::replace(&mut self.unproven, flush.needs);
        for need in proven {
            self.files().need(need.group, need.oldest_file);
            self.drop_snapshots(need.group, &need.drop, out);
        }
        let files = self.files.as_mut().expect("an open log has files");
        self.unproven.iter().for_each(|need| files.need_also(need.group, need.oldest_file));
        out.extend(flush.done.into_iter().map(|(id, reply)| Action::Reply(id, reply)));
        self.move_forward();
        self.remove_front(out);
        self.retry_spare(false, out);
        self.flush(out);
    }

    #[cfg(feature = "planted")]
    fn skips_sync(&self) -> bool {
        self.config.planted.skip_sync
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self)]
    fn skips_sync(&self) -> bool {
        false
    }
}
