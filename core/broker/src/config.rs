//! What a node is told when it is made.

use types::{NodeId, limits};

/// Identity, seed and limits of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// This life of this node's data.
    pub node: NodeId,
    /// Random, different in every process lifetime: ids are drawn from it.
    pub seed: u128,
    /// Size at which an active segment is sealed, bytes of frames.
    pub segment_bytes: u64,
    /// Largest body of a response, bytes.
    pub frame_bytes_max: usize,
    /// Long polls parked at one time.
    pub waiters_max: usize,
    /// The store of segment copies.
    pub store: storage::store::Config,
    /// The Raft log.
    pub raft_log: storage::raft_log::Config,
}

impl Config {
    /// The default limits.
    #[must_use]
    pub fn new(node: NodeId, seed: u128) -> Self {
        Self {
            node,
            seed,
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            frame_bytes_max: limits::FRAME_BYTES_DEFAULT,
            waiters_max: limits::WAITERS_MAX,
            store: storage::store::Config::default(),
            raft_log: storage::raft_log::Config::default(),
        }
    }
}
