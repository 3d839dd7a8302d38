//! Snapshots of the member's own machine, and those it installs.
//!
//! One at a time: a snapshot from a leader waits until the one being taken is saved or given up, so that storage
//! is never asked to save two.

use bytes::Bytes;
use types::{RaftIndex, Term};

use super::Group;
use super::transfer::Transfers;
use crate::engine::{StateRole, Translation, snapshot_message};
use crate::event::{Action, EntryId, Snapshot, SnapshotMark, SnapshotOrder};
use crate::image::Image;
use crate::members::ReplicaId;

/// See the module.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// The last durable one.
    latest: SnapshotMark,
    since: Applied,
    /// Asked for and not reported yet.
    taking: Option<SnapshotOrder>,
    /// Arrived whole, until the engine may have it.
    arrived: Option<Arrived>,
    /// The engine has it and it is on its way to storage.
    installing: Option<Arrived>,
    pub(super) transfers: Transfers,
}

#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    bytes: u64,
    entries: u64,
}

/// A snapshot a leader sent.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) from: ReplicaId,
    pub(super) term: Term,
    pub(super) mark: SnapshotMark,
    pub(super) image: Bytes,
    pub(super) decoded: Image,
}

impl Snapshots {
    pub(super) fn new(latest: SnapshotMark) -> Self {
        Self {
            latest,
            since: Applied::default(),
            taking: None,
            arrived: None,
            installing: None,
            transfers: Transfers::default(),
        }
    }

    pub(super) fn latest(&self) -> SnapshotMark {
        self.latest
    }

    /// An entry was applied.
    pub(super) fn applied(&mut self, bytes: u64) {
        self.since.bytes += bytes;
        self.since.entries += 1;
    }

    /// Whether this snapshot has arrived already.
    pub(super) fn has(&self, mark: SnapshotMark) -> bool {
        [&self.arrived, &self.installing].into_iter().flatten().any(|arrived| arrived.mark == mark)
    }

    pub(super) fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// This member leads no more.
    pub(super) fn stop_sending(&mut self) {
        self.transfers.stop_sending();
    }
}

impl Group {
    pub(super) fn ask_for_snapshot(&mut self, out: &mut Vec<Action>) {
        let Applied { bytes, entries } = self.snapshots.since;
        let due = bytes >= self.config.snapshot_bytes || entries >= self.config.snapshot_entries;
        let busy = self.snapshots.taking.is_some()
            || self.snapshots.arrived.is_some()
            || self.snapshots.installing.is_some();
        if due && !busy && self.applied.index > self.snapshots.latest.index {
            let mark = SnapshotMark { index: self.applied.index, term: self.applied.term };
            let order = SnapshotOrder { mark, members: self.members.clone() };
            self.snapshots.taking = Some(order.clone());
            self.snapshots.since = Applied::default();
            out.push(Action::TakeSnapshot(order));
        }
    }

    pub(super) fn snapshot_saved(&mut self, index: RaftIndex, out: &mut Vec<Action>) {
        if let Some(order) = self.snapshots.taking.take_if(|order| order.mark.index == index) {
            self.snapshots.latest = order.mark;
            self.engine.mut_store().snapshot_saved(order.mark, order.members.to_engine());
            self.compact();
        }
        self.hand_over_arrived(out);
    }

    pub(super) fn snapshot_failed(&mut self, index: RaftIndex, out: &mut Vec<Action>) {
        self.snapshots.taking.take_if(|order| order.mark.index == index);
        self.hand_over_arrived(out);
    }

    /// Lets go of entries that the snapshot covers, but not of those a member needs that is heard of: it would be
    /// sent a snapshot for want of a few entries.
    fn compact(&mut self) {
        let mut needed_from = self.snapshots.latest.index.next();
        if self.engine.raft.state == StateRole::Leader {
            for peer in self.peers().filter(|peer| peer.is_active) {
                needed_from = needed_from.min(peer.matched.next());
            }
            if let Some(mark) = self.snapshots.transfers.oldest_sent() {
                needed_from = needed_from.min(mark.index.next());
            }
        }
        let bytes_max = self.config.snapshot_bytes;
        self.engine.mut_store().compact(needed_from.0, bytes_max);
    }

    /// A snapshot has arrived whole.
    pub(super) fn snapshot_arrived(&mut self, arrived: Arrived, out: &mut Vec<Action>) {
        self.snapshots.arrived = Some(arrived);
        self.hand_over_arrived(out);
    }

    fn hand_over_arrived(&mut self, out: &mut Vec<Action>) {
        let busy = self.snapshots.taking.is_some() || self.snapshots.installing.is_some();
        if busy || !self.is_running() {
            return;
        }
        let Some(arrived) = self.snapshots.arrived.take() else { return };
        let message = snapshot_message(
            arrived.from,
            self.me.replica,
            arrived.term,
            arrived.mark,
            &arrived.decoded.members,
        );
        // Ignored when it is late, or when the log holds the snapshot's last entry: then nothing is installed.
        let _ = self.engine.step(message);
        if self.engine.snap().is_some() {
            self.snapshots.installing = Some(arrived);
        }
        self.drive(out);
    }

    /// The engine has begun anew after the snapshot it was given; gives what must be stored.
    pub(super) fn install(&mut self) -> Snapshot {
        let arrived = self.snapshots.installing.as_ref().expect("the engine has what it was given");
        let members = &arrived.decoded.members;
        self.engine.mut_store().restore(arrived.mark, members.to_engine());
        self.members = members.clone();
        self.members_since = arrived.mark.index;
        Snapshot { mark: arrived.mark, image: arrived.image.clone() }
    }

    /// The snapshot is durable: the machine follows.
    pub(super) fn installed(&mut self, out: &mut Vec<Action>) {
        let Arrived { mark, decoded, .. } =
            self.snapshots.installing.take().expect("a snapshot on its way is being installed");
        self.snapshots.latest = mark;
        self.snapshots.since = Applied::default();
        self.applied = EntryId { index: mark.index, term: mark.term };
        self.engine.advance_apply_to(mark.index.0);
        out.push(Action::Restore { mark, state: decoded.state, members: decoded.members });
        self.hand_over_arrived(out);
    }
}
