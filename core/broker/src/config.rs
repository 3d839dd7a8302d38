//! What a node is told when it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metadata::cluster::LockoutRules;
pub use placement::holder::Timing;
pub use placement::place::{MinDomains, Policy};
use types::{Incarnation, NodeId, limits};

use crate::auth::Permissions;
use crate::cluster::LOCKOUT_RULES;
use crate::planted::Bug;
use crate::upkeep::{OrphanSweep, Resize, Retention, Scrub};

const SNAPSHOT_BYTES_DEFAULT: u64 = 4 * 1024 * 1024;
const SNAPSHOT_ENTRIES_DEFAULT: u64 = 50_000;
const REPLACE_AFTER_DEFAULT: Duration = Duration::from_secs(300);

const REPLICATE_WITHIN: Duration = Duration::from_secs(15);
const BEHIND_MAX: Duration = Duration::from_secs(10);
/// As a rule, a segment's worth: whoever lacks that has given up a segment for lost.
const BEHIND_BYTES_MAX: u64 = limits::SEGMENT_BYTES_DEFAULT;
/// As a rule, a fraction of what a disk reads in a second.
const MEND_BYTES_PER_SECOND: u64 = 64 * 1024 * 1024;

/// Identity, seed and limits of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// This life of this node's data.
    pub node: NodeId,
    /// Random, different in every process lifetime: ids are drawn from it.
    pub seed: u128,
    /// What it says about itself.
    pub own: Own,
    /// What it does when it has no metadata.
    pub formation: Formation,
    /// Members of a vnode's group, as long as there are so many nodes.
    pub vnode_replicas: usize,
    /// How long a node has to be dead before others take what it holds. A restart is to be over by then.
    pub replace_after: Duration,
    /// Copies of a segment, as long as there are so many nodes.
    pub segment_replicas: usize,
    /// What placing respects beside the number of nodes.
    pub placement: Placement,
    /// How long the lease lasts under which the ring changes, and how it is kept.
    pub lease: Timing,
    /// When members of vnodes move by themselves to where they would be placed now; `None` never.
    pub rebalance: Option<Rebalance>,
    /// How long a producer waits for a quorum. Then nobody knows what became of its records, and the segment ends.
    pub replicate_within: Duration,
    /// How long a follower may be away, or lack something, before the segment ends for the sake of a better set.
    pub behind_max: Duration,
    /// How many bytes a follower may lack before the same.
    pub behind_bytes_max: u64,
    /// Bytes a second that this node reads to make copies whole, or to move them, over time; at least 1.
    pub mend_bytes_per_second: u64,
    /// Size at which an active segment is sealed, bytes of frames.
    pub segment_bytes: u64,
    /// Age at which an active segment is sealed; `None` never.
    pub segment_age: Option<Duration>,
    /// Largest body of a response, bytes.
    pub frame_bytes_max: usize,
    /// Long polls parked at one time.
    pub waiters_max: usize,
    /// Bytes of metadata entries after which the tables are saved and the log is cut.
    pub snapshot_bytes: u64,
    /// The same in entries.
    pub snapshot_entries: u64,
    /// What becomes of copies that the start finds and nobody lists.
    pub orphans: Sweep,
    /// How careful the search for such copies is.
    pub orphan_sweep: OrphanSweep,
    /// When sealed segments expire.
    pub retention: Retention,
    /// How sealed copies are verified.
    pub scrub: Scrub,
    /// When ranges are split and merged without anybody asking.
    pub resize: Resize,
    /// Users that have to be there: made at the start when there is none of that name.
    pub seed_users: Vec<SeedUser>,
    /// Whether only rights count on topics, not the permissions to produce and consume everywhere.
    pub acl_strict: bool,
    /// How failed logins become locks.
    pub lockout: LockoutRules,
    /// The store of segment copies.
    pub store: storage::store::Config,
    /// The Raft log.
    pub raft_log: storage::raft_log::Config,
    /// A bug put in on purpose.
    #[cfg(feature = "planted")]
    pub bug: Option<Bug>,
}

/// What placing members of groups and copies of segments respects beside their number. The same on every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Attribute of nodes: replicas lie at nodes with different values of it, as far as there are so many.
    pub spread_by: Option<Box<str>>,
    /// How many values of it the copies of a segment have at least; without an attribute every node is one.
    pub min_domains: Option<MinDomains>,
    /// That attribute of nodes by their names, for members of groups: it goes over what the nodes say.
    pub topology: BTreeMap<Box<str>, Box<str>>,
    /// How far above its share of groups a node may go.
    pub max_skew: Option<usize>,
}

/// When what a plan says is done although nobody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// How often a plan is made.
    pub every: Duration,
    /// How many times in a row it has to be the same; at least 1 is taken.
    pub stabilization: u32,
}

/// What the node says about itself to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// For people; unique in the cluster.
    pub name: Arc<str>,
    /// Where other nodes reach it, as `host:port`.
    pub peer: Arc<str>,
    /// Where clients reach it, as `host:port`.
    pub client: Option<Arc<str>>,
    /// Where and what it is, in the order of keys.
    pub attributes: BTreeMap<Arc<str>, Arc<str>>,
    /// Switches of the cluster that its build can honour.
    pub flags: BTreeSet<Arc<str>>,
    /// Higher in every process than in any before; not 0.
    pub incarnation: Incarnation,
}

/// What a node without metadata does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formation {
    /// It forms a cluster of its own.
    Forms {
        /// Vnodes of the ring to begin with; at least one is made.
        vnodes: u32,
    },
    /// It waits until it reaches a node of a cluster, and joins that.
    Joins,
}

/// What becomes of copies that the start finds and nobody lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// They are told of and removed.
    Delete,
    /// They are told of.
    Report,
    /// They are not looked for.
    Off,
}

/// A user to make when there is none of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedUser {
    /// Its name.
    pub name: Arc<str>,
    /// PHC string.
    pub hash: Arc<str>,
    /// What it may do on every topic.
    pub permissions: Permissions,
}

impl Config {
    /// The default limits.
    #[must_use]
    pub fn new(node: NodeId, seed: u128) -> Self {
        Self {
            node,
            seed,
            own: Own {
                name: "node".into(),
                peer: "localhost:4043".into(),
                client: None,
                attributes: BTreeMap::new(),
                flags: BTreeSet::new(),
                incarnation: Incarnation(1),
            },
            formation: Formation::Forms { vnodes: 1 },
            vnode_replicas: 3,
            replace_after: REPLACE_AFTER_DEFAULT,
            segment_replicas: 3,
            placement: Placement::default(),
            lease: Timing::default(),
            rebalance: None,
            replicate_within: REPLICATE_WITHIN,
            behind_max: BEHIND_MAX,
            behind_bytes_max: BEHIND_BYTES_MAX,
            mend_bytes_per_second: MEND_BYTES_PER_SECOND,
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            segment_age: None,
            frame_bytes_max: limits::FRAME_BYTES_DEFAULT,
            waiters_max: limits::WAITERS_MAX,
            snapshot_bytes: SNAPSHOT_BYTES_DEFAULT,
            snapshot_entries: SNAPSHOT_ENTRIES_DEFAULT,
            orphans: Sweep::Delete,
            orphan_sweep: OrphanSweep::default(),
            retention: Retention::default(),
            scrub: Scrub::default(),
            resize: Resize::default(),
            seed_users: Vec::new(),
            acl_strict: false,
            lockout: LOCKOUT_RULES,
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
