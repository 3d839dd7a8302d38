//! One group's state in memory: what the log would say after everything accepted so far.
//!
//! Decides whether a change is possible, before a byte of it is written. Does not know positions in files
//! beyond "which file holds this entry", which decides when a file may go.

use std::collections::VecDeque;

use bytes::Bytes;
use types::{RaftIndex, Term, VnodeId};

use super::request::{Append, Entry, Error, GroupView, HardState, SnapshotMark, Status};
use crate::format::raft_log::{MARK_GROUP, Update};

/// Stands for the file of a record that is not written yet.
const UNWRITTEN: u64 = u64::MAX;
/// Memory an entry takes beside its data, roughly.
const ENTRY_OVERHEAD_BYTES: usize = 48;

/// One entry after the snapshot.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) term: Term,
    pub(super) data: Bytes,
    /// Log file of the record that carries it.
    pub(super) file: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    hard: HardState,
    snapshot: SnapshotMark,
    /// From the entry after the snapshot.
    entries: VecDeque<Stored>,
    bytes: usize,
    /// Log file of the group's latest record, which carries everything but the entries.
    latest_file: u64,
    /// Serial of its latest record among its own.
    pub(super) serial: u64,
    pub(super) status: Status,
}

impl Group {
    /// A group nothing is stored of; `serial` continues an earlier life of the same number.
    pub(super) fn new(serial: u64) -> Self {
        Self {
            hard: HardState::default(),
            snapshot: SnapshotMark::default(),
            entries: VecDeque::new(),
            bytes: 0,
            latest_file: UNWRITTEN,
            serial,
            status: Status::Intact,
        }
    }

    /// A group as recovery found it.
    pub(super) fn recovered(
        hard: HardState,
        snapshot: SnapshotMark,
        entries: VecDeque<Stored>,
        latest_file: u64,
        serial: u64,
    ) -> Self {
        let bytes = entries.iter().map(|stored| stored.data.len() + ENTRY_OVERHEAD_BYTES).sum();
        let status = Status::Intact;
        Self { hard, snapshot, entries, bytes, latest_file, serial, status }
    }

    pub(super) fn view(&self) -> GroupView {
        GroupView {
            status: self.status,
            hard_state: self.hard,
            snapshot: self.snapshot,
            last: self.last(),
            bytes: self.bytes,
        }
    }

    pub(super) fn snapshot(&self) -> SnapshotMark {
        self.snapshot
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.bytes
    }

    fn last(&self) -> SnapshotMark {
        match self.entries.back() {
            None => self.snapshot,
            Some(stored) => SnapshotMark { index: self.index_at(self.entries.len() - 1), term: stored.term },
        }
    }

    fn index_at(&self, at: usize) -> RaftIndex {
        RaftIndex(self.snapshot.index.0 + 1 + at as u64)
    }

    /// Place of an index in `entries`; `None` for what the snapshot covers and for what lies past the end.
    fn place_of(&self, index: RaftIndex) -> Option<usize> {
        let place = usize::try_from(index.0.checked_sub(self.snapshot.index.0 + 1)?).ok()?;
        (place < self.entries.len()).then_some(place)
    }

    pub(super) fn term_at(&self, index: RaftIndex) -> Option<Term> {
        if index == self.snapshot.index {
            return Some(self.snapshot.term);
        }
        self.place_of(index).map(|place| self.entries[place].term)
    }

    /// Entries from `from` up to but not including `end`; `None` when the snapshot covers `from`.
    pub(super) fn entries(&self, from: RaftIndex, end: RaftIndex) -> Option<Vec<Entry>> {
        let skip = usize::try_from(from.0.checked_sub(self.snapshot.index.0 + 1)?).ok()?;
        let count = usize::try_from(end.0.saturating_sub(from.0)).unwrap_or(usize::MAX);
        let entry = |(place, stored): (usize, &Stored)| Entry {
            index: self.index_at(place),
            term: stored.term,
            data: stored.data.clone(),
        };
        Some(self.entries.iter().enumerate().skip(skip).take(count).map(entry).collect())
    }

    /// Takes a change, or says why it cannot be; then nothing changed.
    pub(super) fn append(&mut self, append: Append) -> Result<Update, Error> {
        let hard = self.check_hard_state(append.hard_state)?;
        let kept = self.check_entries(&append, hard)?;
        self.drop_from(RaftIndex(kept.0 + 1));
        self.hard = hard;
        let first = append.entries.first().map_or(RaftIndex::ZERO, |entry| entry.index);
        let entries: Vec<_> = append.entries.into_iter().map(|entry| (entry.term, entry.data)).collect();
        for (term, data) in &entries {
            self.bytes += data.len() + ENTRY_OVERHEAD_BYTES;
            self.entries.push_back(Stored { term: *term, data: data.clone(), file: UNWRITTEN });
        }
        Ok(self.update(first, entries))
    }

    fn check_hard_state(&self, new: Option<HardState>) -> Result<HardState, Error> {
        let Some(new) = new else { return Ok(self.hard) };
        if new.term < self.hard.term {
            return Err(Error::Impossible("the term goes backwards"));
        }
        let vote_changes = self.hard.voted_for.is_some() && new.voted_for != self.hard.voted_for;
        if new.term == self.hard.term && vote_changes {
            return Err(Error::Impossible("the vote changes within a term"));
        }
        Ok(HardState { commit: new.commit.max(self.hard.commit), ..new })
    }

    /// The last index that stays.
    fn check_entries(&self, append: &Append, hard: HardState) -> Result<RaftIndex, Error> {
        let last = self.last().index;
        let mut kept = match append.truncate_from {
            None => last,
            Some(from) if from.0 == 0 || from.0 > last.0 + 1 => {
                return Err(Error::Impossible("the truncation starts past the log"));
            }
            Some(from) => RaftIndex(from.0 - 1),
        };
        if let Some(first) = append.entries.first() {
            if first.index.0 == 0 || first.index.0 > kept.0 + 1 {
                return Err(Error::Impossible("the entries leave a gap"));
            }
            kept = RaftIndex(first.index.0 - 1);
        }
        if kept < last && kept < self.hard.commit {
            return Err(Error::Impossible("a committed entry would go"));
        }
        let mut before = SnapshotMark { index: kept, term: self.term_at(kept).unwrap_or_default() };
        for entry in &append.entries {
            if entry.index != before.index.next() || entry.term < before.term {
                return Err(Error::Impossible("the entries are not in order"));
            }
            before = SnapshotMark { index: entry.index, term: entry.term };
        }
        if before.term > hard.term && before.index > self.snapshot.index {
            return Err(Error::Impossible("an entry of a term not seen yet"));
        }
        if hard.commit > before.index {
            return Err(Error::Impossible("the commit index is past the log"));
        }
        Ok(kept)
    }

    fn drop_from(&mut self, index: RaftIndex) {
        let keep = index.0.saturating_sub(self.snapshot.index.0 + 1);
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).min(self.entries.len());
        for stored in self.entries.drain(keep..) {
            self.bytes -= stored.data.len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    /// Whether a snapshot may be saved.
    pub(super) fn check_snapshot(&self, mark: SnapshotMark) -> Result<(), Error> {
        if mark.index <= self.snapshot.index {
            return Err(Error::Stale);
        }
        // A snapshot of what is committed agrees with the entries; one that replaces the log need not.
        let differs = self.term_at(mark.index).is_some_and(|term| term != mark.term);
        if mark.index <= self.hard.commit && differs {
            return Err(Error::Impossible("the snapshot's term is not its entry's"));
        }
        Ok(())
    }

    /// Records a snapshot that is durable. Entries past it stay if they follow from it.
    pub(super) fn take_snapshot(&mut self, mark: SnapshotMark) -> Update {
        if self.term_at(mark.index) == Some(mark.term) {
            let covered = self.place_of(mark.index).map_or(0, |place| place + 1);
            for stored in self.entries.drain(..covered) {
                self.bytes -= stored.data.len() + ENTRY_OVERHEAD_BYTES;
            }
        } else {
            self.entries.clear();
            self.bytes = 0;
        }
        self.snapshot = mark;
        self.hard.commit = self.hard.commit.max(mark.index);
        if mark.term > self.hard.term {
            self.hard.term = mark.term;
            self.hard.voted_for = None;
        }
        self.update(RaftIndex::ZERO, Vec::new())
    }

    /// The group's whole live state as one record, so that older ones are not needed any more.
    pub(super) fn rewrite(&mut self) -> Update {
        self.entries.iter_mut().for_each(|stored| stored.file = UNWRITTEN);
        let entries: Vec<_> = self.entries.iter().map(|stored| (stored.term, stored.data.clone())).collect();
        let first = if entries.is_empty() { RaftIndex::ZERO } else { self.index_at(0) };
        self.update(first, entries)
    }

    fn update(&self, first: RaftIndex, entries: Vec<(Term, Bytes)>) -> Update {
        Update {
            term: self.hard.term,
            voted_for: self.hard.voted_for,
            commit: self.hard.commit,
            snapshot_index: self.snapshot.index,
            snapshot_term: self.snapshot.term,
            last: self.last().index,
            first,
            entries,
        }
    }

    /// Everything accepted so far goes to `file`.
    pub(super) fn written_to(&mut self, file: u64) {
        self.latest_file = file;
        let unwritten = self.entries.iter_mut().rev().take_while(|stored| stored.file == UNWRITTEN);
        unwritten.for_each(|stored| stored.file = file);
    }

    /// The oldest log file the group needs. Later entries lie in the same or later files, because whatever
    /// replaces an entry also replaces all that follow it.
    pub(super) fn oldest_file(&self) -> u64 {
        self.entries.front().map_or(self.latest_file, |stored| stored.file.min(self.latest_file))
    }
}

/// Whether a group may have this number.
pub(super) fn check_number(group: VnodeId) -> Result<(), Error> {
    if group == MARK_GROUP { Err(Error::Impossible("the number is reserved")) } else { Ok(()) }
}
