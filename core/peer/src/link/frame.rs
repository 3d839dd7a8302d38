//! Frames between nodes, refused by size before a byte of their body is kept, and those of the connection itself.
//!
//! ```text
//! frame = length:u32 stream:u32 kind:u16 body:[length bytes]       length counts the body alone
//! ```
//!
//! Stream 0 is the connection itself. On every other a message is one frame of its kind, with its length and the
//! number of its call, and as many of kind 0 as it takes to carry the rest.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader};

/// Bytes before a frame's body.
pub(super) const HEAD_BYTES: usize = 4 + 4 + 2;
/// Bytes before a message in its first frame: its length, its call.
pub(super) const MESSAGE_HEAD_BYTES: usize = 4 + 4;
/// The rest of a message.
pub(super) const MORE: u16 = 0;
/// The stream of the connection itself.
pub(super) const OWN: u32 = 0;
/// Largest body that is copied: a small slice would keep the whole buffer it came in.
const COPIED_BYTES_MAX: usize = 2 * 1024;

const HELLO: u16 = 1;
const PROOF: u16 = 2;
const REFUSED: u16 = 3;
const PING: u16 = 4;
const PONG: u16 = 5;
const CREDIT: u16 = 6;
const CANCEL: u16 = 7;
const UNKNOWN: u16 = 8;

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) stream: u32,
    pub(super) kind: u16,
    pub(super) body: Bytes,
}

/// A frame announced a body above the limit; nothing that follows can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Splits the first whole frame off the front of `buffer`; `None` when more bytes are needed. `limit` is inclusive,
/// of the body, and judged as soon as the length is there.
pub(super) fn take(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, TooLarge> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > limit {
        return Err(TooLarge);
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    buffer.advance(4);
    let (stream, kind) = (buffer.get_u32(), buffer.get_u16());
    let body = if length > COPIED_BYTES_MAX {
        buffer.split_to(length).freeze()
    } else {
        let body = Bytes::copy_from_slice(&buffer[..length]);
        buffer.advance(length);
        body
    };
    Ok(Some(Frame { stream, kind, body }))
}

/// Writes what stands before a body of `length` bytes.
pub(super) fn put_head(bytes: &mut BytesMut, length: usize, stream: u32, kind: u16) {
    bytes.put_u32(u32::try_from(length).expect("frames are far below 4 GiB"));
    bytes.put_u32(stream);
    bytes.put_u16(kind);
}

/// A frame of the connection itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The first of either side.
    Hello(Bytes),
    /// The second.
    Proof(Bytes),
    /// The last: why.
    Refused(u16),
    /// A sign of life is asked for.
    Ping(u64),
    /// Here it is, of the same number.
    Pong(u64),
    /// So much more may be on its way on a stream.
    Credit { stream: u32, bytes: u64 },
    /// The answer to a call is not wanted any more.
    Cancel(u32),
    /// A kind is not known here; with the call that asked, or 0.
    Unknown { kind: u16, call: u32 },
    /// Of a later build.
    Later(u16),
}

impl Own {
    pub(super) fn put(&self, bytes: &mut BytesMut) {
        let (kind, length) = match self {
            Self::Hello(body) => (HELLO, body.len()),
            Self::Proof(body) => (PROOF, body.len()),
            Self::Refused(_) => (REFUSED, 2),
            Self::Ping(_) => (PING, 8),
            Self::Pong(_) => (PONG, 8),
            Self::Credit { .. } => (CREDIT, 4 + 8),
            Self::Cancel(_) => (CANCEL, 4),
            Self::Unknown { .. } => (UNKNOWN, 2 + 4),
            Self::Later(kind) => (*kind, 0),
        };
        put_head(bytes, length, OWN, kind);
        match self {
            Self::Hello(body) | Self::Proof(body) => bytes.extend_from_slice(body),
            Self::Refused(why) => bytes.put_u16(*why),
            Self::Ping(number) | Self::Pong(number) => bytes.put_u64(*number),
            Self::Credit { stream, bytes: credit } => {
                bytes.put_u32(*stream);
                bytes.put_u64(*credit);
            }
            Self::Cancel(call) => bytes.put_u32(*call),
            Self::Unknown { kind, call } => {
                bytes.put_u16(*kind);
                bytes.put_u32(*call);
            }
            Self::Later(_) => {}
        }
    }

    pub(super) fn decode(kind: u16, body: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(body.clone());
        let own = match kind {
            HELLO => return Ok(Self::Hello(body)),
            PROOF => return Ok(Self::Proof(body)),
            REFUSED => Self::Refused(reader.u16()?),
            PING => Self::Ping(reader.u64()?),
            PONG => Self::Pong(reader.u64()?),
            CREDIT => Self::Credit { stream: reader.u32()?, bytes: reader.u64()? },
            CANCEL => Self::Cancel(reader.u32()?),
            UNKNOWN => Self::Unknown { kind: reader.u16()?, call: reader.u32()? },
            later => return Ok(Self::Later(later)),
        };
        reader.finish()?;
        Ok(own)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        for (own, hex) in [
            (Own::Hello(Bytes::from_static(b"hi")), "000000020000000000016869"),
            (Own::Proof(Bytes::from_static(b"p")), "0000000100000000000270"),
            (Own::Refused(3), "000000020000000000030003"),
            (Own::Ping(9), "000000080000000000040000000000000009"),
            (Own::Pong(9), "000000080000000000050000000000000009"),
            (Own::Credit { stream: 0x1_0002, bytes: 7 }, "0000000c000000000006000100020000000000000007"),
            (Own::Cancel(5), "0000000400000000000700000005"),
            (Own::Unknown { kind: 0x2fff, call: 5 }, "000000060000000000082fff00000005"),
        ] {
            let mut bytes = BytesMut::new();
            own.put(&mut bytes);
            let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, hex, "{own:?}");
            let frame = take(&mut bytes, 100).unwrap().unwrap();
            assert_eq!(frame.stream, OWN);
            assert_eq!(Own::decode(frame.kind, frame.body), Ok(own));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn the_limit_is_inclusive_and_judged_by_the_length_alone() {
        assert_eq!(take(&mut BytesMut::from(&[0, 0, 0, 4][..]), 4), Ok(None));
        assert_eq!(take(&mut BytesMut::from(&[0, 0, 0, 5][..]), 4), Err(TooLarge));
    }
}
