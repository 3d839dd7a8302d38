//! One node whose records expire, whose leftovers are swept and whose copies rot, while processes end anywhere.
//!
//! One run is one seed. Requests go straight to the node, because what is judged here is not what clients are told:
//! every job for the disk, and every change of the tables, is held against what may be deleted, when, and why
//! ([`judge`]). Topics have policies that come and go, the wall clock steps, disks fail, and power is lost. After some
//! process lifetimes the faults stop; then everything that has to go is gone, everything that rotted is found, and
//! nothing else is missing.
//!
//! - A reader of each topic goes on from where it was: what it is moved over was gone, and is counted, once.
//! - Not here: ranges that split (the broker's world), copies on other nodes.

mod judge;
mod rules;
mod workload;
mod world;

use broker::planted::Bug;

use self::world::World;
use crate::outcome;

pub use crate::outcome::Failure;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put in.
    pub bug: Option<Bug>,
    /// Print every notice and fault to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Process lifetimes.
    pub lives: u64,
    /// Segments that expired.
    pub expired: u64,
    /// Copies that a sweep removed.
    pub orphans: u64,
    /// Offsets readers were moved over.
    pub skipped: u64,
    /// Copies verified.
    pub verified: u64,
    /// Copies that rotted and were found.
    pub found: u64,
    /// Records read.
    pub read: u64,
    /// Virtual time, microseconds.
    pub micros: u64,
    /// Running digest of every disk step.
    pub trace: u64,
}

impl Summary {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.expired += other.expired;
        self.orphans += other.orphans;
        self.skipped += other.skipped;
        self.verified += other.verified;
        self.found += other.found;
        self.read += other.read;
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    match outcome::attempt(&mut world, |world| world.live().and_then(|()| world.heal())) {
        Ok(()) => Ok(world.summary()),
        Err(violation) => Err(Failure { world: "upkeep", seed, micros: world.now, violation }),
    }
}
