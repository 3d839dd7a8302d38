//! The ring as everybody agrees on it: which vnodes there are, where they stand, who their members are, and the
//! change that is under way.
//!
//! Owns the topology. How a change is chosen and carried out is decided elsewhere: here it is begun, and ended as
//! done or undone, each time by whoever holds the lease. Members are a first guess for whoever looks for a vnode;
//! its group knows better.
//!
//! - the version grows by one with every change, and a change names the version it was worked out from, so every
//!   version has one successor;
//! - a token never moves, and the id of a vnode is never used again, not even that of one whose split was undone;
//! - while a change is under way the ring is the old one, and no other change begins.

use std::collections::{BTreeMap, BTreeSet};

use types::{FenceToken, NodeId, Ring, VnodeId, limits, ring};

use super::{Cluster, Refusal, Reply};

/// What the cluster knows of its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Of this value; grows with every change.
    pub version: u64,
    /// Vnodes and their tokens.
    pub ring: Ring,
    /// Members of every vnode on the ring, the first to lead.
    pub placements: BTreeMap<VnodeId, Vec<NodeId>>,
    /// The change that is under way.
    pub pending: Option<Intent>,
    /// Above every id that was given to a vnode.
    pub next_vnode: VnodeId,
}

/// A change of the ring that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Version of the topology that first had it: no other change ever has it.
    pub begun: u64,
    /// What changes.
    pub change: RingChange,
}

/// What becomes of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingChange {
    /// A new vnode takes a part of an arc.
    Split {
        /// The new one.
        vnode: VnodeId,
        /// Its token.
        token: u32,
        /// Its members, the first to lead.
        nodes: Vec<NodeId>,
    },
    /// A vnode gives its arc to the one behind it, and leaves the ring.
    Merge {
        /// The one that leaves.
        vnode: VnodeId,
    },
}

impl Topology {
    /// The vnode that is on its way onto the ring, and its members, the first to lead.
    #[must_use]
    pub fn coming(&self) -> Option<(VnodeId, &[NodeId])> {
        match &self.pending.as_ref()?.change {
            RingChange::Split { vnode, nodes, .. } => Some((*vnode, nodes)),
            RingChange::Merge { .. } => None,
        }
    }

    /// The ring once the change under way is done; the ring as it is when there is none.
    #[must_use]
    pub fn ring_after(&self) -> Ring {
        let mut ring = self.ring.clone();
        match self.pending.as_ref().map(|intent| &intent.change) {
            None => {}
            Some(RingChange::Split { vnode, token, .. }) => {
                ring.add(*vnode, *token).expect("checked when it was begun, and no other change began since");
            }
            Some(RingChange::Merge { vnode }) => {
                ring.remove(*vnode).expect("checked when it was begun, and no other change began since");
            }
        }
        ring
    }
}

/// Arguments of [`Command::ChangeRing`](super::Command::ChangeRing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRing {
    /// Of the topology the command was worked out from.
    pub expected: u64,
    /// Of the lease under which it is proposed.
    pub fence: FenceToken,
    /// What to do.
    pub act: RingAct,
}

/// What may be done to the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingAct {
    /// Begin to add a vnode; its id is given by the machine.
    BeginSplit {
        /// Its token.
        token: u32,
        /// Its members.
        nodes: Vec<NodeId>,
    },
    /// Begin to take a vnode off the ring.
    BeginMerge {
        /// Which vnode.
        vnode: VnodeId,
    },
    /// The change is done: the ring is the new one.
    Advance,
    /// The change is undone: the ring stays the old one.
    Clear,
    /// Say who the members of a vnode are now.
    SetPlacement {
        /// Which vnode.
        vnode: VnodeId,
        /// Its members.
        nodes: Vec<NodeId>,
    },
}

impl Cluster {
    pub(super) fn seed_ring(&mut self, placements: Vec<Vec<NodeId>>) -> Result<Reply, Refusal> {
        if self.topology.is_some() {
            return Err(Refusal::AlreadySeeded);
        }
        if placements.len() > limits::VNODES_MAX {
            return Err(Refusal::TooManyVnodes);
        }
        let count = u32::try_from(placements.len()).map_err(|_| Refusal::TooManyVnodes)?;
        let ring = Ring::boot(count).ok_or(Refusal::LastVnode)?;
        for nodes in &placements {
            self.check_members(nodes)?;
        }
        let placements = (0..).map(VnodeId).zip(placements).collect();
        let next_vnode = VnodeId(u64::from(count));
        self.topology = Some(Topology { version: 0, ring, placements, pending: None, next_vnode });
        Ok(Reply::RingChanged { version: 0 })
    }

    pub(super) fn change_ring(&mut self, change: ChangeRing) -> Result<Reply, Refusal> {
        let now = self.topology.as_ref().ok_or(Refusal::NoTopology)?;
        self.check_fence(change.fence)?;
        if change.expected != now.version {
            return Err(Refusal::StaleRing);
        }
        let mut next = now.clone();
        next.version = now.version.checked_add(1).ok_or(Refusal::StaleRing)?;
        match change.act {
            RingAct::BeginSplit { token, nodes } => {
                self.check_members(&nodes)?;
                next.begin_split(token, nodes)?;
            }
            RingAct::BeginMerge { vnode } => next.begin_merge(vnode)?,
            RingAct::Advance => next.advance()?,
            RingAct::Clear => {
                next.pending.take().ok_or(Refusal::NothingPending)?;
            }
            RingAct::SetPlacement { vnode, nodes } => {
                self.check_members(&nodes)?;
                *next.placements.get_mut(&vnode).ok_or(Refusal::NoSuchVnode)? = nodes;
            }
        }
        let version = next.version;
        self.topology = Some(next);
        Ok(Reply::RingChanged { version })
    }

    /// Whether a vnode, or one to come, has the node for a member.
    pub(super) fn is_placed(&self, node: NodeId) -> bool {
        let Some(topology) = &self.topology else { return false };
        let comes = topology.coming().is_some_and(|(_, nodes)| nodes.contains(&node));
        comes || topology.placements.values().any(|nodes| nodes.contains(&node))
    }

    fn check_members(&self, nodes: &[NodeId]) -> Result<(), Refusal> {
        if !are_members(nodes) {
            return Err(Refusal::InvalidReplicaSet);
        }
        nodes.iter().try_for_each(|node| self.nodes.check_listed(*node))
    }
}

impl Topology {
    fn begin_split(&mut self, token: u32, nodes: Vec<NodeId>) -> Result<(), Refusal> {
        if self.pending.is_some() {
            return Err(Refusal::ChangePending);
        }
        if self.ring.len() >= limits::VNODES_MAX {
            return Err(Refusal::TooManyVnodes);
        }
        let vnode = self.next_vnode;
        self.ring.clone().add(vnode, token).map_err(|error| match error {
            ring::AddError::AlreadyPresent => Refusal::NoSuchVnode,
            ring::AddError::TokenTaken => Refusal::TokenTaken,
        })?;
        self.next_vnode = VnodeId(vnode.0.checked_add(1).ok_or(Refusal::TooManyVnodes)?);
        self.begin(RingChange::Split { vnode, token, nodes });
        Ok(())
    }

    fn begin_merge(&mut self, vnode: VnodeId) -> Result<(), Refusal> {
        if self.pending.is_some() {
            return Err(Refusal::ChangePending);
        }
        if self.ring.token(vnode).is_none() {
            return Err(Refusal::NoSuchVnode);
        }
        if self.ring.len() == 1 {
            return Err(Refusal::LastVnode);
        }
        self.begin(RingChange::Merge { vnode });
        Ok(())
    }

    fn begin(&mut self, change: RingChange) {
        self.pending = Some(Intent { begun: self.version, change });
    }

    fn advance(&mut self) -> Result<(), Refusal> {
        let ring = self.ring_after();
        match self.pending.take().ok_or(Refusal::NothingPending)?.change {
            RingChange::Split { vnode, nodes, .. } => {
                self.placements.insert(vnode, nodes);
            }
            RingChange::Merge { vnode } => {
                self.placements.remove(&vnode);
            }
        }
        self.ring = ring;
        Ok(())
    }

    /// Whether rows that were decoded make sense together.
    pub(super) fn is_consistent(&self) -> bool {
        let placed = self.placements.keys().copied().eq(self.ring.iter().map(|(vnode, _)| vnode));
        let used = self.ring.iter().all(|(vnode, _)| vnode < self.next_vnode);
        let change = match &self.pending {
            None => true,
            Some(Intent { begun, change }) => {
                let fits = match change {
                    RingChange::Split { vnode, token, nodes } => {
                        *vnode < self.next_vnode
                            && self.ring.clone().add(*vnode, *token).is_ok()
                            && self.ring.len() < limits::VNODES_MAX
                            && are_members(nodes)
                    }
                    RingChange::Merge { vnode } => self.ring.token(*vnode).is_some() && self.ring.len() > 1,
                };
                fits && *begun > 0 && *begun <= self.version
            }
        };
        let counted = (1..=limits::VNODES_MAX).contains(&self.ring.len());
        placed && used && change && counted && self.placements.values().all(|nodes| are_members(nodes))
    }
}

/// Whether nodes can be the members of a group: some, not too many, each once.
fn are_members(nodes: &[NodeId]) -> bool {
    let distinct: BTreeSet<&NodeId> = nodes.iter().collect();
    (1..=limits::RAFT_MEMBERS_MAX).contains(&nodes.len()) && distinct.len() == nodes.len()
}
