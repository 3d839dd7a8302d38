//! What a node is told when it is made.

use types::{NodeId, limits};

use crate::planted::Bug;

const SNAPSHOT_BYTES_DEFAULT: u64 = 4 * 1024 * 1024;
const SNAPSHOT_ENTRIES_DEFAULT: u64 = 50_000;

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
    /// Bytes of metadata entries after which the tables are saved and the log is cut.
    pub snapshot_bytes: u64,
    /// The same in entries.
    pub snapshot_entries: u64,
    /// The store of segment copies.
    pub store: storage::store::Config,
    /// The Raft log.
    pub raft_log: storage::raft_log::Config,
    /// A bug put in on purpose.
    #[cfg(feature = "planted")]
    pub bug: Option<Bug>,
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
            snapshot_bytes: SNAPSHOT_BYTES_DEFAULT,
            snapshot_entries: SNAPSHOT_ENTRIES_DEFAULT,
            store: storage::store::Config::default(),
            raft_log: storage::raft_log::Config::default(),
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    /// Whether this bug was put in.
    #[cfg(feature = "planted")]
    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// No bug can be put in in this build.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn has_bug(&self, _: Bug) -> bool {
        false
    }
}
