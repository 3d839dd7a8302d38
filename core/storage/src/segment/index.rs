//! The sparse index in memory: one entry for about every 4 KiB of log.

use types::limits::INDEX_INTERVAL_BYTES;
use types::{Offset, WallTime};

pub use crate::format::index::Entry;

/// Ascending entries; the first frame of the log is always one of them once it is known.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    entries: Vec<Entry>,
}

impl Sparse {
    /// An index of entries read from a file: a hint, like every other.
    #[must_use]
    pub fn from_entries(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes note of the frame that follows the last one noted.
    pub fn note(&mut self, entry: Entry) {
        let due = |last: &Entry| entry.position >= last.position.saturating_add(INDEX_INTERVAL_BYTES);
        if self.entries.last().is_none_or(due) {
            self.entries.push(entry);
        }
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
}
