//! What a store holds and is busy with, at one moment: numbers for an operator, which decide nothing.

use super::copy::Copy;
use super::{State, Status, Store};

/// What a store holds and is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Copies, whatever became of them.
    pub copies: usize,
    /// Copies that take appends, as far as is known without opening them.
    pub active: usize,
    /// Copies on which a write failed in this process lifetime.
    pub stopped: usize,
    /// Copies out of service, durably.
    pub latched: usize,
    /// Copies whose `copy.meta` could not be read, now or for good.
    pub unreadable: usize,
    /// Log files open.
    pub open_files: usize,
    /// Copies with appends that have not been sent to the disk.
    pub dirty: usize,
    /// Bytes of batches kept in memory because they were appended lately.
    pub tail_cache_bytes: usize,
    /// Bytes of batches in memory because their log's file lacks them.
    pub held_bytes: u64,
    /// Appends that have not been answered.
    pub unanswered: usize,
    /// Requests that wait for the copy they are about.
    pub queued: usize,
    /// Reads under way.
    pub reads: usize,
    /// Bytes written to the present use of the journal.
    pub journal_bytes: u64,
    /// Copies whose own files lack frames that the journal holds, counted for each of its two files.
    pub journal_copies: usize,
    /// Whether the journal can be used, or will be made when it pays.
    pub journal_usable: bool,
    /// Files of removed copies, free for reuse.
    pub recycled_files: usize,
    /// Files of zeros, free for use.
    pub spare_files: usize,
}

impl Store {
    /// What the store holds and is busy with; costs nothing but a walk over the copies.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let desk = &self.desk;
        let mut gauges = Gauges {
            copies: self.copies.len(),
            open_files: desk.open_files(),
            dirty: desk.dirty.len(),
            tail_cache_bytes: desk.cached_bytes(),
            journal_bytes: desk.journal.bytes(),
            journal_copies: desk.journal.copies(),
            journal_usable: desk.journal.is_usable(),
            recycled_files: desk.recycled.len(),
            spare_files: desk.spares.ready.len(),
            ..Gauges::default()
        };
        self.copies.values().for_each(|copy| gauges.add(copy));
        gauges
    }
}

impl Gauges {
    fn add(&mut self, copy: &Copy) {
        match copy.status() {
            Status::Here(extent) => match extent.state {
                State::Active => self.active += 1,
                State::Sealed => {}
                State::Stopped(_) => self.stopped += 1,
                State::Latched(_) => self.latched += 1,
            },
            Status::Unread | Status::Unreadable => self.unreadable += 1,
            Status::Creating | Status::Deleting => {}
        }
        copy.count(self);
    }
}
