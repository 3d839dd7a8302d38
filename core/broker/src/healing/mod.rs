//! Segments whose primary is gone are ended, and copies of ended segments are made whole, without anybody asking.
//!
//! Owns when that is looked for, how much is under way at one time, and whose answer is whose. How a segment is ended is
//! in `seal`, how the copies of one are made whole in `mend`, how records get from one copy to another in `fill`; what
//! is decided from answers is `replication`'s.
//!
//! Everything is worked out anew from the tables and from what copies answer: nothing is remembered that a restart
//! could lose, and doing it twice, or on two nodes at once, does no harm.
//!
//! - A vnode's leader looks after its segments, every few seconds, and soon after a connection was lost.
//! - Anybody may end a segment: a primary that finds that it cannot end its own does.
//! - One segment that fails is in nobody's way.

mod fill;
mod mend;
mod notice;
mod pass;
mod seal;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use storage::store;
use types::{Instant, NodeId, Offset, SegmentId};

use crate::action;
use crate::copies::CopyAnswer;
use crate::node::{Node, Owner};

pub use notice::{Failure, Notice};
pub(crate) use seal::Progress;

/// Segments being ended at one time.
const SEALS_MAX: usize = 64;
/// Segments whose copies are looked at, or made whole, at one time.
const MENDS_MAX: usize = 16;
/// Segments that wait for that; more are found by the next pass.
const MENDS_WAITING_MAX: usize = 8_192;
/// A primary without a connection for so long has lost its segments.
const AWAY_AFTER: Duration = Duration::from_millis(200);
/// The same when there never was a connection in this process lifetime.
const NEVER_SEEN_AFTER: Duration = Duration::from_secs(10);
/// Copies that cannot be made whole and are remembered, so that each is told of ever more rarely.
const FAILING_MAX: usize = 4_096;
/// Pause between two passes.
const PASS_EVERY: Duration = Duration::from_secs(5);

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    seals: BTreeMap<SegmentId, seal::Job>,
    /// To be ended once others are.
    wanted: BTreeMap<SegmentId, action::Cause>,
    /// Given up, to be tried again.
    resting: BTreeMap<SegmentId, seal::Resting>,
    mends: BTreeMap<SegmentId, mend::Job>,
    /// To be looked at once others were, in the order in which that was found.
    to_mend: VecDeque<SegmentId>,
    /// Segments whose copies, of nodes that could be reached, were found whole. Of vnodes that are led here.
    settled: BTreeSet<SegmentId>,
    fills: BTreeMap<u64, fill::Fill>,
    /// What each question that was not answered yet is for.
    steps: BTreeMap<u64, What>,
    next: u64,
    /// Nodes whose connection was lost, and since when.
    parted: BTreeMap<NodeId, Instant>,
    /// The earliest of those that was not acted upon.
    away_at: Option<Instant>,
    pass_at: Instant,
    /// When this node began to serve.
    began: Option<Instant>,
    /// The last segment that a pass had room for.
    reached: Option<SegmentId>,
    /// The last segment that was to be looked at again although it was whole.
    looked: Option<SegmentId>,
    /// Copies that could not be made whole, and how often in a row.
    failing: BTreeMap<(SegmentId, NodeId), u32>,
    /// Reads for repairs wait until then.
    pace_at: Instant,
}

/// What a question to a copy is for.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The fence of one that is being ended, or that it be made.
    Fence { segment: SegmentId, job: u64, round: u32, node: NodeId },
    /// Where a copy stands.
    Probe { segment: SegmentId, job: u64, node: NodeId },
    /// Whether one that stays reads as recorded, before another goes.
    Check { segment: SegmentId, job: u64, node: NodeId },
    /// A step of making one whole.
    Mend { segment: SegmentId, job: u64 },
    /// Records of the source.
    Read { fill: u64 },
    /// Whether they are at the target.
    Append { fill: u64, end: Offset },
    /// Where the target stands after it.
    Stands { fill: u64 },
    /// Damage that was found here, taken out of service.
    Latch { segment: SegmentId },
    /// A copy that left its set.
    Leave { segment: SegmentId, node: NodeId },
}

impl Healing {
    /// Segments that could not be ended, and are tried again.
    pub(crate) fn unavailable(&self) -> usize {
        self.resting.len()
    }

    /// Segments whose copies are looked at or made whole, or wait for it.
    pub(crate) fn mending(&self) -> usize {
        self.mends.len() + self.to_mend.len()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Node {
    /// Asks a copy for something on behalf of what is under way.
    fn heal_ask(&mut self, node: NodeId, what: What, bulk: bool, request: store::Request) {
        let step = self.healing.number();
        self.healing.steps.insert(step, what);
        self.core.ask_copy(node, Owner::Heal { step, bulk }, request);
    }

    /// A copy answered, or will not.
    pub(crate) fn heal_answered(&mut self, step: u64, answer: CopyAnswer) {
        let Some(what) = self.healing.steps.remove(&step) else { return };
        match what {
            What::Fence { segment, job, round, node } => {
                self.fence_answered((segment, job), round, node, answer)
            }
            What::Probe { segment, job, node } => self.probe_answered((segment, job), node, answer),
            What::Check { segment, job, node } => self.check_answered((segment, job), node, &answer),
            What::Mend { segment, job } => self.mend_answered((segment, job), answer),
            What::Read { fill } => self.fill_read(fill, answer),
            What::Append { fill, end } => self.fill_appended(fill, end, answer),
            What::Stands { fill } => self.fill_stands(fill, answer),
            What::Latch { segment } => self.damage_latched(segment, &answer),
            What::Leave { segment, node } => self.copy_left(segment, node, &answer),
        }
    }

    /// There is a connection to a node, or there is none any more.
    pub(crate) fn heal_heard(&mut self, node: NodeId, up: bool) {
        if up {
            self.healing.parted.remove(&node);
            self.retry_seals_soon();
            // It may come back with less than it had.
            let meta = &self.core.meta;
            let holds = |segment: &SegmentId| {
                meta.of(segment.range.topic)
                    .segment(*segment)
                    .is_some_and(|listed| listed.replicas.contains(&node))
            };
            self.healing.settled.retain(|segment| !holds(segment));
            return;
        }
        self.healing.parted.entry(node).or_insert(self.core.now);
        self.healing.away_at.get_or_insert(self.core.now.plus(AWAY_AFTER));
    }

    /// Does what is due.
    pub(crate) fn keep_healing(&mut self) {
        if !self.serves() {
            return;
        }
        let now = self.core.now;
        self.healing.began.get_or_insert(now);
        self.retry_seals();
        self.resume_fills();
        if self.healing.away_at.is_some_and(|at| at <= now) {
            self.healing.away_at = None;
            self.end_lost();
        }
        if self.healing.pass_at <= now {
            self.healing.pass_at = now.plus(PASS_EVERY);
            self.heal();
        }
    }

    /// When something is due next.
    pub(crate) fn next_healing(&self) -> Option<Instant> {
        let healing = &self.healing;
        // One node has nobody to look after.
        let pass = self.has_others().then_some(healing.pass_at);
        let pace = healing.fills.values().any(fill::Fill::is_held_back).then_some(healing.pace_at);
        let due = [self.next_seal(), pass, pace, healing.away_at];
        due.into_iter().flatten().min()
    }

    fn has_others(&self) -> bool {
        self.core.meta.cluster().nodes().nth(1).is_some()
    }
}
