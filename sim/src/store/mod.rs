//! The segment store on a bad disk: random operations, random faults, crash, recover, crash again.
//!
//! One run is one seed: a few copies on one simulated volume live through many process lives. Every reply is
//! judged against a [`model`] that knows only what was asked and answered; after each crash everything is read
//! back. Each invariant is a file of its own in [`crate::invariants`].
//!
//! What the model permits, and why it is no loophole:
//! - an append without an answer may or may not be there afterwards, but only as the continuation of what is;
//! - a copy on which a fault was ordered (or any copy, when the volume itself is full or failing) may refuse;
//! - a flipped bit must be noticed, except in frames no later evidence speaks of: the last flush of a copy that
//!   crashed within a second of it (see `storage::recovery`). The model works out from the answers alone which
//!   those are.

mod audit;
mod faults;
mod model;
pub mod single;
mod trace;
mod workload;
mod world;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::planted::Bug;

pub use trace::Failure;

use self::world::World;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back.
    pub bug: Option<Bug>,
    /// Print every operation, reply and fault to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Crash-recover cycles.
    pub cycles: u64,
    /// Requests answered.
    pub replies: u64,
    /// Batches read back and compared.
    pub batches_checked: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Running digest of every disk step and every reply.
    pub trace: u64,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    let mut rng = SmallRng::seed_from_u64(seed.rotate_left(17) ^ 0x776f_726b);
    let lives = rng.random_range(3..16);
    let outcome = (0..lives).try_for_each(|_| world.live(&mut rng));
    match outcome.and_then(|()| world.heal(&mut rng)) {
        Ok(()) => Ok(world.summary()),
        Err(violation) => Err(world.failure(seed, violation)),
    }
}
