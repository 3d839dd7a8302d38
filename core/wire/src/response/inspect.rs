//! Segments and their copies, as administrators are told of them, and why something does or does not move.

use bytes::{BufMut, Bytes, BytesMut};
use types::NodeId;
use types::codec::{Error, Reader, Writer};

use crate::Malformed;
use crate::request::node;

/// Smallest segment: active, without copies.
const SEGMENT_BYTES_MIN: usize = 8 + 8 + 8 + 1 + 8 + 4;
/// Smallest copy: of no known end, nothing to add.
const COPY_BYTES_MIN: usize = 16 + 1 + 1 + 8 + 4;
/// Smallest fact: nothing about nothing.
const FACT_BYTES_MIN: usize = 4 + 4;

/// Some segments of a topic, in the order of their ranges and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentPage {
    /// In that order.
    pub segments: Vec<SegmentInfo>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Number of its range.
    pub range: u64,
    /// Its number in the range.
    pub segment: u64,
    /// Offset of its first record.
    pub start: u64,
    /// Exclusive end; `None` while it takes records.
    pub end: Option<u64>,
    /// Bytes of its records as they are stored; 0 while it takes records.
    pub bytes: u64,
    /// Its copies, the primary's first while it takes records.
    pub copies: Vec<CopyInfo>,
}

/// One copy of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyInfo {
    /// Whose it is.
    pub node: NodeId,
    /// How it is.
    pub health: CopyHealth,
    /// Exclusive end of what it durably holds, as it says itself.
    pub end: Option<u64>,
    /// Bytes of that.
    pub bytes: u64,
    /// What else there is to say, for people; may be empty.
    pub detail: Bytes,
}

/// How a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyHealth {
    /// Its node was not asked.
    Unasked,
    /// Ended where the segment did, with everything.
    Settled,
    /// It holds everything, and is not ended yet.
    Intact,
    /// It holds less than it should.
    Short,
    /// It is made anew, and is no answer to anybody yet.
    Rebuilding,
    /// A write failed: it takes no more records, and what it holds can be read.
    Stopped,
    /// Out of service for good.
    Latched,
    /// Bytes in it are not what was written.
    Damaged,
    /// Its node has none.
    Missing,
    /// Its node cannot be reached, or did not answer.
    Unreachable,
}

/// Why something does or does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The node whose memory this is from.
    pub told_by: NodeId,
    /// How serious it is.
    pub verdict: Verdict,
    /// A word for scripts; never renamed.
    pub cause: Bytes,
    /// The same as a sentence, with what it is about.
    pub text: Bytes,
    /// Since when, milliseconds, where that is known.
    pub since_ms: Option<u64>,
    /// What happens next by itself, or what a person can do.
    pub next: Bytes,
    /// What else is known: name and value, in the order in which they are shown.
    pub facts: Vec<(Bytes, Bytes)>,
    /// The segment that it is about.
    pub segment: Option<SegmentInfo>,
}

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It moves, or would.
    Moves,
    /// It waits for something that comes by itself.
    Waits,
    /// It stands still until something outside changes.
    Stands,
}

impl CopyHealth {
    /// Every one, by number.
    pub const ALL: [Self; 10] = [
        Self::Unasked,
        Self::Settled,
        Self::Intact,
        Self::Short,
        Self::Rebuilding,
        Self::Stopped,
        Self::Latched,
        Self::Damaged,
        Self::Missing,
        Self::Unreachable,
    ];

    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unasked => "unasked",
            Self::Settled => "settled",
            Self::Intact => "intact",
            Self::Short => "short",
            Self::Rebuilding => "rebuilding",
            Self::Stopped => "stopped",
            Self::Latched => "latched",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
            Self::Unreachable => "unreachable",
        }
    }

    /// Whether everything that it should hold can be read from it.
    #[must_use]
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Settled | Self::Intact)
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let number = usize::from(reader.u8()?);
        Self::ALL.get(number).copied().ok_or(Error::Invalid("a copy's health"))
    }

    fn number(self) -> u8 {
        match self {
            Self::Unasked => 0,
            Self::Settled => 1,
            Self::Intact => 2,
            Self::Short => 3,
            Self::Rebuilding => 4,
            Self::Stopped => 5,
            Self::Latched => 6,
            Self::Damaged => 7,
            Self::Missing => 8,
            Self::Unreachable => 9,
        }
    }
}

impl Verdict {
    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Moves => "moves",
            Self::Waits => "waits",
            Self::Stands => "stands",
        }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Self::Moves),
            1 => Ok(Self::Waits),
            2 => Ok(Self::Stands),
            _ => Err(Error::Invalid("a verdict")),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Moves => 0,
            Self::Waits => 1,
            Self::Stands => 2,
        }
    }
}

fn opt_u64(r: &mut Reader) -> Result<Option<u64>, Error> {
    Ok(if r.bool()? { Some(r.u64()?) } else { None })
}

fn put_opt_u64(out: &mut BytesMut, number: Option<u64>) {
    out.put_bool(number.is_some());
    if let Some(number) = number {
        out.put_u64(number);
    }
}

impl SegmentPage {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        let count = r.count(SEGMENT_BYTES_MIN)?;
        let segments = (0..count).map(|_| SegmentInfo::decode(r)).collect::<Result<_, _>>()?;
        Ok(Self { segments, more: r.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_count(self.segments.len());
        self.segments.iter().for_each(|segment| segment.encode(out));
        out.put_bool(self.more);
    }
}

impl SegmentInfo {
    /// Bytes it takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let copy = |copy: &CopyInfo| COPY_BYTES_MIN + 8 * usize::from(copy.end.is_some()) + copy.detail.len();
        let copies: usize = self.copies.iter().map(copy).sum();
        SEGMENT_BYTES_MIN + 8 * usize::from(self.end.is_some()) + copies
    }

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let (range, segment, start) = (r.u64()?, r.u64()?, r.u64()?);
        let (end, bytes) = (opt_u64(r)?, r.u64()?);
        let count = r.count(COPY_BYTES_MIN)?;
        let copies = (0..count).map(|_| CopyInfo::decode(r)).collect::<Result<_, _>>()?;
        Ok(Self { range, segment, start, end, bytes, copies })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.range);
        out.put_u64(self.segment);
        out.put_u64(self.start);
        put_opt_u64(out, self.end);
        out.put_u64(self.bytes);
        out.put_count(self.copies.len());
        for copy in &self.copies {
            out.put_u128(copy.node.0);
            out.put_u8(copy.health.number());
            put_opt_u64(out, copy.end);
            out.put_u64(copy.bytes);
            out.put_blob(&copy.detail);
        }
    }
}

impl CopyInfo {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            node: node(r)?,
            health: CopyHealth::decode(r)?,
            end: opt_u64(r)?,
            bytes: r.u64()?,
            detail: r.blob()?,
        })
    }
}

impl Explanation {
    /// For a place that is no frame.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }

    /// The other way, all of it.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let explanation = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(explanation)
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        let (told_by, verdict) = (node(r)?, Verdict::decode(r)?);
        let (cause, text, since_ms, next) = (r.blob()?, r.blob()?, opt_u64(r)?, r.blob()?);
        let count = r.count(FACT_BYTES_MIN)?;
        let facts = (0..count).map(|_| Ok((r.blob()?, r.blob()?))).collect::<Result<_, Error>>()?;
        let segment = if r.bool()? { Some(SegmentInfo::decode(r)?) } else { None };
        Ok(Self { told_by, verdict, cause, text, since_ms, next, facts, segment })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u128(self.told_by.0);
        out.put_u8(self.verdict.number());
        out.put_blob(&self.cause);
        out.put_blob(&self.text);
        put_opt_u64(out, self.since_ms);
        out.put_blob(&self.next);
        out.put_count(self.facts.len());
        for (name, value) in &self.facts {
            out.put_blob(name);
            out.put_blob(value);
        }
        out.put_bool(self.segment.is_some());
        if let Some(segment) = &self.segment {
            segment.encode(out);
        }
    }
}
