//! The real disk: one storage thread for each data directory, and a few readers beside it.
//!
//! The storage thread takes everything that waits. Consecutive jobs that write and then sync share their
//! syncs (see [`flush`]); nothing is ever delayed to gather more, because the sync that runs *is* the time in
//! which the next jobs gather. Other jobs that reach nothing in common run side by side (see [`abreast`]), the
//! rest alone, in order. Jobs that only read go to the readers.
//!
//! Owns: the threads, the open files, the lock of the data directory, the translation of the operating
//! system's errors. Decides nothing: what to write where is the store's business, and how much may wait is
//! the submitter's, whose own limits bound the queue.
//!
//! - Every path is opened relative to the data directory's descriptor, one name at a time, never through a
//!   symbolic link.
//! - A completion is handed over after everything its job did is in place, from the thread that did it; what
//!   receives it must not block for long, because the next sync waits for it.
//! - A file whose write or sync failed is poisoned and its cached pages are dropped, so that opening it again
//!   shows the device's bytes and not the cache's (Linux marks pages that failed to reach the device clean).

mod abreast;
mod channel;
mod counters;
mod failure;
mod file;
mod flush;
mod queue;
mod root;
mod syncers;
#[cfg(test)]
mod tests;
mod volume;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use storage::disk::{Completion, Job, Step};

pub use channel::ChannelDisk;
pub use counters::{SYNC_BUCKETS, Snapshot};

use queue::Queue;
use volume::{Shared, Volume};

/// How a disk is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that read beside the storage thread; at least 1.
    pub readers: usize,
    /// Threads that help the storage thread when one flush syncs several files; they sleep otherwise.
    pub sync_helpers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, sync_helpers: 15 }
    }
}

/// What receives completions, on the disk's own threads.
type Complete = Arc<dyn Fn(Completion) + Send + Sync>;

/// One data directory, open and locked.
///
/// Dropping it runs what was submitted, hands over the completions, and unlocks the directory.
#[derive(Debug)]
pub struct RealDisk {
    jobs: Arc<Queue>,
    reads: Arc<Queue>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl RealDisk {
    /// Opens a data directory, making it if it is missing, and locks it against other processes.
    ///
    /// # Errors
    /// Fails, naming the path, when something on the way is no directory, permissions do not allow it, the
    /// volume is read-only, or another process holds the lock.
    pub fn open(
        root: &Path,
        options: &Options,
        complete: impl Fn(Completion) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(root::open(root)?));
        let complete: Complete = Arc::new(complete);
        let (jobs, reads) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
        let mut disk = Self { jobs, reads, shared, threads: Vec::new() };
        disk.spawn_storage(options.sync_helpers, complete.clone())?;
        for number in 0..options.readers.max(1) {
            disk.spawn_reader(number, complete.clone())?;
        }
        Ok(disk)
    }

    /// Takes a job; its completion follows on another thread, perhaps before this returns. Never blocks on
    /// the disk.
    pub fn submit(&self, job: Job) {
        assert!(!job.steps.is_empty(), "a job has at least one step");
        let queue = if job.steps.iter().all(Step::is_reading) { &self.reads } else { &self.jobs };
        queue.push(job);
    }

    /// Takes jobs in order, as [`submit`](Self::submit) does each. Those that can share their syncs do: the
    /// storage thread does not begin with the first before it has seen the last.
    pub fn submit_all(&self, jobs: impl IntoIterator<Item = Job>) {
        let (mut reads, mut others) = (Vec::new(), Vec::new());
        for job in jobs {
            assert!(!job.steps.is_empty(), "a job has at least one step");
            if job.steps.iter().all(Step::is_reading) { reads.push(job) } else { others.push(job) }
        }
        self.jobs.push_all(others);
        self.reads.push_all(reads);
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.shared.counters.snapshot()
    }

    fn spawn_storage(&mut self, helpers: usize, complete: Complete) -> io::Result<()> {
        let jobs = self.jobs.clone();
        let mut volume = Volume::new(self.shared.clone());
        let syncers = volume.syncers.clone();
        self.spawn("storage".to_owned(), move || {
            let mut waiting = std::collections::VecDeque::new();
            while jobs.take_all(&mut waiting) {
                flush::run_next(&mut volume, &mut waiting, &*complete);
            }
            volume.syncers.stop();
        })?;
        // After the storage thread, which ends them too when one of them cannot be started.
        for number in 0..helpers {
            let (syncers, shared) = (syncers.clone(), self.shared.clone());
            self.spawn(format!("sync-{number}"), move || syncers.help(&shared.counters))?;
        }
        Ok(())
    }

    fn spawn_reader(&mut self, number: usize, complete: Complete) -> io::Result<()> {
        let (reads, shared) = (self.reads.clone(), self.shared.clone());
        self.spawn(format!("reader-{number}"), move || {
            while let Some(job) = reads.take_one() {
                complete(volume::read_job(&shared, &job));
            }
        })
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let work = move || {
            let _guard = AbortOnPanic;
            work();
        };
        self.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        self.jobs.stop();
        self.reads.stop();
        for thread in self.threads.drain(..) {
            // A panic on these threads ends the process, so there is none to report here.
            let _ = thread.join();
        }
    }
}

/// Ends the process when a disk thread panics: jobs that nobody will ever complete would leave a node that
/// looks alive and acknowledges nothing.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
