//! Every Raft group of several nodes, each node with one log on a bad disk.
//!
//! One run is one seed: 3 to 5 nodes, 1 to 40 groups, each founded by some of them, with proposals, reads, hand-overs
//! and members that come, go and come back, under partitions, loss, power cuts, full and failing disks, rot, and nodes
//! that come back with nothing as somebody else. Then everything heals: every group of which a quorum of voters kept
//! its files must finish what it was asked, and nobody may keep what nobody needs.
//!
//! - What is agreed in a group is judged as in the `raft` world, by the same judge.
//! - [`replicas`] judges who may be which replica: a number never lives twice, is found with all that it ever told of,
//!   and is forgotten only when its group has gone on without it.
//! - [`driver`] is what a cluster does for its groups: it replaces members that are lost, fills groups up, and lets
//!   replicas that hear nobody ask. It learns at once who is lost; how nodes tell each other is not here.
//! - Rot strikes what a later flush testifies to: the log promises no more (`raft-log` world), so each node that is to
//!   rot starts and ends once in peace before.

mod driver;
mod heal;
pub mod idle;
mod mail;
mod node;
mod replicas;
mod weather;
mod workload;
mod world;

use consensus::planted::Bug;

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
    /// Groups founded.
    pub groups: u64,
    /// Those that were not expected to go on in the end: too many voters may have lost their files.
    pub doubtful: u64,
    /// Leaders elected.
    pub elections: u64,
    /// Proposals acknowledged.
    pub acknowledged: u64,
    /// Proposals nobody knows the outcome of.
    pub unknown: u64,
    /// Reads answered.
    pub reads: u64,
    /// Changes of members.
    pub changes: u64,
    /// Snapshots installed from a leader.
    pub installed: u64,
    /// Replicas that left and were forgotten.
    pub left: u64,
    /// Replicas found damaged.
    pub lost: u64,
    /// Nodes that came back with nothing.
    pub wiped: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Letters delivered.
    pub letters: u64,
    /// Virtual time, microseconds.
    pub micros: u64,
    /// Running digest of everything that happened.
    pub trace: u64,
}

impl Summary {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.groups += other.groups;
        self.doubtful += other.doubtful;
        self.elections += other.elections;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.changes += other.changes;
        self.installed += other.installed;
        self.left += other.left;
        self.lost += other.lost;
        self.wiped += other.wiped;
        self.flips += other.flips;
        self.letters += other.letters;
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    match outcome::attempt(&mut world, |world| world.live().and_then(|()| world.heal())) {
        Ok(()) => Ok(world.summary()),
        Err(violation) => Err(Failure { world: "consensus", seed, micros: world.now, violation }),
    }
}
