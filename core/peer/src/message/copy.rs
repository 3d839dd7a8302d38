//! What a node asks of a copy that another node holds, and what it is told.
//!
//! Owns these words and their bytes. They mirror what a store can be asked, so that nodes of two builds agree on the
//! bytes whatever their stores call things. A frame is opaque here: header and payload of one batch, whose checksums
//! are for whoever takes it.
//!
//! ```text
//! of_copy = segment bulk:bool request
//! segment = topic:u128 range:u64 seq:u64
//! request = 0 base:u64 epoch:u64 expect_full:bool rebuilding:bool | 1 epoch:u64 list<frame> | 2 from:u64 bytes_max:u32
//!         | 3 at:u64 | 4 epoch:u64 | 5 end:u64 at:u64 | 6 reason:u8 | 7 | 8 | 9 | 10
//! reply   = 0 | 1 end:u64 | 2 list<frame> | 3 offset:u64 | 4 extent | 5 extent | 6 | 7 records:u64 bytes:u64
//!           opt<damage> | 8 | 9 extent | 10 error | 11 | 12 | 13 extent
//! frame   = header:blob payload:blob
//! extent  = base:u64 end:u64 bytes:u64 epoch:u64 last_append:opt<u64> rebuilding:bool state
//! state   = 0 | 1 | 2 reason:u8 | 3 reason:u8
//! damage  = position:u64 offset:u64 class:u8
//! error   = 0 | 1 | 2 end:u64 | 3 epoch:u64 | 4 end:u64 | 5 base:u64 | 6 end:u64 | 7 end:u64 | 8 damage | 9 reason:u8
//!         | 10 detail:blob | 11
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error as Bad, Reader, Writer};
use types::{Epoch, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime, limits};

use crate::rope::Rope;

/// Offsets and epochs are below this, so that counting them up cannot overflow.
const NUMBER_END: u64 = 1 << 62;
/// Least bytes of a frame: the lengths of its two parts.
const FRAME_BYTES_MIN: usize = 4 + 4;
/// Longest header of a frame, bytes.
const HEADER_BYTES_MAX: usize = 255;
/// Longest explanation for people, bytes.
pub const DETAIL_BYTES_MAX: usize = 512;

/// Something asked of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfCopy {
    /// Of which segment.
    pub segment: SegmentId,
    /// Whether it goes behind what is urgent. Requests of one segment keep their order among the urgent ones, and
    /// among the others.
    pub bulk: bool,
    /// What.
    pub request: Request,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes a new, empty copy.
    Create {
        /// Offset of its first record.
        base: Offset,
        /// Appends below it are refused.
        epoch: Epoch,
        /// It is expected to fill.
        expect_full: bool,
        /// It stands for one that was lost, and holds less than was acknowledged until it is filled.
        rebuilding: bool,
    },
    /// Appends batches at exactly the copy's end, all or none.
    Append {
        /// Epoch the sender acts under.
        epoch: Epoch,
        /// At least one, each beginning where the one before ends.
        frames: Vec<Frame>,
    },
    /// Reads whole batches.
    Read {
        /// First offset wanted.
        from: Offset,
        /// Stop before the batch that would pass this many bytes; at least one is returned.
        bytes_max: u32,
    },
    /// The offset of the first batch appended at or after a time.
    SeekTime {
        /// The time.
        at: WallTime,
    },
    /// Refuses every append under a lower epoch from now on.
    Fence {
        /// The new epoch.
        epoch: Epoch,
    },
    /// Ends the copy for good.
    Seal {
        /// Exclusive.
        end: Offset,
        /// When.
        at: WallTime,
    },
    /// Takes the copy out of service.
    Latch {
        /// Why.
        reason: FailReason,
    },
    /// Checks every frame.
    Verify,
    /// Removes the copy.
    Delete,
    /// Where the copy stands.
    Inspect,
    /// A copy that was rebuilding is whole.
    Rebuilt,
}

/// One batch as it travels: what is equal on every copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it says about itself.
    pub header: Bytes,
    /// The records.
    pub payload: Bytes,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The copy exists durably and is empty.
    Created,
    /// Everything below is durable.
    Appended {
        /// Exclusive.
        end: Offset,
    },
    /// Whole batches in order, at least one.
    Read(Vec<Frame>),
    /// First offset appended at or after the time.
    Sought(Offset),
    /// The fence is durable.
    Fenced(Extent),
    /// The copy is sealed durably.
    Sealed(Extent),
    /// The copy is out of service.
    Latched,
    /// What verification found.
    Verified {
        /// Records in intact frames before the first damage.
        records: u64,
        /// Bytes of those frames.
        bytes: u64,
        /// The first damage, if any.
        damage: Option<Damage>,
    },
    /// No copy is left.
    Deleted,
    /// Where the copy stands.
    Inspected(Extent),
    /// The request was refused or failed.
    Failed(Error),
    /// Nothing was done: the node does not serve copies at the moment.
    NotServed,
    /// Nothing was done: the answer is too large for where the question came by. Ask as urgent.
    TooLarge,
    /// The copy is whole, durably.
    Rebuilt(Extent),
}

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of its first record.
    pub base: Offset,
    /// Exclusive durable end.
    pub end: Offset,
    /// Bytes of log up to `end`.
    pub bytes: u64,
    /// Highest epoch it has durably accepted.
    pub epoch: Epoch,
    /// When the last batch was appended, or when it was sealed.
    pub last_append: Option<WallTime>,
    /// Whether it stands for one that was lost and is not whole yet.
    pub rebuilding: bool,
    /// What may be done with it.
    pub state: State,
}

/// What may be done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes appends.
    Active,
    /// Ended for good.
    Sealed,
    /// Takes no more appends in this life of its node.
    Stopped(FailReason),
    /// Out of service.
    Latched(FailReason),
}

/// Why a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// The volume is full.
    Enospc,
    /// The device failed.
    Eio,
    /// The volume is read-only.
    Erofs,
    /// Anything else.
    Other,
}

/// Bytes that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte position in the copy's log.
    pub position: u64,
    /// What the frame there should begin with.
    pub offset: Offset,
    /// What is wrong.
    pub class: DamageClass,
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageClass {
    /// No header of this segment.
    Header,
    /// The payload is another.
    Payload,
    /// An intact frame that is not the next one.
    Order,
    /// The file ends too early.
    Short,
    /// A frame of a later format.
    Unsupported,
    /// What describes the copy is missing or damaged.
    Meta,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no copy of the segment.
    NoSuchSegment,
    /// The copy exists already.
    Exists,
    /// The copy ended for good.
    Sealed {
        /// Exclusive.
        end: Offset,
    },
    /// The sender acts under an outdated epoch.
    Fenced {
        /// The epoch the copy has accepted.
        epoch: Epoch,
    },
    /// The batch does not start at the copy's end.
    OutOfSync {
        /// Where an append must start.
        end: Offset,
    },
    /// The offset lies below the copy's base.
    OutOfRange {
        /// First offset held.
        base: Offset,
    },
    /// The offset lies at or past the copy's durable end.
    EndOfData {
        /// Exclusive.
        end: Offset,
    },
    /// The seal's end is no boundary, or past the durable end.
    CannotSeal {
        /// Exclusive durable end.
        end: Offset,
    },
    /// The bytes that hold the answer are damaged.
    Damaged(Damage),
    /// The copy is stopped or latched.
    Latched(FailReason),
    /// A disk operation failed now.
    Storage {
        /// For people, at most [`DETAIL_BYTES_MAX`].
        detail: Bytes,
    },
    /// Too much is waiting; nothing was done.
    Overloaded,
}

impl OfCopy {
    /// A number by which requests of one segment fall on one stream.
    pub(super) fn lane(&self) -> u64 {
        lane(self.segment)
    }

    pub(super) fn encode(&self, out: &mut Rope) {
        put_segment(out.fields(), self.segment);
        out.fields().put_bool(self.bulk);
        self.request.encode(out);
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(Self { segment: segment(reader)?, bulk: reader.bool()?, request: Request::read(reader)? })
    }
}

impl Request {
    fn encode(&self, out: &mut Rope) {
        let fields = out.fields();
        match self {
            Self::Create { base, epoch, expect_full, rebuilding } => {
                fields.put_u8(0);
                fields.put_u64(base.0);
                fields.put_u64(epoch.0);
                fields.put_bool(*expect_full);
                fields.put_bool(*rebuilding);
            }
            Self::Append { epoch, frames } => {
                fields.put_u8(1);
                fields.put_u64(epoch.0);
                fields.put_count(frames.len());
                frames.iter().for_each(|frame| frame.encode(out));
            }
            Self::Read { from, bytes_max } => {
                fields.put_u8(2);
                fields.put_u64(from.0);
                fields.put_u32(*bytes_max);
            }
            Self::SeekTime { at } => {
                fields.put_u8(3);
                fields.put_u64(at.0);
            }
            Self::Fence { epoch } => {
                fields.put_u8(4);
                fields.put_u64(epoch.0);
            }
            Self::Seal { end, at } => {
                fields.put_u8(5);
                fields.put_u64(end.0);
                fields.put_u64(at.0);
            }
            Self::Latch { reason } => {
                fields.put_u8(6);
                fields.put_u8(reason.number());
            }
            Self::Verify => fields.put_u8(7),
            Self::Delete => fields.put_u8(8),
            Self::Inspect => fields.put_u8(9),
            Self::Rebuilt => fields.put_u8(10),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Create {
                base: offset(reader)?,
                epoch: epoch(reader)?,
                expect_full: reader.bool()?,
                rebuilding: reader.bool()?,
            },
            1 => Self::Append { epoch: epoch(reader)?, frames: Frame::read_some(reader)? },
            2 => Self::Read { from: offset(reader)?, bytes_max: reader.u32()? },
            3 => Self::SeekTime { at: WallTime(reader.u64()?) },
            4 => Self::Fence { epoch: epoch(reader)? },
            5 => Self::Seal { end: offset(reader)?, at: WallTime(reader.u64()?) },
            6 => Self::Latch { reason: FailReason::read(reader)? },
            7 => Self::Verify,
            8 => Self::Delete,
            9 => Self::Inspect,
            10 => Self::Rebuilt,
            _ => return Err(Bad::Invalid("a request of a copy")),
        })
    }
}

impl Frame {
    /// Bytes it takes in a message.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        4 + self.header.len() + 4 + self.payload.len()
    }

    fn encode(&self, out: &mut Rope) {
        out.fields().put_blob(&self.header);
        out.fields().put_count(self.payload.len());
        out.link(self.payload.clone());
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let frame = Self { header: reader.blob()?, payload: reader.blob()? };
        let fits = frame.header.len() <= HEADER_BYTES_MAX;
        if fits { Ok(frame) } else { Err(Bad::Invalid("the length of a header")) }
    }

    fn read_some(reader: &mut Reader) -> Result<Vec<Self>, Bad> {
        let count = reader.count(FRAME_BYTES_MIN)?;
        if count == 0 || count > limits::PEER_BATCH_MESSAGES_MAX {
            return Err(Bad::Invalid("a count"));
        }
        (0..count).map(|_| Self::read(reader)).collect()
    }
}

impl Reply {
    pub(super) fn encode(&self, out: &mut Rope) {
        let fields = out.fields();
        match self {
            Self::Created => fields.put_u8(0),
            Self::Appended { end } => {
                fields.put_u8(1);
                fields.put_u64(end.0);
            }
            Self::Read(frames) => {
                fields.put_u8(2);
                fields.put_count(frames.len());
                frames.iter().for_each(|frame| frame.encode(out));
            }
            Self::Sought(offset) => {
                fields.put_u8(3);
                fields.put_u64(offset.0);
            }
            Self::Fenced(extent) => extent.encode(4, fields),
            Self::Sealed(extent) => extent.encode(5, fields),
            Self::Latched => fields.put_u8(6),
            Self::Verified { records, bytes, damage } => {
                fields.put_u8(7);
                fields.put_u64(*records);
                fields.put_u64(*bytes);
                fields.put_bool(damage.is_some());
                damage.iter().for_each(|damage| damage.encode(fields));
            }
            Self::Deleted => fields.put_u8(8),
            Self::Inspected(extent) => extent.encode(9, fields),
            Self::Failed(error) => {
                fields.put_u8(10);
                error.encode(fields);
            }
            Self::NotServed => fields.put_u8(11),
            Self::TooLarge => fields.put_u8(12),
            Self::Rebuilt(extent) => extent.encode(13, fields),
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Created,
            1 => Self::Appended { end: offset(reader)? },
            2 => {
                let count = reader.count(FRAME_BYTES_MIN)?;
                if count > limits::PEER_BATCH_MESSAGES_MAX {
                    return Err(Bad::Invalid("a count"));
                }
                Self::Read((0..count).map(|_| Frame::read(reader)).collect::<Result<_, _>>()?)
            }
            3 => Self::Sought(offset(reader)?),
            4 => Self::Fenced(Extent::read(reader)?),
            5 => Self::Sealed(Extent::read(reader)?),
            6 => Self::Latched,
            7 => {
                let (records, bytes) = (reader.u64()?, reader.u64()?);
                let damage = if reader.bool()? { Some(Damage::read(reader)?) } else { None };
                Self::Verified { records, bytes, damage }
            }
            8 => Self::Deleted,
            9 => Self::Inspected(Extent::read(reader)?),
            10 => Self::Failed(Error::read(reader)?),
            11 => Self::NotServed,
            12 => Self::TooLarge,
            13 => Self::Rebuilt(Extent::read(reader)?),
            _ => return Err(Bad::Invalid("an outcome")),
        })
    }
}

impl Extent {
    fn encode(&self, tag: u8, out: &mut BytesMut) {
        out.put_u8(tag);
        out.put_u64(self.base.0);
        out.put_u64(self.end.0);
        out.put_u64(self.bytes);
        out.put_u64(self.epoch.0);
        out.put_bool(self.last_append.is_some());
        self.last_append.iter().for_each(|at| out.put_u64(at.0));
        out.put_bool(self.rebuilding);
        match self.state {
            State::Active => out.put_u8(0),
            State::Sealed => out.put_u8(1),
            State::Stopped(reason) => out.put_slice(&[2, reason.number()]),
            State::Latched(reason) => out.put_slice(&[3, reason.number()]),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let (base, end) = (offset(reader)?, offset(reader)?);
        if end < base {
            return Err(Bad::Invalid("an extent"));
        }
        let (bytes, epoch) = (reader.u64()?, epoch(reader)?);
        let last_append = if reader.bool()? { Some(WallTime(reader.u64()?)) } else { None };
        let rebuilding = reader.bool()?;
        let state = match reader.u8()? {
            0 => State::Active,
            1 => State::Sealed,
            2 => State::Stopped(FailReason::read(reader)?),
            3 => State::Latched(FailReason::read(reader)?),
            _ => return Err(Bad::Invalid("a state")),
        };
        Ok(Self { base, end, bytes, epoch, last_append, rebuilding, state })
    }
}

impl FailReason {
    fn number(self) -> u8 {
        match self {
            Self::Enospc => 0,
            Self::Eio => 1,
            Self::Erofs => 2,
            Self::Other => 3,
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Enospc,
            1 => Self::Eio,
            2 => Self::Erofs,
            3 => Self::Other,
            _ => return Err(Bad::Invalid("a reason")),
        })
    }
}

impl Damage {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.position);
        out.put_u64(self.offset.0);
        out.put_u8(match self.class {
            DamageClass::Header => 0,
            DamageClass::Payload => 1,
            DamageClass::Order => 2,
            DamageClass::Short => 3,
            DamageClass::Unsupported => 4,
            DamageClass::Meta => 5,
        });
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let (position, offset) = (reader.u64()?, offset(reader)?);
        let class = match reader.u8()? {
            0 => DamageClass::Header,
            1 => DamageClass::Payload,
            2 => DamageClass::Order,
            3 => DamageClass::Short,
            4 => DamageClass::Unsupported,
            5 => DamageClass::Meta,
            _ => return Err(Bad::Invalid("a damage")),
        };
        Ok(Self { position, offset, class })
    }
}

impl Error {
    fn encode(&self, out: &mut BytesMut) {
        let mut number = |tag: u8, number: u64| {
            out.put_u8(tag);
            out.put_u64(number);
        };
        match self {
            Self::NoSuchSegment => out.put_u8(0),
            Self::Exists => out.put_u8(1),
            Self::Sealed { end } => number(2, end.0),
            Self::Fenced { epoch } => number(3, epoch.0),
            Self::OutOfSync { end } => number(4, end.0),
            Self::OutOfRange { base } => number(5, base.0),
            Self::EndOfData { end } => number(6, end.0),
            Self::CannotSeal { end } => number(7, end.0),
            Self::Damaged(damage) => {
                out.put_u8(8);
                damage.encode(out);
            }
            Self::Latched(reason) => out.put_slice(&[9, reason.number()]),
            Self::Storage { detail } => {
                out.put_u8(10);
                out.put_blob(&detail[..detail.len().min(DETAIL_BYTES_MAX)]);
            }
            Self::Overloaded => out.put_u8(11),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::NoSuchSegment,
            1 => Self::Exists,
            2 => Self::Sealed { end: offset(reader)? },
            3 => Self::Fenced { epoch: epoch(reader)? },
            4 => Self::OutOfSync { end: offset(reader)? },
            5 => Self::OutOfRange { base: offset(reader)? },
            6 => Self::EndOfData { end: offset(reader)? },
            7 => Self::CannotSeal { end: offset(reader)? },
            8 => Self::Damaged(Damage::read(reader)?),
            9 => Self::Latched(FailReason::read(reader)?),
            10 => {
                let detail = reader.blob()?;
                if detail.len() > DETAIL_BYTES_MAX {
                    return Err(Bad::Invalid("the length of a detail"));
                }
                Self::Storage { detail }
            }
            11 => Self::Overloaded,
            _ => return Err(Bad::Invalid("an error")),
        })
    }
}

/// A number by which what concerns one segment falls on one stream.
fn lane(segment: SegmentId) -> u64 {
    super::part::lane(segment.range).wrapping_add(segment.seq.0)
}

pub(super) fn put_range(out: &mut BytesMut, range: RangeId) {
    out.put_u128(range.topic.0);
    out.put_u64(range.seq.0);
}

pub(super) fn put_segment(out: &mut BytesMut, segment: SegmentId) {
    put_range(out, segment.range);
    out.put_u64(segment.seq.0);
}

pub(super) fn range(reader: &mut Reader) -> Result<RangeId, Bad> {
    Ok(RangeId { topic: TopicId(reader.u128()?), seq: RangeSeq(reader.u64()?) })
}

pub(super) fn segment(reader: &mut Reader) -> Result<SegmentId, Bad> {
    Ok(SegmentId { range: range(reader)?, seq: SegmentSeq(reader.u64()?) })
}

pub(super) fn offset(reader: &mut Reader) -> Result<Offset, Bad> {
    let value = reader.u64()?;
    if value < NUMBER_END { Ok(Offset(value)) } else { Err(Bad::Invalid("an offset")) }
}

fn epoch(reader: &mut Reader) -> Result<Epoch, Bad> {
    let value = reader.u64()?;
    if value < NUMBER_END { Ok(Epoch(value)) } else { Err(Bad::Invalid("an epoch")) }
}
