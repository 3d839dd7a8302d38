//! Packets: what is around the engine's bytes, and the bytes themselves.
//!
//! ```text
//!   magic "ML":2  version:u8 = 1  kind:u8  control plane:u128  fields  MAC:16
//!
//!   kind 1, news    sequence:u64  accused:(0 | 1 u16)  engine: length:u16 bytes  digests: to the end
//!   kind 2, notice  to: node:u128 incarnation:u64   kept: incarnation:u64 address
//! ```
//!
//! All integers big-endian. The MAC is HMAC-SHA-256 over all before it, cut to 16 bytes. Nothing but the first twenty
//! bytes is looked at before it has been checked.

mod engine_codec;
#[cfg(test)]
mod tests;

pub(crate) use engine_codec::{ANYBODY, EngineCodec, News, get_address, get_incarnation, put_address};

use bytes::{BufMut, Bytes, BytesMut};
use hmac::Mac;
use types::codec::Reader;
use types::{Incarnation, NodeId, limits};

use crate::address::Address;
use crate::config::Key;
use crate::digest::About;

const MAGIC: u16 = u16::from_be_bytes(*b"ML");
const VERSION: u8 = 1;
const NEWS: u8 = 1;
const NOTICE: u8 = 2;
pub(crate) const MAC_BYTES: usize = 16;

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Not one of ours, or of a version that is not known.
    #[error("not a membership packet of this version")]
    Foreign,
    /// Of another cluster, as far as it says.
    #[error("of another control plane")]
    ControlPlane,
    /// Not made with this cluster's key, or changed on its way.
    #[error("the MAC does not match")]
    Mac,
    /// Made with the key, and nonsense.
    #[error(transparent)]
    Malformed(#[from] types::codec::Error),
}

/// What a packet says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    News(Envelope),
    Notice(Notice),
}

/// The engine's bytes and what travels with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// Grows with each packet of one process.
    pub(crate) sequence: u64,
    /// The receiver is suspected, at that many refutations of its present incarnation.
    pub(crate) accused: Option<u16>,
    pub(crate) engine: Bytes,
    pub(crate) abouts: Vec<About>,
}

/// Tells a node that somebody else has its id, or that it lost count of its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) kept_incarnation: Incarnation,
    pub(crate) kept: Address,
}

/// Makes and checks packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealer {
    pub(crate) key: Key,
    pub(crate) control_plane: u128,
}

impl Sealer {
    pub(crate) fn seal(&self, packet: &Packet) -> Bytes {
        let mut bytes = BytesMut::with_capacity(limits::MEMBER_PACKET_BYTES_MAX);
        bytes.put_u16(MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(match packet {
            Packet::News(_) => NEWS,
            Packet::Notice(_) => NOTICE,
        });
        bytes.put_u128(self.control_plane);
        match packet {
            Packet::News(envelope) => {
                bytes.put_u64(envelope.sequence);
                match envelope.accused {
                    None => bytes.put_u8(0),
                    Some(refutations) => {
                        bytes.put_u8(1);
                        bytes.put_u16(refutations);
                    }
                }
                bytes.put_u16(u16::try_from(envelope.engine.len()).expect("the engine is given a limit"));
                bytes.extend_from_slice(&envelope.engine);
                for about in &envelope.abouts {
                    about.put(&mut bytes);
                }
            }
            Packet::Notice(notice) => {
                bytes.put_u128(notice.node.0);
                bytes.put_u64(notice.incarnation.0);
                bytes.put_u64(notice.kept_incarnation.0);
                put_address(&mut bytes, &notice.kept);
            }
        }
        let mac = self.key.mac(&bytes).finalize().into_bytes();
        bytes.extend_from_slice(&mac[..MAC_BYTES]);
        debug_assert!(bytes.len() <= limits::MEMBER_PACKET_BYTES_MAX, "every part has its share");
        bytes.freeze()
    }

    /// What `bytes` say, once they are known to be of this cluster.
    pub(crate) fn open(&self, bytes: Bytes, any_key: bool) -> Result<Packet, Refused> {
        if bytes.len() > limits::MEMBER_PACKET_BYTES_MAX || bytes.len() < 20 + MAC_BYTES {
            return Err(Refused::Foreign);
        }
        let (said, mac) = bytes.split_at(bytes.len() - MAC_BYTES);
        let mut reader = Reader::new(bytes.slice(..said.len()));
        if reader.u16()? != MAGIC || reader.u8()? != VERSION {
            return Err(Refused::Foreign);
        }
        let kind = reader.u8()?;
        if reader.u128()? != self.control_plane {
            return Err(Refused::ControlPlane);
        }
        if !any_key && self.key.mac(said).verify_truncated_left(mac).is_err() {
            return Err(Refused::Mac);
        }
        match kind {
            NEWS => envelope(reader).map(Packet::News),
            NOTICE => notice(reader).map(Packet::Notice),
            _ => Err(Refused::Foreign),
        }
    }
}

fn envelope(mut reader: Reader) -> Result<Envelope, Refused> {
    let sequence = reader.u64()?;
    let accused = if reader.bool()? { Some(reader.u16()?) } else { None };
    let len = usize::from(reader.u16()?);
    if len > limits::MEMBER_NEWS_BYTES_MAX {
        return Err(types::codec::Error::Invalid("the length of the news").into());
    }
    let engine = reader.take(len)?;
    let mut abouts = Vec::new();
    while reader.remaining() > 0 {
        abouts.push(About::get(&mut reader)?);
    }
    Ok(Envelope { sequence, accused, engine, abouts })
}

fn notice(mut reader: Reader) -> Result<Notice, Refused> {
    let notice = Notice {
        node: NodeId(reader.u128()?),
        incarnation: Incarnation(reader.u64()?),
        kept_incarnation: Incarnation(reader.u64()?),
        kept: get_address(&mut reader)?,
    };
    reader.finish()?;
    Ok(notice)
}
