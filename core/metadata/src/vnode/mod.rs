//! One vnode's tables: topics, their ranges, their segments and their groups' positions.
//!
//! A topic and everything of it live in one vnode, the one its name hashes to, so every command and every
//! read concerns one vnode only.
//!
//! A command passes, in this order: the version gate, the arc (is the topic ours), the fence (does the topic
//! move), and then its own checks. The first that fails decides the answer.
//!
//! Ids are never reused: a topic's is drawn anew for each of its lives, ranges and segments are counted inside
//! it. So nothing has to be remembered of a topic that was deleted.
//!
//! Invariants (ids as in the specification of the machine; checked after every step by the property tests):
//! - M-1, M-15: the active ranges of an active topic tile its keyspace; so do the leaf ranges of any topic.
//! - M-2, M-3: every range belongs to a topic and lies below its `next_range_seq`, every segment to a range
//!   and below its `next_segment_seq`.
//! - M-4: the derived indexes (names, leaves, children, segment starts) equal a rescan; they are rebuilt from
//!   a snapshot.
//! - M-5, M-9: nothing sealed becomes active again, and what sealing recorded never changes.
//! - M-6: same log, same state, byte for byte; a refusal leaves the tables identical.
//! - M-7, M-8: a range has at most one active segment, none while an ancestor has one, and its segments
//!   follow one another without a gap, but for what is recorded as lost, up to `sealed_end`.
//! - M-11, M-12, M-17: a fenced topic stands still; an export goes in as it came out; topics lie inside the
//!   arc, except those on their way.
//! - M-13: a position goes only by a commit over it, the expiry of its group, or the end of its topic.
//! - M-14: parents are older than their children and never change.
//! - Positions are exact tiles: sorted, disjoint, coalesced, each inside the span of the range it names.

mod arc;
mod command;
mod fields;
mod migration;
mod overlay;
mod overview;
mod position;
mod range;
mod read;
mod refusal;
mod reply;
mod rows;
mod segment;
mod snapshot;
mod split_merge;
mod tables;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{FenceToken, RaftIndex, TopicId, cursor};

pub use arc::{SetArc, Share};
pub use command::Command;
pub use cursor::Tile;
pub use migration::{Export, Migration, MigrationId};
pub use overview::{RangeDetail, SegmentDetail, TopicDetail, TopicOverview};
pub use position::{Commit, ExpireGroup};
pub use range::{Range, RangeState};
pub use refusal::Refusal;
pub use reply::{Removed, Reply};
pub use segment::{
    REPLICAS_MAX, RegisterSegment, SealSegment, Sealed, Segment, SegmentState, SetSegmentReplicas,
};
pub use snapshot::Error as SnapshotError;
pub use topic::{CreateTopic, Topic, TopicState};
pub use types::RingArc;

use crate::machine::{Envelope, Version};
use split_merge::Wish;

/// The replicated state of one vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vnode {
    version: Version,
    /// A version the group switched to that this build does not have. Not part of the replicated state: the
    /// entry that says so counts as not applied yet.
    beyond: Option<Version>,
    applied: RaftIndex,
    owned: arc::Owned,
    /// Token of the latest lease under which somebody acted on arcs or moves.
    lease: FenceToken,
    /// Topics that are fenced, and for which move. They are in the tables.
    migrating: BTreeMap<TopicId, MigrationId>,
    tables: tables::Tables,
}

impl Vnode {
    /// The state before the first entry, at the version the group starts with.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            beyond: None,
            applied: RaftIndex::ZERO,
            owned: arc::Owned::default(),
            lease: FenceToken::ZERO,
            migrating: BTreeMap::new(),
            tables: tables::Tables::default(),
        }
    }

    /// Applies the entry at `index` and says what it did.
    ///
    /// Total: bytes that are no command are a refusal. A refusal changes nothing but the applied index. An
    /// index at or below the applied one is refused and changes nothing at all; gaps are fine, because a Raft
    /// log also holds entries that are not for the machine. Once the group switches to a version this build
    /// does not have, nothing is applied any more, not even that entry: see [`Vnode::beyond_build`].
    pub fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> Reply {
        if self.beyond.is_some() {
            return Reply::Refused(Refusal::LaterVersion);
        }
        if index <= self.applied {
            return Reply::Refused(Refusal::AlreadyApplied);
        }
        let command = self.decode(entry);
        if let Ok(Command::Upgrade { to }) = command
            && to > Version::BUILD
        {
            self.beyond = Some(to);
            return Reply::Refused(Refusal::LaterVersion);
        }
        self.applied = index;
        command.and_then(|command| self.run(command)).unwrap_or_else(Reply::Refused)
    }

    /// Passes over the entry at `index`: what it says was decided by whoever led the group in an earlier term than the
    /// entry's. A coordinator's effects are applied only while it leads (C-13). Changes nothing but the applied index.
    pub fn refuse_late(&mut self, index: RaftIndex) -> Reply {
        let refusal = match (self.beyond, index <= self.applied) {
            (Some(_), _) => Refusal::LaterVersion,
            (None, true) => Refusal::AlreadyApplied,
            (None, false) => {
                self.applied = index;
                Refusal::StaleTerm
            }
        };
        Reply::Refused(refusal)
    }

    fn decode(&self, entry: &Bytes) -> Result<Command, Refusal> {
        let envelope = Envelope::decode(entry).map_err(|_| Refusal::UnknownCommand)?;
        if envelope.version > self.version {
            return Err(Refusal::UnknownCommand);
        }
        Command::decode(envelope)
    }

    fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::CreateTopic(create) => {
                // By name: a topic that would be ours may be created while another one moves.
                let is_ours = self.owned.covers(&create.name);
                if is_ours { self.tables.create_topic(create) } else { Err(Refusal::NotOwner) }
            }
            Command::SealTopic { topic } => self.of(topic)?.seal_topic(topic),
            Command::DeleteTopic { topic } => self.of(topic)?.delete_topic(topic),
            Command::BindTopicPolicy { topic, policy } => self.of(topic)?.bind_topic_policy(topic, policy),
            Command::SplitRange { range } => self.of(range.topic)?.split_range(range, Wish::Asked),
            Command::MergeRanges { a, b } => self.of(a.topic)?.merge_ranges(a, b, Wish::Asked),
            Command::SplitByLoad { range } => self.of(range.topic)?.split_range(range, Wish::ByLoad),
            Command::MergeByLoad { a, b } => self.of(a.topic)?.merge_ranges(a, b, Wish::ByLoad),
            Command::RegisterSegment(register) => {
                self.of(register.segment.range.topic)?.register_segment(register)
            }
            Command::SealSegment(seal) => self.of(seal.segment.range.topic)?.seal_segment(seal),
            Command::SetSegmentReplicas(set) => self.of(set.segment.range.topic)?.set_segment_replicas(set),
            Command::DeleteSegment { segment } => self.of(segment.range.topic)?.delete_segment(segment),
            Command::CommitPositions { commits } => {
                let commit = |commit: Commit| self.of(commit.topic)?.commit(commit);
                Ok(Reply::PositionsCommitted(commits.into_iter().map(commit).collect()))
            }
            Command::ExpireGroup(expire) => self.of(expire.topic)?.expire_group(expire),
            Command::BeginMigration(migration) => self.begin_migration(migration),
            Command::EndMigration(migration) => self.end_migration(migration),
            Command::ExtractTopic(migration) => self.extract_topic(migration),
            Command::InsertTopic { export, lease } => self.insert_topic(lease, *export),
            Command::SetArc(set) => self.set_arc(set),
            Command::Upgrade { to } => {
                self.version = self.version.max(to);
                Ok(Reply::Upgraded(self.version))
            }
        }
    }

    /// The tables, for a command about a topic that is ours and does not move. An unknown topic is for the
    /// command's own checks.
    fn of(&mut self, id: TopicId) -> Result<&mut tables::Tables, Refusal> {
        let topic = self.tables.topics.get(id);
        if topic.is_some_and(|topic| !self.owned.covers(topic.name.as_str().as_bytes())) {
            return Err(Refusal::NotOwner);
        }
        if self.migrating.contains_key(&id) {
            return Err(Refusal::Migrating);
        }
        Ok(&mut self.tables)
    }
}

impl Default for Vnode {
    /// A fresh vnode at the version of this build.
    fn default() -> Self {
        Self::new(Version::BUILD)
    }
}
