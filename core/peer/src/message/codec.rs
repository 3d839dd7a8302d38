//! A message's bytes.
//!
//! ```text
//! raft             = list<vnode:u64 message:blob>                 at least one
//! raft_part        = vnode:u64 message:blob
//! attributes       = control_plane:opt<u128> incarnation:u64 name:blob address:blob
//!                    list<key:blob value:blob> list<capability:blob> ring_version:u64 list<vnode:u64 term:u64>
//! forward          = session:u64 user:blob revision:u64 body:blob
//! follow           = vnode:u64 from:u64 part:opt<index:u64 arrived:u64> wait_ms:u32
//! propose          = vnode:u64 fence:opt<u64> command:blob
//! read_index       = vnode:u64
//! forward_reply    = 0 answer:blob | 1 hint:opt<u128> | 2
//! follow_reply     = 0 list<term:u64 blob> | 1 index:u64 total:u64 offset:u64 bytes:blob | 2 hint:opt<u128> | 3
//! propose_reply    = 0 index:u64 reply:blob | 1 hint:opt<u128> | 2 | 3 refusal:u8
//! read_index_reply = 0 index:u64 | 1 hint:opt<u128> | 2
//! ```
//!
//! The rest is in `copy`, `part`, `attend` and `load`. Maps and sets are in order and without repetition, so that a value has one encoding.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{ControlPlaneId, FenceToken, Incarnation, NodeId, RaftIndex, Term, VnodeId, limits};

use super::{
    Attributes, Follow, FollowReply, Forward, ForwardReply, Kind, Message, OfGroup, Propose, ProposeRefusal,
    ProposeReply, ReadIndexReply, attend, copy, load, part,
};
use crate::hello::{opt_u128, put_opt_u128, text};
use crate::rope::Rope;

/// Indexes are below this, so that counting them up cannot overflow.
const INDEX_END: u64 = 1 << 62;

impl Message {
    /// Its bytes, without its kind. Opaque slices are linked in, not copied.
    pub fn encode(&self, out: &mut Rope) {
        match self {
            Self::Raft(batch) => {
                out.fields().put_count(batch.len());
                batch.iter().for_each(|message| message.encode(out));
            }
            Self::RaftPart(message) => message.encode(out),
            Self::Attributes(attributes) => attributes.encode(out.fields()),
            Self::Forward(Forward { session, user, revision, body }) => {
                out.fields().put_u64(*session);
                out.fields().put_blob(user);
                out.fields().put_u64(*revision);
                put_slice(out, body);
            }
            Self::Follow(Follow { vnode, from, part, wait_ms }) => {
                let fields = out.fields();
                fields.put_u64(vnode.0);
                fields.put_u64(from.0);
                fields.put_bool(part.is_some());
                if let Some((index, arrived)) = part {
                    fields.put_u64(index.0);
                    fields.put_u64(*arrived);
                }
                fields.put_u32(*wait_ms);
            }
            Self::Propose(Propose { vnode, fence, command }) => {
                out.fields().put_u64(vnode.0);
                out.fields().put_bool(fence.is_some());
                if let Some(fence) = fence {
                    out.fields().put_u64(fence.0);
                }
                put_slice(out, command);
            }
            Self::ReadIndex { vnode } => out.fields().put_u64(vnode.0),
            Self::ForwardReply(reply) => encode_forward_reply(reply, out),
            Self::FollowReply(reply) => encode_follow_reply(reply, out),
            Self::ProposeReply(reply) => encode_propose_reply(reply, out),
            Self::ReadIndexReply(reply) => encode_read_index_reply(reply, out.fields()),
            Self::Copy(of) => of.encode(out),
            Self::CopyReply(reply) => reply.encode(out),
            Self::Append(append) => append.encode(out),
            Self::AppendReply(reply) => reply.encode(out),
            Self::Watch(watch) => watch.encode(out),
            Self::WatchReply(reply) => reply.encode(out),
            Self::Assigned(assigned) => assigned.encode(out.fields()),
            Self::Attend(members) => attend::encode_attend(members, out.fields()),
            Self::AttendReply(standings) => attend::encode_standings(standings, out.fields()),
            Self::CommitAs(commit) => commit.encode(out),
            Self::CommitReply(reply) => reply.encode(out.fields()),
            Self::Members(key) => key.encode(out.fields()),
            Self::MembersReply(reply) => reply.encode(out.fields()),
            Self::Loads(loads) => load::encode_loads(loads, out.fields()),
        }
    }

    /// Reads a message of a kind, which takes all of `bytes`.
    pub fn decode(kind: Kind, bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let message = Self::read(kind, &mut reader)?;
        reader.finish()?;
        Ok(message)
    }

    fn read(kind: Kind, reader: &mut Reader) -> Result<Self, Error> {
        Ok(match kind {
            Kind::Raft => Self::Raft(raft_batch(reader)?),
            Kind::RaftPart => Self::RaftPart(OfGroup::read(reader)?),
            Kind::Attributes => Self::Attributes(Attributes::read(reader)?),
            Kind::Forward => {
                let (session, user, revision) = (reader.u64()?, reader.blob()?, reader.u64()?);
                if user.len() > limits::USER_NAME_BYTES_MAX {
                    return Err(Error::Invalid("a user's name"));
                }
                Self::Forward(Forward { session, user, revision, body: reader.blob()? })
            }
            Kind::Follow => Self::Follow(follow(reader)?),
            Kind::Propose => Self::Propose(propose(reader)?),
            Kind::ReadIndex => Self::ReadIndex { vnode: VnodeId(reader.u64()?) },
            Kind::ForwardReply => Self::ForwardReply(match reader.u8()? {
                0 => ForwardReply::Answer(reader.blob()?),
                1 => ForwardReply::NotServed { hint: node(reader)? },
                2 => ForwardReply::Overloaded,
                _ => return Err(Error::Invalid("an outcome")),
            }),
            Kind::FollowReply => Self::FollowReply(match reader.u8()? {
                0 => FollowReply::Entries(entries(reader)?),
                1 => part(reader)?,
                2 => FollowReply::NotHere { hint: node(reader)? },
                3 => FollowReply::Overloaded,
                _ => return Err(Error::Invalid("an outcome")),
            }),
            Kind::ProposeReply => Self::ProposeReply(match reader.u8()? {
                0 => ProposeReply::Applied { index: index(reader)?, reply: reader.blob()? },
                1 => ProposeReply::NotLeader { hint: node(reader)? },
                2 => ProposeReply::Unknown,
                3 => ProposeReply::Refused(propose_refusal(reader)?),
                _ => return Err(Error::Invalid("an outcome")),
            }),
            Kind::ReadIndexReply => Self::ReadIndexReply(match reader.u8()? {
                0 => ReadIndexReply::Ready(index(reader)?),
                1 => ReadIndexReply::NotLeader { hint: node(reader)? },
                2 => ReadIndexReply::Overloaded,
                _ => return Err(Error::Invalid("an outcome")),
            }),
            Kind::Copy => Self::Copy(copy::OfCopy::read(reader)?),
            Kind::CopyReply => Self::CopyReply(copy::Reply::read(reader)?),
            Kind::Append => Self::Append(part::Append::read(reader)?),
            Kind::AppendReply => Self::AppendReply(part::AppendReply::read(reader)?),
            Kind::Watch => Self::Watch(part::Watch::read(reader)?),
            Kind::WatchReply => Self::WatchReply(part::WatchReply::read(reader)?),
            Kind::Assigned => Self::Assigned(attend::Assigned::read(reader)?),
            Kind::Attend => Self::Attend(attend::read_attend(reader)?),
            Kind::AttendReply => Self::AttendReply(attend::read_standings(reader)?),
            Kind::CommitAs => Self::CommitAs(attend::CommitAs::read(reader)?),
            Kind::CommitReply => Self::CommitReply(attend::CommitReply::read(reader)?),
            Kind::Members => Self::Members(attend::Key::read(reader)?),
            Kind::MembersReply => Self::MembersReply(attend::MembersReply::read(reader)?),
            Kind::Loads => Self::Loads(load::loads(reader)?),
        })
    }
}

impl OfGroup {
    fn encode(&self, out: &mut Rope) {
        out.fields().put_u64(self.vnode.0);
        put_slice(out, &self.message);
    }

    fn read(reader: &mut Reader) -> Result<Self, Error> {
        let message = Self { vnode: VnodeId(reader.u64()?), message: reader.blob()? };
        let fits = message.message.len() <= limits::RAFT_MESSAGE_BYTES_MAX;
        if fits { Ok(message) } else { Err(Error::Invalid("the size of a Raft message")) }
    }
}

fn raft_batch(reader: &mut Reader) -> Result<Vec<OfGroup>, Error> {
    let count = counted(reader, 8 + 4, limits::PEER_BATCH_MESSAGES_MAX)?;
    if count == 0 {
        return Err(Error::Invalid("a batch of nothing"));
    }
    (0..count).map(|_| OfGroup::read(reader)).collect()
}

impl Attributes {
    fn encode(&self, bytes: &mut BytesMut) {
        put_opt_u128(bytes, self.control_plane.map(|id| id.0));
        bytes.put_u64(self.incarnation.0);
        bytes.put_blob(self.name.as_bytes());
        bytes.put_blob(self.address.as_bytes());
        bytes.put_count(self.attributes.len());
        for (key, value) in &self.attributes {
            bytes.put_blob(key);
            bytes.put_blob(value);
        }
        bytes.put_count(self.capabilities.len());
        for capability in &self.capabilities {
            bytes.put_blob(capability);
        }
        bytes.put_u64(self.ring_version);
        bytes.put_count(self.leads.len());
        for (vnode, term) in &self.leads {
            bytes.put_u64(vnode.0);
            bytes.put_u64(term.0);
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Error> {
        let control_plane = opt_u128(reader)?.map(ControlPlaneId);
        let incarnation = Incarnation(reader.u64()?);
        let name = text(reader, limits::NODE_NAME_BYTES_MAX)?;
        let address = text(reader, limits::NODE_ADDRESS_BYTES_MAX)?;
        let mut attributes = BTreeMap::new();
        for _ in 0..counted(reader, 4 + 4, limits::NODE_ATTRIBUTES_MAX)? {
            let key = short(reader, limits::POLICY_NAME_BYTES_MAX)?;
            let value = short(reader, limits::NODE_ATTRIBUTE_BYTES_MAX)?;
            append(&mut attributes, key, value)?;
        }
        let mut capabilities: Vec<Bytes> = Vec::new();
        for _ in 0..counted(reader, 4, limits::NODE_ATTRIBUTES_MAX)? {
            let capability = short(reader, limits::POLICY_NAME_BYTES_MAX)?;
            if capabilities.last().is_some_and(|last| *last >= capability) {
                return Err(Error::Invalid("an order"));
            }
            capabilities.push(capability);
        }
        let ring_version = reader.u64()?;
        let mut leads = BTreeMap::new();
        for _ in 0..counted(reader, 8 + 8, limits::NODE_LEADS_MAX)? {
            append(&mut leads, VnodeId(reader.u64()?), Term(reader.u64()?))?;
        }
        Ok(Self { control_plane, incarnation, name, address, attributes, capabilities, ring_version, leads })
    }
}

fn follow(reader: &mut Reader) -> Result<Follow, Error> {
    let (vnode, from) = (VnodeId(reader.u64()?), index(reader)?);
    let part = if reader.bool()? { Some((index(reader)?, reader.u64()?)) } else { None };
    Ok(Follow { vnode, from, part, wait_ms: reader.u32()? })
}

fn part(reader: &mut Reader) -> Result<FollowReply, Error> {
    let index = index(reader)?;
    let (total, offset, bytes) = (reader.u64()?, reader.u64()?, reader.blob()?);
    let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= total);
    if total > limits::RAFT_SNAPSHOT_BYTES_MAX as u64 || !fits {
        return Err(Error::Invalid("a part of a snapshot"));
    }
    Ok(FollowReply::Part { index, total, offset, bytes })
}

fn entries(reader: &mut Reader) -> Result<Vec<(Term, Bytes)>, Error> {
    let count = counted(reader, 8 + 4, limits::PEER_BATCH_MESSAGES_MAX)?;
    (0..count).map(|_| Ok((Term(reader.u64()?), reader.blob()?))).collect()
}

fn propose(reader: &mut Reader) -> Result<Propose, Error> {
    let vnode = VnodeId(reader.u64()?);
    let fence = if reader.bool()? { Some(FenceToken(reader.u64()?)) } else { None };
    let command = reader.blob()?;
    if command.len() > limits::RAFT_COMMAND_BYTES_MAX {
        return Err(Error::Invalid("the size of a command"));
    }
    Ok(Propose { vnode, fence, command })
}

fn encode_forward_reply(reply: &ForwardReply, out: &mut Rope) {
    match reply {
        ForwardReply::Answer(body) => {
            out.fields().put_u8(0);
            put_slice(out, body);
        }
        ForwardReply::NotServed { hint } => put_hint(out.fields(), 1, *hint),
        ForwardReply::Overloaded => out.fields().put_u8(2),
    }
}

fn encode_follow_reply(reply: &FollowReply, out: &mut Rope) {
    match reply {
        FollowReply::Entries(entries) => {
            out.fields().put_u8(0);
            out.fields().put_count(entries.len());
            for (term, entry) in entries {
                out.fields().put_u64(term.0);
                put_slice(out, entry);
            }
        }
        FollowReply::Part { index, total, offset, bytes } => {
            let fields = out.fields();
            fields.put_u8(1);
            fields.put_u64(index.0);
            fields.put_u64(*total);
            fields.put_u64(*offset);
            put_slice(out, bytes);
        }
        FollowReply::NotHere { hint } => put_hint(out.fields(), 2, *hint),
        FollowReply::Overloaded => out.fields().put_u8(3),
    }
}

fn encode_propose_reply(reply: &ProposeReply, out: &mut Rope) {
    match reply {
        ProposeReply::Applied { index, reply } => {
            out.fields().put_u8(0);
            out.fields().put_u64(index.0);
            put_slice(out, reply);
        }
        ProposeReply::NotLeader { hint } => put_hint(out.fields(), 1, *hint),
        ProposeReply::Unknown => out.fields().put_u8(2),
        ProposeReply::Refused(refusal) => {
            out.fields().put_u8(3);
            out.fields().put_u8(match refusal {
                ProposeRefusal::NoVnode => 0,
                ProposeRefusal::Overloaded => 1,
                ProposeRefusal::Fenced => 2,
                ProposeRefusal::TooLarge => 3,
            });
        }
    }
}

fn propose_refusal(reader: &mut Reader) -> Result<ProposeRefusal, Error> {
    Ok(match reader.u8()? {
        0 => ProposeRefusal::NoVnode,
        1 => ProposeRefusal::Overloaded,
        2 => ProposeRefusal::Fenced,
        3 => ProposeRefusal::TooLarge,
        _ => return Err(Error::Invalid("a refusal")),
    })
}

fn encode_read_index_reply(reply: &ReadIndexReply, bytes: &mut BytesMut) {
    match reply {
        ReadIndexReply::Ready(index) => {
            bytes.put_u8(0);
            bytes.put_u64(index.0);
        }
        ReadIndexReply::NotLeader { hint } => put_hint(bytes, 1, *hint),
        ReadIndexReply::Overloaded => bytes.put_u8(2),
    }
}

fn put_slice(out: &mut Rope, slice: &Bytes) {
    out.fields().put_count(slice.len());
    out.link(slice.clone());
}

fn put_hint(bytes: &mut BytesMut, tag: u8, hint: Option<NodeId>) {
    bytes.put_u8(tag);
    put_opt_u128(bytes, hint.map(|node| node.0));
}

fn node(reader: &mut Reader) -> Result<Option<NodeId>, Error> {
    Ok(opt_u128(reader)?.map(NodeId))
}

pub(super) fn index(reader: &mut Reader) -> Result<RaftIndex, Error> {
    let value = reader.u64()?;
    if value < INDEX_END { Ok(RaftIndex(value)) } else { Err(Error::Invalid("an index")) }
}

/// A copy, because it is kept for long and must not keep the buffer it came in.
fn short(reader: &mut Reader, bytes_max: usize) -> Result<Bytes, Error> {
    let bytes = reader.blob()?;
    if bytes.len() > bytes_max {
        return Err(Error::Invalid("the length of a name"));
    }
    Ok(Bytes::copy_from_slice(&bytes))
}

fn counted(reader: &mut Reader, item_bytes_min: usize, count_max: usize) -> Result<usize, Error> {
    let count = reader.count(item_bytes_min)?;
    if count > count_max { Err(Error::Invalid("a count")) } else { Ok(count) }
}

fn append<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Result<(), Error> {
    if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
        return Err(Error::Invalid("an order"));
    }
    map.insert(key, value);
    Ok(())
}
