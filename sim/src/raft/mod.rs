//! One Raft group on several nodes: what is agreed stays agreed, whatever becomes of nodes, disks and networks.
//!
//! One run is one seed: a group of one, three or five founders and spare nodes, with proposals, reads, hand-overs
//! and members that come and go, under partitions, loss, power cuts and slow or failing disks. Then everything
//! heals, and the group must finish what it was asked.
//!
//! - [`judge`] knows what was committed, by whom first and in which order, and what clients were told. It judges:
//!   one leader for each term; every member applies the same entries at the same places; a leader has all that was
//!   committed before it; members at one index have one state; a read sees every write that ended before it began;
//!   a proposal has one outcome, a refused one never happens, and an acknowledged one stays.
//! - [`store`] is a disk reduced to what storage promises: changes become durable whole and in order, a power loss
//!   keeps any prefix of those on their way. It refuses what the real one refuses.
//! - [`disclosure`] reads every message that leaves, and compares what it claims with what is durable.
//! - Not here: the bytes on the disk, many groups, and how a node comes to host one (the `consensus` world).

mod disclosure;
mod heal;
pub(crate) mod judge;
pub(crate) mod links;
pub(crate) mod machine;
mod member;
mod network;
mod store;
mod weather;
mod workload;
mod world;

use raft::planted::Bug;

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
    /// Messages delivered.
    pub messages: u64,
    /// Virtual time, microseconds.
    pub micros: u64,
    /// Running digest of everything that happened.
    pub trace: u64,
}

impl Summary {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.elections += other.elections;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.changes += other.changes;
        self.installed += other.installed;
        self.messages += other.messages;
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    match outcome::attempt(&mut world, |world| world.live().and_then(|()| world.heal())) {
        Ok(()) => Ok(world.summary()),
        Err(violation) => Err(Failure { world: "raft", seed, micros: world.now, violation }),
    }
}
