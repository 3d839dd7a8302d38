//! One node, its two disks and its clients: what is promised over the wire holds through any crash.
//!
//! One run is one seed. Clients speak through the real client's connection and the real codec, in bytes cut
//! anywhere; a stand-in for the server's connection hands their requests to the real node; both volumes are
//! simulated and lose power together. After some process lifetimes the faults stop, and everything that was
//! acknowledged must be there.
//!
//! - [`model`] is the judge. It listens where the node takes a request and where it answers: there everything
//!   has one order, so what an answer may be is exact. Clients then check that they were told the same, once.
//! - Somebody asks the node at every start, and whenever topics or ranges changed, what there is ([`audit`]).
//! - A lifetime without faults has no excuses: no request fails for a reason the client did not cause. In some,
//!   nothing is wrong but one segment that cannot end: then only who needs its range is excused.
//! - Not here: passwords and the limits of connections (they are the server's), rot (the store's world).

mod audit;
mod client;
mod cuts;
mod edge;
mod heal;
mod judge;
mod logins;
mod model;
mod network;
mod notices;
mod process;
mod trace;
mod translate;
mod weather;
mod workload;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use broker::planted::Bug;

pub use cuts::Cuts;
pub use trace::Failure;

use self::world::World;
use crate::invariants::Violation;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put in.
    pub bug: Option<Bug>,
    /// Print every request, answer, notice and fault to standard error.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Process lifetimes.
    pub lives: u64,
    /// Requests answered by the node.
    pub replies: u64,
    /// Records acknowledged.
    pub acknowledged: u64,
    /// Records delivered and compared.
    pub delivered: u64,
    /// Positions acknowledged.
    pub commits: u64,
    /// Splits and merges.
    pub changes: u64,
    /// Requests stored while another range of their topic could not end its segment.
    pub unrelated: u64,
    /// Copies that a start found and nobody listed.
    pub orphans: u64,
    /// Process lifetimes that ended in the middle of something.
    pub cuts: Cuts,
    /// Virtual time, microseconds.
    pub micros: u64,
    /// Running digest of every disk step and every answer.
    pub trace: u64,
}

impl Summary {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.replies += other.replies;
        self.acknowledged += other.acknowledged;
        self.delivered += other.delivered;
        self.commits += other.commits;
        self.changes += other.changes;
        self.unrelated += other.unrelated;
        self.orphans += other.orphans;
        self.cuts.add(other.cuts);
        self.micros += other.micros;
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    // An assertion of the product that fails is a failure of this seed, not of the whole run.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.live().and_then(|()| world.heal())));
    match outcome {
        Ok(Ok(())) => Ok(world.summary()),
        Ok(Err(violation)) => Err(world.failure(seed, violation)),
        Err(_) => Err(world.failure(seed, Violation::new("PANIC", "an assertion failed, see above"))),
    }
}
