//! The sections of nodes, the ring, the lease and the switches.
//!
//! ```text
//! nodes    = revision:u64  count:u32 row*  count:u32 removed:u128*    both in the order of ids
//! ring     = seeded:u8  and, when it is:  version:u64  next vnode:u64
//!            count:u32 (vnode:u64  token:u32  members)*                in the order of vnodes
//!            change:u8  begun:u64  its arguments                       0 when none is under way
//! lease    = held:u8  holder:u128 when it is  fence:u64  renewed at:u64  duration ms:u64
//! flags    = count:u32 name*                                           in the order of names
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, BytesMut};
use types::codec::{Reader, Writer};
use types::{FenceToken, Incarnation, NodeId, Ring, VnodeId, limits};

use super::{Ascending, Error, rows};
use crate::cluster::command::{self, control};
use crate::cluster::{
    FlagName, Intent, Lease, Node, NodeAddress, NodeName, NodeState, NodesRevision, RingChange, Topology,
    flags, nodes,
};

const NODE_BYTES_MIN: usize = 16 + (4 + 1) + (4 + 3) + 1 + 4 + 4 + 1 + 8;
const VNODE_BYTES_MIN: usize = 8 + 4 + 4;
const FLAG_BYTES_MIN: usize = 4 + 1;

pub(super) fn put_nodes(out: &mut BytesMut, table: &nodes::Nodes) {
    out.put_u64(table.revision.0);
    out.put_count(table.by_id.len());
    for (id, node) in &table.by_id {
        out.put_u128(id.0);
        out.put_blob(node.name.as_str().as_bytes());
        out.put_blob(node.peer.as_str().as_bytes());
        out.put_opt_blob(node.client.as_ref().map(|client| client.as_str().as_bytes()));
        out.put_count(node.attributes.len());
        for (key, value) in &node.attributes {
            out.put_blob(key.as_bytes());
            out.put_blob(value.as_bytes());
        }
        put_flags(out, &node.flags);
        out.put_u8(match node.state {
            NodeState::Joining => 1,
            NodeState::Active => 2,
            NodeState::Draining => 3,
        });
        out.put_u64(node.incarnation.0);
    }
    out.put_count(table.removed.len());
    for id in &table.removed {
        out.put_u128(id.0);
    }
}

pub(super) fn nodes(reader: &mut Reader) -> Result<nodes::Nodes, Error> {
    let mut table = nodes::Nodes { revision: NodesRevision(reader.u64()?), ..nodes::Nodes::default() };
    let mut order = Ascending(None);
    for _ in 0..rows(reader, NODE_BYTES_MIN, limits::NODES_MAX)? {
        let id = control::node(reader)?;
        order.check(id)?;
        let node = node(reader)?;
        if table.by_name(node.name.as_str()).is_some() {
            return Err(Error::Inconsistent("two nodes have one name"));
        }
        table.by_id.insert(id, node);
    }
    let mut order = Ascending(None);
    for _ in 0..rows(reader, 16, limits::NODES_REMOVED_MAX)? {
        let id = control::node(reader)?;
        order.check(id)?;
        if table.by_id.contains_key(&id) {
            return Err(Error::Inconsistent("a node is listed and removed"));
        }
        table.removed.insert(id);
    }
    Ok(table)
}

fn node(reader: &mut Reader) -> Result<Node, Error> {
    let address = |bytes: &[u8]| NodeAddress::new(bytes).map_err(|_| Error::Inconsistent("a node's address"));
    let name = NodeName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a node's name"))?;
    let peer = address(&reader.blob()?)?;
    let client = reader.opt_blob()?.map(|client| address(&client)).transpose()?;
    let mut order = Ascending(None);
    let mut pairs = Vec::new();
    for _ in 0..rows(reader, 4 + 1 + 4, limits::NODE_ATTRIBUTES_MAX)? {
        let (key, value) = (reader.blob()?, reader.blob()?);
        order.check(key.clone())?;
        pairs.push((key, value));
    }
    let attributes = nodes::attributes(&pairs).ok_or(Error::Inconsistent("a node's attributes"))?;
    let flags = read_flags(reader)?;
    let state = match reader.u8()? {
        1 => NodeState::Joining,
        2 => NodeState::Active,
        3 => NodeState::Draining,
        _ => return Err(Error::Inconsistent("a node's state")),
    };
    let incarnation = Incarnation(reader.u64()?);
    Ok(Node { name, peer, client, attributes, flags, state, incarnation })
}

pub(super) fn put_ring(out: &mut BytesMut, topology: Option<&Topology>) {
    out.put_bool(topology.is_some());
    let Some(topology) = topology else { return };
    out.put_u64(topology.version);
    out.put_u64(topology.next_vnode.0);
    out.put_count(topology.ring.len());
    for (vnode, token) in topology.ring.iter() {
        out.put_u64(vnode.0);
        out.put_u32(token);
        control::put_nodes(out, &topology.placements[&vnode]);
    }
    match &topology.pending {
        None => out.put_u8(0),
        Some(Intent { begun, change: RingChange::Split { vnode, token, nodes } }) => {
            out.put_u8(1);
            out.put_u64(*begun);
            out.put_u64(vnode.0);
            out.put_u32(*token);
            control::put_nodes(out, nodes);
        }
        Some(Intent { begun, change: RingChange::Merge { vnode } }) => {
            out.put_u8(2);
            out.put_u64(*begun);
            out.put_u64(vnode.0);
        }
    }
}

pub(super) fn ring(reader: &mut Reader) -> Result<Option<Topology>, Error> {
    if !reader.bool()? {
        return Ok(None);
    }
    let (version, next_vnode) = (reader.u64()?, VnodeId(reader.u64()?));
    let (mut ring, mut placements) = (Ring::default(), BTreeMap::new());
    let mut order = Ascending(None);
    for _ in 0..rows(reader, VNODE_BYTES_MIN, limits::VNODES_MAX)? {
        let (vnode, token) = (VnodeId(reader.u64()?), reader.u32()?);
        order.check(vnode)?;
        ring.add(vnode, token).map_err(|_| Error::Inconsistent("two vnodes have one token"))?;
        placements.insert(vnode, control::nodes(reader)?);
    }
    let kind = reader.u8()?;
    let begun = if kind == 0 { 0 } else { reader.u64()? };
    let change = match kind {
        0 => None,
        1 => {
            let (vnode, token) = (VnodeId(reader.u64()?), reader.u32()?);
            Some(RingChange::Split { vnode, token, nodes: control::nodes(reader)? })
        }
        2 => Some(RingChange::Merge { vnode: VnodeId(reader.u64()?) }),
        _ => return Err(Error::Inconsistent("a change of the ring")),
    };
    let pending = change.map(|change| Intent { begun, change });
    let topology = Topology { version, ring, placements, pending, next_vnode };
    if topology.is_consistent() { Ok(Some(topology)) } else { Err(Error::Inconsistent("a ring")) }
}

pub(super) fn put_lease(out: &mut BytesMut, lease: &Lease) {
    out.put_bool(lease.holder.is_some());
    if let Some(NodeId(holder)) = lease.holder {
        out.put_u128(holder);
    }
    out.put_u64(lease.fence.0);
    out.put_u64(lease.renewed_at.0);
    out.put_u64(lease.duration_ms);
}

pub(super) fn lease(reader: &mut Reader) -> Result<Lease, Error> {
    let holder = if reader.bool()? { Some(control::node(reader)?) } else { None };
    let fence = FenceToken(reader.u64()?);
    let (renewed_at, duration_ms) = (command::wall(reader)?, reader.u64()?);
    // The next holder needs a fence above it.
    if (holder.is_some() && fence == FenceToken::ZERO) || fence == FenceToken(u64::MAX) {
        return Err(Error::Inconsistent("a fence that cannot have been given"));
    }
    Ok(Lease { holder, fence, renewed_at, duration_ms })
}

pub(super) fn put_flags(out: &mut BytesMut, flags: &BTreeSet<FlagName>) {
    out.put_count(flags.len());
    for flag in flags {
        out.put_blob(flag.as_str().as_bytes());
    }
}

pub(super) fn flags(reader: &mut Reader) -> Result<flags::Flags, Error> {
    Ok(flags::Flags { enabled: read_flags(reader)? })
}

fn read_flags(reader: &mut Reader) -> Result<BTreeSet<FlagName>, Error> {
    let mut order = Ascending(None);
    let mut flags = BTreeSet::new();
    for _ in 0..rows(reader, FLAG_BYTES_MIN, limits::FLAGS_MAX)? {
        let flag = FlagName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a flag's name"))?;
        order.check(flag.clone())?;
        flags.insert(flag);
    }
    Ok(flags)
}
