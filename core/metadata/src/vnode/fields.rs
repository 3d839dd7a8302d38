//! Fields that commands and rows share.

use bytes::{BufMut, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{KeySpan, NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};

use super::{MigrationId, RingArc, Share, Tile};

/// Bytes of an encoded tile: range, start, end, next offset.
const TILE_BYTES: usize = 32;
/// Bytes of an encoded node id.
const NODE_BYTES: usize = 16;

pub(super) fn topic_id(reader: &mut Reader) -> Result<TopicId, codec::Error> {
    reader.u128().map(TopicId)
}

pub(super) fn range_id(reader: &mut Reader) -> Result<RangeId, codec::Error> {
    Ok(RangeId { topic: topic_id(reader)?, seq: RangeSeq(reader.u64()?) })
}

pub(super) fn segment_id(reader: &mut Reader) -> Result<SegmentId, codec::Error> {
    Ok(SegmentId { range: range_id(reader)?, seq: SegmentSeq(reader.u64()?) })
}

pub(super) fn migration_id(reader: &mut Reader) -> Result<MigrationId, codec::Error> {
    reader.u128().map(MigrationId)
}

pub(super) fn span(reader: &mut Reader) -> Result<KeySpan, codec::Error> {
    let (start, end) = (reader.u64()?, reader.u64()?);
    KeySpan::new(start, end).ok_or(codec::Error::Invalid("a key span"))
}

pub(super) fn nodes(reader: &mut Reader) -> Result<Vec<NodeId>, codec::Error> {
    let count = reader.count(NODE_BYTES)?;
    (0..count).map(|_| reader.u128().map(NodeId)).collect()
}

pub(super) fn tiles(reader: &mut Reader) -> Result<Vec<Tile>, codec::Error> {
    let count = reader.count(TILE_BYTES)?;
    let mut tiles = Vec::with_capacity(count);
    for _ in 0..count {
        let range = RangeSeq(reader.u64()?);
        let span = span(reader)?;
        let next = Offset(reader.u64()?);
        tiles.push(Tile { range, span, next });
    }
    Ok(tiles)
}

/// `00` for everything, `01` and the two ends, `02` for nothing.
pub(super) fn arc(reader: &mut Reader) -> Result<Share, codec::Error> {
    match reader.u8()? {
        0 => Ok(Share::Whole),
        1 => {
            let after = reader.u32()?;
            Ok(Share::Arc(RingArc { after, upto: reader.u32()? }))
        }
        2 => Ok(Share::Nothing),
        _ => Err(codec::Error::Invalid("a share of the ring")),
    }
}

pub(super) fn put_range_id(out: &mut BytesMut, range: RangeId) {
    out.put_u128(range.topic.0);
    out.put_u64(range.seq.0);
}

pub(super) fn put_segment_id(out: &mut BytesMut, segment: SegmentId) {
    out.extend_from_slice(&segment.to_bytes());
}

pub(super) fn put_span(out: &mut BytesMut, span: KeySpan) {
    out.put_u64(span.start());
    out.put_u64(span.end());
}

pub(super) fn put_nodes(out: &mut BytesMut, nodes: &[NodeId]) {
    out.put_count(nodes.len());
    for node in nodes {
        out.put_u128(node.0);
    }
}

pub(super) fn put_tiles(out: &mut BytesMut, tiles: &[Tile]) {
    out.put_count(tiles.len());
    for tile in tiles {
        out.put_u64(tile.range.0);
        put_span(out, tile.span);
        out.put_u64(tile.next.0);
    }
}

pub(super) fn put_arc(out: &mut BytesMut, share: Share) {
    match share {
        Share::Whole => out.put_u8(0),
        Share::Arc(arc) => {
            out.put_u8(1);
            out.put_u32(arc.after);
            out.put_u32(arc.upto);
        }
        Share::Nothing => out.put_u8(2),
    }
}
