//! What administrators ask when something does not move: about the copies of segments, and why.

use bytes::{BufMut, Bytes, BytesMut};
use types::NodeId;
use types::codec::{Error, Reader, Writer};

use super::node;
use crate::{Malformed, Str};

/// How closely the copies of segments are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Only what the tables say.
    Tables,
    /// Each node that has a copy is asked where it stands.
    Copies,
    /// Each is asked to read its copy through.
    Verify,
}

impl Depth {
    /// Every one, by number.
    pub const ALL: [Self; 3] = [Self::Tables, Self::Copies, Self::Verify];

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let number = usize::from(reader.u8()?);
        Self::ALL.get(number).copied().ok_or(Error::Invalid("a depth"))
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Tables => 0,
            Self::Copies => 1,
            Self::Verify => 2,
        }
    }
}

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Why a range does or does not take records.
    Range {
        /// The topic.
        topic: Str,
        /// Number of the range.
        range: u64,
    },
    /// How a node is.
    Node {
        /// Which one.
        node: NodeId,
    },
    /// Why a group does or does not get on.
    Group {
        /// The topic.
        topic: Str,
        /// The group.
        group: Str,
    },
}

impl Subject {
    /// For a place that is no frame.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }

    /// The other way, all of it.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let subject = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(subject)
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        match r.u8()? {
            0 => Ok(Self::Range { topic: r.opt_blob()?, range: r.u64()? }),
            1 => Ok(Self::Node { node: node(r)? }),
            2 => Ok(Self::Group { topic: r.opt_blob()?, group: r.opt_blob()? }),
            _ => Err(Error::Invalid("something to explain")),
        }
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Range { topic, range } => {
                out.put_u8(0);
                out.put_opt_blob(topic.as_deref());
                out.put_u64(*range);
            }
            Self::Node { node } => {
                out.put_u8(1);
                out.put_u128(node.0);
            }
            Self::Group { topic, group } => {
                out.put_u8(2);
                out.put_opt_blob(topic.as_deref());
                out.put_opt_blob(group.as_deref());
            }
        }
    }
}
