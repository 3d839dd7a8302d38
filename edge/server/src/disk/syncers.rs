//! Syncs many files and directories at once.
//!
//! A sync is mostly waiting for the device, and the device answers several together: file systems and block
//! layers merge cache flushes that wait. So the storage thread shares out the files of a flush among a few
//! helpers and itself, and goes on when the last is done.
//!
//! - One batch at a time: only the storage thread calls [`Syncers::sync_all`].
//! - A batch of one wakes nobody.
//! - Without helper threads everything still works: the caller does it all.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use storage::disk::{Dir, Name};

use super::counters::Counters;
use super::failure::Failure;
use super::file::OpenFile;

/// What one sync gave.
pub(super) type Synced = Result<(), Failure>;

/// What is to be synced.
#[derive(Debug)]
pub(super) enum Target {
    /// Its contents and length. Poisoned when that fails.
    File(Arc<OpenFile>),
    /// The names in it. What a failure means for it is the caller's.
    Dir(Arc<OwnedFd>, Dir),
}

impl Target {
    /// Syncs it; a failure of a directory is returned as the system call gave it.
    fn sync(&self, counters: &Counters) -> Synced {
        match self {
            Self::File(file) => file.sync(counters).inspect_err(|_| file.poison()),
            Self::Dir(fd, name) => sync_dir(fd, name.as_ref().map_or(".", Name::as_str), counters),
        }
    }
}

/// Makes the names in a directory durable; `shown` names it for people.
pub(super) fn sync_dir(fd: impl AsFd, shown: &str, counters: &Counters) -> Synced {
    let started = std::time::Instant::now();
    let result = rustix::fs::fsync(fd);
    counters.synced(started.elapsed());
    result.map_err(|errno| Failure::from_errno(format_args!("sync of {shown}"), errno))
}

#[derive(Debug, Default)]
struct State {
    /// What is not yet taken, with its place in the batch.
    waiting: Vec<(usize, Target)>,
    results: Vec<Option<Synced>>,
    left: usize,
    /// Helpers that wait for work.
    idle: usize,
    stopped: bool,
}

/// Shared by the storage thread and its helpers.
#[derive(Debug, Default)]
pub(super) struct Syncers {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

impl Syncers {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs each target; results in the order of the targets.
    pub(super) fn sync_all(&self, targets: Vec<Target>, counters: &Counters) -> Vec<Synced> {
        if let [target] = &targets[..] {
            return vec![target.sync(counters)];
        }
        let count = targets.len();
        let mut state = self.lock();
        state.left = count;
        state.results = vec![None; count];
        state.waiting = targets.into_iter().enumerate().collect();
        // One of them is the caller's own.
        for _ in 0..state.idle.min(count.saturating_sub(1)) {
            self.work.notify_one();
        }
        state = self.work_off(state, counters);
        let mut state =
            self.done.wait_while(state, |state| state.left > 0).unwrap_or_else(PoisonError::into_inner);
        let results = std::mem::take(&mut state.results);
        results.into_iter().map(|result| result.expect("nothing is left, so each has its result")).collect()
    }

    /// A helper's life: ends after [`stop`](Self::stop).
    pub(super) fn help(&self, counters: &Counters) {
        let mut state = self.lock();
        loop {
            state.idle += 1;
            state = self
                .work
                .wait_while(state, |state| state.waiting.is_empty() && !state.stopped)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if state.stopped {
                return;
            }
            state = self.work_off(state, counters);
        }
    }

    /// Ends the helpers. Only when no batch is under way.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.work.notify_all();
    }

    /// Syncs what waits, one after the other, until all are taken.
    fn work_off<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        counters: &Counters,
    ) -> MutexGuard<'a, State> {
        while let Some((place, target)) = state.waiting.pop() {
            drop(state);
            let result = target.sync(counters);
            state = self.lock();
            state.results[place] = Some(result);
            state.left -= 1;
            if state.left == 0 {
                self.done.notify_one();
            }
        }
        state
    }
}
