//! Records being gathered for one produce request, already in wire encoding.

use bytes::{BufMut, BytesMut};
use types::codec::Writer;
use types::record::Record;
use wire::Str;
use wire::request::Produce;

/// Records in the order they were added.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: BytesMut,
    count: u32,
}

impl Batch {
    /// An empty batch with room for `bytes` of encoded records.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(bytes), count: 0 }
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        record.encode(&mut self.bytes);
        self.count += 1;
    }

    /// Adds a record without headers, copying its parts once.
    pub fn push_parts(&mut self, key: Option<&[u8]>, value: &[u8], timestamp: u64) {
        self.bytes.put_opt_blob(key);
        self.bytes.put_blob(value);
        self.bytes.put_u64(timestamp);
        self.bytes.put_count(0);
        self.count += 1;
    }

    /// Records in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its records.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The request that appends them to a topic.
    #[must_use]
    pub fn into_produce(self, topic: Str) -> Produce {
        Produce { topic, records: self.bytes.freeze(), count: self.count }
    }
}

impl<'a> FromIterator<&'a Record> for Batch {
    fn from_iter<I: IntoIterator<Item = &'a Record>>(records: I) -> Self {
        let mut batch = Self::default();
        records.into_iter().for_each(|record| batch.push(record));
        batch
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn parts_and_records_encode_alike() {
        let record = Record {
            key: Some(Bytes::from_static(b"k")),
            value: Bytes::from_static(b"value"),
            timestamp: 7,
            headers: Vec::new(),
        };
        let mut parts = Batch::default();
        parts.push_parts(record.key.as_deref(), &record.value, record.timestamp);
        let records: Batch = [&record].into_iter().collect();
        assert_eq!(parts.into_produce(None), records.into_produce(None));
    }
}
