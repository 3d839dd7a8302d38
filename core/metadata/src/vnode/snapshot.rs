//! The whole state as bytes, canonically: equal states give equal bytes.
//!
//! ```text
//! snapshot = magic "MVN" format:u8  machine version:u16  applied:u64
//!            topics ranges segments positions              each count:u32 and its rows
//! topic    = id:u128 name:blob bits:u8 hash:u8 state:u8 next range:u64
//! range    = id span state:u8 parents(count:u32 u64*) next segment:u64 sealed end:u64
//! segment  = id start:u64 replicas(count:u32 u128*) opened:u64 state:u8 [length:u64 bytes:u64 at:u64]
//! position = topic:u128 group:blob tiles(count:u32 tile*)
//! ```
//!
//! Rows stand in the order of their keys, strictly increasing, and a decoder takes nothing else. Derived
//! indexes are not part of it. Integrity against the disk is the file's own checksum, one layer down; what
//! is checked here is that the rows make sense together, so that no later command meets a broken table.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::keyspace::KeyHash;
use types::{
    GroupName, Keyspace, Offset, RaftIndex, RangeId, RangeSeq, SegmentSeq, TopicId, TopicName, WallTime,
};

use super::command::{self, put_nodes, put_segment_id, put_span, put_tiles};
use super::position::coalesce;
use super::segment::is_replica_set;
use super::{
    Range, RangeState, Sealed, Segment, SegmentState, TILES_PER_GROUP_MAX, Topic, TopicState, Vnode,
};
use crate::machine::Version;

const MAGIC: [u8; 3] = *b"MVN";
const FORMAT: u8 = 1;

/// Smallest rows: topic, range, segment, position.
const ROW_BYTES_MIN: [usize; 4] =
    [16 + 4 + 1 + 1 + 1 + 8, 24 + 16 + 1 + 4 + 8 + 8, 32 + 8 + 4 + 8 + 1, 16 + 4 + 4];

/// Why bytes are not a snapshot this build can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A later build wrote it in another layout.
    #[error("snapshot format {0} is later than this build's {FORMAT}")]
    LaterFormat(u8),
    /// A later build wrote it under rules this one does not have.
    #[error("machine version {} is later than this build's {}", .0.0, Version::BUILD.0)]
    LaterVersion(Version),
    /// It does not decode.
    #[error("not a snapshot: {0}")]
    Codec(#[from] codec::Error),
    /// It decodes, but the rows contradict each other.
    #[error("not a snapshot: {0}")]
    Inconsistent(&'static str),
}

impl Vnode {
    /// The canonical encoding of the state.
    #[must_use]
    pub fn encode_snapshot(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.extend_from_slice(&MAGIC);
        out.put_u8(FORMAT);
        out.put_u16(self.version.0);
        out.put_u64(self.applied.0);
        out.put_count(self.topics.len());
        for (id, topic) in self.topics.iter() {
            put_topic(&mut out, id, topic);
        }
        out.put_count(self.ranges.len());
        for (id, range) in self.ranges.iter() {
            put_range(&mut out, id, range);
        }
        out.put_count(self.segments.len());
        for (id, segment) in self.segments.iter() {
            put_segment_id(&mut out, id);
            put_segment(&mut out, segment);
        }
        out.put_count(self.positions.iter().count());
        for (topic, group, tiles) in self.positions.iter() {
            out.put_u128(topic.0);
            out.put_blob(group.as_bytes());
            put_tiles(&mut out, tiles);
        }
        out.freeze()
    }

    /// The state a snapshot holds.
    pub fn decode_snapshot(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())?[..] != MAGIC {
            return Err(Error::Inconsistent("the magic number differs"));
        }
        match reader.u8()? {
            FORMAT => {}
            0 => return Err(Error::Inconsistent("no format version")),
            later => return Err(Error::LaterFormat(later)),
        }
        let version = Version(reader.u16()?);
        if version > Version::BUILD {
            return Err(Error::LaterVersion(version));
        }
        let mut state = Self::new(version);
        state.applied = RaftIndex(reader.u64()?);
        state.decode_topics(&mut reader)?;
        state.decode_ranges(&mut reader)?;
        state.decode_segments(&mut reader)?;
        state.decode_positions(&mut reader)?;
        reader.finish()?;
        Ok(state)
    }

    fn decode_topics(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(ROW_BYTES_MIN[0])? {
            let (id, topic) = topic(reader)?;
            order.check(id)?;
            if !self.topics.insert(id, topic) {
                return Err(Error::Inconsistent("two topics have one name"));
            }
        }
        Ok(())
    }

    fn decode_ranges(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(ROW_BYTES_MIN[1])? {
            let (id, range) = range(reader)?;
            order.check(id)?;
            let topic = self.topics.get(id.topic).ok_or(Error::Inconsistent("a range has no topic"))?;
            let inside = topic.keyspace.whole().covers(range.span) && id.seq < topic.next_range_seq;
            // Parents are older than their children, so each was read before.
            let parent = |seq: &RangeSeq| self.ranges.get(RangeId { topic: id.topic, seq: *seq }).is_some();
            if !inside || !range.parents.iter().all(parent) {
                return Err(Error::Inconsistent("a range does not fit its topic"));
            }
            self.ranges.insert(id, range);
        }
        Ok(())
    }

    fn decode_segments(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(ROW_BYTES_MIN[2])? {
            let id = command::segment_id(reader)?;
            let segment = segment(reader)?;
            order.check(id)?;
            let range = self.ranges.get(id.range).ok_or(Error::Inconsistent("a segment has no range"))?;
            let fits = match segment.end() {
                None => segment.start == range.sealed_end && self.segments.active(id.range).is_none(),
                Some(end) => end <= range.sealed_end,
            };
            if !fits || id.seq >= range.next_segment_seq {
                return Err(Error::Inconsistent("a segment does not fit its range"));
            }
            self.segments.insert(id, segment);
        }
        Ok(())
    }

    fn decode_positions(&mut self, reader: &mut Reader) -> Result<(), Error> {
        let mut order = Ascending::default();
        for _ in 0..reader.count(ROW_BYTES_MIN[3])? {
            let topic = command::topic_id(reader)?;
            let group = GroupName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a group name"))?;
            let tiles = command::tiles(reader)?;
            order.check((topic, group.clone()))?;
            let bounded = !tiles.is_empty() && tiles.len() <= TILES_PER_GROUP_MAX;
            if !bounded || !self.is_position(topic, &tiles) || coalesce(tiles.clone()) != tiles {
                return Err(Error::Inconsistent("a position does not fit its topic"));
            }
            self.positions.set(topic, group, tiles);
        }
        Ok(())
    }
}

/// Refuses rows that are repeated or out of order, so that a state has one encoding.
struct Ascending<K>(Option<K>);

impl<K> Default for Ascending<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord> Ascending<K> {
    fn check(&mut self, key: K) -> Result<(), Error> {
        if self.0.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::Inconsistent("rows are out of order"));
        }
        self.0 = Some(key);
        Ok(())
    }
}

fn put_topic(out: &mut BytesMut, id: TopicId, topic: &Topic) {
    out.put_u128(id.0);
    out.put_blob(topic.name.as_str().as_bytes());
    out.put_u8(topic.keyspace.bits());
    out.put_u8(topic.key_hash.id());
    out.put_u8(match topic.state {
        TopicState::Active => 1,
        TopicState::Sealed => 2,
    });
    out.put_u64(topic.next_range_seq.0);
}

fn topic(reader: &mut Reader) -> Result<(TopicId, Topic), Error> {
    let id = command::topic_id(reader)?;
    let name = TopicName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a topic name"))?;
    let keyspace = Keyspace::from_bits(reader.u8()?).ok_or(Error::Inconsistent("a keyspace"))?;
    let key_hash = KeyHash::from_id(reader.u8()?).ok_or(Error::Inconsistent("a key hash"))?;
    let state = match reader.u8()? {
        1 => TopicState::Active,
        2 => TopicState::Sealed,
        _ => return Err(Error::Inconsistent("a topic's state")),
    };
    let next_range_seq = RangeSeq(reader.u64()?);
    Ok((id, Topic { name, keyspace, key_hash, state, next_range_seq }))
}

fn put_range(out: &mut BytesMut, id: RangeId, range: &Range) {
    out.put_u128(id.topic.0);
    out.put_u64(id.seq.0);
    put_span(out, range.span);
    out.put_u8(match range.state {
        RangeState::Active => 1,
        RangeState::Sealed => 2,
        RangeState::Replaced => 3,
    });
    out.put_count(range.parents.len());
    for parent in &range.parents {
        out.put_u64(parent.0);
    }
    out.put_u64(range.next_segment_seq.0);
    out.put_u64(range.sealed_end.0);
}

fn range(reader: &mut Reader) -> Result<(RangeId, Range), Error> {
    let id = command::range_id(reader)?;
    let span = command::span(reader)?;
    let state = match reader.u8()? {
        1 => RangeState::Active,
        2 => RangeState::Sealed,
        3 => RangeState::Replaced,
        _ => return Err(Error::Inconsistent("a range's state")),
    };
    let count = reader.count(8)?;
    let parents = (0..count).map(|_| reader.u64().map(RangeSeq)).collect::<Result<_, _>>()?;
    let next_segment_seq = SegmentSeq(reader.u64()?);
    let sealed_end = Offset(reader.u64()?);
    Ok((id, Range { span, state, parents, next_segment_seq, sealed_end }))
}

fn put_segment(out: &mut BytesMut, segment: &Segment) {
    out.put_u64(segment.start.0);
    put_nodes(out, &segment.replicas);
    out.put_u64(segment.opened_at.0);
    match segment.state {
        SegmentState::Active => out.put_u8(1),
        SegmentState::Sealed(sealed) => {
            out.put_u8(2);
            out.put_u64(sealed.length);
            out.put_u64(sealed.byte_size);
            out.put_u64(sealed.at.0);
        }
    }
}

fn segment(reader: &mut Reader) -> Result<Segment, Error> {
    let start = Offset(reader.u64()?);
    let replicas = command::nodes(reader)?;
    let opened_at = WallTime(reader.u64()?);
    let state = match reader.u8()? {
        1 => SegmentState::Active,
        2 => {
            let (length, byte_size) = (reader.u64()?, reader.u64()?);
            SegmentState::Sealed(Sealed { length, byte_size, at: WallTime(reader.u64()?) })
        }
        _ => return Err(Error::Inconsistent("a segment's state")),
    };
    let countable = match state {
        SegmentState::Active => true,
        SegmentState::Sealed(sealed) => start.checked_add(sealed.length).is_some(),
    };
    if !countable || !is_replica_set(&replicas) {
        return Err(Error::Inconsistent("a segment's extent or replicas"));
    }
    Ok(Segment { start, replicas, opened_at, state })
}
