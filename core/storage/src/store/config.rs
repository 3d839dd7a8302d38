//! What an operator may set about a store.

use types::limits;

use crate::planted::Bug;

/// Limits and habits of one store. The defaults are those of [`types::limits`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Random, drawn by the driver for this process lifetime: copies draw their nonces from it.
    pub seed: u64,
    /// Log files open at one time; idle ones beyond it are closed, least recently used first.
    pub open_copies_max: usize,
    /// Bytes of recently appended batches kept in memory, over all copies.
    pub tail_cache_bytes: usize,
    /// Requests that may wait for one copy while it is busy with another.
    pub queue_max: usize,
    /// Least and most bytes of zeros written ahead of a growing log in one go; both 0 switches it off.
    pub preallocate_bytes: (u64, u64),
    /// A flush of at least this many bytes is not followed by zeros: they would cost it what growing does.
    pub preallocate_below_bytes: u64,
    /// Log files of removed copies kept for reuse.
    pub recycled_files_max: usize,
    /// Files below this size are not worth keeping.
    pub recycled_bytes_min: u64,
    /// Log files made of written zeros while the disk is idle, once some copy fills: no more are made while so many
    /// files, recycled ones included, are there. 0 switches it off.
    pub spare_files_max: usize,
    /// Bytes of such a file: what a segment is expected to fill.
    pub spare_bytes: u64,
    /// Bytes of it written in one go.
    pub spare_piece_bytes: u64,
    /// Bytes of each of the two journal files; 0 switches the journal off.
    pub journal_bytes: u64,
    /// Copies that must wait for a flush together before the journal is used for them.
    pub journal_copies_min: usize,
    /// A copy with more than this to write gets its own write and sync.
    pub journal_part_bytes_max: u64,
    #[cfg(feature = "planted")]
    /// A bug put back on purpose.
    pub bug: Option<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            open_copies_max: limits::OPEN_COPIES_DEFAULT,
            tail_cache_bytes: limits::TAIL_CACHE_BYTES_DEFAULT,
            queue_max: limits::COPY_QUEUE_MAX,
            preallocate_bytes: limits::PREALLOCATE_BYTES,
            preallocate_below_bytes: limits::PREALLOCATE_BELOW_BYTES,
            recycled_files_max: limits::RECYCLED_FILES_MAX,
            recycled_bytes_min: limits::SEGMENT_BYTES_DEFAULT / 2,
            spare_files_max: limits::SPARE_FILES_MAX,
            spare_bytes: limits::SEGMENT_BYTES_DEFAULT,
            spare_piece_bytes: limits::SPARE_PIECE_BYTES,
            journal_bytes: limits::JOURNAL_BYTES,
            journal_copies_min: limits::JOURNAL_COPIES_MIN,
            journal_part_bytes_max: limits::JOURNAL_PART_BYTES_MAX,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

impl Config {
    /// Whether this bug was put back.
    #[cfg(feature = "planted")]
    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// No bug can be put back in this build.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn has_bug(&self, _: Bug) -> bool {
        false
    }
}
