//! Which nodes hold the next segment of a range.
//!
//! Owns whom a segment may be given to, and whom not for a while. The order among those is `core/placement`'s; who the
//! primary is was decided by whoever got here: it is this node.

use std::collections::BTreeMap;
use std::time::Duration;

use metadata::cluster::NodeState;
use placement::domains::Domains;
use placement::rank::{Item, rank};
use types::{Instant, NodeId, SegmentId};

use crate::node::Core;

/// How long a node is given no segments whose copies failed there, or came too late.
const AVOIDED_FOR: Duration = Duration::from_secs(60);

/// How long a node gives itself none after it was seen that it reaches no leader of a vnode.
const APART_FOR: Duration = Duration::from_millis(500);

/// Nodes that are given no segments for a while.
#[derive(Debug, Default)]
pub(crate) struct Avoided {
    until: BTreeMap<NodeId, Instant>,
}

impl Avoided {
    fn has(&self, node: NodeId, now: Instant) -> bool {
        self.until.get(&node).is_some_and(|until| now < *until)
    }
}

impl Core {
    /// A copy failed on a node, or came too late: for a while others are preferred.
    pub(crate) fn avoid(&mut self, node: NodeId) {
        self.avoid_for(node, AVOIDED_FOR);
    }

    /// What this node registers is not recorded while it reaches no leader: whoever asks it is sent to another one that
    /// may.
    pub(crate) fn stand_back_apart(&mut self) {
        if self.meta.is_apart() && !self.avoided.has(self.config.node, self.now) {
            self.avoid_for(self.config.node, APART_FOR);
        }
    }

    fn avoid_for(&mut self, node: NodeId, time: Duration) {
        let now = self.now;
        self.avoided.until.retain(|_, until| now < *until);
        self.avoided.until.insert(node, now.plus(time));
    }

    /// The nodes that segments may be given to.
    pub(crate) fn able_nodes(&self) -> Vec<NodeId> {
        let nodes = self.meta.cluster().nodes().filter(|(_, node)| node.state == NodeState::Active);
        let able = nodes.map(|(id, _)| id).filter(|id| self.liveness.usable(*id));
        able.filter(|id| !self.avoided.has(*id, self.now)).collect()
    }

    /// Whether this node takes no segments, and another does.
    pub(crate) fn gives_way(&self) -> bool {
        let able = self.able_nodes();
        !able.is_empty() && !able.contains(&self.config.node)
    }

    /// The nodes that hold a segment of which this node is the primary; it comes first.
    pub(crate) fn replicas_for(&self, segment: SegmentId) -> Vec<NodeId> {
        let own = self.config.node;
        let wanted = self.config.segment_replicas.max(1);
        if wanted == 1 {
            return vec![own];
        }
        let mut nodes = rank(Item::Segment(segment), &self.able_nodes());
        nodes.retain(|node| *node != own);
        nodes.insert(0, own);
        let mut nodes = Domains::default().interleave(&nodes);
        nodes.truncate(wanted);
        nodes
    }
}
