//! Who proposed an entry.
//!
//! ```text
//! entry = node:u128  life:u64  number:u64  command
//! ```
//!
//! Every node that applies entries of a group knows its own by this, whoever led when they were recorded: so a
//! proposal that went through another node, or whose leader changed, is answered like any other, and whoever hears
//! the answer finds what was decided in its own tables.

use bytes::{BufMut, Bytes, BytesMut};
use types::NodeId;
use types::codec::{Error, Reader};

/// One proposal of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: NodeId,
    /// Of the process; no other of the node has it.
    pub(crate) life: u64,
    /// Never used again in that process.
    pub(crate) number: u64,
}

impl Origin {
    /// The entry of a command that is proposed so.
    pub(crate) fn entry(self, command: &[u8]) -> Bytes {
        let mut entry = BytesMut::with_capacity(32 + command.len());
        entry.put_u128(self.node.0);
        entry.put_u64(self.life);
        entry.put_u64(self.number);
        entry.extend_from_slice(command);
        entry.freeze()
    }

    /// What an entry says.
    pub(crate) fn split(entry: &Bytes) -> Result<(Self, Bytes), Error> {
        let mut reader = Reader::new(entry.clone());
        let origin = Self { node: NodeId(reader.u128()?), life: reader.u64()?, number: reader.u64()? };
        let command = reader.take(reader.remaining())?;
        Ok((origin, command))
    }
}
