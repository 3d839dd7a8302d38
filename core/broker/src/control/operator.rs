//! What administrators ask about the cluster: how it is, its ring, and changes of both.
//!
//! Owns those answers and the last checks before a node is drained or removed: the tables know who is placed where,
//! and only a node knows what its groups and segments still hold. A trial goes the way of the change, up to the
//! proposal. How the ring gets another number of vnodes is worked out by `core/placement` and done by `ring`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metadata::cluster::{
    self as tables, ChangeNode, Command, Intent, NodeState as Listed, Refusal, RingChange, Topology,
};
use metadata::vnode::Vnode;
use placement::reshard;
use raft::Part;
use types::{NodeId, Ring, VnodeId, limits};
use wire::Reason;
use wire::request::{NodeChange, list_max_effective};
use wire::response::{
    ClusterNode, ClusterStatus, GroupMember, NodeChanged, NodeHealth, NodeState, Resharding, RingPage,
    RingStep, VnodeInfo,
};

use crate::action::Reply;
use crate::auth::Session;
use crate::cluster;
use crate::event::{OfCluster, RequestId};
use crate::liveness::Health;
use crate::meta::CLUSTER;
use crate::node::Node;

/// Bytes of a status beside its nodes.
const STATUS_BYTES: usize = 128 + (16 + 1) * limits::RAFT_MEMBERS_MAX;
/// Bytes of a page of the ring beside its vnodes.
const RING_BYTES: usize = 6 + 8 + 4 + 1;
/// Bytes of the other answers beside their lists, with the longest reason.
const ANSWER_BYTES: usize = 128;

/// A change of a node that was proposed.
#[derive(Clone, Debug)]
pub(crate) struct Changing {
    id: RequestId,
    node: NodeId,
    change: NodeChange,
    /// What the answer will say was on it.
    found: NodeChanged,
    /// It was worked out anew because the list had changed meanwhile.
    again: bool,
}

impl Node {
    /// Answers what an administrator asks about the cluster.
    pub(crate) fn of_cluster(&mut self, id: RequestId, session: &Session, request: &OfCluster) {
        let reply = if self.is_admin(session) {
            self.answer_of_cluster(id, request)
        } else {
            Err(Reason::PermissionDenied)
        };
        if let Some(reply) = reply.unwrap_or_else(|reason| Some(Reply::Failed(reason))) {
            self.core.reply(id, reply);
        }
    }

    /// `None` when the answer comes with a decision.
    fn answer_of_cluster(&mut self, id: RequestId, request: &OfCluster) -> Result<Option<Reply>, Reason> {
        match request {
            OfCluster::Status { after, max } => self.status(*after, *max).map(Some),
            OfCluster::Ring { from_token, max } => self.ring_page(*from_token, *max).map(Some),
            OfCluster::Reshard { to, dry_run } => self.reshard(*to, *dry_run).map(Some),
            OfCluster::Rebalance { dry_run } => self.rebalance(*dry_run).map(Some),
            OfCluster::ListFlags => self.list_flags().map(Some),
            OfCluster::EnableFlag { flag, dry_run } => self.enable_flag(id, flag, *dry_run),
            OfCluster::Segments { topic, from, max, depth } => {
                self.list_segments(id, topic.as_ref(), *from, *max, *depth)
            }
            OfCluster::Explain(subject) => self.explain(id, subject),
            OfCluster::ChangeNode { node, change, dry_run } => {
                let found = self.found_on(*node);
                let changing = Changing { id, node: *node, change: *change, found, again: false };
                self.change_node(changing, *dry_run)
            }
        }
    }

    fn status(&self, after: Option<NodeId>, max: u32) -> Result<Reply, Reason> {
        let (meta, own) = (&self.core.meta, self.core.config.node);
        let (tables, group) = (meta.cluster(), meta.group(CLUSTER));
        let memberships = self.memberships();
        let node = |(id, node): (NodeId, &tables::Node)| ClusterNode {
            node: id,
            name: bytes(node.name.as_str()),
            peer: bytes(node.peer.as_str()),
            client: node.client.as_ref().map(|client| bytes(client.as_str())),
            state: match node.state {
                Listed::Joining => NodeState::Joining,
                Listed::Active => NodeState::Active,
                Listed::Draining => NodeState::Draining,
            },
            incarnation: node.incarnation.0,
            connected: self.core.liveness.is_up(id),
            health: match self.core.liveness.health(id) {
                Health::Alive => NodeHealth::Alive,
                Health::Suspect => NodeHealth::Suspect,
                Health::Dead => NodeHealth::Dead,
                Health::Unknown => NodeHealth::Unknown,
            },
            vnodes: count(memberships.get(&id).map_or(0, BTreeSet::len)),
            attributes: node.attributes.iter().map(|(key, value)| (bytes(key), bytes(value))).collect(),
        };
        let nodes = tables.nodes().filter(|(id, _)| after.is_none_or(|after| *id > after)).map(node);
        let left = self.core.config.frame_bytes_max.saturating_sub(STATUS_BYTES);
        let (nodes, more) = fitting(nodes, max, left, ClusterNode::encoded_len)?;
        let member = |(member, part): (raft::Member, Part)| GroupMember {
            node: member.node,
            votes: matches!(part, Part::Voter),
        };
        Ok(Reply::ClusterStatus(Box::new(ClusterStatus {
            asked: own,
            term: group.map_or(0, |group| group.term().0),
            leader: meta.leader(CLUSTER),
            members: group.map_or_else(Vec::new, |group| group.members().iter().map(member).collect()),
            ring_version: tables.topology().map_or(0, |topology| topology.version),
            vnodes: count(tables.topology().map_or(0, |topology| topology.ring.len())),
            pending: tables.topology().and_then(under_way),
            lease: tables.lease().holder,
            leaderless: count(meta.cluster_gauges().leaderless),
            node_count: count(tables.nodes().count()),
            nodes,
            more,
        })))
    }

    fn ring_page(&self, from_token: u32, max: u32) -> Result<Reply, Reason> {
        let meta = &self.core.meta;
        let topology = meta.cluster().topology().ok_or(Reason::NoRing)?;
        let arcs = topology.ring.arcs().filter(|(_, arc)| arc.upto >= from_token);
        let vnodes = arcs.map(|(vnode, arc)| VnodeInfo {
            vnode,
            token: arc.upto,
            places: arc.places(),
            members: topology.placements.get(&vnode).cloned().unwrap_or_default(),
            leader: meta.leader(vnode),
            topics: count(meta.topics_in(vnode)),
        });
        let left = self.core.config.frame_bytes_max.saturating_sub(RING_BYTES);
        let (vnodes, more) = fitting(vnodes, max, left, VnodeInfo::encoded_len)?;
        Ok(Reply::Ring(RingPage { version: topology.version, vnodes, more }))
    }

    /// `None` when the answer comes with the decision.
    fn change_node(&mut self, changing: Changing, dry_run: bool) -> Result<Option<Reply>, Reason> {
        let Changing { node, change, .. } = changing;
        let command = self.command(node, change);
        let refused = self.why_not(&command, &changing).err();
        if dry_run {
            let refusal = refused.map(|reason| Bytes::from_static(reason.as_str().as_bytes()));
            return Ok(Some(Reply::NodeChanged(NodeChanged { refusal, ..changing.found })));
        }
        if let Some(reason) = refused {
            return Err(reason);
        }
        self.core.propose_cluster(&command, cluster::Then::ChangeNode(Box::new(changing)));
        Ok(None)
    }

    fn command(&self, node: NodeId, change: NodeChange) -> Command {
        let change_node = ChangeNode { node, expected: self.core.meta.cluster().nodes_revision() };
        match change {
            NodeChange::Drain => Command::DrainNode(change_node),
            NodeChange::Undrain => Command::UndrainNode(change_node),
            NodeChange::Remove => Command::RemoveNode { change: change_node, force: false },
            NodeChange::ForceRemove => Command::RemoveNode { change: change_node, force: true },
        }
    }

    /// What the tables would refuse, and a removal that would take something with it which the tables do not know of.
    fn why_not(&self, command: &Command, changing: &Changing) -> Result<(), Reason> {
        let checked = self.core.meta.cluster().check_node_change(command.clone());
        checked.map_err(crate::users::reason)?;
        let NodeChanged { vnode_count, in_cluster_group, segments, .. } = changing.found;
        let is_empty = vnode_count == 0 && !in_cluster_group && segments == 0;
        match changing.change {
            NodeChange::Remove if !is_empty => Err(Reason::NodeNotDrained),
            NodeChange::Drain | NodeChange::Undrain | NodeChange::Remove | NodeChange::ForceRemove => Ok(()),
        }
    }

    /// The tables have taken the change, or not.
    pub(crate) fn node_changed(&mut self, changing: Changing, result: Result<tables::Reply, cluster::Error>) {
        let id = changing.id;
        let reply = match result {
            Ok(_) => Ok(Some(Reply::NodeChanged(changing.found))),
            Err(cluster::Error::Refused(Refusal::StaleRevision)) if !changing.again => {
                let found = self.found_on(changing.node);
                self.change_node(Changing { found, again: true, ..changing }, false)
            }
            Err(error) => Err(crate::users::right_reason(error)),
        };
        if let Some(reply) = reply.unwrap_or_else(|reason| Some(Reply::Failed(reason))) {
            self.core.reply(id, reply);
        }
    }

    /// What is on a node, as far as is known here. Takes time in proportion to the segments of all topics.
    pub(crate) fn found_on(&self, node: NodeId) -> NodeChanged {
        let meta = &self.core.meta;
        let vnodes = self.memberships().remove(&node).unwrap_or_default();
        let is_member = |group: &raft::Group| group.members().iter().any(|(member, _)| member.node == node);
        let segments = meta.vnodes().flat_map(Vnode::segments);
        let held = segments.filter(|(_, segment)| segment.replicas.contains(&node)).count();
        NodeChanged {
            refusal: None,
            vnode_count: count(vnodes.len()),
            vnodes: vnodes.into_iter().take(self.listed_max(8)).collect(),
            in_cluster_group: meta.group(CLUSTER).is_some_and(is_member),
            segments: held as u64,
        }
    }

    /// Which vnodes each node is a member of: as they are placed, and as the groups here are.
    fn memberships(&self) -> BTreeMap<NodeId, BTreeSet<VnodeId>> {
        let meta = &self.core.meta;
        let mut memberships: BTreeMap<NodeId, BTreeSet<VnodeId>> = BTreeMap::new();
        let Some(topology) = meta.cluster().topology() else { return memberships };
        let mut note = |vnode: VnodeId, node: NodeId| {
            memberships.entry(node).or_default().insert(vnode);
        };
        for (vnode, nodes) in &topology.placements {
            nodes.iter().for_each(|node| note(*vnode, *node));
            // One that hears no leader may have left without having been told.
            if let Some(group) = meta.group(*vnode).filter(|group| group.leader().is_some()) {
                group.members().iter().for_each(|(member, _)| note(*vnode, member.node));
            }
        }
        if let Some(Intent { change: RingChange::Split { vnode, nodes, .. }, .. }) = &topology.pending {
            nodes.iter().for_each(|node| note(*vnode, *node));
        }
        memberships
    }

    fn reshard(&mut self, to: u32, dry_run: bool) -> Result<Reply, Reason> {
        let topology = self.core.meta.cluster().topology().ok_or(Reason::NoRing)?;
        // What is under way is finished first.
        let ring = topology.ring_after();
        let plan = reshard::plan(&ring, topology.next_vnode, to as usize).map_err(|error| match error {
            reshard::Error::EmptyRing => Reason::NoRing,
            reshard::Error::InvalidVnodeCount => Reason::InvalidVnodeCount,
        })?;
        let refused = self.check_reshard().err();
        if let (Some(reason), false) = (refused, dry_run) {
            return Err(reason);
        }
        let from = count(ring.len());
        if !dry_run {
            self.aim_ring(to as usize)?;
        }
        let steps = plan.iter().take(self.listed_max(RingStep::BYTES_MAX)).copied().map(step);
        Ok(Reply::Resharding(Resharding {
            from,
            to,
            step_count: count(plan.len()),
            steps: steps.collect(),
            refusal: refused.map(|reason| Bytes::from_static(reason.as_str().as_bytes())),
        }))
    }

    /// Why a plan is not carried out here. The node that leads the cluster's group is the one that gets the lease.
    fn check_reshard(&self) -> Result<(), Reason> {
        if self.core.meta.leads(CLUSTER) { Ok(()) } else { Err(Reason::NotLeaseHolder) }
    }

    /// Items of a list that is not told in pages.
    fn listed_max(&self, item_bytes: usize) -> usize {
        let room = self.core.config.frame_bytes_max.saturating_sub(ANSWER_BYTES) / item_bytes;
        room.min(limits::LIST_ITEMS_MAX as usize)
    }
}

/// As many as were asked for and fit, and whether there are more; refused when not even one fits.
pub(crate) fn fitting<T>(
    items: impl Iterator<Item = T>,
    max: u32,
    mut left: usize,
    bytes: fn(&T) -> usize,
) -> Result<(Vec<T>, bool), Reason> {
    let mut taken = Vec::new();
    for item in items {
        let fits = left.checked_sub(bytes(&item));
        match fits {
            Some(rest) if taken.len() < list_max_effective(max) as usize => left = rest,
            None if taken.is_empty() => return Err(Reason::Unsupported),
            Some(_) | None => return Ok((taken, true)),
        }
        taken.push(item);
    }
    Ok((taken, false))
}

fn under_way(topology: &Topology) -> Option<RingStep> {
    let ring: &Ring = &topology.ring;
    match topology.pending.as_ref()?.change {
        RingChange::Split { vnode, token, .. } => {
            Some(RingStep::Split { vnode, source: ring.route(token)?, token })
        }
        RingChange::Merge { vnode } => Some(RingStep::Merge { vnode, into: ring.successor(vnode)? }),
    }
}

fn step(step: reshard::Step) -> RingStep {
    match step {
        reshard::Step::Split { source, vnode, token } => RingStep::Split { vnode, source, token },
        reshard::Step::Merge { vnode, into } => RingStep::Merge { vnode, into },
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
