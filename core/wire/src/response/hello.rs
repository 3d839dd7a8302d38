//! What a broker says of itself, so that a client guesses nothing.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};

/// What the broker is and what it takes. Every maximum is inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Name and version, for logs; never null.
    pub server: Bytes,
    /// What it understands, see [`crate::features`]; unknown bits are ignored.
    pub features: u64,
    /// Largest body of a request, bytes. Answers stay below it as well.
    pub frame_bytes_max: u32,
    /// Most records of one page or push.
    pub fetch_records_max: u32,
    /// Longest long poll, milliseconds.
    pub fetch_wait_ms_max: u32,
    /// Largest window of a push stream, records.
    pub stream_window_max: u32,
}

impl Hello {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            server: reader.opt_blob()?.ok_or(Error::Invalid("a null name"))?,
            features: reader.u64()?,
            frame_bytes_max: reader.u32()?,
            fetch_records_max: reader.u32()?,
            fetch_wait_ms_max: reader.u32()?,
            stream_window_max: reader.u32()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(Some(&self.server));
        out.put_u64(self.features);
        out.put_u32(self.frame_bytes_max);
        out.put_u32(self.fetch_records_max);
        out.put_u32(self.fetch_wait_ms_max);
        out.put_u32(self.stream_window_max);
    }
}
