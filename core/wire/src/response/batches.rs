//! Records on their way out in runs, each with its append time and checksum.
//!
//! ```text
//! payload = list<batch> next_cursor:str
//! batch   = append_time:u64 count:u32 crc:u32 records:blob
//! ```

use bytes::{BufMut, Bytes};
use types::codec::{Error, Reader, Writer};
use types::limits;
use types::record::{Record, Walk};

use super::envelope;
use crate::request::checksum;
use crate::{Gather, Malformed};

/// Bytes of a batch in front of its records.
const BATCH_HEAD_BYTES: usize = 8 + 4 + 4 + 4;

/// Records read, in order, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPage {
    /// In order of each range; none is empty.
    pub batches: Vec<Batch>,
    /// Where to go on; never null.
    pub next_cursor: Bytes,
}

/// Some neighbouring records of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// When the broker took them, milliseconds since 1970; never decreases within a range.
    pub append_time: u64,
    /// How many there are, at least 1.
    pub count: u32,
    /// What the broker says [`checksum`] gives for `records`; see [`is_intact`](Self::is_intact).
    pub crc: u32,
    /// Whole records in wire encoding, back to back.
    pub records: Bytes,
}

impl BatchPage {
    /// How many records there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.batches.iter().map(|batch| u64::from(batch.count)).sum()
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let count = reader.count(BATCH_HEAD_BYTES + limits::RECORD_BYTES_MIN)?;
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            batches.push(Batch::decode(reader)?);
        }
        let next_cursor = reader.opt_blob()?.ok_or(Error::Invalid("a null cursor"))?;
        Ok(Self { batches, next_cursor })
    }

    pub(super) fn encode(&self, correlation_id: u32, out: &mut Gather) {
        let batches: usize = self.batches.iter().map(|batch| BATCH_HEAD_BYTES + batch.records.len()).sum();
        envelope(out, correlation_id, 4 + batches + 5 + self.next_cursor.len());
        out.fields().put_count(self.batches.len());
        for batch in &self.batches {
            let fields = out.fields();
            fields.put_u64(batch.append_time);
            fields.put_u32(batch.count);
            fields.put_u32(batch.crc);
            fields.put_count(batch.records.len());
            out.link(batch.records.clone());
        }
        out.fields().put_opt_blob(Some(&self.next_cursor));
    }
}

impl Batch {
    /// Whether the records are the ones the checksum was taken of. Decoding does not ask: it costs a pass
    /// over the bytes, which the reader may rather make elsewhere.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        checksum(&self.records) == self.crc
    }

    /// Decodes the records, sharing the batch's bytes.
    pub fn decode_records(&self) -> Result<Vec<Record>, Malformed> {
        let mut records = Vec::with_capacity(self.records.len() / limits::RECORD_BYTES_MIN);
        let mut reader = Reader::new(self.records.clone());
        while reader.remaining() > 0 {
            records.push(Record::decode(&mut reader)?);
        }
        Ok(records)
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let (append_time, count, crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let records = reader.blob()?;
        let mut walked = 0_u32;
        for span in Walk::new(&records) {
            span?;
            walked += 1;
        }
        if walked != count || count == 0 {
            return Err(Error::Invalid("the number of records"));
        }
        Ok(Self { append_time, count, crc, records })
    }
}
