//! A command as an entry of the log.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::Writer;

use super::{Command, kind};
use crate::machine::{Envelope, Version};
use crate::vnode::fields::{put_arc, put_nodes, put_range_id, put_segment_id, put_tiles};
use crate::vnode::{
    Commit, CreateTopic, ExpireGroup, Migration, RegisterSegment, SealSegment, SetArc, SetSegmentReplicas,
};

impl Command {
    /// The entry to propose.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        Envelope::open(self.introduced(), self.kind(), &mut out);
        match self {
            Self::CreateTopic(create) => create.put(&mut out),
            Self::SealTopic { topic } | Self::DeleteTopic { topic } => out.put_u128(topic.0),
            Self::BindTopicPolicy { topic, policy } => {
                out.put_u128(topic.0);
                out.put_opt_blob(policy.as_deref());
            }
            Self::SplitRange { range } | Self::SplitByLoad { range } => put_range_id(&mut out, *range),
            Self::MergeRanges { a, b } | Self::MergeByLoad { a, b } => {
                put_range_id(&mut out, *a);
                put_range_id(&mut out, *b);
            }
            Self::RegisterSegment(register) => register.put(&mut out),
            Self::SealSegment(seal) => seal.put(&mut out),
            Self::SetSegmentReplicas(set) => set.put(&mut out),
            Self::DeleteSegment { segment } => put_segment_id(&mut out, *segment),
            Self::CommitPositions { commits } => {
                out.put_count(commits.len());
                for commit in commits {
                    commit.put(&mut out);
                }
            }
            Self::ExpireGroup(expire) => expire.put(&mut out),
            Self::BeginMigration(migration)
            | Self::EndMigration(migration)
            | Self::ExtractTopic(migration) => migration.put(&mut out),
            Self::InsertTopic { export, lease } => {
                out.put_u64(lease.0);
                out.put_blob(&export.encode());
            }
            Self::SetArc(set) => set.put(&mut out),
            Self::Upgrade { to } => out.put_u16(to.0),
        }
        out.freeze()
    }

    /// The version whose members have the layout written here.
    fn introduced(&self) -> Version {
        Version(1)
    }

    fn kind(&self) -> u16 {
        match self {
            Self::CreateTopic(_) => kind::CREATE_TOPIC,
            Self::SealTopic { .. } => kind::SEAL_TOPIC,
            Self::DeleteTopic { .. } => kind::DELETE_TOPIC,
            Self::BindTopicPolicy { .. } => kind::BIND_TOPIC_POLICY,
            Self::SplitRange { .. } => kind::SPLIT_RANGE,
            Self::MergeRanges { .. } => kind::MERGE_RANGES,
            Self::RegisterSegment(_) => kind::REGISTER_SEGMENT,
            Self::SealSegment(_) => kind::SEAL_SEGMENT,
            Self::SetSegmentReplicas(_) => kind::SET_SEGMENT_REPLICAS,
            Self::DeleteSegment { .. } => kind::DELETE_SEGMENT,
            Self::CommitPositions { .. } => kind::COMMIT_POSITIONS,
            Self::ExpireGroup(_) => kind::EXPIRE_GROUP,
            Self::BeginMigration(_) => kind::BEGIN_MIGRATION,
            Self::EndMigration(_) => kind::END_MIGRATION,
            Self::ExtractTopic(_) => kind::EXTRACT_TOPIC,
            Self::InsertTopic { .. } => kind::INSERT_TOPIC,
            Self::SetArc(_) => kind::SET_ARC,
            Self::Upgrade { .. } => kind::UPGRADE,
            Self::SplitByLoad { .. } => kind::SPLIT_BY_LOAD,
            Self::MergeByLoad { .. } => kind::MERGE_BY_LOAD,
        }
    }
}

impl CreateTopic {
    fn put(&self, out: &mut BytesMut) {
        out.put_blob(&self.name);
        out.put_u128(self.id.0);
        out.put_u8(self.keyspace_bits);
        out.put_u8(self.key_hash);
    }
}

impl RegisterSegment {
    fn put(&self, out: &mut BytesMut) {
        put_segment_id(out, self.segment);
        out.put_u64(self.start.0);
        put_nodes(out, &self.replicas);
        out.put_u64(self.opened_at.0);
    }
}

impl SealSegment {
    fn put(&self, out: &mut BytesMut) {
        put_segment_id(out, self.segment);
        out.put_u64(self.length);
        out.put_u64(self.byte_size);
        out.put_u64(self.sealed_at.0);
        // Hardly ever there.
        if self.lost > 0 {
            out.put_u64(self.lost);
        }
    }
}

impl SetSegmentReplicas {
    fn put(&self, out: &mut BytesMut) {
        put_segment_id(out, self.segment);
        put_nodes(out, &self.expected);
        put_nodes(out, &self.replicas);
    }
}

impl Commit {
    fn put(&self, out: &mut BytesMut) {
        out.put_u128(self.topic.0);
        out.put_blob(&self.group);
        put_tiles(out, &self.tiles);
        out.put_u64(self.at.0);
    }
}

impl ExpireGroup {
    fn put(&self, out: &mut BytesMut) {
        out.put_u128(self.topic.0);
        out.put_blob(&self.group);
        out.put_u64(self.idle_since.0);
    }
}

impl Migration {
    fn put(&self, out: &mut BytesMut) {
        out.put_u128(self.topic.0);
        out.put_u128(self.id.0);
        out.put_u64(self.lease.0);
    }
}

impl SetArc {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.ring_version);
        put_arc(out, self.expected);
        put_arc(out, self.arc);
        out.put_u64(self.lease.0);
    }
}
