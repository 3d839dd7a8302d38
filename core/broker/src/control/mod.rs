//! What this node does about the cluster: makes itself known, keeps the groups it leads at the members they shall
//! have, and, while it holds the lease, says which members those are.
//!
//! Everything here is done by looking at the tables and proposing the next step; nothing is remembered that a restart
//! could lose, and doing a step twice does no harm. Placement itself is `core/placement`'s.
//!
//! ```text
//!  introduce ─▶ the list of nodes ─▶ lease holder: placements ─▶ each group's leader: add, promote, remove
//! ```

mod flags;
mod introduce;
mod lease;
mod leave;
mod members;
mod operator;
mod rebalance;
mod ring;

use std::time::Duration;

use metadata::cluster::{NodeState, Reply};
use types::{Instant, NodeId};

use crate::action::{Action, Unlisted};
use crate::cluster;
use crate::config::Config;
use crate::meta::CLUSTER;
use crate::node::Node;
pub use flags::FLAGS;
use lease::Lease;
use leave::Leave;
pub(crate) use members::Living;
pub(crate) use operator::{Changing, fitting};
use rebalance::Rebalance;
use ring::RingWork;

/// How often the tables are looked at while there are several nodes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A proposal of this node's about the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// About this node, or the ring's first form.
    Introduce,
    /// To get or keep the lease.
    Lease(placement::holder::Attempt),
    /// To give it back; nobody waits.
    Release,
    /// Which members a vnode has.
    Place,
    /// To begin or end a change of the ring.
    Ring(ring::Act),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Control {
    /// When to look at the tables next; `None` when only a change of theirs is a reason to.
    look_at: Option<Instant>,
    /// A proposal about this node is on its way.
    introducing: bool,
    /// How the list of nodes was at odds with this one when it was looked at last.
    unlisted: Option<Unlisted>,
    /// A proposal about a placement is on its way.
    placing: bool,
    lease: Lease,
    ring: RingWork,
    rebalance: Rebalance,
    leave: Leave,
    /// The nodes the driver was last told to connect to.
    peers: Vec<(NodeId, String)>,
}

impl Control {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            look_at: None,
            introducing: false,
            unlisted: None,
            placing: false,
            lease: Lease::new(config.lease),
            ring: RingWork::default(),
            rebalance: Rebalance::default(),
            leave: Leave::No,
            peers: Vec::new(),
        }
    }

    /// The lease, while this node believes that it holds it.
    #[cfg(feature = "planted")]
    pub(crate) fn fence(&self, now: Instant) -> Option<types::FenceToken> {
        self.lease.fence(now)
    }

    /// When there is something to do next.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.look_at
    }
}

impl Node {
    /// Does what is due about the cluster.
    pub(crate) fn keep_control(&mut self) {
        let changed = self.core.meta.take_cluster_change();
        let due = self.control.look_at.is_some_and(|at| at <= self.core.now);
        if !changed && !due {
            return;
        }
        self.control.look_at = None;
        if self.control.leave != Leave::No {
            return self.hand_over_lead();
        }
        if !self.knows_cluster() {
            return;
        }
        if changed {
            let listed = self.core.meta.cluster().nodes().map(|(id, node)| (id, node.incarnation));
            self.core.liveness.list(listed);
            self.tell_peers();
            if !self.honours_flags() {
                return;
            }
        }
        self.introduce();
        self.look_at_listing();
        self.found_vnodes();
        self.core.dissolve_gone();
        if self.core.meta.cluster().nodes().count() > 1 {
            self.keep_lease();
            self.place_vnodes();
            self.keep_members();
            self.control.look_at = Some(self.core.now.plus(LOOK_EVERY));
        } else {
            self.keep_lease_alone();
        }
        self.drive_ring();
    }

    /// Whether the cluster's tables say anything here.
    fn knows_cluster(&self) -> bool {
        let meta = &self.core.meta;
        meta.leads(CLUSTER) || meta.cluster().nodes().next().is_some()
    }

    /// The nodes, as far as groups are concerned.
    pub(crate) fn living(&self) -> Living {
        let (liveness, now) = (&self.core.liveness, self.core.now);
        let mut living = Living::default();
        for (id, node) in self.core.meta.cluster().nodes() {
            match node.state {
                NodeState::Draining => drop(living.leaving.insert(id)),
                NodeState::Joining => drop(living.belonging.insert(id)),
                NodeState::Active => {
                    living.belonging.insert(id);
                    living.active += 1;
                }
            }
            if node.state == NodeState::Active && liveness.usable(id) {
                living.able.insert(id);
            }
            let since = liveness.dead_since(id);
            if since.is_some_and(|since| now.since(since) >= self.core.config.replace_after) {
                living.lost.insert(id);
            }
        }
        living
    }

    /// Tells the driver whom to be connected to, when that changed.
    fn tell_peers(&mut self) {
        let own = self.core.config.node;
        let others = self.core.meta.cluster().nodes().filter(|(id, _)| *id != own);
        let peers: Vec<_> = others.map(|(id, node)| (id, node.peer.as_str().to_owned())).collect();
        if peers != self.control.peers {
            self.control.peers.clone_from(&peers);
            self.core.out.push(Action::Peers(peers));
        }
    }

    /// A proposal about the cluster has its outcome.
    pub(crate) fn control_decided(&mut self, step: Step, result: Result<Reply, cluster::Error>) {
        match step {
            Step::Introduce => self.control.introducing = false,
            Step::Lease(attempt) => self.lease_answered(attempt, result),
            Step::Release => {}
            Step::Place => self.control.placing = false,
            Step::Ring(act) => self.ring_decided(act, &result),
        }
        if matches!(step, Step::Lease(_) | Step::Ring(_)) && self.has_ring_work() {
            self.control.look_at = Some(self.core.now);
        }
        // What comes next is worked out from the tables as they are by then.
        let soon = self.core.now.plus(LOOK_EVERY);
        self.control.look_at = Some(self.control.look_at.map_or(soon, |at| at.min(soon)));
    }
}
