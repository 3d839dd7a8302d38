//! Records in wire encoding, which is also how they are stored: walked, never decoded and encoded again.
//!
//! ```text
//! record = key:str  value:blob  timestamp:u64  headers:list<name:str value:str>
//! str    = 00 | 01 length:u32 bytes          blob = length:u32 bytes
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Error, Reader, Writer};
use crate::limits;

/// One record. All fields are opaque bytes; `timestamp` is the client's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Null and empty are different keys.
    pub key: Option<Bytes>,
    /// May be empty.
    pub value: Bytes,
    /// By convention epoch milliseconds; never set or checked here.
    pub timestamp: u64,
    /// Ordered; duplicates allowed.
    pub headers: Vec<Header>,
}

/// One header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Never null.
    pub name: Bytes,
    /// Never null.
    pub value: Bytes,
}

/// Smallest encoded header: two present, empty strings.
const HEADER_BYTES_MIN: usize = 10;

impl Record {
    /// Appends the record's encoding to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(self.key.as_deref());
        out.put_blob(&self.value);
        out.put_u64(self.timestamp);
        out.put_count(self.headers.len());
        for header in &self.headers {
            out.put_opt_blob(Some(&header.name));
            out.put_opt_blob(Some(&header.value));
        }
    }

    /// Bytes that [`encode`](Self::encode) appends.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let key = self.key.as_ref().map_or(1, |key| 5 + key.len());
        let headers: usize = self.headers.iter().map(|h| HEADER_BYTES_MIN + h.name.len() + h.value.len()).sum();
        key + 4 + self.value.len() + 8 + 4 + headers
    }

    /// Reads one record from the front of `reader`.
    pub fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let key = reader.opt_blob()?;
        let value = reader.blob()?;
        let timestamp = reader.u64()?;
        let count = reader.count(HEADER_BYTES_MIN)?;
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            let name = reader.opt_blob()?.ok_or(Error::Invalid("a null header name"))?;
            let value = reader.opt_blob()?.ok_or(Error::Invalid("a null header value"))?;
            headers.push(Header { name, value });
        }
        Ok(Self { key, value, timestamp, headers })
    }
}

/// One record found by [`Walk`]: where its bytes lie and its key, without copying anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// First byte, relative to the start of the walk.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Bytes of the value alone.
    pub value_bytes: usize,
}

/// Walks records laid back to back, checking every length; ends with an error at the first that does not fit.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// A walk over all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes walked so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    fn step(&self) -> Result<Span<'a>, Error> {
        let start = self.at;
        let mut at = start;
        let key = self.opt_blob(&mut at)?;
        let value = self.blob(&mut at)?;
        self.fixed::<8>(&mut at)?;
        let headers = u32::from_be_bytes(*self.fixed::<4>(&mut at)?);
        for _ in 0..headers {
            self.opt_blob(&mut at)?.ok_or(Error::Invalid("a null header name"))?;
            self.opt_blob(&mut at)?.ok_or(Error::Invalid("a null header value"))?;
        }
        Ok(Span { start, end: at, key, value_bytes: value.len() })
    }

    fn fixed<const N: usize>(&self, at: &mut usize) -> Result<&'a [u8; N], Error> {
        let bytes = self.bytes[*at..].first_chunk::<N>().ok_or(Error::Short)?;
        *at += N;
        Ok(bytes)
    }

    fn blob(&self, at: &mut usize) -> Result<&'a [u8], Error> {
        let len = u32::from_be_bytes(*self.fixed::<4>(at)?) as usize;
        let bytes = self.bytes[*at..].get(..len).ok_or(Error::Short)?;
        *at += len;
        Ok(bytes)
    }

    fn opt_blob(&self, at: &mut usize) -> Result<Option<&'a [u8]>, Error> {
        match self.fixed::<1>(at)?[0] {
            0 => Ok(None),
            1 => self.blob(at).map(Some),
            _ => Err(Error::Invalid("a truth value")),
        }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Span<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let step = self.step();
        // After an error nothing that follows can be trusted to be a record.
        self.at = step.as_ref().map_or(self.bytes.len(), |span| span.end);
        Some(step)
    }
}

const _: () = assert!(limits::RECORD_BYTES_MIN == 17);
