//! Membership on a bad network: everybody knows in the end who lives, and nobody is fooled.
//!
//! One run is one seed: three to fifty nodes that find each other through a few seeds, while packets are lost, repeated,
//! overtaken and held up, links are cut in one direction or both, nodes stop, are killed, leave, come back elsewhere
//! with their clock set back, and somebody on the network forges packets and sends old ones again. Then everything
//! heals but those that stay dead, and all that live must agree within a bounded time.
//!
//! - [`judge`] holds what each process was told of each member: an incarnation never decreases (C-9), and none is used
//!   above the recorded ceiling or in two lives; what was forged or received before changes nothing; nobody is taken
//!   for a copy of itself; what is kept stays bounded.
//! - [`loss`] is a world of its own, without faults but loss: how often somebody who lives is declared dead, how soon a
//!   death is known, how much is sent. Figures, not promises, but for a bound.
//! - Not here: two nodes with one id (told in the crate's own tests), and sockets.

mod attacker;
mod heal;
mod judge;
pub mod loss;
mod network;
mod node;
mod weather;
mod world;

use membership::planted::Bug;

use self::world::World;
use crate::outcome;

pub use crate::outcome::Failure;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put in.
    pub bug: Option<Bug>,
    /// Print everything that happens to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Process lifetimes.
    pub lives: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Things a process was told of a member.
    pub changes: u64,
    /// Members declared dead that had a process at that time.
    pub wrong_deaths: u64,
    /// Processes that went on as a later incarnation.
    pub renewals: u64,
    /// Packets that were forged or sent again.
    pub attacks: u64,
    /// Longest time from the healing until all agreed, microseconds.
    pub healing: u64,
    /// Virtual time, microseconds.
    pub micros: u64,
    /// Running digest of everything that happened.
    pub trace: u64,
}

impl Summary {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.packets += other.packets;
        self.changes += other.changes;
        self.wrong_deaths += other.wrong_deaths;
        self.renewals += other.renewals;
        self.attacks += other.attacks;
        self.healing = self.healing.max(other.healing);
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    match outcome::attempt(&mut world, |world| world.live().and_then(|()| world.heal())) {
        Ok(()) => Ok(world.summary()),
        Err(violation) => Err(Failure { world: "membership", seed, micros: world.now, violation }),
    }
}
