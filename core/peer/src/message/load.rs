//! What a node says of the ranges whose records it takes, to the node that leads their metadata.
//!
//! ```text
//! loads  = list<topic:u128 range:u64 records:u64 bytes:u64 keyless:u16 list<position:u32>>          at least one
//! ```
//!
//! Owns these words and their bytes. A load that is not told of is no load of zero: whoever hears nothing knows nothing.

use bytes::{BufMut, BytesMut};
use types::codec::{Error as Bad, Reader, Writer};
use types::{Position, RangeId, RangeSeq, TopicId, limits};

/// Bytes of the smallest load.
const LOAD_BYTES_MIN: usize = 16 + 8 + 8 + 8 + 2 + 4;

/// What one range takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which one.
    pub range: RangeId,
    /// Records in a second.
    pub records: u64,
    /// Bytes of records in a second.
    pub bytes: u64,
    /// Of a thousand records that were looked at, those without a key.
    pub keyless: u16,
    /// Where keys lay that were looked at: ascending, repeated as often as they came; at most
    /// [`limits::LOAD_KEYS_MAX`].
    pub keys: Vec<Position>,
}

pub(super) fn encode_loads(loads: &[Load], out: &mut BytesMut) {
    out.put_count(loads.len());
    for Load { range, records, bytes, keyless, keys } in loads {
        out.put_u128(range.topic.0);
        out.put_u64(range.seq.0);
        out.put_u64(*records);
        out.put_u64(*bytes);
        out.put_u16(*keyless);
        out.put_count(keys.len());
        keys.iter().for_each(|position| out.put_u32(position.0));
    }
}

pub(super) fn loads(reader: &mut Reader) -> Result<Vec<Load>, Bad> {
    let count = reader.count(LOAD_BYTES_MIN)?;
    if !(1..=limits::LOADS_PER_MESSAGE_MAX).contains(&count) {
        return Err(Bad::Invalid("a count of loads"));
    }
    (0..count).map(|_| load(reader)).collect()
}

fn load(reader: &mut Reader) -> Result<Load, Bad> {
    let topic = TopicId(reader.u128()?);
    let range = RangeId { topic, seq: RangeSeq(reader.u64()?) };
    let (records, bytes, keyless) = (reader.u64()?, reader.u64()?, reader.u16()?);
    let count = reader.count(4)?;
    if keyless > 1000 || count > limits::LOAD_KEYS_MAX {
        return Err(Bad::Invalid("a load"));
    }
    let keys: Vec<Position> = (0..count).map(|_| reader.u32().map(Position)).collect::<Result<_, Bad>>()?;
    if !keys.is_sorted() {
        return Err(Bad::Invalid("an order"));
    }
    Ok(Load { range, records, bytes, keyless, keys })
}
