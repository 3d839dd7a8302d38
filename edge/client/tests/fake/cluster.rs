//! The fake's cluster: nodes and a ring that tests put there, to be drained, removed and resharded.

use wire::request::NodeChange;
use wire::response::{
    ClusterNode, ClusterStatus, GroupMember, NodeChanged, NodeHealth, NodeState, Rebalancing, Resharding,
    RingPage, RingStep, VnodeInfo, VnodeMove,
};
use wire::{Payload, Reason, Request, Response};

use super::admin::cut;
use types::{NodeId, VnodeId};

/// What it knows of the cluster.
#[derive(Default)]
pub struct Cluster {
    /// By id; the first is the one that is asked.
    pub nodes: Vec<ClusterNode>,
    /// By token.
    pub ring: Vec<VnodeInfo>,
    /// Grows by one with each change of the ring, and with each page of it while `restless`.
    pub version: u64,
    /// Pages of the ring that are told under a version of their own.
    pub restless: usize,
    /// Members of vnodes that are to move.
    pub moves: Vec<VnodeMove>,
    /// Who changes the ring; the first node when there is none.
    pub leader: Option<NodeId>,
}

impl Cluster {
    /// Puts a node there that has every vnode.
    pub fn add(&mut self, number: u128, name: &'static str, client: Option<String>) {
        self.nodes.push(ClusterNode {
            node: NodeId(number),
            name: name.into(),
            peer: format!("{name}:4043").into(),
            client: client.map(Into::into),
            state: NodeState::Active,
            incarnation: 1,
            connected: true,
            health: NodeHealth::Alive,
            vnodes: 3,
            attributes: Vec::new(),
        });
    }

    fn status(&self) -> ClusterStatus {
        let leader = self.leader.or(self.nodes.first().map(|node| node.node));
        ClusterStatus {
            asked: self.nodes[0].node,
            term: 3,
            leader,
            members: self
                .nodes
                .iter()
                .filter(|node| node.vnodes > 0)
                .map(|node| GroupMember { node: node.node, votes: true })
                .collect(),
            ring_version: self.version,
            vnodes: self.ring.len() as u32,
            pending: None,
            lease: leader,
            leaderless: 0,
            node_count: self.nodes.len() as u32,
            nodes: Vec::new(),
            more: false,
        }
    }
}

pub(super) fn handle(request: Request, cluster: &mut Cluster) -> Response {
    answer(request, cluster).map_or_else(Response::Error, Response::Ok)
}

fn answer(request: Request, cluster: &mut Cluster) -> Result<Payload, Reason> {
    match request {
        Request::ClusterStatus { after, max } => {
            // A draining node has one vnode less each time somebody looks.
            for node in cluster.nodes.iter_mut().filter(|node| node.state == NodeState::Draining) {
                node.vnodes = node.vnodes.saturating_sub(1);
            }
            let later = cluster.nodes.iter().filter(|node| Some(node.node) > after);
            let mut nodes: Vec<ClusterNode> = later.cloned().collect();
            let more = cut(&mut nodes, max);
            Ok(Payload::ClusterStatus(ClusterStatus { nodes, more, ..cluster.status() }))
        }
        Request::DescribeRing { from_token, max } => {
            let behind = cluster.ring.iter().filter(|vnode| vnode.token >= from_token);
            let mut vnodes: Vec<VnodeInfo> = behind.cloned().collect();
            let more = cut(&mut vnodes, max);
            if cluster.restless > 0 {
                cluster.restless -= 1;
                cluster.version += 1;
            }
            Ok(Payload::Ring(RingPage { version: cluster.version, vnodes, more }))
        }
        Request::ChangeNode { node, change, dry_run } => {
            let at = cluster.nodes.iter().position(|listed| listed.node == node).ok_or(Reason::NoSuchNode)?;
            let listed = &mut cluster.nodes[at];
            let found = NodeChanged {
                refusal: None,
                vnode_count: listed.vnodes,
                vnodes: (0..u64::from(listed.vnodes)).map(VnodeId).collect(),
                in_cluster_group: listed.vnodes > 0,
                segments: 0,
            };
            if change == NodeChange::Remove && listed.vnodes > 0 {
                let refusal = Some(Reason::NodeNotDrained.as_str().into());
                return if dry_run {
                    Ok(Payload::NodeChanged(NodeChanged { refusal, ..found }))
                } else {
                    Err(Reason::NodeNotDrained)
                };
            }
            if !dry_run {
                match change {
                    NodeChange::Drain => listed.state = NodeState::Draining,
                    NodeChange::Undrain => listed.state = NodeState::Active,
                    NodeChange::Remove | NodeChange::ForceRemove => drop(cluster.nodes.remove(at)),
                }
            }
            Ok(Payload::NodeChanged(found))
        }
        Request::Reshard { to, dry_run } => {
            if cluster.leader.is_some_and(|leader| leader != cluster.nodes[0].node) {
                return Err(Reason::NotLeaseHolder);
            }
            let from = cluster.ring.len() as u32;
            let source = cluster.ring[0].clone();
            let step = RingStep::Split { vnode: VnodeId(from.into()), source: source.vnode, token: from };
            // One step each time somebody asks.
            if !dry_run && from < to {
                cluster.ring.push(VnodeInfo { vnode: VnodeId(from.into()), token: from, ..source });
                cluster.version += 1;
            }
            let step_count = to - from;
            let steps = if step_count > 0 { vec![step] } else { Vec::new() };
            Ok(Payload::Resharding(Resharding { from, to, step_count, steps, refusal: None }))
        }
        Request::Rebalance { dry_run } => {
            if cluster.leader.is_some_and(|leader| leader != cluster.nodes[0].node) {
                return Err(Reason::NotLeaseHolder);
            }
            let move_count = cluster.moves.len() as u32;
            let moves = cluster.moves.clone();
            // One each time somebody asks.
            if !dry_run && !cluster.moves.is_empty() {
                cluster.moves.remove(0);
            }
            Ok(Payload::Rebalancing(Rebalancing { move_count, moves, refusal: None }))
        }
        _ => unreachable!("it is served elsewhere"),
    }
}
