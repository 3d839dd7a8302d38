//! The bytes the engine sends and reads.
//!
//! ```text
//!   header    source: identity  refutations:u16  destination: node:u128 incarnation:u64  kind:u8  fields
//!   then nothing, or a count:u16 of
//!   news      identity  refutations:u16  state:u8
//!   identity  node:u128 incarnation:u64 address: length:u16 bytes
//! ```
//!
//! A packet is decoded whole by [`News`] before the engine sees it: what it is given was encoded by us. Destinations
//! carry no address: a node knows its own. A destination of zero is for whoever is there, which only a first
//! question (announce) may be.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use foca::{Header, Member, Message, State};
use types::codec::{Error, Reader};
use types::{Incarnation, NodeId, limits};

use crate::address::Address;
use crate::engine::Identity;
use crate::incarnation::CEILING_MAX;

const PING: u8 = 1;
const ACK: u8 = 2;
const PING_REQUEST: u8 = 3;
const INDIRECT_PING: u8 = 4;
const INDIRECT_ACK: u8 = 5;
const FORWARDED_ACK: u8 = 6;
const ANNOUNCE: u8 = 7;
const FEED: u8 = 8;
const GOSSIP: u8 = 9;
const BROADCAST: u8 = 10;
const TURN_UNDEAD: u8 = 11;

const ALIVE: u8 = 1;
const SUSPECT: u8 = 2;
const DOWN: u8 = 3;

/// Whoever is there.
pub(crate) const ANYBODY: NodeId = NodeId(0);

/// Writes `length:u16` and the text.
pub(crate) fn put_address(bytes: &mut impl BufMut, address: &Address) {
    let text = address.as_str().as_bytes();
    bytes.put_u16(u16::try_from(text.len()).expect("addresses are short"));
    bytes.put_slice(text);
}

pub(crate) fn get_address(reader: &mut Reader) -> Result<Address, Error> {
    let len = usize::from(reader.u16()?);
    if len > limits::NODE_ADDRESS_BYTES_MAX {
        return Err(Error::Invalid("an address's length"));
    }
    Address::new(&reader.take(len)?).map_err(|_| Error::Invalid("an address"))
}

pub(crate) fn get_incarnation(reader: &mut Reader) -> Result<Incarnation, Error> {
    let incarnation = Incarnation(reader.u64()?);
    if incarnation > CEILING_MAX { Err(Error::Invalid("an incarnation")) } else { Ok(incarnation) }
}

fn put_identity(bytes: &mut impl BufMut, identity: &Identity) {
    bytes.put_u128(identity.node.0);
    bytes.put_u64(identity.incarnation.0);
    put_address(bytes, &identity.address);
}

fn get_identity(reader: &mut Reader) -> Result<Identity, Error> {
    let node = NodeId(reader.u128()?);
    if node == ANYBODY {
        return Err(Error::Invalid("a node id"));
    }
    Ok(Identity { node, incarnation: get_incarnation(reader)?, address: get_address(reader)? })
}

fn put_member(bytes: &mut impl BufMut, member: &Member<Identity>) {
    put_identity(bytes, member.id());
    bytes.put_u16(member.incarnation());
    bytes.put_u8(match member.state() {
        State::Alive => ALIVE,
        State::Suspect => SUSPECT,
        State::Down => DOWN,
    });
}

fn get_member(reader: &mut Reader) -> Result<Member<Identity>, Error> {
    let identity = get_identity(reader)?;
    let refutations = reader.u16()?;
    let state = match reader.u8()? {
        ALIVE => State::Alive,
        SUSPECT => State::Suspect,
        DOWN => State::Down,
        _ => return Err(Error::Invalid("a member's state")),
    };
    Ok(Member::new(identity, refutations, state))
}

fn put_header(bytes: &mut impl BufMut, header: &Header<Identity>) {
    put_identity(bytes, &header.src);
    bytes.put_u16(header.src_incarnation);
    bytes.put_u128(header.dst.node.0);
    bytes.put_u64(header.dst.incarnation.0);
    let mut probe = |kind: u8, number: u8| {
        bytes.put_u8(kind);
        bytes.put_u8(number);
    };
    match &header.message {
        Message::Ping(number) => probe(PING, *number),
        Message::Ack(number) => probe(ACK, *number),
        Message::PingReq { target, probe_number } => {
            probe(PING_REQUEST, *probe_number);
            put_identity(bytes, target);
        }
        Message::IndirectPing { origin, probe_number } => {
            probe(INDIRECT_PING, *probe_number);
            put_identity(bytes, origin);
        }
        Message::IndirectAck { target, probe_number } => {
            probe(INDIRECT_ACK, *probe_number);
            put_identity(bytes, target);
        }
        Message::ForwardedAck { origin, probe_number } => {
            probe(FORWARDED_ACK, *probe_number);
            put_identity(bytes, origin);
        }
        Message::Announce => bytes.put_u8(ANNOUNCE),
        Message::Feed => bytes.put_u8(FEED),
        Message::Gossip => bytes.put_u8(GOSSIP),
        Message::Broadcast => bytes.put_u8(BROADCAST),
        Message::TurnUndead => bytes.put_u8(TURN_UNDEAD),
    }
}

fn get_header(reader: &mut Reader, own: &Identity) -> Result<Header<Identity>, Error> {
    let src = get_identity(reader)?;
    let src_incarnation = reader.u16()?;
    let node = NodeId(reader.u128()?);
    let incarnation = get_incarnation(reader)?;
    let kind = reader.u8()?;
    let is_for_anybody = node == ANYBODY && kind == ANNOUNCE;
    let dst = if is_for_anybody {
        own.clone()
    } else {
        Identity { node, incarnation, address: own.address.clone() }
    };
    let message = match kind {
        PING => Message::Ping(reader.u8()?),
        ACK => Message::Ack(reader.u8()?),
        PING_REQUEST => {
            let probe_number = reader.u8()?;
            Message::PingReq { target: get_identity(reader)?, probe_number }
        }
        INDIRECT_PING => {
            let probe_number = reader.u8()?;
            Message::IndirectPing { origin: get_identity(reader)?, probe_number }
        }
        INDIRECT_ACK => {
            let probe_number = reader.u8()?;
            Message::IndirectAck { target: get_identity(reader)?, probe_number }
        }
        FORWARDED_ACK => {
            let probe_number = reader.u8()?;
            Message::ForwardedAck { origin: get_identity(reader)?, probe_number }
        }
        ANNOUNCE => Message::Announce,
        FEED => Message::Feed,
        GOSSIP => Message::Gossip,
        TURN_UNDEAD => Message::TurnUndead,
        // The engine has such a message; nobody here sends it.
        _ => return Err(Error::Invalid("a message's kind")),
    };
    Ok(Header { src, src_incarnation, dst, message })
}

/// One packet of the engine's, decoded whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) header: Header<Identity>,
    pub(crate) members: Vec<Member<Identity>>,
}

impl News {
    /// Reads all of `bytes`, as the node `own`.
    pub(crate) fn decode(bytes: Bytes, own: &Identity) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let header = get_header(&mut reader, own)?;
        let mut members = Vec::new();
        let has_members = !matches!(header.message, Message::Announce | Message::TurnUndead);
        if has_members && reader.remaining() > 0 {
            for _ in 0..reader.u16()? {
                members.push(get_member(&mut reader)?);
            }
        }
        reader.finish()?;
        Ok(Self { header, members })
    }

    /// The bytes for the engine.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(limits::MEMBER_NEWS_BYTES_MAX);
        put_header(&mut bytes, &self.header);
        if !matches!(self.header.message, Message::Announce | Message::TurnUndead) {
            bytes.put_u16(u16::try_from(self.members.len()).expect("they were counted in 16 bits"));
            for member in &self.members {
                put_member(&mut bytes, member);
            }
        }
        bytes.freeze()
    }
}

/// The engine's way to all this.
#[derive(Clone, Debug)]
pub(crate) struct EngineCodec {
    /// Fills in what destinations leave out.
    pub(crate) own: Identity,
}

impl EngineCodec {
    fn write(&self, mut to: impl BufMut, put: impl FnOnce(&mut BytesMut)) -> Result<(), Error> {
        let mut bytes = BytesMut::with_capacity(128);
        put(&mut bytes);
        if to.remaining_mut() < bytes.len() {
            return Err(Error::Short);
        }
        to.put(bytes);
        Ok(())
    }

    fn read<T>(
        &self,
        mut from: impl Buf,
        get: impl FnOnce(&mut Reader) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut reader = Reader::new(Bytes::copy_from_slice(from.chunk()));
        let before = reader.remaining();
        let got = get(&mut reader)?;
        from.advance(before - reader.remaining());
        Ok(got)
    }
}

impl foca::Codec<Identity> for EngineCodec {
    type Error = Error;

    fn encode_header(&mut self, header: &Header<Identity>, buf: impl BufMut) -> Result<(), Error> {
        self.write(buf, |bytes| put_header(bytes, header))
    }

    fn decode_header(&mut self, buf: impl Buf) -> Result<Header<Identity>, Error> {
        self.read(buf, |reader| get_header(reader, &self.own))
    }

    fn encode_member(&mut self, member: &Member<Identity>, buf: impl BufMut) -> Result<(), Error> {
        self.write(buf, |bytes| put_member(bytes, member))
    }

    fn decode_member(&mut self, buf: impl Buf) -> Result<Member<Identity>, Error> {
        self.read(buf, get_member)
    }
}
