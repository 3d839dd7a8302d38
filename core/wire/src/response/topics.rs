//! Topics and their ranges, as listed and described.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};

/// Smallest summary: an empty name.
const SUMMARY_BYTES_MIN: usize = 5 + 1 + 1 + 4 + 4 + 4 + 8 + 4;
/// Smallest range: no parents.
const RANGE_BYTES_MIN: usize = 8 + 1 + 8 + 8 + 4 + 4 + 8 + 8;

/// Topics in order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSummaries {
    /// In order of their names.
    pub topics: Vec<TopicSummary>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A topic in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    /// Its name; never null.
    pub name: Bytes,
    /// Whether it takes records.
    pub state: TopicState,
    /// It has 2 to this power key positions.
    pub keyspace_bits: u8,
    /// Ranges it ever had.
    pub ranges: u32,
    /// Ranges that take records; 0 once it is sealed.
    pub active_ranges: u32,
    /// Segments stored.
    pub segments: u32,
    /// Bytes of its sealed segments.
    pub bytes: u64,
    /// Groups that committed.
    pub groups: u32,
}

/// A topic and some of its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// The topic.
    pub summary: TopicSummary,
    /// In order of their numbers.
    pub ranges: Vec<RangeInfo>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A range of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    /// Its number in the topic.
    pub range: u64,
    /// What it is good for.
    pub state: RangeState,
    /// First key position.
    pub key_start: u64,
    /// One past the last key position.
    pub key_end: u64,
    /// The ranges it replaced, by key position: none for a topic's first range, one after a split, two after
    /// a merge.
    pub parents: Vec<u64>,
    /// Segments stored.
    pub segments: u32,
    /// Records stored.
    pub records: u64,
    /// Bytes of its sealed segments.
    pub bytes: u64,
}

/// Whether a topic takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// It does.
    Active,
    /// It does not, and will not; what it holds can be read.
    Sealed,
}

/// What a range is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    /// It takes records.
    Active,
    /// Its topic is sealed.
    Sealed,
    /// Others took its place in a split or merge; they are read after it.
    Replaced,
}

impl TopicState {
    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Sealed => "sealed",
        }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Self::Active),
            1 => Ok(Self::Sealed),
            _ => Err(Error::Invalid("a topic's state")),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Sealed => 1,
        }
    }
}

impl RangeState {
    /// The word for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Sealed => "sealed",
            Self::Replaced => "replaced",
        }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Self::Active),
            1 => Ok(Self::Sealed),
            2 => Ok(Self::Replaced),
            _ => Err(Error::Invalid("a range's state")),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Sealed => 1,
            Self::Replaced => 2,
        }
    }
}

impl TopicSummaries {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let mut topics = Vec::new();
        for _ in 0..reader.count(SUMMARY_BYTES_MIN)? {
            topics.push(TopicSummary::decode(reader)?);
        }
        Ok(Self { topics, more: reader.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_count(self.topics.len());
        self.topics.iter().for_each(|topic| topic.encode(out));
        out.put_bool(self.more);
    }
}

impl TopicSummary {
    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            name: reader.opt_blob()?.ok_or(Error::Invalid("a null name"))?,
            state: TopicState::decode(reader)?,
            keyspace_bits: reader.u8()?,
            ranges: reader.u32()?,
            active_ranges: reader.u32()?,
            segments: reader.u32()?,
            bytes: reader.u64()?,
            groups: reader.u32()?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(Some(&self.name));
        out.put_u8(self.state.number());
        out.put_u8(self.keyspace_bits);
        out.put_u32(self.ranges);
        out.put_u32(self.active_ranges);
        out.put_u32(self.segments);
        out.put_u64(self.bytes);
        out.put_u32(self.groups);
    }
}

impl TopicInfo {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let summary = TopicSummary::decode(reader)?;
        let mut ranges = Vec::new();
        for _ in 0..reader.count(RANGE_BYTES_MIN)? {
            ranges.push(RangeInfo::decode(reader)?);
        }
        Ok(Self { summary, ranges, more: reader.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        self.summary.encode(out);
        out.put_count(self.ranges.len());
        self.ranges.iter().for_each(|range| range.encode(out));
        out.put_bool(self.more);
    }
}

impl RangeInfo {
    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let (range, state) = (reader.u64()?, RangeState::decode(reader)?);
        let (key_start, key_end) = (reader.u64()?, reader.u64()?);
        let mut parents = Vec::new();
        for _ in 0..reader.count(8)? {
            parents.push(reader.u64()?);
        }
        let (segments, records, bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
        Ok(Self { range, state, key_start, key_end, parents, segments, records, bytes })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.range);
        out.put_u8(self.state.number());
        out.put_u64(self.key_start);
        out.put_u64(self.key_end);
        out.put_count(self.parents.len());
        self.parents.iter().for_each(|parent| out.put_u64(*parent));
        out.put_u32(self.segments);
        out.put_u64(self.records);
        out.put_u64(self.bytes);
    }
}
