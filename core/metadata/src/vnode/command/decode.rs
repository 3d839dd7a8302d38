//! An entry of the log as a command.

use bytes::Bytes;
use types::codec::{self, Reader};
use types::{FenceToken, Offset, RangeId, WallTime};

use super::{Command, kind};
use crate::machine::{Envelope, Version};
use crate::vnode::fields::{arc, migration_id, nodes, range_id, segment_id, tiles, topic_id};
use crate::vnode::{
    Commit, CreateTopic, ExpireGroup, Export, Migration, Refusal, RegisterSegment, SealSegment, SetArc,
    SetSegmentReplicas,
};

/// Bytes of the smallest commit: topic, empty group, no tiles, time.
const COMMIT_BYTES_MIN: usize = 16 + 4 + 4 + 8;

type Decoded<T> = Result<T, codec::Error>;

impl Command {
    /// The command in an entry, whatever version the group runs at; `None` for what is none of this build's.
    #[must_use]
    pub fn read(entry: &Bytes) -> Option<Self> {
        Self::decode(Envelope::decode(entry).ok()?).ok()
    }

    /// The command in an envelope that passed the version gate.
    pub(in crate::vnode) fn decode(envelope: Envelope) -> Result<Self, Refusal> {
        let mut reader = Reader::new(envelope.body);
        let command = match envelope.version.0 {
            1 => version_1(envelope.kind, &mut reader).ok_or(Refusal::UnknownCommand)?,
            _ => return Err(Refusal::UnknownCommand),
        };
        let command = command.map_err(|_| Refusal::InvalidCommand)?;
        reader.finish().map_err(|_| Refusal::InvalidCommand)?;
        Ok(command)
    }
}

/// The layouts version 1 introduced; `None` for a kind it has not.
fn version_1(kind: u16, reader: &mut Reader) -> Option<Decoded<Command>> {
    Some(match kind {
        kind::CREATE_TOPIC => create_topic(reader),
        kind::SEAL_TOPIC => topic_id(reader).map(|topic| Command::SealTopic { topic }),
        kind::DELETE_TOPIC => topic_id(reader).map(|topic| Command::DeleteTopic { topic }),
        kind::BIND_TOPIC_POLICY => bind_topic_policy(reader),
        kind::SPLIT_RANGE => range_id(reader).map(|range| Command::SplitRange { range }),
        kind::MERGE_RANGES => two_ranges(reader).map(|[a, b]| Command::MergeRanges { a, b }),
        kind::SPLIT_BY_LOAD => range_id(reader).map(|range| Command::SplitByLoad { range }),
        kind::MERGE_BY_LOAD => two_ranges(reader).map(|[a, b]| Command::MergeByLoad { a, b }),
        kind::REGISTER_SEGMENT => register_segment(reader),
        kind::SEAL_SEGMENT => seal_segment(reader),
        kind::SET_SEGMENT_REPLICAS => set_segment_replicas(reader),
        kind::DELETE_SEGMENT => segment_id(reader).map(|segment| Command::DeleteSegment { segment }),
        kind::COMMIT_POSITIONS => commit_positions(reader),
        kind::EXPIRE_GROUP => expire_group(reader),
        kind::BEGIN_MIGRATION => migration(reader).map(Command::BeginMigration),
        kind::END_MIGRATION => migration(reader).map(Command::EndMigration),
        kind::EXTRACT_TOPIC => migration(reader).map(Command::ExtractTopic),
        kind::INSERT_TOPIC => insert_topic(reader),
        kind::SET_ARC => set_arc(reader),
        kind::UPGRADE => reader.u16().map(|to| Command::Upgrade { to: Version(to) }),
        _ => return None,
    })
}

fn create_topic(reader: &mut Reader) -> Decoded<Command> {
    let name = reader.blob()?;
    let id = topic_id(reader)?;
    let keyspace_bits = reader.u8()?;
    let key_hash = reader.u8()?;
    Ok(Command::CreateTopic(CreateTopic { name, id, keyspace_bits, key_hash }))
}

fn bind_topic_policy(reader: &mut Reader) -> Decoded<Command> {
    let topic = topic_id(reader)?;
    Ok(Command::BindTopicPolicy { topic, policy: reader.opt_blob()? })
}

fn two_ranges(reader: &mut Reader) -> Decoded<[RangeId; 2]> {
    Ok([range_id(reader)?, range_id(reader)?])
}

fn register_segment(reader: &mut Reader) -> Decoded<Command> {
    let segment = segment_id(reader)?;
    let start = Offset(reader.u64()?);
    let replicas = nodes(reader)?;
    let opened_at = WallTime(reader.u64()?);
    Ok(Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at }))
}

fn seal_segment(reader: &mut Reader) -> Decoded<Command> {
    let segment = segment_id(reader)?;
    let length = reader.u64()?;
    let byte_size = reader.u64()?;
    let sealed_at = WallTime(reader.u64()?);
    let lost = if reader.remaining() > 0 { reader.u64()? } else { 0 };
    Ok(Command::SealSegment(SealSegment { segment, length, byte_size, lost, sealed_at }))
}

fn set_segment_replicas(reader: &mut Reader) -> Decoded<Command> {
    let segment = segment_id(reader)?;
    let expected = nodes(reader)?;
    let replicas = nodes(reader)?;
    Ok(Command::SetSegmentReplicas(SetSegmentReplicas { segment, expected, replicas }))
}

fn commit_positions(reader: &mut Reader) -> Decoded<Command> {
    let count = reader.count(COMMIT_BYTES_MIN)?;
    let mut commits = Vec::with_capacity(count);
    for _ in 0..count {
        let topic = topic_id(reader)?;
        let group = reader.blob()?;
        let tiles = tiles(reader)?;
        let at = WallTime(reader.u64()?);
        commits.push(Commit { topic, group, tiles, at });
    }
    Ok(Command::CommitPositions { commits })
}

fn expire_group(reader: &mut Reader) -> Decoded<Command> {
    let topic = topic_id(reader)?;
    let group = reader.blob()?;
    let idle_since = WallTime(reader.u64()?);
    Ok(Command::ExpireGroup(ExpireGroup { topic, group, idle_since }))
}

fn migration(reader: &mut Reader) -> Decoded<Migration> {
    let topic = topic_id(reader)?;
    let id = migration_id(reader)?;
    let lease = FenceToken(reader.u64()?);
    Ok(Migration { topic, id, lease })
}

fn insert_topic(reader: &mut Reader) -> Decoded<Command> {
    let lease = FenceToken(reader.u64()?);
    let export = Export::decode(reader.blob()?).map_err(|_| codec::Error::Invalid("an export"))?;
    Ok(Command::InsertTopic { export: Box::new(export), lease })
}

fn set_arc(reader: &mut Reader) -> Decoded<Command> {
    let ring_version = reader.u64()?;
    let (expected, arc) = (arc(reader)?, arc(reader)?);
    let lease = FenceToken(reader.u64()?);
    Ok(Command::SetArc(SetArc { ring_version, expected, arc, lease }))
}
