//! Which nodes hold the next segment of a range, and which of them are likely to fail together.
//!
//! Owns whom a segment may be given to, and whom not for a while, and what the nodes' attributes say of failure domains.
//! The order among those is `core/placement`'s; who the primary is was decided by whoever got here: it is this node.
//!
//! ```text
//! which attribute     segments: the topic's policy, else the setting     members of groups: the setting
//! a node's value      what it says of itself                             the setting's list, else what it says
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use metadata::cluster::{Node, NodeState, Setting};
use placement::domains::Domains;
use placement::place::{self, MinDomains, Policy};
use placement::rank::{Item, rank};
use types::{Instant, NodeId, SegmentId, TopicId, quorum};

use crate::config::Placement;
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

    /// Nodes that could be given segments and are avoided, those first for which that is over first.
    fn avoided_nodes(&self) -> Vec<NodeId> {
        let is_active =
            |id: NodeId| self.meta.cluster().node(id).is_some_and(|node| node.state == NodeState::Active);
        let avoided = self
            .avoided
            .until
            .iter()
            .filter(|(id, until)| self.now < **until && self.liveness.usable(**id) && is_active(**id));
        let mut avoided: Vec<(Instant, NodeId)> = avoided.map(|(id, until)| (*until, *id)).collect();
        avoided.sort_unstable();
        avoided.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether this node takes no segments, and another does.
    pub(crate) fn gives_way(&self) -> bool {
        let able = self.able_nodes();
        !able.is_empty() && !able.contains(&self.config.node)
    }

    /// The nodes that hold a segment of which this node is the primary; it comes first. Refused only where so many
    /// failure domains are insisted on that there are too few.
    pub(crate) fn replicas_for(&self, segment: SegmentId) -> Result<Vec<NodeId>, place::Error> {
        let own = self.config.node;
        let mut nodes = rank(Item::Segment(segment), &self.able_nodes());
        nodes.retain(|node| *node != own);
        nodes.insert(0, own);
        // A node whose copies failed a while ago is better than a record on one node alone.
        let least = quorum::ack_count(self.config.segment_replicas.max(1));
        if nodes.len() < least {
            nodes.extend(
                self.avoided_nodes().into_iter().filter(|node| *node != own).take(least - nodes.len()),
            );
        }
        let domains = self.segment_domains(segment.range.topic);
        if let Some(domains) = &domains {
            nodes = domains.interleave(&nodes);
        }
        nodes.truncate(self.config.segment_replicas.max(1));
        self.check_domains(domains.as_ref(), &nodes)?;
        Ok(nodes)
    }

    /// Refuses copies in too few failure domains where that is insisted on.
    fn check_domains(&self, domains: Option<&Domains>, nodes: &[NodeId]) -> Result<(), place::Error> {
        let covered = domains.map_or(nodes.len(), |domains| domains.count(nodes));
        match self.config.placement.min_domains {
            Some(MinDomains { count: wanted, policy: Policy::Hard }) if covered < wanted => {
                Err(place::Error::InsufficientDomains { covered, wanted })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether no node can open a segment of a topic, because all that take some are in too few failure domains.
    pub(crate) fn lacks_domains(&self, topic: TopicId) -> bool {
        let able = self.able_nodes();
        let domains = self.segment_domains(topic);
        let most = domains.as_ref().map_or(able.clone(), |domains| domains.interleave(&able));
        let most = &most[..most.len().min(self.config.segment_replicas.max(1))];
        self.check_domains(domains.as_ref(), most).is_err()
    }

    /// The failure domains that copies of a topic's segments are spread over; `None` for a topic whose are not.
    pub(crate) fn segment_domains(&self, topic: TopicId) -> Option<Domains> {
        let row = self.meta.of(topic).topic(topic);
        let policy = row.and_then(|row| self.meta.cluster().policy(row.policy.as_ref()?.as_str()));
        match policy.map(|policy| &policy.spread_by) {
            Some(Setting::Off) => None,
            Some(Setting::Value(key)) => Some(self.domains_by(std::str::from_utf8(key).unwrap_or_default())),
            Some(Setting::Inherit) | None => {
                Some(self.domains_by(self.config.placement.spread_by.as_deref()?))
            }
        }
    }

    /// The failure domains that members of groups are spread over, if they are.
    pub(crate) fn group_domains(&self) -> Option<Domains> {
        let Placement { spread_by, topology, .. } = &self.config.placement;
        if topology.is_empty() {
            return Some(self.domains_by(spread_by.as_deref()?));
        }
        let listed = self.meta.cluster().nodes().filter_map(|(id, node)| {
            let said = || node.attributes.get(spread_by.as_deref()?).map(|value| &**value);
            let value = topology.get(node.name.as_str()).map(|value| &**value).or_else(said)?;
            Some((id, Bytes::copy_from_slice(value.as_bytes())))
        });
        Some(Domains::new(listed))
    }

    /// The nodes by what they say of themselves under one key. One that says nothing is in the domain of all such.
    fn domains_by(&self, key: &str) -> Domains {
        let value =
            |node: &Node| node.attributes.get(key).map(|value| Bytes::copy_from_slice(value.as_bytes()));
        Domains::new(self.meta.cluster().nodes().filter_map(|(id, node)| Some((id, value(node)?))))
    }
}
