//! The commands of the machine and their one encoding.
//!
//! Arguments that the machine judges (a name, a width, a hash, a replica set) are carried as the proposer
//! gave them: a bad one is a refusal of `apply`, the same on every member, not a decoding error.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{KeySpan, NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use super::{Refusal, Tile};
use crate::machine::{Envelope, Version};

const CREATE_TOPIC: u16 = 1;
const SEAL_TOPIC: u16 = 2;
const DELETE_TOPIC: u16 = 3;
const REGISTER_SEGMENT: u16 = 4;
const SEAL_SEGMENT: u16 = 5;
const DELETE_SEGMENT: u16 = 6;
const COMMIT_POSITIONS: u16 = 7;

/// Bytes of an encoded tile: range, start, end, next offset.
pub(super) const TILE_BYTES: usize = 32;
/// Bytes of an encoded node id.
pub(super) const NODE_BYTES: usize = 16;
/// Smallest encoded commit: topic, empty group, no tiles.
const COMMIT_BYTES_MIN: usize = 16 + 4 + 4;

/// Something to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a topic with one range over its whole keyspace.
    CreateTopic(CreateTopic),
    /// Ends every range of a topic for appends, for good. Repeating it changes nothing.
    SealTopic {
        /// Which topic.
        topic: TopicId,
    },
    /// Removes a topic, its ranges, segments and positions.
    DeleteTopic {
        /// Which topic.
        topic: TopicId,
    },
    /// Opens the next segment of a range.
    RegisterSegment(RegisterSegment),
    /// Records where a segment ended.
    SealSegment(SealSegment),
    /// Forgets the oldest segment of a range, which must be sealed; its bytes may go after the ok.
    DeleteSegment {
        /// Which segment.
        segment: SegmentId,
    },
    /// Moves groups' positions; each commit is judged on its own.
    CommitPositions {
        /// Applied in this order.
        commits: Vec<Commit>,
    },
}

/// Arguments of [`Command::CreateTopic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopic {
    /// As the client gave it.
    pub name: Bytes,
    /// Drawn by the proposer, never used before.
    pub id: TopicId,
    /// Width of the keyspace, 1 to 32. The proposer has replaced 0 by the default.
    pub keyspace_bits: u8,
    /// Identifier of the hash that places keys.
    pub key_hash: u8,
}

/// Arguments of [`Command::RegisterSegment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterSegment {
    /// The range's `next_segment_seq`.
    pub segment: SegmentId,
    /// The range's `sealed_end`.
    pub start: Offset,
    /// Who holds it; the first is the primary.
    pub replicas: Vec<NodeId>,
    /// The proposer's clock, for the age roll.
    pub opened_at: WallTime,
}

/// Arguments of [`Command::SealSegment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealSegment {
    /// Which segment.
    pub segment: SegmentId,
    /// Records in it.
    pub length: u64,
    /// Bytes of its frames.
    pub byte_size: u64,
    /// The proposer's clock, for retention.
    pub sealed_at: WallTime,
}

/// One group's new position on one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Which topic.
    pub topic: TopicId,
    /// The group's name as the client gave it.
    pub group: Bytes,
    /// Sorted and disjoint. The slices they cover move; others stay.
    pub tiles: Vec<Tile>,
}

impl Command {
    /// The entry to propose.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::CreateTopic(create) => {
                Envelope::open(Version(1), CREATE_TOPIC, &mut out);
                out.put_blob(&create.name);
                out.put_u128(create.id.0);
                out.put_u8(create.keyspace_bits);
                out.put_u8(create.key_hash);
            }
            Self::SealTopic { topic } => {
                Envelope::open(Version(1), SEAL_TOPIC, &mut out);
                out.put_u128(topic.0);
            }
            Self::DeleteTopic { topic } => {
                Envelope::open(Version(1), DELETE_TOPIC, &mut out);
                out.put_u128(topic.0);
            }
            Self::RegisterSegment(register) => {
                Envelope::open(Version(1), REGISTER_SEGMENT, &mut out);
                put_segment_id(&mut out, register.segment);
                out.put_u64(register.start.0);
                put_nodes(&mut out, &register.replicas);
                out.put_u64(register.opened_at.0);
            }
            Self::SealSegment(seal) => {
                Envelope::open(Version(1), SEAL_SEGMENT, &mut out);
                put_segment_id(&mut out, seal.segment);
                out.put_u64(seal.length);
                out.put_u64(seal.byte_size);
                out.put_u64(seal.sealed_at.0);
            }
            Self::DeleteSegment { segment } => {
                Envelope::open(Version(1), DELETE_SEGMENT, &mut out);
                put_segment_id(&mut out, *segment);
            }
            Self::CommitPositions { commits } => {
                Envelope::open(Version(1), COMMIT_POSITIONS, &mut out);
                out.put_count(commits.len());
                for commit in commits {
                    out.put_u128(commit.topic.0);
                    out.put_blob(&commit.group);
                    put_tiles(&mut out, &commit.tiles);
                }
            }
        }
        out.freeze()
    }

    /// The command in an envelope that passed the version gate.
    pub(super) fn decode(envelope: Envelope) -> Result<Self, Refusal> {
        let mut reader = Reader::new(envelope.body);
        let command = match (envelope.version.0, envelope.kind) {
            (1, CREATE_TOPIC) => create_topic(&mut reader),
            (1, SEAL_TOPIC) => topic_id(&mut reader).map(|topic| Self::SealTopic { topic }),
            (1, DELETE_TOPIC) => topic_id(&mut reader).map(|topic| Self::DeleteTopic { topic }),
            (1, REGISTER_SEGMENT) => register_segment(&mut reader),
            (1, SEAL_SEGMENT) => seal_segment(&mut reader),
            (1, DELETE_SEGMENT) => segment_id(&mut reader).map(|segment| Self::DeleteSegment { segment }),
            (1, COMMIT_POSITIONS) => commit_positions(&mut reader),
            (_, _) => return Err(Refusal::UnknownCommand),
        };
        let command = command.map_err(|_| Refusal::InvalidCommand)?;
        reader.finish().map_err(|_| Refusal::InvalidCommand)?;
        Ok(command)
    }
}

fn create_topic(reader: &mut Reader) -> Result<Command, codec::Error> {
    let name = reader.blob()?;
    let id = topic_id(reader)?;
    let keyspace_bits = reader.u8()?;
    let key_hash = reader.u8()?;
    Ok(Command::CreateTopic(CreateTopic { name, id, keyspace_bits, key_hash }))
}

fn register_segment(reader: &mut Reader) -> Result<Command, codec::Error> {
    let segment = segment_id(reader)?;
    let start = Offset(reader.u64()?);
    let replicas = nodes(reader)?;
    let opened_at = WallTime(reader.u64()?);
    Ok(Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at }))
}

fn seal_segment(reader: &mut Reader) -> Result<Command, codec::Error> {
    let segment = segment_id(reader)?;
    let length = reader.u64()?;
    let byte_size = reader.u64()?;
    let sealed_at = WallTime(reader.u64()?);
    Ok(Command::SealSegment(SealSegment { segment, length, byte_size, sealed_at }))
}

fn commit_positions(reader: &mut Reader) -> Result<Command, codec::Error> {
    let count = reader.count(COMMIT_BYTES_MIN)?;
    let mut commits = Vec::with_capacity(count);
    for _ in 0..count {
        let topic = topic_id(reader)?;
        let group = reader.blob()?;
        let tiles = tiles(reader)?;
        commits.push(Commit { topic, group, tiles });
    }
    Ok(Command::CommitPositions { commits })
}

pub(super) fn topic_id(reader: &mut Reader) -> Result<TopicId, codec::Error> {
    reader.u128().map(TopicId)
}

pub(super) fn range_id(reader: &mut Reader) -> Result<RangeId, codec::Error> {
    Ok(RangeId { topic: topic_id(reader)?, seq: RangeSeq(reader.u64()?) })
}

pub(super) fn segment_id(reader: &mut Reader) -> Result<SegmentId, codec::Error> {
    Ok(SegmentId { range: range_id(reader)?, seq: SegmentSeq(reader.u64()?) })
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
