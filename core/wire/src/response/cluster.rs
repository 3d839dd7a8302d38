//! The cluster as administrators are told of it: its nodes, its ring, and what a change would come to.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{NodeId, VnodeId};

use crate::Str;
use crate::request::{node, opt_node, put_opt_node};

/// Smallest member of a group.
const MEMBER_BYTES: usize = 16 + 1;
/// Smallest node: an empty name and address, no other address, no attributes.
const NODE_BYTES_MIN: usize = 16 + 5 + 5 + 1 + 1 + 8 + 1 + 1 + 4 + 4;
/// Smallest attribute: an empty key and value.
const ATTRIBUTE_BYTES_MIN: usize = 4 + 4;
/// Smallest vnode: no members, no leader.
const VNODE_BYTES_MIN: usize = 8 + 4 + 8 + 4 + 1 + 4;
/// Smallest step: a merge.
const STEP_BYTES_MIN: usize = 1 + 8 + 8;

/// The cluster as the node that was asked knows it, and some of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The node that answers.
    pub asked: NodeId,
    /// Term of the cluster group as that node knows it; 0 when it has no replica of it.
    pub term: u64,
    /// Who leads the cluster group, as far as that node knows.
    pub leader: Option<NodeId>,
    /// Members of the cluster group; none when that node has no replica of it.
    pub members: Vec<GroupMember>,
    /// Grows with every change of the ring.
    pub ring_version: u64,
    /// Vnodes on the ring; 0 before there is one.
    pub vnodes: u32,
    /// The change of the ring under way.
    pub pending: Option<RingStep>,
    /// Who may change the ring, as recorded last.
    pub lease: Option<NodeId>,
    /// Groups, the cluster's among them, whose leader that node does not know.
    pub leaderless: u32,
    /// Nodes of the cluster.
    pub node_count: u32,
    /// Some of them, in the order of their ids.
    pub nodes: Vec<ClusterNode>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A member of a Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Which node.
    pub node: NodeId,
    /// Whether it votes; one that does not is catching up.
    pub votes: bool,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Of its data; never used again.
    pub node: NodeId,
    /// For people; unique in the cluster; never null.
    pub name: Bytes,
    /// Where other nodes reach it, as `host:port`; never null.
    pub peer: Bytes,
    /// Where clients do; null until it said so.
    pub client: Str,
    /// How far it belongs.
    pub state: NodeState,
    /// Grows with every start of it; 0 before it has said a word.
    pub incarnation: u64,
    /// Whether the node that was asked is connected to it, or is it.
    pub connected: bool,
    /// How it is, as far as the node that was asked can tell.
    pub health: NodeHealth,
    /// Vnodes that have it for a member, as far as the node that was asked knows.
    pub vnodes: u32,
    /// What it says about where and what it is: key and value, by key.
    pub attributes: Vec<(Bytes, Bytes)>,
}

/// How far a node belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// Listed; it has not said a word yet.
    Joining,
    /// A full member.
    Active,
    /// On its way out: it gets nothing new, and what it has moves elsewhere.
    Draining,
}

/// How a node is, as far as another can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeHealth {
    /// It was heard of, and nobody doubts it.
    Alive,
    /// It does not answer somebody, and has not been given up.
    Suspect,
    /// It was given up, and there is no connection to it.
    Dead,
    /// Nothing was heard of it since the process that answers began.
    Unknown,
}

/// A change of the ring, by one vnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingStep {
    /// A new vnode takes a part of another's arc.
    Split {
        /// The new one.
        vnode: VnodeId,
        /// Whose arc.
        source: VnodeId,
        /// The new one's token.
        token: u32,
    },
    /// A vnode gives its arc away and is no more.
    Merge {
        /// The one that goes.
        vnode: VnodeId,
        /// The one that takes over.
        into: VnodeId,
    },
}

/// Some vnodes of the ring, in the order of their tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingPage {
    /// Grows with every change of the ring.
    pub version: u64,
    /// In the order of their tokens.
    pub vnodes: Vec<VnodeInfo>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A vnode of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnodeInfo {
    /// Its id; never used again.
    pub vnode: VnodeId,
    /// Its token: the last place of its arc.
    pub token: u32,
    /// Places of its arc, of 2^32.
    pub places: u64,
    /// Its members as placed, the one to lead first.
    pub members: Vec<NodeId>,
    /// Who leads it, as far as the node that was asked knows.
    pub leader: Option<NodeId>,
    /// Topics it has.
    pub topics: u32,
}

/// What a change of a node's place came to, or would come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChanged {
    /// Why it would be refused; null when it would not. Always null when it was done.
    pub refusal: Str,
    /// Vnodes that have the node for a member, as far as the node that was asked knows.
    pub vnode_count: u32,
    /// The first of them, in the order of ids.
    pub vnodes: Vec<VnodeId>,
    /// Whether it is a member of the cluster group, as far as the node that was asked knows.
    pub in_cluster_group: bool,
    /// Segments that have a copy on it.
    pub segments: u64,
}

/// What getting another number of vnodes takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resharding {
    /// Vnodes there are, without the change under way.
    pub from: u32,
    /// Vnodes there will be.
    pub to: u32,
    /// Steps from one to the other.
    pub step_count: u32,
    /// The first of them, in order.
    pub steps: Vec<RingStep>,
    /// Why it would be refused; null when it would not. Always null when it was begun.
    pub refusal: Str,
}

impl NodeHealth {
    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Self::Alive),
            1 => Ok(Self::Suspect),
            2 => Ok(Self::Dead),
            3 => Ok(Self::Unknown),
            _ => Err(Error::Invalid("a node's health")),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Alive => 0,
            Self::Suspect => 1,
            Self::Dead => 2,
            Self::Unknown => 3,
        }
    }
}

impl NodeState {
    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Self::Joining),
            1 => Ok(Self::Active),
            2 => Ok(Self::Draining),
            _ => Err(Error::Invalid("a node's state")),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Joining => 0,
            Self::Active => 1,
            Self::Draining => 2,
        }
    }
}

pub(super) fn list<T>(
    reader: &mut Reader,
    item_bytes_min: usize,
    item: impl Fn(&mut Reader) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let count = reader.count(item_bytes_min)?;
    (0..count).map(|_| item(reader)).collect()
}

fn present(reader: &mut Reader) -> Result<Bytes, Error> {
    reader.opt_blob()?.ok_or(Error::Invalid("a null name"))
}

fn vnode(reader: &mut Reader) -> Result<VnodeId, Error> {
    Ok(VnodeId(reader.u64()?))
}

fn member(reader: &mut Reader) -> Result<GroupMember, Error> {
    Ok(GroupMember { node: node(reader)?, votes: reader.bool()? })
}

impl ClusterStatus {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            asked: node(r)?,
            term: r.u64()?,
            leader: opt_node(r)?,
            members: list(r, MEMBER_BYTES, member)?,
            ring_version: r.u64()?,
            vnodes: r.u32()?,
            pending: if r.bool()? { Some(RingStep::decode(r)?) } else { None },
            lease: opt_node(r)?,
            leaderless: r.u32()?,
            node_count: r.u32()?,
            nodes: list(r, NODE_BYTES_MIN, ClusterNode::decode)?,
            more: r.bool()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u128(self.asked.0);
        out.put_u64(self.term);
        put_opt_node(out, self.leader);
        out.put_count(self.members.len());
        for member in &self.members {
            out.put_u128(member.node.0);
            out.put_bool(member.votes);
        }
        out.put_u64(self.ring_version);
        out.put_u32(self.vnodes);
        out.put_bool(self.pending.is_some());
        if let Some(step) = self.pending {
            step.encode(out);
        }
        put_opt_node(out, self.lease);
        out.put_u32(self.leaderless);
        out.put_u32(self.node_count);
        out.put_count(self.nodes.len());
        self.nodes.iter().for_each(|node| node.encode(out));
        out.put_bool(self.more);
    }
}

impl ClusterNode {
    /// Bytes it takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |client| 4 + client.len());
        let attribute = |(key, value): &(Bytes, Bytes)| ATTRIBUTE_BYTES_MIN + key.len() + value.len();
        let attributes: usize = self.attributes.iter().map(attribute).sum();
        NODE_BYTES_MIN + self.name.len() + self.peer.len() + client + attributes
    }

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            node: node(r)?,
            name: present(r)?,
            peer: present(r)?,
            client: r.opt_blob()?,
            state: NodeState::decode(r)?,
            incarnation: r.u64()?,
            connected: r.bool()?,
            health: NodeHealth::decode(r)?,
            vnodes: r.u32()?,
            attributes: list(r, ATTRIBUTE_BYTES_MIN, |r| Ok((r.blob()?, r.blob()?)))?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u128(self.node.0);
        out.put_opt_blob(Some(&self.name));
        out.put_opt_blob(Some(&self.peer));
        out.put_opt_blob(self.client.as_deref());
        out.put_u8(self.state.number());
        out.put_u64(self.incarnation);
        out.put_bool(self.connected);
        out.put_u8(self.health.number());
        out.put_u32(self.vnodes);
        out.put_count(self.attributes.len());
        for (key, value) in &self.attributes {
            out.put_blob(key);
            out.put_blob(value);
        }
    }
}

impl RingStep {
    /// Most bytes it takes.
    pub const BYTES_MAX: usize = STEP_BYTES_MIN + 4;

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match r.u8()? {
            0 => Ok(Self::Split { vnode: vnode(r)?, source: vnode(r)?, token: r.u32()? }),
            1 => Ok(Self::Merge { vnode: vnode(r)?, into: vnode(r)? }),
            _ => Err(Error::Invalid("a change of the ring")),
        }
    }

    fn encode(self, out: &mut BytesMut) {
        match self {
            Self::Split { vnode, source, token } => {
                out.put_u8(0);
                out.put_u64(vnode.0);
                out.put_u64(source.0);
                out.put_u32(token);
            }
            Self::Merge { vnode, into } => {
                out.put_u8(1);
                out.put_u64(vnode.0);
                out.put_u64(into.0);
            }
        }
    }
}

impl RingPage {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        let version = r.u64()?;
        let vnodes = list(r, VNODE_BYTES_MIN, VnodeInfo::decode)?;
        Ok(Self { version, vnodes, more: r.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.version);
        out.put_count(self.vnodes.len());
        self.vnodes.iter().for_each(|vnode| vnode.encode(out));
        out.put_bool(self.more);
    }
}

impl VnodeInfo {
    /// Bytes it takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        VNODE_BYTES_MIN + 16 * (self.members.len() + usize::from(self.leader.is_some()))
    }

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            vnode: vnode(r)?,
            token: r.u32()?,
            places: r.u64()?,
            members: list(r, 16, node)?,
            leader: opt_node(r)?,
            topics: r.u32()?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.vnode.0);
        out.put_u32(self.token);
        out.put_u64(self.places);
        out.put_count(self.members.len());
        self.members.iter().for_each(|member| out.put_u128(member.0));
        put_opt_node(out, self.leader);
        out.put_u32(self.topics);
    }
}

impl NodeChanged {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            refusal: r.opt_blob()?,
            vnode_count: r.u32()?,
            vnodes: list(r, 8, vnode)?,
            in_cluster_group: r.bool()?,
            segments: r.u64()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(self.refusal.as_deref());
        out.put_u32(self.vnode_count);
        out.put_count(self.vnodes.len());
        self.vnodes.iter().for_each(|vnode| out.put_u64(vnode.0));
        out.put_bool(self.in_cluster_group);
        out.put_u64(self.segments);
    }
}

impl Resharding {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        let (from, to, step_count) = (r.u32()?, r.u32()?, r.u32()?);
        let steps = list(r, STEP_BYTES_MIN, RingStep::decode)?;
        Ok(Self { from, to, step_count, steps, refusal: r.opt_blob()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.from);
        out.put_u32(self.to);
        out.put_u32(self.step_count);
        out.put_count(self.steps.len());
        self.steps.iter().for_each(|step| step.encode(out));
        out.put_opt_blob(self.refusal.as_deref());
    }
}
