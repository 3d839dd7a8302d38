//! Jobs on their way to a thread.
//!
//! Not bounded here: the submitter's limits on requests in flight bound it, and a queue that blocked would
//! stop the thread that decides everything.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use storage::disk::Job;

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    stopped: bool,
}

/// A queue of jobs; once stopped it still gives what it holds.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Adds jobs that are taken together: nobody sees some of them before the others.
    pub(super) fn push_all(&self, jobs: Vec<Job>) {
        let count = jobs.len();
        self.lock().jobs.extend(jobs);
        match count {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
    }

    /// Lets the threads end once the queue is empty.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn wait(&self) -> MutexGuard<'_, State> {
        let state = self.lock();
        self.changed
            .wait_while(state, |state| state.jobs.is_empty() && !state.stopped)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, waiting for one; `None` once stopped and empty.
    pub(super) fn take_one(&self) -> Option<Job> {
        self.wait().jobs.pop_front()
    }

    /// Adds all that waits to `taken`, waiting only when `taken` is empty; false when there is nothing left
    /// and nothing will come.
    pub(super) fn take_all(&self, taken: &mut VecDeque<Job>) -> bool {
        let mut state = if taken.is_empty() { self.wait() } else { self.lock() };
        taken.append(&mut state.jobs);
        !taken.is_empty()
    }
}
