//! The simulated disk: as fast as memory, as bad as the contract of [`storage::disk::Disk`] allows.
//!
//! Everything is drawn from one seed, in two streams: the schedule (which job runs next, which share a sync,
//! how long a step takes) and the faults (what fails, what a power loss leaves), so that another workload
//! meets the same faults. Every random choice that a real disk could make is made here on purpose, and one
//! run says nothing: a check over many seeds does.
//!
//! ```text
//! submit ─▶ queue ─ one step at a time ─▶ cache (view) ─ sync ─▶ platter
//!                                            │ crash: each unsynced change kept, torn or lost
//!                                            ▼
//!                                        cache := platter
//! ```
//!
//! Owns: the model of cache and platter, the schedule, the faults, and what oracles may look at. It does not
//! know time: a step says how long it took, and whoever drives the disk decides when the next one runs.
//! A driver without time uses the trait alone: `wait` runs steps until a job completes.
//!
//! - `crash` is a power loss, `kill` the end of the process only: the cache survives, so a restarted process
//!   sees bytes and names that a later power loss still takes away.
//! - Nothing outstanding outlives either; a random part of it took effect first.

mod damage;
mod faults;
mod file;
mod inspect;
mod machine;
mod names;
mod queue;
mod trace;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::{Completion, Disk, Job};

pub use damage::Flip;
pub use faults::{Chance, Class, Faults, Injection, Lies, NameLoss};
pub use inspect::Found;
pub use machine::{Counts, NODE_BYTES};
pub use names::Side;

use machine::Machine;
use queue::Queue;

/// A volume with one data directory, and the process that has it open.
///
/// A clone is an independent copy that goes on exactly as the original would: with it a test can cut one
/// run at each of its steps.
#[derive(Clone, Debug)]
pub struct SimDisk {
    machine: Machine,
    queue: Queue,
    schedule: SmallRng,
}

impl SimDisk {
    /// An empty volume. The same seed, faults and calls give the same run.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        // Any constant does, as long as the two streams differ.
        let fault_rng = SmallRng::seed_from_u64(seed ^ 0x6661_756c_7473_0000);
        Self {
            machine: Machine::new(fault_rng, faults),
            queue: Queue::default(),
            schedule: SmallRng::seed_from_u64(seed),
        }
    }

    /// Runs one step of one outstanding job and says how long it took; `None` when there is none to run.
    ///
    /// Completions it causes wait in [`Self::ready`].
    pub fn step(&mut self) -> Option<Duration> {
        let before = self.machine.counts;
        if !self.queue.step(&mut self.schedule, &mut self.machine) {
            return None;
        }
        let now = self.machine.counts;
        let synced = now.syncs + now.dir_syncs > before.syncs + before.dir_syncs;
        let micros = if synced { 60..400 } else { 2..20 };
        let slow_max = u64::try_from(self.machine.faults.slow_max.as_micros()).unwrap_or(u64::MAX);
        let slow = self.machine.faults.slow.strikes(&mut self.schedule);
        Some(Duration::from_micros(if slow {
            self.schedule.random_range(0..=slow_max)
        } else {
            self.schedule.random_range(micros)
        }))
    }

    /// A completion that waits to be taken. Runs nothing.
    pub fn ready(&mut self) -> Option<Completion> {
        self.queue.ready()
    }

    /// Jobs submitted whose completion nobody has taken yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// The power goes, at any moment of what is outstanding; then it is back, and nothing is open.
    ///
    /// Injections, a full or a read-only volume, and lies stay: they are the device's.
    pub fn crash(&mut self) {
        self.cut();
        self.machine.lose_power();
        self.machine.counts.crashes += 1;
        self.note("power loss");
    }

    /// The process ends at any moment of what is outstanding; the cache stays as it is.
    pub fn kill(&mut self) {
        self.cut();
        self.machine.kill();
        self.machine.counts.kills += 1;
        self.note("process end");
    }

    /// Runs a random part of what is outstanding and drops the rest.
    fn cut(&mut self) {
        // A submitted job may run to its end though nobody will ever hear of it.
        while self.machine.rng.random_bool(0.75) && self.step().is_some() {}
        self.queue = Queue::default();
    }

    fn note(&mut self, what: &str) {
        self.machine.trace.add_bytes(what.as_bytes());
        self.machine.trace.line(|| what.to_owned());
    }

    /// The faults, to be changed while the disk runs.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.machine.faults
    }

    /// The lies, to be changed while the disk runs.
    pub fn lies_mut(&mut self) -> &mut Lies {
        &mut self.machine.lies
    }

    /// Orders a fault for a certain step.
    pub fn inject(&mut self, injection: Injection) {
        self.machine.injections.push(injection);
    }

    /// Takes back every ordered fault.
    pub fn clear_injections(&mut self) {
        self.machine.injections.clear();
    }

    /// Makes the volume read-only (`EROFS`), or writable again.
    ///
    /// Files still open for reading; whatever changes something fails.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.machine.read_only = read_only;
    }
}

impl Disk for SimDisk {
    fn submit(&mut self, job: Job) {
        self.queue.submit(job);
    }

    fn wait(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.queue.ready() {
                return Some(completion);
            }
            self.step()?;
        }
    }
}
