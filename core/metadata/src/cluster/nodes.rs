//! The nodes of the cluster: who belongs to it, where it is reached, what it says about itself.
//!
//! Owns the list of members as everybody agrees on it. Who is alive is not agreed on, and which of them vote in a
//! group is that group's own.
//!
//! ```text
//! (unknown) ── add ──▶ joining ── first word of its own ──▶ active ◀── undrain ── draining ── remove ──▶ removed
//!                         │                                   └────── drain ──────▶ ▲
//!                         └──────────────────────── drain ──────────────────────────┘
//! ```
//!
//! - an id that was removed never comes back: whoever has its data directory is refused by id;
//! - names are unique among the nodes listed, and free again once their node is removed;
//! - what a node says about itself is taken in the order of its incarnations;
//! - a change of who belongs names the revision it was worked out from, so two of them never cross;
//! - one node at least is active, or none ever was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use types::{Incarnation, NodeId, limits};

use super::text::text;
use super::{Cluster, Command, FlagName, Refusal, Reply, policy};

text! {
    /// A node's name: 1 to 255 of `A-Z a-z 0-9 . _ - @ :`.
    NodeName,
    /// Not the name of a node.
    InvalidNodeName("a node's name has 1 to 255 of A-Z a-z 0-9 . _ - @ :"),
    |name| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@' | b':');
        (1..=limits::NODE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
    }
}

text! {
    /// Where a node is reached: a host name or an IP address, a colon, a port. It is resolved anew each time.
    NodeAddress,
    /// Not the address of a node.
    InvalidNodeAddress("a node's address is a host, a colon and a port"),
    |address| {
        let Some((host, port)) = address.rsplit_once(':') else { return false };
        let allowed =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'[' | b']' | b'%');
        let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
        address.len() <= limits::NODE_ADDRESS_BYTES_MAX && !host.is_empty() && host.bytes().all(allowed) && is_port
    }
}

/// Number of the list of members; grows with every change of who belongs and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodesRevision(pub u64);

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

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique among the nodes listed; for people.
    pub name: NodeName,
    /// Where other nodes reach it.
    pub peer: NodeAddress,
    /// Where clients reach it; `None` until it said so.
    pub client: Option<NodeAddress>,
    /// What it says about where and what it is, by key.
    pub attributes: BTreeMap<Arc<str>, Arc<str>>,
    /// Switches of the cluster that its build can honour.
    pub flags: BTreeSet<FlagName>,
    /// How far it belongs.
    pub state: NodeState,
    /// Of its latest word about itself; 0 before the first.
    pub incarnation: Incarnation,
}

/// Arguments of [`Command::AddNode`](super::Command::AddNode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddNode {
    /// Drawn with its data directory; never listed before.
    pub node: NodeId,
    /// As it was given.
    pub name: Bytes,
    /// As it was given.
    pub peer: Bytes,
    /// The list the command was worked out from.
    pub expected: NodesRevision,
}

/// Arguments of [`Command::SetNode`](super::Command::SetNode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetNode {
    /// The node that speaks.
    pub node: NodeId,
    /// Its own; at least the recorded one.
    pub incarnation: Incarnation,
    /// As the node gave it.
    pub peer: Bytes,
    /// As the node gave it.
    pub client: Option<Bytes>,
    /// Keys and values; the last of two for one key holds.
    pub attributes: Vec<(Bytes, Bytes)>,
    /// Switches its build can honour.
    pub flags: Vec<Bytes>,
}

/// Arguments of the commands that change how far a node belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeNode {
    /// Which node.
    pub node: NodeId,
    /// The list the command was worked out from.
    pub expected: NodesRevision,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) revision: NodesRevision,
    pub(super) by_id: BTreeMap<NodeId, Node>,
    pub(super) removed: BTreeSet<NodeId>,
}

impl Nodes {
    /// O(nodes).
    pub(super) fn by_name(&self, name: &str) -> Option<(NodeId, &Node)> {
        self.by_id.iter().find(|(_, node)| node.name.as_str() == name).map(|(id, node)| (*id, node))
    }

    /// Refuses an id that is not listed.
    pub(super) fn check_listed(&self, id: NodeId) -> Result<(), Refusal> {
        self.listed(id).map(|_| ())
    }

    fn listed(&self, id: NodeId) -> Result<&Node, Refusal> {
        self.by_id.get(&id).ok_or(self.why_unlisted(id))
    }

    fn why_unlisted(&self, id: NodeId) -> Refusal {
        if self.removed.contains(&id) { Refusal::NodeRemoved } else { Refusal::NoSuchNode }
    }

    fn check_revision(&self, expected: NodesRevision) -> Result<(), Refusal> {
        if expected == self.revision { Ok(()) } else { Err(Refusal::StaleRevision) }
    }

    /// Whether a node is active that is not this one.
    fn another_is_active(&self, id: NodeId) -> bool {
        self.by_id.iter().any(|(other, node)| *other != id && node.state == NodeState::Active)
    }

    fn changed(&mut self) -> Reply {
        self.revision = NodesRevision(self.revision.0.saturating_add(1));
        Reply::NodesChanged(self.revision)
    }
}

impl Cluster {
    pub(super) fn add_node(&mut self, add: &AddNode) -> Result<Reply, Refusal> {
        let name = NodeName::new(&add.name).map_err(|_| Refusal::InvalidNode)?;
        let peer = NodeAddress::new(&add.peer).map_err(|_| Refusal::InvalidNode)?;
        self.nodes.check_revision(add.expected)?;
        if self.nodes.by_id.contains_key(&add.node) {
            return Err(Refusal::NodeExists);
        }
        if self.nodes.removed.contains(&add.node) {
            return Err(Refusal::NodeRemoved);
        }
        if self.nodes.by_name(name.as_str()).is_some() {
            return Err(Refusal::NodeNameTaken);
        }
        // Every node listed may be removed one day.
        let ids = self.nodes.by_id.len() + self.nodes.removed.len();
        if self.nodes.by_id.len() >= limits::NODES_MAX || ids >= limits::NODES_REMOVED_MAX {
            return Err(Refusal::TooManyNodes);
        }
        let node = Node {
            name,
            peer,
            client: None,
            attributes: BTreeMap::new(),
            flags: BTreeSet::new(),
            state: NodeState::Joining,
            incarnation: Incarnation::ZERO,
        };
        self.nodes.by_id.insert(add.node, node);
        Ok(self.nodes.changed())
    }

    pub(super) fn set_node(&mut self, set: &SetNode) -> Result<Reply, Refusal> {
        let peer = NodeAddress::new(&set.peer).map_err(|_| Refusal::InvalidNode)?;
        let client = set.client.as_ref().map(|client| NodeAddress::new(client)).transpose();
        let client = client.map_err(|_| Refusal::InvalidNode)?;
        let attributes = attributes(&set.attributes).ok_or(Refusal::InvalidNode)?;
        let flags = super::flags::names(&set.flags).ok_or(Refusal::InvalidFlag)?;
        let node = self.nodes.listed(set.node)?;
        if set.incarnation < node.incarnation || set.incarnation == Incarnation::ZERO {
            return Err(Refusal::StaleIncarnation);
        }
        if !self.flags.enabled.is_subset(&flags) {
            return Err(Refusal::FlagUnsupported);
        }
        let begins = node.state == NodeState::Joining;
        let state = if begins { NodeState::Active } else { node.state };
        let (name, incarnation) = (node.name.clone(), set.incarnation);
        let node = Node { name, peer, client, attributes, flags, state, incarnation };
        self.nodes.by_id.insert(set.node, node);
        Ok(if begins { self.nodes.changed() } else { Reply::NodesChanged(self.nodes.revision) })
    }

    pub(super) fn drain_node(&mut self, change: ChangeNode) -> Result<Reply, Refusal> {
        let ChangeNode { node: id, expected } = change;
        let state = self.nodes.listed(id)?.state;
        self.nodes.check_revision(expected)?;
        if state == NodeState::Draining {
            return Ok(Reply::NodesChanged(self.nodes.revision));
        }
        if !self.nodes.another_is_active(id) {
            return Err(Refusal::LastNode);
        }
        Ok(self.turn(id, NodeState::Draining))
    }

    pub(super) fn undrain_node(&mut self, change: ChangeNode) -> Result<Reply, Refusal> {
        let ChangeNode { node: id, expected } = change;
        let node = self.nodes.listed(id)?;
        self.nodes.check_revision(expected)?;
        if node.state != NodeState::Draining {
            return Ok(Reply::NodesChanged(self.nodes.revision));
        }
        // One that never spoke still has to.
        let has_spoken = node.incarnation > Incarnation::ZERO;
        Ok(self.turn(id, if has_spoken { NodeState::Active } else { NodeState::Joining }))
    }

    /// A node is out of the way when it is drained, and no vnode has it for a member. What segments it holds is
    /// not known here.
    pub(super) fn remove_node(&mut self, change: ChangeNode, force: bool) -> Result<Reply, Refusal> {
        let ChangeNode { node: id, expected } = change;
        let state = self.nodes.listed(id)?.state;
        self.nodes.check_revision(expected)?;
        if !self.nodes.another_is_active(id) {
            return Err(Refusal::LastNode);
        }
        if !force && (state != NodeState::Draining || self.is_placed(id)) {
            return Err(Refusal::NotDrained);
        }
        self.nodes.by_id.remove(&id);
        self.nodes.removed.insert(id);
        self.lease.forget(id);
        Ok(self.nodes.changed())
    }

    /// What a change of how far a node belongs would be refused with now: it is run over a copy of what it looks at.
    pub fn check_node_change(&self, change: Command) -> Result<(), Refusal> {
        let (nodes, topology, lease) = (self.nodes.clone(), self.topology.clone(), self.lease);
        let mut copy = Self { nodes, topology, lease, ..Self::new(self.version) };
        copy.run(change).map(drop)
    }

    fn turn(&mut self, id: NodeId, state: NodeState) -> Reply {
        self.nodes.by_id.get_mut(&id).expect("the caller found it").state = state;
        self.nodes.changed()
    }
}

/// `None` for too many, or one that cannot be an attribute.
pub(super) fn attributes(pairs: &[(Bytes, Bytes)]) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
    if pairs.len() > limits::NODE_ATTRIBUTES_MAX {
        return None;
    }
    let pair = |(key, value): &(Bytes, Bytes)| {
        let value = std::str::from_utf8(value).ok()?;
        let fits = value.len() <= limits::NODE_ATTRIBUTE_BYTES_MAX && !value.chars().any(char::is_control);
        fits.then_some((policy::text(key)?.into(), value.into()))
    };
    pairs.iter().map(pair).collect()
}
