//! What the disk did, for metrics: counted by its threads, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets of sync durations: bucket `n` counts syncs that took less than `2^n` microseconds and
/// no bucket before it counts; the last one counts the rest.
pub const SYNC_BUCKETS: usize = 25;

#[derive(Debug, Default)]
pub(super) struct Counters {
    flushes: AtomicU64,
    flushed_jobs: AtomicU64,
    flushed_bytes: AtomicU64,
    write_calls: AtomicU64,
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS],
    reads: AtomicU64,
    read_bytes: AtomicU64,
    failures: AtomicU64,
}

/// The counters at one moment; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Times that waiting jobs were written and synced together.
    pub flushes: u64,
    /// Jobs among them.
    pub flushed_jobs: u64,
    /// Bytes written, zeroing included.
    pub written_bytes: u64,
    /// System calls that wrote them.
    pub write_calls: u64,
    /// Syncs of files and directories, failed ones included.
    pub syncs: u64,
    /// Time spent in them.
    pub sync_time: Duration,
    /// How long each took; see [`SYNC_BUCKETS`].
    pub sync_buckets: [u64; SYNC_BUCKETS],
    /// Reads.
    pub reads: u64,
    /// Bytes they gave.
    pub read_bytes: u64,
    /// Jobs that failed.
    pub failures: u64,
}

fn add(counter: &AtomicU64, amount: u64) {
    // Each counter stands alone, so no ordering between them is needed.
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn flushed(&self, jobs: usize) {
        add(&self.flushes, 1);
        add(&self.flushed_jobs, u64::try_from(jobs).unwrap_or(u64::MAX));
    }

    pub(super) fn wrote(&self, bytes: usize) {
        add(&self.write_calls, 1);
        add(&self.flushed_bytes, u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(super) fn synced(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bits = usize::try_from(u64::BITS - micros.leading_zeros()).unwrap_or(usize::MAX);
        add(&self.syncs, 1);
        add(&self.sync_micros, micros);
        add(&self.sync_buckets[bits.min(SYNC_BUCKETS - 1)], 1);
    }

    pub(super) fn read(&self, bytes: usize) {
        add(&self.reads, 1);
        add(&self.read_bytes, u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(super) fn failed(&self) {
        add(&self.failures, 1);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            flushes: get(&self.flushes),
            flushed_jobs: get(&self.flushed_jobs),
            written_bytes: get(&self.flushed_bytes),
            write_calls: get(&self.write_calls),
            syncs: get(&self.syncs),
            sync_time: Duration::from_micros(get(&self.sync_micros)),
            sync_buckets: std::array::from_fn(|at| get(&self.sync_buckets[at])),
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            failures: get(&self.failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_lands_in_the_bucket_that_bounds_it() {
        let counters = Counters::default();
        for (micros, bucket) in
            [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (1 << 40, 24)]
        {
            let before = counters.snapshot().sync_buckets[bucket];
            counters.synced(Duration::from_micros(micros));
            assert_eq!(counters.snapshot().sync_buckets[bucket], before + 1, "{micros} us");
        }
    }
}
