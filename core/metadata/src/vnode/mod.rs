//! One vnode's tables: topics, their ranges, their segments and their groups' positions.
//!
//! A topic and everything of it live in one vnode, the one its name hashes to, so every command and every
//! read concerns one vnode only.
//!
//! Invariants (ids as in the specification of the machine; checked after every step by the property tests):
//! - M-1, M-15: the active ranges of an active topic tile its keyspace; so do the leaf ranges of any topic.
//! - M-2, M-3: every range belongs to a topic and lies below its `next_range_seq`, every segment to a range
//!   and below its `next_segment_seq`.
//! - M-4: the derived indexes (names, segment starts) equal a rescan; they are rebuilt from a snapshot.
//! - M-5, M-9: nothing sealed becomes active again, and what sealing recorded never changes.
//! - M-6: same log, same state, byte for byte; a refusal leaves the tables identical.
//! - M-7, M-8: a range has at most one active segment, none while an ancestor has one, and its segments
//!   follow one another without a gap up to `sealed_end`.
//! - Positions are exact tiles: sorted, disjoint, coalesced, each inside the span of the range it names.

mod command;
mod position;
mod range;
mod read;
mod reply;
mod segment;
mod snapshot;
#[cfg(test)]
mod tests;
mod topic;

use bytes::Bytes;
use types::{RaftIndex, cursor};

pub use command::{Command, Commit};
pub use cursor::Tile;
pub use position::TILES_PER_GROUP_MAX;
pub use range::{Range, RangeState};
pub use reply::{Refusal, Removed, Reply};
pub use segment::{REPLICAS_MAX, Sealed, Segment, SegmentState};
pub use snapshot::Error as SnapshotError;
pub use topic::{Topic, TopicState};

use crate::machine::{Envelope, Version};

/// The replicated state of one vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vnode {
    version: Version,
    applied: RaftIndex,
    topics: topic::Topics,
    ranges: range::Ranges,
    segments: segment::Segments,
    positions: position::Positions,
}

impl Vnode {
    /// The state before the first entry, at the version the group starts with.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            applied: RaftIndex::ZERO,
            topics: topic::Topics::default(),
            ranges: range::Ranges::default(),
            segments: segment::Segments::default(),
            positions: position::Positions::default(),
        }
    }

    /// Applies the entry at `index` and says what it did.
    ///
    /// Total: bytes that are no command are a refusal. A refusal changes nothing but the applied index. An
    /// index at or below the applied one is refused and changes nothing at all; gaps are fine, because a Raft
    /// log also holds entries that are not for the machine.
    pub fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> Reply {
        if index <= self.applied {
            return Reply::Refused(Refusal::AlreadyApplied);
        }
        self.applied = index;
        let result = self.decode(entry).and_then(|command| self.run(command));
        result.unwrap_or_else(Reply::Refused)
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
            Command::CreateTopic(create) => self.create_topic(create),
            Command::SealTopic { topic } => self.seal_topic(topic),
            Command::DeleteTopic { topic } => self.delete_topic(topic),
            Command::RegisterSegment(register) => self.register_segment(register),
            Command::SealSegment(seal) => self.seal_segment(seal),
            Command::DeleteSegment { segment } => self.delete_segment(segment),
            Command::CommitPositions { commits } => Ok(self.commit_positions(commits)),
        }
    }
}

impl Default for Vnode {
    /// A fresh vnode at the version of this build.
    fn default() -> Self {
        Self::new(Version::BUILD)
    }
}

pub use command::{CreateTopic, RegisterSegment, SealSegment};
