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
        let headers: usize =
            self.headers.iter().map(|h| HEADER_BYTES_MIN + h.name.len() + h.value.len()).sum();
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..=len_max).prop_map(Bytes::from)
    }

    prop_compose! {
        fn header()(name in bytes(12), value in bytes(12)) -> Header {
            Header { name, value }
        }
    }

    prop_compose! {
        fn record()(
            key in prop::option::of(bytes(20)),
            value in bytes(80),
            timestamp in 0_u64..=2_000_000_000_000,
            headers in prop::collection::vec(header(), 0..=4),
        ) -> Record {
            Record { key, value, timestamp, headers }
        }
    }

    fn encode(records: &[Record]) -> Bytes {
        let mut out = BytesMut::new();
        records.iter().for_each(|record| record.encode(&mut out));
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Result<Vec<Record>, Error> {
        let mut reader = Reader::new(bytes.clone());
        let mut records = Vec::new();
        while reader.remaining() > 0 {
            records.push(Record::decode(&mut reader)?);
        }
        Ok(records)
    }

    /// What the walk finds must be what decoding finds, whether the bytes are good or not.
    fn walk_agrees_with_decode(bytes: &Bytes) {
        let spans: Result<Vec<_>, _> = Walk::new(bytes).collect();
        let records = decode(bytes);
        assert_eq!(spans.is_ok(), records.is_ok(), "walk {spans:?}, decode {records:?}");
        let (Ok(spans), Ok(records)) = (spans, records) else { return };
        assert_eq!(spans.len(), records.len());
        let mut at = 0;
        for (span, record) in spans.iter().zip(&records) {
            assert_eq!((span.start, span.end), (at, at + record.encoded_len()));
            assert_eq!((span.key, span.value_bytes), (record.key.as_deref(), record.value.len()));
            at = span.end;
        }
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn the_smallest_record() {
        let record = Record { key: None, value: Bytes::new(), timestamp: 0, headers: Vec::new() };
        assert_eq!(record.encoded_len(), limits::RECORD_BYTES_MIN);
        assert_eq!(encode(&[record]), vec![0; limits::RECORD_BYTES_MIN]);
    }

    #[test]
    fn null_header_parts_are_refused() {
        let head = |rest: &[u8]| Bytes::from([&[0; 13][..], &[0, 0, 0, 1], rest].concat());
        // Padded so that the count itself would fit.
        let null_name = head(&[0, 1, 0, 0, 0, 4, 9, 9, 9, 9]);
        let null_value = head(&[1, 0, 0, 0, 4, 9, 9, 9, 9, 0]);
        for bytes in [null_name, null_value] {
            assert!(matches!(Walk::new(&bytes).next(), Some(Err(Error::Invalid(_)))));
            assert!(matches!(decode(&bytes), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn a_walk_ends_at_the_first_error() {
        let mut walk = Walk::new(&[7; 40]);
        assert_eq!(walk.next(), Some(Err(Error::Invalid("a truth value"))));
        assert_eq!(walk.next(), None);
    }

    #[test]
    fn a_header_count_nothing_backs_is_refused_at_once() {
        let bytes = Bytes::from([&[0; 13][..], &[0xff; 4]].concat());
        assert_eq!(Walk::new(&bytes).next(), Some(Err(Error::Short)));
        assert!(decode(&bytes).is_err());
    }

    proptest! {
        // P-24
        #[test]
        fn the_computed_size_is_the_size_written(record in record()) {
            prop_assert_eq!(encode(std::slice::from_ref(&record)).len(), record.encoded_len());
        }

        // P-27
        #[test]
        fn records_round_trip(records in prop::collection::vec(record(), 0..6)) {
            prop_assert_eq!(decode(&encode(&records)).unwrap(), records);
        }

        #[test]
        fn walk_agrees_on_good_records(records in prop::collection::vec(record(), 0..6)) {
            walk_agrees_with_decode(&encode(&records));
        }

        #[test]
        fn walk_agrees_on_changed_records(
            records in prop::collection::vec(record(), 1..6),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encode(&records).to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            walk_agrees_with_decode(&Bytes::from(bytes.clone()));
            bytes.truncate(cut.index(bytes.len()));
            walk_agrees_with_decode(&Bytes::from(bytes));
        }

        #[test]
        fn walk_agrees_on_anything(bytes in prop::collection::vec(0_u8..3, 0..120)) {
            walk_agrees_with_decode(&Bytes::from(bytes));
        }
    }
}
