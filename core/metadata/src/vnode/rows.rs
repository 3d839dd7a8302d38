//! One row of each table as bytes.
//!
//! ```text
//! topic    = id:u128 name:blob bits:u8 hash:u8 state:u8 next range:u64
//!            policy(opt_blob) arrived by(00 | 01 u128)
//! range    = id span state:u8 parents(count:u32 u64*) next segment:u64 sealed end:u64 load splits:u8
//! segment  = id start:u64 replicas(count:u32 u128*) opened:u64 state:u8 [length:u64 bytes:u64 at:u64]
//! position = topic:u128 group:blob committed:u64 tiles(count:u32 tile*)
//! ```
//!
//! What a row says about itself is checked here, what it says about other rows in `tables`.

use bytes::{BufMut, BytesMut};
use types::codec::{Reader, Writer};
use types::keyspace::KeyHash;
use types::{
    GroupName, Keyspace, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, TopicName, WallTime,
    limits,
};

use super::fields::{self, put_nodes, put_range_id, put_segment_id, put_span, put_tiles};
use super::position::Standing;
use super::segment::is_replica_set;
use super::snapshot::Error;
use super::{Range, RangeState, Sealed, Segment, SegmentState, Topic, TopicState};
use crate::cluster::PolicyName;

/// Bytes of the smallest topic.
pub(super) const TOPIC_BYTES_MIN: usize = 16 + 4 + 1 + 1 + 1 + 8 + 1 + 1;
/// Bytes of the smallest range.
pub(super) const RANGE_BYTES_MIN: usize = 24 + 16 + 1 + 4 + 8 + 8 + 1;
/// Bytes of the smallest segment.
pub(super) const SEGMENT_BYTES_MIN: usize = 32 + 8 + 4 + 8 + 1;
/// Bytes of the smallest position.
pub(super) const POSITION_BYTES_MIN: usize = 16 + 4 + 8 + 4;

pub(super) fn put_topic(out: &mut BytesMut, id: TopicId, topic: &Topic) {
    out.put_u128(id.0);
    out.put_blob(topic.name.as_str().as_bytes());
    out.put_u8(topic.keyspace.bits());
    out.put_u8(topic.key_hash.id());
    out.put_u8(match topic.state {
        TopicState::Active => 1,
        TopicState::Sealed => 2,
    });
    out.put_u64(topic.next_range_seq.0);
    out.put_opt_blob(topic.policy.as_ref().map(|name| name.as_str().as_bytes()));
    out.put_bool(topic.arrived_by.is_some());
    if let Some(id) = topic.arrived_by {
        out.put_u128(id.0);
    }
}

pub(super) fn topic(reader: &mut Reader) -> Result<(TopicId, Topic), Error> {
    let id = fields::topic_id(reader)?;
    let name = TopicName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a topic name"))?;
    let keyspace = Keyspace::from_bits(reader.u8()?).ok_or(Error::Inconsistent("a keyspace"))?;
    let key_hash = KeyHash::from_id(reader.u8()?).ok_or(Error::Inconsistent("a key hash"))?;
    let state = match reader.u8()? {
        1 => TopicState::Active,
        2 => TopicState::Sealed,
        _ => return Err(Error::Inconsistent("a topic's state")),
    };
    let next_range_seq = RangeSeq(reader.u64()?);
    let policy = reader.opt_blob()?.map(|name| PolicyName::new(&name)).transpose();
    let policy = policy.map_err(|_| Error::Inconsistent("a policy's name"))?;
    let arrived_by = if reader.bool()? { Some(fields::migration_id(reader)?) } else { None };
    Ok((id, Topic { name, keyspace, key_hash, state, next_range_seq, policy, arrived_by }))
}

pub(super) fn put_range(out: &mut BytesMut, id: RangeId, range: &Range) {
    put_range_id(out, id);
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
    out.put_u8(range.load_splits);
}

pub(super) fn range(reader: &mut Reader) -> Result<(RangeId, Range), Error> {
    let id = fields::range_id(reader)?;
    let span = fields::span(reader)?;
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
    let load_splits = reader.u8()?;
    Ok((id, Range { span, state, parents, next_segment_seq, sealed_end, load_splits }))
}

pub(super) fn put_segment(out: &mut BytesMut, id: SegmentId, segment: &Segment) {
    put_segment_id(out, id);
    out.put_u64(segment.start.0);
    put_nodes(out, &segment.replicas);
    out.put_u64(segment.opened_at.0);
    match segment.state {
        SegmentState::Active => out.put_u8(1),
        SegmentState::Sealed(sealed) => {
            out.put_u8(if sealed.lost > 0 { 3 } else { 2 });
            out.put_u64(sealed.length);
            out.put_u64(sealed.byte_size);
            out.put_u64(sealed.at.0);
            if sealed.lost > 0 {
                out.put_u64(sealed.lost);
            }
        }
    }
}

pub(super) fn segment(reader: &mut Reader) -> Result<(SegmentId, Segment), Error> {
    let id = fields::segment_id(reader)?;
    let start = Offset(reader.u64()?);
    let replicas = fields::nodes(reader)?;
    let opened_at = WallTime(reader.u64()?);
    let state = match reader.u8()? {
        1 => SegmentState::Active,
        kind @ (2 | 3) => {
            let (length, byte_size, at) = (reader.u64()?, reader.u64()?, WallTime(reader.u64()?));
            let lost = if kind == 3 { reader.u64()? } else { 0 };
            if (kind == 3) != (lost > 0) {
                return Err(Error::Inconsistent("a segment that lost nothing"));
            }
            SegmentState::Sealed(Sealed { length, byte_size, lost, at })
        }
        _ => return Err(Error::Inconsistent("a segment's state")),
    };
    let countable = match state {
        SegmentState::Active => true,
        SegmentState::Sealed(Sealed { length, lost, .. }) => {
            start.checked_add(length).and_then(|end| end.checked_add(lost)).is_some()
        }
    };
    if !countable || !is_replica_set(&replicas) {
        return Err(Error::Inconsistent("a segment's extent or replicas"));
    }
    Ok((id, Segment { start, replicas, opened_at, state }))
}

pub(super) fn put_position(out: &mut BytesMut, topic: TopicId, group: &GroupName, standing: &Standing) {
    out.put_u128(topic.0);
    out.put_blob(group.as_bytes());
    out.put_u64(standing.committed_at.0);
    put_tiles(out, &standing.tiles);
}

pub(super) fn position(reader: &mut Reader) -> Result<(TopicId, GroupName, Standing), Error> {
    let topic = fields::topic_id(reader)?;
    let group = GroupName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a group name"))?;
    let committed_at = WallTime(reader.u64()?);
    let tiles = fields::tiles(reader)?;
    if tiles.is_empty() || tiles.len() > limits::CURSOR_TILES_MAX {
        return Err(Error::Inconsistent("a position without tiles, or with too many"));
    }
    Ok((topic, group, Standing { tiles, committed_at }))
}
