//! The log as the engine reads it: in memory, from where it was last compacted.
//!
//! Holds what is stored *or on its way to storage*: what is durable is known to the engine by other means.

use std::collections::VecDeque;

use raft_engine::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft_engine::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::event::{EntryId, SnapshotMark};

/// See the module.
pub(crate) struct Log {
    /// The entry before the first that is held.
    base: EntryId,
    entries: VecDeque<Entry>,
    /// The latest durable snapshot, which may be later than `base`, and the members at it.
    snapshot: SnapshotMark,
    snapshot_members: ConfState,
    /// Asked for once, when the engine is made.
    initial: (HardState, ConfState),
}

impl Log {
    /// What storage holds: entries follow the snapshot.
    pub(crate) fn new(
        snapshot: SnapshotMark,
        snapshot_members: ConfState,
        entries: Vec<Entry>,
        initial: (HardState, ConfState),
    ) -> Self {
        let base = EntryId { index: snapshot.index, term: snapshot.term };
        Self { base, entries: entries.into(), snapshot, snapshot_members, initial }
    }

    fn last(&self) -> u64 {
        self.base.index.0 + self.entries.len() as u64
    }

    /// Takes entries, dropping what they overlap.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let keep =
            first.index.checked_sub(self.base.index.0 + 1).expect("the engine keeps what is committed");
        let keep = usize::try_from(keep).expect("the log is in memory");
        assert!(keep <= self.entries.len(), "the engine leaves no gap");
        self.entries.truncate(keep);
        self.entries.extend(entries.iter().cloned());
    }

    /// Begins anew after a snapshot from a leader.
    pub(crate) fn restore(&mut self, mark: SnapshotMark, members: ConfState) {
        self.base = EntryId { index: mark.index, term: mark.term };
        self.entries.clear();
        self.snapshot = mark;
        self.snapshot_members = members;
    }

    /// A snapshot of what was applied here is durable: members that lag behind it can be sent that.
    pub(crate) fn snapshot_saved(&mut self, mark: SnapshotMark, members: ConfState) {
        self.snapshot = mark;
        self.snapshot_members = members;
    }

    /// Lets go of entries up to `needed_from`, exclusive, and of older ones than the last `bytes_max` bytes before
    /// the snapshot. What the snapshot does not cover stays.
    pub(crate) fn compact(&mut self, needed_from: u64, bytes_max: u64) {
        let covered = self.snapshot.index.0.saturating_sub(self.base.index.0);
        let covered = usize::try_from(covered).expect("the log is in memory").min(self.entries.len());
        let mut drop = covered;
        let mut bytes = 0;
        while drop > 0 {
            let entry = &self.entries[drop - 1];
            bytes += entry.data.len() as u64 + entry.context.len() as u64;
            if entry.index < needed_from || bytes > bytes_max {
                break;
            }
            drop -= 1;
        }
        if let Some(last) = self.entries.drain(..drop).next_back() {
            self.base = EntryId { index: types::RaftIndex(last.index), term: types::Term(last.term) };
        }
    }

    /// The entries' place of an index; `None` for one that is not held.
    fn place(&self, index: u64) -> Option<usize> {
        let place = usize::try_from(index.checked_sub(self.base.index.0 + 1)?).ok()?;
        (place < self.entries.len()).then_some(place)
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState, Error> {
        let (hard_state, conf_state) = self.initial.clone();
        Ok(RaftState { hard_state, conf_state })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        bytes_max: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>, Error> {
        if low <= self.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last() + 1, "the engine knows where the log ends");
        let bytes_max = bytes_max.into().unwrap_or(u64::MAX);
        let mut bytes = 0_u64;
        let mut found = Vec::new();
        let from = self.place(low).unwrap_or(self.entries.len());
        let count = usize::try_from(high.saturating_sub(low)).expect("the log is in memory");
        for entry in self.entries.iter().skip(from).take(count) {
            bytes += entry.data.len() as u64 + entry.context.len() as u64;
            // One entry goes whatever its size.
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64, Error> {
        if index == self.base.index.0 {
            return Ok(self.base.term.0);
        }
        if index < self.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let place = self.place(index).ok_or(Error::Store(StorageError::Unavailable))?;
        Ok(self.entries[place].term)
    }

    fn first_index(&self) -> Result<u64, Error> {
        Ok(self.base.index.0 + 1)
    }

    fn last_index(&self) -> Result<u64, Error> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> Result<Snapshot, Error> {
        if self.snapshot.index.0 == 0 || self.snapshot.index.0 < request_index {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.snapshot.index.0;
        metadata.term = self.snapshot.term.0;
        metadata.set_conf_state(self.snapshot_members.clone());
        Ok(snapshot)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use types::{RaftIndex, Term};

    use super::*;

    fn entry(index: u64, term: u64, len: usize) -> Entry {
        Entry { index, term, data: vec![0; len].into(), ..Entry::default() }
    }

    fn log(last: u64) -> Log {
        let entries = (1..=last).map(|index| entry(index, 1, 10)).collect();
        Log::new(SnapshotMark::default(), ConfState::default(), entries, Default::default())
    }

    fn saved(log: &mut Log, index: u64) {
        log.snapshot_saved(SnapshotMark { index: RaftIndex(index), term: Term(1) }, ConfState::default());
    }

    fn held(log: &Log) -> (u64, u64) {
        (log.first_index().unwrap(), log.last_index().unwrap())
    }

    #[test]
    fn compaction_keeps_what_is_needed_and_what_no_snapshot_covers() {
        let mut log = log(10);
        log.compact(11, 1000);
        assert_eq!(held(&log), (1, 10), "there is no snapshot");
        saved(&mut log, 8);
        log.compact(4, 1000);
        assert_eq!(held(&log), (4, 10));
        assert_eq!(log.term(3).unwrap(), 1, "the entry before the first is remembered");
        assert!(log.term(2).is_err());
        log.compact(4, 25);
        assert_eq!(held(&log), (7, 10), "two of the covered entries have room");
        log.compact(100, 1000);
        assert_eq!(held(&log), (9, 10));
    }

    #[test]
    fn entries_are_cut_by_size_and_there_is_always_one() {
        let log = log(10);
        let read = |low, high, max| {
            log.entries(low, high, Some(max), GetEntriesContext::empty(false)).unwrap().len()
        };
        assert_eq!((read(1, 11, 35), read(1, 11, 3), read(4, 6, 1000), read(4, 4, 5)), (3, 1, 2, 0));
    }

    #[test]
    fn an_append_drops_what_it_overlaps() {
        let mut log = log(10);
        log.append(&[entry(5, 2, 1), entry(6, 2, 1)]);
        assert_eq!(held(&log), (1, 6));
        assert_eq!((log.term(4).unwrap(), log.term(5).unwrap()), (1, 2));
    }
}
