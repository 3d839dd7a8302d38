//! The arguments of commands about nodes, the ring, the lease and switches, as bytes.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{FenceToken, Incarnation, NodeId, VnodeId};

use super::wall;
use crate::cluster::{
    AcquireLease, AddNode, ChangeNode, ChangeRing, Command, EnableFlag, NodesRevision, Renewal, RingAct,
    Seen, SetNode,
};

const BEGIN_SPLIT: u8 = 1;
const BEGIN_MERGE: u8 = 2;
const ADVANCE: u8 = 3;
const CLEAR: u8 = 4;
const SET_PLACEMENT: u8 = 5;

pub(super) fn put_add_node(out: &mut BytesMut, add: &AddNode) {
    out.put_u128(add.node.0);
    out.put_blob(&add.name);
    out.put_blob(&add.peer);
    out.put_u64(add.expected.0);
}

pub(super) fn add_node(reader: &mut Reader) -> Result<Command, Error> {
    let node = node(reader)?;
    let (name, peer) = (reader.blob()?, reader.blob()?);
    Ok(Command::AddNode(AddNode { node, name, peer, expected: revision(reader)? }))
}

pub(super) fn put_set_node(out: &mut BytesMut, set: &SetNode) {
    out.put_u128(set.node.0);
    out.put_u64(set.incarnation.0);
    out.put_blob(&set.peer);
    out.put_opt_blob(set.client.as_deref());
    out.put_count(set.attributes.len());
    for (key, value) in &set.attributes {
        out.put_blob(key);
        out.put_blob(value);
    }
    put_blobs(out, &set.flags);
}

pub(super) fn set_node(reader: &mut Reader) -> Result<Command, Error> {
    let (node, incarnation) = (node(reader)?, Incarnation(reader.u64()?));
    let (peer, client) = (reader.blob()?, reader.opt_blob()?);
    let count = reader.count(4 + 4)?;
    let attributes =
        (0..count).map(|_| Ok((reader.blob()?, reader.blob()?))).collect::<Result<Vec<_>, Error>>()?;
    let flags = blobs(reader)?;
    Ok(Command::SetNode(SetNode { node, incarnation, peer, client, attributes, flags }))
}

pub(super) fn put_change_node(out: &mut BytesMut, change: ChangeNode) {
    out.put_u128(change.node.0);
    out.put_u64(change.expected.0);
}

pub(super) fn change_node(reader: &mut Reader) -> Result<ChangeNode, Error> {
    Ok(ChangeNode { node: node(reader)?, expected: revision(reader)? })
}

pub(super) fn remove_node(reader: &mut Reader) -> Result<Command, Error> {
    let change = change_node(reader)?;
    Ok(Command::RemoveNode { change, force: reader.bool()? })
}

pub(super) fn put_seed_ring(out: &mut BytesMut, placements: &[Vec<NodeId>]) {
    out.put_count(placements.len());
    for nodes in placements {
        put_nodes(out, nodes);
    }
}

pub(super) fn seed_ring(reader: &mut Reader) -> Result<Command, Error> {
    let count = reader.count(4)?;
    let placements = (0..count).map(|_| nodes(reader)).collect::<Result<Vec<_>, Error>>()?;
    Ok(Command::SeedRing { placements })
}

pub(super) fn put_change_ring(out: &mut BytesMut, change: &ChangeRing) {
    out.put_u64(change.expected);
    out.put_u64(change.fence.0);
    match &change.act {
        RingAct::BeginSplit { token, nodes } => {
            out.put_u8(BEGIN_SPLIT);
            out.put_u32(*token);
            put_nodes(out, nodes);
        }
        RingAct::BeginMerge { vnode } => {
            out.put_u8(BEGIN_MERGE);
            out.put_u64(vnode.0);
        }
        RingAct::Advance => out.put_u8(ADVANCE),
        RingAct::Clear => out.put_u8(CLEAR),
        RingAct::SetPlacement { vnode, nodes } => {
            out.put_u8(SET_PLACEMENT);
            out.put_u64(vnode.0);
            put_nodes(out, nodes);
        }
    }
}

pub(super) fn change_ring(reader: &mut Reader) -> Result<Command, Error> {
    let (expected, fence) = (reader.u64()?, FenceToken(reader.u64()?));
    let act = match reader.u8()? {
        BEGIN_SPLIT => RingAct::BeginSplit { token: reader.u32()?, nodes: nodes(reader)? },
        BEGIN_MERGE => RingAct::BeginMerge { vnode: VnodeId(reader.u64()?) },
        ADVANCE => RingAct::Advance,
        CLEAR => RingAct::Clear,
        SET_PLACEMENT => RingAct::SetPlacement { vnode: VnodeId(reader.u64()?), nodes: nodes(reader)? },
        _ => return Err(Error::Invalid("what to do to the ring")),
    };
    Ok(Command::ChangeRing(ChangeRing { expected, fence, act }))
}

pub(super) fn put_acquire_lease(out: &mut BytesMut, acquire: AcquireLease) {
    out.put_u128(acquire.candidate.0);
    out.put_u64(acquire.duration_ms);
    out.put_u64(acquire.at.0);
    out.put_bool(acquire.over.is_some());
    if let Some(Renewal { fence, at }) = acquire.over {
        out.put_u64(fence.0);
        out.put_u64(at.0);
    }
}

pub(super) fn acquire_lease(reader: &mut Reader) -> Result<Command, Error> {
    let (candidate, duration_ms, at) = (node(reader)?, reader.u64()?, wall(reader)?);
    let over = match reader.bool()? {
        true => Some(Renewal { fence: FenceToken(reader.u64()?), at: wall(reader)? }),
        false => None,
    };
    Ok(Command::AcquireLease(AcquireLease { candidate, duration_ms, at, over }))
}

pub(super) fn release_lease(reader: &mut Reader) -> Result<Command, Error> {
    Ok(Command::ReleaseLease { candidate: node(reader)?, fence: FenceToken(reader.u64()?) })
}

pub(super) fn put_enable_flag(out: &mut BytesMut, enable: &EnableFlag) {
    out.put_blob(&enable.flag);
    out.put_count(enable.seen.len());
    for seen in &enable.seen {
        out.put_u128(seen.node.0);
        out.put_u64(seen.incarnation.0);
        put_blobs(out, &seen.flags);
    }
}

pub(super) fn enable_flag(reader: &mut Reader) -> Result<Command, Error> {
    let flag = reader.blob()?;
    let count = reader.count(16 + 8 + 4)?;
    let seen = |reader: &mut Reader| {
        let (node, incarnation) = (node(reader)?, Incarnation(reader.u64()?));
        Ok(Seen { node, incarnation, flags: blobs(reader)? })
    };
    let seen = (0..count).map(|_| seen(reader)).collect::<Result<Vec<_>, Error>>()?;
    Ok(Command::EnableFlag(EnableFlag { flag, seen }))
}

pub(in crate::cluster) fn node(reader: &mut Reader) -> Result<NodeId, Error> {
    reader.u128().map(NodeId)
}

pub(in crate::cluster) fn put_nodes(out: &mut BytesMut, nodes: &[NodeId]) {
    out.put_count(nodes.len());
    for node in nodes {
        out.put_u128(node.0);
    }
}

pub(in crate::cluster) fn nodes(reader: &mut Reader) -> Result<Vec<NodeId>, Error> {
    let count = reader.count(16)?;
    (0..count).map(|_| node(reader)).collect()
}

fn revision(reader: &mut Reader) -> Result<NodesRevision, Error> {
    reader.u64().map(NodesRevision)
}

pub(in crate::cluster) fn put_blobs(out: &mut BytesMut, blobs: &[Bytes]) {
    out.put_count(blobs.len());
    for blob in blobs {
        out.put_blob(blob);
    }
}

pub(in crate::cluster) fn blobs(reader: &mut Reader) -> Result<Vec<Bytes>, Error> {
    let count = reader.count(4)?;
    (0..count).map(|_| reader.blob()).collect()
}
