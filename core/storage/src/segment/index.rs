//! The sparse index in memory: one entry for about every 4 KiB of log, fewer of a long one, so that no copy keeps
//! more than a few kilobytes.

use types::limits::{INDEX_ENTRIES_MAX, INDEX_INTERVAL_BYTES};
use types::{Offset, WallTime};

pub use crate::format::index::Entry;

/// Ascending entries; the first frame of the log is always one of them once it is known.
#[derive(Clone, Debug)]
pub struct Sparse {
    entries: Vec<Entry>,
    /// Least distance of two entries, bytes of log.
    interval: u64,
}

impl Default for Sparse {
    fn default() -> Self {
        Self { entries: Vec::new(), interval: INDEX_INTERVAL_BYTES }
    }
}

impl Sparse {
    /// An index of entries read from a file: a hint, like every other.
    #[must_use]
    pub fn from_entries(entries: Vec<Entry>) -> Self {
        let mut index = Self { entries, ..Self::default() };
        while index.entries.len() > INDEX_ENTRIES_MAX {
            index.thin();
        }
        index.entries.shrink_to_fit();
        index
    }

    /// About how far an entry is from the next, bytes of log.
    #[must_use]
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes note of the frame that follows the last one noted.
    pub fn note(&mut self, entry: Entry) {
        let due = |last: &Entry| entry.position >= last.position.saturating_add(self.interval);
        if self.entries.last().is_none_or(due) {
            if self.entries.len() >= INDEX_ENTRIES_MAX {
                self.thin();
            }
            self.entries.push(entry);
        }
    }

    /// Gives back the room for entries to come.
    pub fn rest(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Drops every second entry; the first stays.
    fn thin(&mut self) {
        let mut even = false;
        self.entries.retain(|_| {
            even = !even;
            even
        });
        self.interval = self.interval.saturating_mul(2);
    }

    /// Forgets frames at or past `position`.
    pub fn truncate(&mut self, position: u64) {
        let keep = self.entries.partition_point(|entry| entry.position < position);
        self.entries.truncate(keep);
    }

    /// The last entry at or below `offset`.
    #[must_use]
    pub fn floor(&self, offset: Offset) -> Option<Entry> {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        after.checked_sub(1).map(|at| self.entries[at])
    }

    /// The last entry appended before `time`: no earlier frame can have been appended at or after it.
    #[must_use]
    pub fn before(&self, time: WallTime) -> Option<Entry> {
        let after = self.entries.partition_point(|entry| entry.time < time);
        after.checked_sub(1).map(|at| self.entries[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_give_the_nearest_entry_below() {
        let mut index = Sparse::default();
        assert_eq!(index.floor(Offset(0)), None);
        for i in 0..100u64 {
            index.note(Entry { offset: Offset(i), time: WallTime(1000 + i / 10), position: i * 1000 });
        }
        assert_eq!(index.entries().len(), 20, "an entry for each 5,000 bytes: the first at or past 4,096");
        assert_eq!(index.floor(Offset(7)).map(|e| e.offset), Some(Offset(5)));
        assert_eq!(index.before(WallTime(1001)).map(|e| e.offset), Some(Offset(5)));
        assert_eq!(index.before(WallTime(1000)), None);
        index.truncate(5000);
        assert_eq!(index.entries().len(), 1);
    }

    #[test]
    fn a_long_log_has_no_more_entries_than_allowed_and_each_still_leads_there() {
        let mut index = Sparse::default();
        let entry = |i: u64| Entry { offset: Offset(i), time: WallTime(i), position: i * 4096 };
        for i in 0..20_000u64 {
            index.note(entry(i));
            assert!(index.entries().len() <= INDEX_ENTRIES_MAX);
        }
        assert!(index.entries().len() > INDEX_ENTRIES_MAX / 4);
        assert_eq!(index.entries()[0], entry(0));
        for wanted in [0, 1, 5000, 19_999] {
            let found = index.floor(Offset(wanted)).unwrap();
            assert_eq!(found, entry(found.offset.0));
            let distance = wanted * 4096 - found.position;
            assert!(distance < 2 * index.interval(), "{distance} bytes to {wanted}");
        }
        let read = Sparse::from_entries((0..20_000).map(entry).collect());
        assert!(read.entries().len() <= INDEX_ENTRIES_MAX && read.interval() > INDEX_INTERVAL_BYTES);
    }
}
