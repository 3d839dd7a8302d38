//! Records on their way in: one slice, walked once and stored as it is.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::record::{Record, Walk};
use types::{ProducerEpoch, ProducerId, Stamp, WallTime, limits};

use crate::Str;

/// Records for a topic, as one slice that is stored as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produce {
    /// The topic.
    pub topic: Str,
    /// Well-formed records in wire encoding, back to back.
    pub records: Bytes,
    /// How many there are.
    pub count: u32,
}

/// Records for a topic with the checksum their sender took, so that damage on the way is seen before
/// anything is stored. The checksum is not judged here: whoever takes it to store it compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceBatch {
    /// The topic.
    pub topic: Str,
    /// How the records are packed. 0 is plain, the only form there is yet; `records` is then well-formed and
    /// holds `count` records. Under any other value both are as they came, unchecked.
    pub flags: u8,
    /// What the sender says [`checksum`] gives for `records`.
    pub crc: u32,
    /// The records.
    pub records: Bytes,
    /// How many there are.
    pub count: u32,
}

/// Records for a topic that are stored once, however often the request is sent. Like the checksum, the stamp is judged
/// by whoever stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceOnce {
    /// Who sends it, and which of its requests it is; possible for so many records.
    pub stamp: Stamp,
    /// The rest, `flags` included, as there.
    pub batch: ProduceBatch,
}

impl Produce {
    /// The request for `records`. Panics above `u32::MAX` of them, which no frame holds.
    #[must_use]
    pub fn of(topic: &[u8], records: &[Record]) -> Self {
        let mut bytes = BytesMut::with_capacity(records.iter().map(Record::encoded_len).sum());
        records.iter().for_each(|record| record.encode(&mut bytes));
        let count = u32::try_from(records.len()).expect("a frame holds fewer records than 2^32");
        Self { topic: Some(Bytes::copy_from_slice(topic)), records: bytes.freeze(), count }
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let topic = reader.opt_blob()?;
        let (records, count) = decode_records(reader)?;
        Ok(Self { topic, records, count })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(self.topic.as_deref());
        out.put_u32(self.count);
        out.extend_from_slice(&self.records);
    }
}

impl ProduceBatch {
    /// The request for the records of `produce`, with their checksum.
    #[must_use]
    pub fn of(produce: Produce) -> Self {
        let Produce { topic, records, count } = produce;
        let crc = checksum(&records);
        Self { topic, flags: 0, crc, records, count }
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let (topic, flags, crc) = (reader.opt_blob()?, reader.u8()?, reader.u32()?);
        let (records, count) = if flags == 0 {
            decode_records(reader)?
        } else {
            let count = reader.u32()?;
            (reader.take(reader.remaining())?, count)
        };
        Ok(Self { topic, flags, crc, records, count })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(self.topic.as_deref());
        out.put_u8(self.flags);
        out.put_u32(self.crc);
        out.put_u32(self.count);
        out.extend_from_slice(&self.records);
    }
}

impl ProduceOnce {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let stamp = Stamp {
            producer: ProducerId(reader.u64()?),
            epoch: ProducerEpoch(reader.u32()?),
            first: reader.u32()?,
            settled: reader.u32()?,
            born: WallTime(reader.u64()?),
        };
        let batch = ProduceBatch::decode(reader)?;
        if !stamp.fits(batch.count) {
            return Err(Error::Invalid("a stamp"));
        }
        Ok(Self { stamp, batch })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        let Stamp { producer, epoch, first, settled, born } = self.stamp;
        out.put_u64(producer.0);
        out.put_u32(epoch.0);
        out.put_u32(first);
        out.put_u32(settled);
        out.put_u64(born.0);
        self.batch.encode(out);
    }
}

/// CRC-32 (IEEE) of records in wire encoding, as `produce_batch` and `fetch_batches` carry it.
#[must_use]
pub fn checksum(records: &[u8]) -> u32 {
    crc32fast::hash(records)
}

/// A count and so many whole records, up to the end of the input.
fn decode_records(reader: &mut Reader) -> Result<(Bytes, u32), Error> {
    let count = reader.count(limits::RECORD_BYTES_MIN)?;
    let records = reader.take(reader.remaining())?;
    let mut walked = 0;
    for span in Walk::new(&records) {
        span?;
        walked += 1;
    }
    if walked != count {
        return Err(Error::Invalid("the number of records"));
    }
    Ok((records, u32::try_from(count).expect("it was read from 32 bits")))
}
