//! The file of one Raft snapshot.
//!
//! ```text
//!  0  magic "RSN", version 1
//!  4  payload length   u64
//! 12  group            u64
//! 20  index            u64      the last entry it covers
//! 28  term             u64      that entry's
//! 36  payload CRC      u32
//! 40  header CRC       u32      over bytes 0..40
//! 44  payload                   to the end of the file
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader};
use types::{RaftIndex, Term, VnodeId};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 44;
const MAGIC: [u8; 3] = *b"RSN";
const VERSION: u8 = 1;
const CRC_AT: usize = 40;

/// Which snapshot a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Whose.
    pub group: VnodeId,
    /// The last entry it covers.
    pub index: RaftIndex,
    /// That entry's term.
    pub term: Term,
}

/// Why a file is not the snapshot it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A later build wrote it.
    #[error("snapshot file version {0} is later than this build's {VERSION}")]
    LaterVersion(u8),
    /// The bytes are not what was written.
    #[error("damaged")]
    Damaged,
    /// An intact snapshot, but another one.
    #[error("another snapshot")]
    Other,
}

/// The header that goes before `payload`.
#[must_use]
pub fn encode_header(id: Id, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES);
    out.put_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u64(payload.len() as u64);
    out.put_u64(id.group.0);
    out.put_u64(id.index.0);
    out.put_u64(id.term.0);
    out.put_u32(crc32fast::hash(payload));
    out.put_u32(crc32fast::hash(&out[..CRC_AT]));
    out.freeze()
}

/// The payload of the file `bytes`, which must hold exactly the snapshot `id`.
pub fn decode(id: Id, bytes: &Bytes) -> Result<Bytes, Error> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Err(Error::Damaged) };
    if header[..3] != MAGIC || header[CRC_AT..] != crc32fast::hash(&header[..CRC_AT]).to_be_bytes() {
        return Err(Error::Damaged);
    }
    if header[3] > VERSION {
        return Err(Error::LaterVersion(header[3]));
    }
    let (found, len, crc) = fields(&header[4..CRC_AT]).map_err(|_| Error::Damaged)?;
    let payload = bytes.slice(HEADER_BYTES..);
    if len != payload.len() as u64 || crc != crc32fast::hash(&payload) {
        return Err(Error::Damaged);
    }
    if found == id { Ok(payload) } else { Err(Error::Other) }
}

fn fields(bytes: &[u8]) -> Result<(Id, u64, u32), codec::Error> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
    let len = reader.u64()?;
    let group = VnodeId(reader.u64()?);
    let id = Id { group, index: RaftIndex(reader.u64()?), term: Term(reader.u64()?) };
    Ok((id, len, reader.u32()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ID: Id = Id { group: VnodeId(3), index: RaftIndex(20), term: Term(4) };

    fn file() -> Vec<u8> {
        let mut bytes = encode_header(ID, b"state").to_vec();
        bytes.extend_from_slice(b"state");
        bytes
    }

    #[test]
    fn the_bytes_are_the_documented_ones() {
        let hex: String = file().iter().map(|b| format!("{b:02x}")).collect();
        let expected = concat!(
            "52534e0100000000000000050000000000000003000000000000001400000000000000",
            "04",
            "a393d2fb33c055ae7374617465",
        );
        assert_eq!(hex, expected);
        assert_eq!(decode(ID, &file().into()).unwrap(), Bytes::from_static(b"state"));
    }

    #[test]
    fn any_other_bytes_are_refused() {
        for len in 0..file().len() {
            assert_eq!(decode(ID, &file()[..len].to_vec().into()), Err(Error::Damaged), "{len}");
        }
        for bit in 0..file().len() * 8 {
            let mut bytes = file();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(ID, &bytes.into()), Err(Error::Damaged), "bit {bit}");
        }
        let mut longer = file();
        longer.push(0);
        assert_eq!(decode(ID, &longer.into()), Err(Error::Damaged));
        assert_eq!(decode(Id { index: RaftIndex(21), ..ID }, &file().into()), Err(Error::Other));
    }
}
