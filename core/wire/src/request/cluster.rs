//! What administrators ask about the cluster: its nodes and its ring.

use bytes::{BufMut, BytesMut};
use types::NodeId;
use types::codec::{Error, Reader, Writer};

/// What becomes of a node's place in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeChange {
    /// It gets nothing new, and what it has moves elsewhere.
    Drain,
    /// That is taken back.
    Undrain,
    /// It leaves for good, when nothing is on it.
    Remove,
    /// It leaves for good, whatever is on it: it is gone and does not come back.
    ForceRemove,
}

impl NodeChange {
    /// Every one, by number.
    pub const ALL: [Self; 4] = [Self::Drain, Self::Undrain, Self::Remove, Self::ForceRemove];

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let number = usize::from(reader.u8()?);
        Self::ALL.get(number).copied().ok_or(Error::Invalid("a change of a node"))
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Drain => 0,
            Self::Undrain => 1,
            Self::Remove => 2,
            Self::ForceRemove => 3,
        }
    }
}

pub(crate) fn node(reader: &mut Reader) -> Result<NodeId, Error> {
    Ok(NodeId(reader.u128()?))
}

pub(crate) fn opt_node(reader: &mut Reader) -> Result<Option<NodeId>, Error> {
    Ok(if reader.bool()? { Some(node(reader)?) } else { None })
}

pub(crate) fn put_opt_node(out: &mut BytesMut, node: Option<NodeId>) {
    out.put_bool(node.is_some());
    if let Some(node) = node {
        out.put_u128(node.0);
    }
}
