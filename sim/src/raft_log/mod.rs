//! The Raft log on a bad disk: random groups, appends, votes, conflicts, snapshots; power losses at any step,
//! failing disks, flipped bits; recover, compare with what was promised, go on.
//!
//! One run is one seed. What is checked after each start, for each group ([`model`] is the judge):
//! - nothing acknowledged is lost, no vote and no term forgotten, no entry invented, reordered or changed;
//! - a change is there whole or not at all, and only after all that came before it;
//! - a snapshot the log shows can be loaded and is the one that was saved;
//! - a group is called damaged only when a bit was flipped, and with a flipped bit nothing that a later flush
//!   testifies to is missing silently: it is there, or the group is called damaged;
//! - on a healthy disk every request is answered, and the log comes to rest and gives files back.

mod model;
mod workload;
mod world;

use rand::Rng;
use storage::raft_log::Planted;

use world::World;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bugs to put back.
    pub planted: Planted,
    /// Whether bits rot.
    pub rot: bool,
    /// Print every reply and notice to standard error, and keep the disk's steps for the failure.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { planted: Planted::default(), rot: true, verbose: false }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Starts of the log, those cut short included.
    pub cycles: u64,
    /// Requests answered.
    pub replies: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Groups found damaged.
    pub damaged: u64,
    /// Running digest of everything the disk did.
    pub digest: u64,
    pub(crate) violation: Option<String>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// What is wrong.
    pub violation: String,
    /// The disk's steps, when asked for.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(f, "raft log: seed {} breaks a promise: {}", self.seed, self.violation)
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    let mut rng = world::workload_rng(seed);
    let lives = rng.random_range(2..12);
    let lived = (0..lives).try_for_each(|_| world.live(&mut rng));
    match lived.and_then(|()| world.heal(&mut rng)) {
        Ok(()) => {
            let digest = world.digest();
            Ok(Summary { digest, ..world.summary })
        }
        Err(violation) => Err(Failure { seed, violation, trace: world.trace() }),
    }
}
