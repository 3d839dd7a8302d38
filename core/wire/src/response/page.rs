//! Records on their way out, linked into the frame and not copied.

use bytes::{BufMut, Bytes};
use types::codec::{Error, Reader, Writer};
use types::limits;
use types::record::{Record, Walk};

use super::envelope;
use crate::{Gather, Malformed};

/// Records read and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// How many records there are.
    pub count: u32,
    /// The records in wire encoding, in order: cut anywhere, back to back when joined. A decoded page has
    /// one slice, or none when it is empty.
    pub records: Vec<Bytes>,
    /// Where to go on; never null.
    pub next_cursor: Bytes,
}

impl Page {
    /// Bytes of all records.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }

    /// Decodes the records, sharing the page's bytes. For a page that was itself decoded.
    pub fn decode_records(&self) -> Result<Vec<Record>, Malformed> {
        let mut records = Vec::with_capacity(self.records_len() / limits::RECORD_BYTES_MIN);
        for slice in &self.records {
            let mut reader = Reader::new(slice.clone());
            while reader.remaining() > 0 {
                records.push(Record::decode(&mut reader)?);
            }
        }
        Ok(records)
    }

    pub(super) fn decode(payload: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(payload.clone());
        let count = reader.count(limits::RECORD_BYTES_MIN)?;
        let rest = &payload[4..];
        let mut walk = Walk::new(rest);
        for _ in 0..count {
            walk.next().ok_or(Error::Short)??;
        }
        let records = reader.take(walk.position())?;
        let next_cursor = reader.opt_blob()?.ok_or(Error::Invalid("a null cursor"))?;
        reader.finish()?;
        let count = u32::try_from(count).expect("it was read from 32 bits");
        let records = if records.is_empty() { Vec::new() } else { vec![records] };
        Ok(Self { count, records, next_cursor })
    }

    pub(super) fn encode(&self, correlation_id: u32, out: &mut Gather) {
        envelope(out, correlation_id, 4 + self.records_len() + 5 + self.next_cursor.len());
        out.fields().put_u32(self.count);
        for slice in &self.records {
            out.link(slice.clone());
        }
        out.fields().put_opt_blob(Some(&self.next_cursor));
    }
}
