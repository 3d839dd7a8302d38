//! How much a node has of what it bounds, for whoever watches it.

use storage::{raft_log, store};

use crate::action::Cause;
use crate::node::Node;
use crate::segments::State;

/// Numbers at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Topics in the metadata.
    pub topics: usize,
    /// Ranges this node has appended to, or has to end a segment of.
    pub ranges: usize,
    /// Segments that take records.
    pub open_segments: usize,
    /// Segments that are full or old and on their way to being sealed.
    pub rolling_segments: usize,
    /// Ranges that take no records until a person has looked.
    pub stopped_ranges: usize,
    /// Segments that had to be ended and could not be: too few of their copies could tell where.
    pub unavailable_segments: usize,
    /// Ended segments whose copies are being looked at or made whole, or wait for it.
    pub mending_segments: usize,
    /// Ranges that wait until an ancestor has ended.
    pub blocked_ranges: usize,
    /// Produce requests without an answer, and their bytes.
    pub produces: (usize, usize),
    /// Long polls and streams that wait for records.
    pub parked: usize,
    /// Open push streams.
    pub streams: usize,
    /// Groups with members, and their members.
    pub groups: (usize, usize),
    /// Copies that are here and that no topic lists, those on their way out included.
    pub unlisted_copies: usize,
    /// The store of segment copies.
    pub store: store::Gauges,
    /// The log of the metadata's groups.
    pub raft_log: raft_log::Gauges,
    /// This node among the others.
    pub cluster: ClusterGauges,
}

/// How this node's groups are, and whom it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterGauges {
    /// Nodes the cluster lists.
    pub nodes: usize,
    /// Other nodes there is a connection to.
    pub peers_up: usize,
    /// Raft groups this node has a replica of.
    pub groups: usize,
    /// Those it leads.
    pub led: usize,
    /// Those whose leader it does not know.
    pub leaderless: usize,
    /// Entries known to be committed and not applied here, of all groups.
    pub applied_lag: u64,
    /// Members without a vote in the groups it leads.
    pub learners: usize,
}

impl Node {
    /// Counts. Takes time in proportion to the ranges and copies this node knows: ask a few times a minute.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            topics: self.core.meta.all_topics().count(),
            ranges: self.ranges.len(),
            unavailable_segments: self.healing.unavailable(),
            mending_segments: self.healing.mending(),
            blocked_ranges: self.blocked.len(),
            produces: self.load.waiting(),
            parked: self.waiters.len(),
            streams: self.streams.len(),
            groups: self.groups.count(),
            unlisted_copies: self.unlisted_copies(),
            store: self.core.store_gauges(),
            raft_log: self.core.meta.log_gauges(),
            cluster: self.core.meta.cluster_gauges(),
            ..Gauges::default()
        };
        for range in self.ranges.values() {
            match &range.state {
                State::Open(_) => gauges.open_segments += 1,
                State::Stopped => gauges.stopped_ranges += 1,
                State::Ending(ending) => {
                    gauges.rolling_segments += usize::from(matches!(ending.cause, Cause::Size | Cause::Age));
                }
                State::Idle
                | State::Blocked
                | State::Registering
                | State::Unmade { .. }
                | State::Creating { .. }
                | State::Stale { .. } => {}
            }
        }
        gauges
    }
}
