//! Topics that move to another vnode: fence, export, insert there, extract here.
//!
//! The order of the steps, and what happens when one fails, is the procedure's, elsewhere. What holds here:
//! - a fenced topic does not change until the fence is lifted or the topic extracted;
//! - a fence belongs to one move, is never part of an export, and another move neither lifts nor uses it;
//! - a topic travels in one entry: one whose rows do not fit ([`limits::RAFT_COMMAND_BYTES_MAX`]) is refused before
//!   it is fenced, and goes on being served where it is. Rows in several entries would need a topic that is half
//!   there, in tables, snapshots and after an abandoned move, for what about a million segments of one topic take;
//! - an export never overwrites a topic: where the topic is already present it must be the same;
//! - a step proposed under an older lease than one seen before is refused.
//!
//! Nothing is left behind by an extracted or deleted topic: its id is never drawn again, so nothing later can
//! be taken for it.

use types::{FenceToken, TopicId, limits};

use super::arc::Owned;
use super::tables::Tables;
use super::{Refusal, Reply, Share, Topic, Vnode};

/// What an insertion has around the rows, and the move's id in them: envelope, length, lease, id; rounded up.
const INSERT_BYTES: usize = 64;

/// One move of topics between vnodes; drawn by whoever starts it, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigrationId(pub u128);

/// What the commands about a moving topic carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Which topic.
    pub topic: TopicId,
    /// The move.
    pub id: MigrationId,
    /// Token of the lease under which it is proposed.
    pub lease: FenceToken,
}

/// Everything of one topic. Made by [`Vnode::export`] or decoded, so its rows make sense together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// With exactly one topic, whose `arrived_by` is the move it is exported for.
    pub(super) tables: Tables,
}

impl Export {
    /// Whether two exports are the same topic in the same state, whichever moves they were made for.
    #[must_use]
    pub fn is_same_topic(&self, other: &Self) -> bool {
        let bare = |export: &Self| {
            let mut tables = export.tables.clone();
            let (id, _) = export.topic();
            tables.topics.get_mut(id).expect("an export has its topic").arrived_by = None;
            tables
        };
        bare(self) == bare(other)
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> (TopicId, &Topic) {
        self.tables.topics.iter().next().expect("an export has one topic")
    }

    /// Tables of a vnode that has this topic and nothing else, and covers nothing.
    #[must_use]
    pub fn into_vnode(self) -> Vnode {
        let owned = Owned { ring_version: 0, arc: Share::Nothing };
        Vnode { tables: self.tables, owned, ..Vnode::default() }
    }

    /// The move the topic is exported for; where it is not fenced, the one that brought it to this vnode.
    #[must_use]
    pub fn migration(&self) -> Option<MigrationId> {
        self.topic().1.arrived_by
    }
}

impl Vnode {
    /// Refuses what an earlier holder of the cluster's lease proposes.
    pub(super) fn check_lease(&self, lease: FenceToken) -> Result<(), Refusal> {
        if lease < self.lease { Err(Refusal::StaleFence) } else { Ok(()) }
    }

    pub(super) fn begin_migration(&mut self, migration: Migration) -> Result<Reply, Refusal> {
        self.check_lease(migration.lease)?;
        if self.tables.topics.get(migration.topic).is_none() {
            return Err(Refusal::NoSuchTopic);
        }
        match self.migrating.get(&migration.topic) {
            Some(id) if *id != migration.id => return Err(Refusal::Migrating),
            Some(_) => {}
            None => self.check_fits(migration.topic)?,
        }
        self.lease = migration.lease;
        self.migrating.insert(migration.topic, migration.id);
        Ok(Reply::MigrationBegun)
    }

    /// Nothing is added to a fenced topic, so what fits now fits when it is inserted.
    fn check_fits(&self, topic: TopicId) -> Result<(), Refusal> {
        let bytes = self.export(topic).map_or(0, |export| export.encode().len());
        let most = limits::RAFT_COMMAND_BYTES_MAX - INSERT_BYTES;
        if bytes > most { Err(Refusal::TopicTooLarge) } else { Ok(()) }
    }

    pub(super) fn end_migration(&mut self, migration: Migration) -> Result<Reply, Refusal> {
        self.check_lease(migration.lease)?;
        if self.migrating.get(&migration.topic).is_some_and(|id| *id != migration.id) {
            return Err(Refusal::Migrating);
        }
        self.lease = migration.lease;
        self.migrating.remove(&migration.topic);
        Ok(Reply::MigrationEnded)
    }

    pub(super) fn extract_topic(&mut self, migration: Migration) -> Result<Reply, Refusal> {
        self.check_lease(migration.lease)?;
        let is_here = self.tables.topics.get(migration.topic).is_some();
        if is_here && self.migrating.get(&migration.topic) != Some(&migration.id) {
            return Err(Refusal::NotFenced);
        }
        self.lease = migration.lease;
        let export = self.export(migration.topic).map(Box::new);
        self.migrating.remove(&migration.topic);
        self.tables.remove_topic(migration.topic);
        Ok(Reply::TopicExtracted(export))
    }

    pub(super) fn insert_topic(&mut self, lease: FenceToken, export: Export) -> Result<Reply, Refusal> {
        self.check_lease(lease)?;
        if export.migration().is_none() {
            return Err(Refusal::NotFenced);
        }
        let (id, topic) = export.topic();
        if self.tables.topics.get(id).is_some() {
            // A repeat of a step that was taken. Whatever differs was changed since, or never came from there.
            if self.tables.copy_topic(id) != export.tables {
                return Err(Refusal::StaleExport);
            }
            self.lease = lease;
            return Ok(Reply::TopicInserted);
        }
        // The move is over: the topic may have come, changed and been deleted since this was sent.
        if self.owned.is_settled(topic.name.as_str().as_bytes()) {
            return Err(Refusal::StaleExport);
        }
        if self.tables.topics.id_of(&topic.name).is_some() {
            return Err(Refusal::AlreadyExists);
        }
        if self.tables.topics.len() >= limits::TOPICS_MAX {
            return Err(Refusal::TooManyTopics);
        }
        self.lease = lease;
        self.tables.absorb(export.tables);
        Ok(Reply::TopicInserted)
    }

    /// Everything of a topic, for the move it is fenced for; `None` for an unknown topic.
    #[must_use]
    pub fn export(&self, topic: TopicId) -> Option<Export> {
        self.tables.topics.get(topic)?;
        let mut tables = self.tables.copy_topic(topic);
        if let Some(id) = self.migrating.get(&topic) {
            tables.topics.get_mut(topic).expect("copied above").arrived_by = Some(*id);
        }
        Some(Export { tables })
    }

    /// The move a topic is fenced for.
    #[must_use]
    pub fn migration_of(&self, topic: TopicId) -> Option<MigrationId> {
        self.migrating.get(&topic).copied()
    }

    /// Topics fenced for a move, in the order of their ids.
    pub fn migrating(&self) -> impl Iterator<Item = (TopicId, MigrationId)> {
        self.migrating.iter().map(|(topic, id)| (*topic, *id))
    }

    /// Token of the latest lease under which the vnode was told something.
    #[must_use]
    pub fn lease(&self) -> FenceToken {
        self.lease
    }
}
