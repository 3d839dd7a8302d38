//! A snapshot as it is stored and sent: who the members are, and the encoded machine.
//!
//! ```text
//!   "MRSI" version:u8 members state:blob crc32
//! ```
//!
//! The members travel with the machine because the entries that made them are what a snapshot replaces. The
//! checksum covers everything before it: an image that arrives in parts is believed only as a whole.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};

use crate::members::Members;

const MAGIC: [u8; 4] = *b"MRSI";
const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;

/// A decoded snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The members at the snapshot's last entry.
    pub members: Members,
    /// The encoded machine.
    pub state: Bytes,
}

impl Image {
    /// What is stored for a machine's encoded state.
    pub(crate) fn encode(members: &Members, state: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(64 + state.len() + members.len() * 32);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u8(VERSION);
        members.encode(&mut bytes);
        bytes.put_blob(state);
        let crc = crc32fast::hash(&bytes);
        bytes.put_u32(crc);
        bytes.freeze()
    }

    /// Reads an image back, or says what is wrong with it.
    pub fn decode(bytes: Bytes) -> Result<Self, Error> {
        let covered = bytes.len().checked_sub(CRC_BYTES).ok_or(Error::Short)?;
        let mut trailer = Reader::new(bytes.slice(covered..));
        let body = bytes.slice(..covered);
        if trailer.u32()? != crc32fast::hash(&body) {
            return Err(Error::Invalid("a snapshot's checksum"));
        }
        let mut reader = Reader::new(body);
        if reader.take(MAGIC.len())? != MAGIC[..] || reader.u8()? != VERSION {
            return Err(Error::Invalid("a snapshot's version"));
        }
        let members = Members::decode(&mut reader)?;
        let state = reader.blob()?;
        reader.finish()?;
        Ok(Self { members, state })
    }
}
