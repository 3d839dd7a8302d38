//! Whole nodes that form one cluster: its metadata is judged, on bad disks, links and clocks.
//!
//! One run is one seed: a node forms a cluster, others join it through any seed, topics, ranges, positions and users
//! are changed and looked at on every node, nodes are added, drained, removed and come back with nothing as somebody
//! else, under partitions, power cuts, full volumes, pauses and clocks that step. Then everything heals: every group
//! must have its members, every node the same view, every change that was acknowledged must be there once, and nobody
//! may wait.
//!
//! - [`ring`] is how the ring gets more vnodes and fewer meanwhile;
//! - [`network`] is what connections between nodes do; [`weather`] is what goes wrong, [`operator`] what people do.
//! - [`views`] judges the tables of every group on every node; [`model`] knows only what clients were told.
//! - Records are only appended and read where their segment is: how they are replicated is not here.

mod client;
mod detect;
mod heal;
mod model;
mod network;
mod node;
mod operator;
mod probes;
pub mod records;
mod ring;
pub mod stories;
mod views;
mod voters;
mod weather;
mod world;

use broker::planted::Bug;

use self::world::World;
use crate::invariants::Violation;
use crate::outcome;

pub use crate::outcome::Failure;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put in.
    pub bug: Option<Bug>,
    /// A bug of the store of copies to put in.
    pub store_bug: Option<storage::planted::Bug>,
    /// Print everything that happens to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Process lifetimes.
    pub lives: u64,
    /// Nodes there were.
    pub nodes: u64,
    /// Times a node began to lead a group.
    pub elections: u64,
    /// Changes acknowledged.
    pub acknowledged: u64,
    /// Changes nobody knows the outcome of.
    pub unknown: u64,
    /// Changes refused.
    pub refused: u64,
    /// Lists and descriptions answered.
    pub reads: u64,
    /// Times the links were cut somewhere.
    pub partitions: u64,
    /// Power cuts of a node.
    pub cuts: u64,
    /// Nodes drained and removed.
    pub removed: u64,
    /// Nodes whose directories were lost.
    pub wiped: u64,
    /// Proposals that had to be refused.
    pub probes: u64,
    /// Times a node was asked to hand over and go.
    pub leaves: u64,
    /// Changes of the ring that were ended, as done or undone.
    pub ring_changes: u64,
    /// Things done that only the leader of a vnode decides.
    pub led: u64,
    /// Voters that left a group.
    pub voters_left: u64,
    /// States of tables compared.
    pub compared: u64,
    /// Records acknowledged, of unknown outcome, and refused for sure.
    pub records_acknowledged: u64,
    /// See above.
    pub records_unknown: u64,
    /// See above.
    pub records_refused: u64,
    /// Produce requests sent again, and those refused because nobody remembered.
    pub repeated: u64,
    /// See above.
    pub forgotten: u64,
    /// Records that had to be read in the end.
    pub records_due: u64,
    /// Records given to readers.
    pub records_read: u64,
    /// Reads answered with an error.
    pub reads_failed: u64,
    /// Records given to members and groups, and those of them that were given again.
    pub given: u64,
    /// See above.
    pub given_again: u64,
    /// Commits acknowledged to consumers.
    pub commits: u64,
    /// Times a member left its group.
    pub left: u64,
    /// Answers to consumers that were failures.
    pub consumers_failed: u64,
    /// Copies damaged on purpose.
    pub damaged: u64,
    /// Times ranges were split or merged by what they took.
    pub resized: u64,
    /// Times the disks were looked at.
    pub audits: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// The longest time a run took to heal, microseconds.
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
        self.nodes += other.nodes;
        self.elections += other.elections;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.reads += other.reads;
        self.partitions += other.partitions;
        self.cuts += other.cuts;
        self.removed += other.removed;
        self.wiped += other.wiped;
        self.probes += other.probes;
        self.leaves += other.leaves;
        self.ring_changes += other.ring_changes;
        self.led += other.led;
        self.voters_left += other.voters_left;
        self.compared += other.compared;
        self.records_acknowledged += other.records_acknowledged;
        self.records_unknown += other.records_unknown;
        self.records_refused += other.records_refused;
        self.repeated += other.repeated;
        self.forgotten += other.forgotten;
        self.records_due += other.records_due;
        self.records_read += other.records_read;
        self.reads_failed += other.reads_failed;
        self.given += other.given;
        self.given_again += other.given_again;
        self.commits += other.commits;
        self.left += other.left;
        self.consumers_failed += other.consumers_failed;
        self.damaged += other.damaged;
        self.resized += other.resized;
        self.audits += other.audits;
        self.messages += other.messages;
        self.healing = self.healing.max(other.healing);
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    tell(&mut world, |world| world.live().and_then(|()| world.heal()))
}

/// Lets a world do something.
fn tell(
    world: &mut World,
    what: impl FnOnce(&mut World) -> Result<(), Violation>,
) -> Result<Summary, Failure> {
    let Err(violation) = outcome::attempt(world, what) else { return Ok(world.summary()) };
    let name = match (world.records.is_on(), world.is_story) {
        (true, true) => "records-story",
        (true, false) if world.records.has_groups() => "groups",
        (true, false) => "records",
        (false, _) => "cluster",
    };
    Err(Failure { world: name, seed: world.seed, micros: world.now, violation })
}
