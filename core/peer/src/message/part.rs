//! What the node of a client asks of the primary of a range: to append records, and to be told how far readers may go.
//!
//! Owns these words and their bytes. Records are opaque here.
//!
//! ```text
//! append       = range list<part>
//! part         = count:u32 crc:u32 records:blob stamp:opt<stamp>
//! stamp        = producer:u64 epoch:u32 first:u32 settled:u32 born:u64
//! append_reply = list<outcome>
//! outcome      = 0 count:u32 | 1 refusal | 2 doubt:u8
//! refusal      = 0 hint:opt<u128> | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8
//! watch        = segment known:u64 wait_ms:u32
//! watch_reply  = 0 end:u64 | 1 | 2 hint:opt<u128> | 3
//! range        = topic:u128 seq:u64
//! ```

use bytes::{BufMut, Bytes};
use types::codec::{Error as Bad, Reader, Writer};
use types::{NodeId, Offset, ProducerEpoch, ProducerId, RangeId, SegmentId, Stamp, WallTime, limits};

use super::copy::{offset, put_range, put_segment, range, segment};
use crate::hello::{opt_u128, put_opt_u128};
use crate::rope::Rope;

/// Bytes of a part without its records.
const PART_BYTES_MIN: usize = 4 + 4 + 4 + 1;
/// Least bytes of an outcome.
const OUTCOME_BYTES_MIN: usize = 1 + 1;

/// Records of several requests that go to one range, in the order in which they were accepted. Each has an outcome of
/// its own; once nothing of one was stored, nothing of a later one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The range.
    pub range: RangeId,
    /// At least one, at most [`limits::OUTLET_PARTS_MAX`].
    pub parts: Vec<Part>,
}

/// Records of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How many; at least 1.
    pub count: u32,
    /// CRC-32 over `records`, with no seed.
    pub crc: u32,
    /// In wire encoding, back to back.
    pub records: Bytes,
    /// Which request of which producer it is a part of, if that repeats itself; possible for so many records.
    pub stamp: Option<Stamp>,
}

/// What became of each part, in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendReply(pub Vec<Outcome>);

/// What became of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are durable on a quorum.
    Stored {
        /// How many.
        count: u32,
    },
    /// Certainly none of them was stored, and none will be.
    NotStored(Refusal),
    /// They may be stored, now or later, or never.
    Unknown(Doubt),
}

/// Why nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The receiver is not the primary of the range.
    NotPrimary {
        /// Who is, as far as it knows.
        hint: Option<NodeId>,
    },
    /// The range takes no more records.
    Sealed,
    /// There is no such range.
    NoSuchTopic,
    /// No range takes the records.
    Unroutable,
    /// There is too much to do.
    Overloaded,
    /// No segment could be opened.
    Unavailable,
    /// Its producer is not remembered far enough back.
    Forgotten,
    /// Its producer has begun a later life.
    Fenced,
    /// Copies of a segment shall lie in more failure domains than there are.
    InsufficientDomains,
}

/// Why nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A copy or its disk failed.
    Storage,
    /// No quorum answered in time.
    Timeout,
}

/// Asks how far readers may go in a segment that takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The segment.
    pub segment: SegmentId,
    /// Exclusive end that is known already: answered once there is more.
    pub known: Offset,
    /// How long to wait for that, milliseconds.
    pub wait_ms: u32,
}

/// How far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchReply {
    /// So far; not further than was known when nothing came for as long as the asker would wait.
    Committed {
        /// Exclusive.
        end: Offset,
    },
    /// The segment takes no more records: the tables tell, or will tell, where it ends.
    Ended,
    /// The receiver is not the primary of it.
    NotPrimary {
        /// Who is, as far as it knows.
        hint: Option<NodeId>,
    },
    /// There is too much to do.
    Overloaded,
}

/// A number by which what concerns one range falls on one stream.
pub(super) fn lane(range: RangeId) -> u64 {
    (range.topic.0 as u64).wrapping_add((range.topic.0 >> 64) as u64).wrapping_add(range.seq.0)
}

impl Append {
    pub(super) fn encode(&self, out: &mut Rope) {
        put_range(out.fields(), self.range);
        out.fields().put_count(self.parts.len());
        self.parts.iter().for_each(|part| part.encode(out));
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let range = range(reader)?;
        Ok(Self { range, parts: some(reader, PART_BYTES_MIN, Part::read)? })
    }
}

impl Part {
    /// Bytes it takes in a message.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        PART_BYTES_MIN + self.records.len()
    }

    fn encode(&self, out: &mut Rope) {
        let fields = out.fields();
        fields.put_u32(self.count);
        fields.put_u32(self.crc);
        fields.put_count(self.records.len());
        out.link(self.records.clone());
        let fields = out.fields();
        fields.put_bool(self.stamp.is_some());
        if let Some(Stamp { producer, epoch, first, settled, born }) = self.stamp {
            fields.put_u64(producer.0);
            fields.put_u32(epoch.0);
            fields.put_u32(first);
            fields.put_u32(settled);
            fields.put_u64(born.0);
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let (count, crc, records) = (reader.u32()?, reader.u32()?, reader.blob()?);
        if count == 0 {
            return Err(Bad::Invalid("records of nothing"));
        }
        let stamp = if reader.bool()? { Some(stamp(reader)?) } else { None };
        if stamp.is_some_and(|stamp| !stamp.fits(count)) {
            return Err(Bad::Invalid("a stamp"));
        }
        Ok(Self { count, crc, records, stamp })
    }
}

fn stamp(reader: &mut Reader) -> Result<Stamp, Bad> {
    Ok(Stamp {
        producer: ProducerId(reader.u64()?),
        epoch: ProducerEpoch(reader.u32()?),
        first: reader.u32()?,
        settled: reader.u32()?,
        born: WallTime(reader.u64()?),
    })
}

/// At least one of something, and no more than an outlet sends.
fn some<T>(
    reader: &mut Reader,
    bytes_min: usize,
    read: impl Fn(&mut Reader) -> Result<T, Bad>,
) -> Result<Vec<T>, Bad> {
    let count = reader.count(bytes_min)?;
    if !(1..=limits::OUTLET_PARTS_MAX).contains(&count) {
        return Err(Bad::Invalid("a count"));
    }
    (0..count).map(|_| read(reader)).collect()
}

impl AppendReply {
    pub(super) fn encode(&self, out: &mut Rope) {
        out.fields().put_count(self.0.len());
        self.0.iter().for_each(|outcome| outcome.encode(out));
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(Self(some(reader, OUTCOME_BYTES_MIN, Outcome::read)?))
    }
}

impl Outcome {
    fn encode(self, out: &mut Rope) {
        let fields = out.fields();
        match self {
            Self::Stored { count } => {
                fields.put_u8(0);
                fields.put_u32(count);
            }
            Self::NotStored(refusal) => {
                fields.put_u8(1);
                match refusal {
                    Refusal::NotPrimary { hint } => {
                        fields.put_u8(0);
                        put_opt_u128(fields, hint.map(|node| node.0));
                    }
                    Refusal::Sealed => fields.put_u8(1),
                    Refusal::NoSuchTopic => fields.put_u8(2),
                    Refusal::Unroutable => fields.put_u8(3),
                    Refusal::Overloaded => fields.put_u8(4),
                    Refusal::Unavailable => fields.put_u8(5),
                    Refusal::Forgotten => fields.put_u8(6),
                    Refusal::Fenced => fields.put_u8(7),
                    Refusal::InsufficientDomains => fields.put_u8(8),
                }
            }
            Self::Unknown(doubt) => {
                fields.put_u8(2);
                fields.put_u8(match doubt {
                    Doubt::Storage => 0,
                    Doubt::Timeout => 1,
                });
            }
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Stored { count: reader.u32()? },
            1 => Self::NotStored(match reader.u8()? {
                0 => Refusal::NotPrimary { hint: opt_u128(reader)?.map(NodeId) },
                1 => Refusal::Sealed,
                2 => Refusal::NoSuchTopic,
                3 => Refusal::Unroutable,
                4 => Refusal::Overloaded,
                5 => Refusal::Unavailable,
                6 => Refusal::Forgotten,
                7 => Refusal::Fenced,
                8 => Refusal::InsufficientDomains,
                _ => return Err(Bad::Invalid("a refusal")),
            }),
            2 => Self::Unknown(match reader.u8()? {
                0 => Doubt::Storage,
                1 => Doubt::Timeout,
                _ => return Err(Bad::Invalid("a doubt")),
            }),
            _ => return Err(Bad::Invalid("an outcome")),
        })
    }
}

impl Watch {
    pub(super) fn encode(self, out: &mut Rope) {
        let fields = out.fields();
        put_segment(fields, self.segment);
        fields.put_u64(self.known.0);
        fields.put_u32(self.wait_ms);
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(Self { segment: segment(reader)?, known: offset(reader)?, wait_ms: reader.u32()? })
    }
}

impl WatchReply {
    pub(super) fn encode(self, out: &mut Rope) {
        let fields = out.fields();
        match self {
            Self::Committed { end } => {
                fields.put_u8(0);
                fields.put_u64(end.0);
            }
            Self::Ended => fields.put_u8(1),
            Self::NotPrimary { hint } => {
                fields.put_u8(2);
                put_opt_u128(fields, hint.map(|node| node.0));
            }
            Self::Overloaded => fields.put_u8(3),
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Committed { end: offset(reader)? },
            1 => Self::Ended,
            2 => Self::NotPrimary { hint: opt_u128(reader)?.map(NodeId) },
            3 => Self::Overloaded,
            _ => return Err(Bad::Invalid("an outcome")),
        })
    }
}
