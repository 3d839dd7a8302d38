//! Topics: their names, their lives, their keyspaces.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::keyspace::KeyHash;
use types::{Keyspace, RangeId, RangeSeq, TopicId, TopicName, limits};

use super::range::Range;
use super::tables::Tables;
use super::{MigrationId, Refusal, Removed, Reply};
use crate::cluster::PolicyName;

/// One life of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Unique among the topics that exist.
    pub name: TopicName,
    /// Fixed for life.
    pub keyspace: Keyspace,
    /// Places keys; fixed for life.
    pub key_hash: KeyHash,
    /// Whether it takes records.
    pub state: TopicState,
    /// The only source of new range numbers.
    pub next_range_seq: RangeSeq,
    /// The storage policy it points at, which may not be defined.
    pub policy: Option<PolicyName>,
    /// The move between vnodes that brought it here; in an export, the one it is exported for.
    pub arrived_by: Option<MigrationId>,
}

/// Arguments of [`Command::CreateTopic`](super::Command::CreateTopic).
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

/// Whether a topic takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// Its leaf ranges are active.
    Active,
    /// Every range is sealed, for good; it can still be read.
    Sealed,
}

/// The table, and the derived index of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topics {
    by_id: BTreeMap<TopicId, Topic>,
    by_name: BTreeMap<TopicName, TopicId>,
}

impl Topics {
    pub(super) fn get(&self, id: TopicId) -> Option<&Topic> {
        self.by_id.get(&id)
    }

    pub(super) fn id_of(&self, name: &TopicName) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.by_id.iter().map(|(id, topic)| (*id, topic))
    }

    /// In the byte order of names.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.by_name.values().map(|id| (*id, &self.by_id[id]))
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a topic; `false`, and no change, when the id or the name is taken.
    pub(super) fn insert(&mut self, id: TopicId, topic: Topic) -> bool {
        let free = !self.by_id.contains_key(&id) && !self.by_name.contains_key(&topic.name);
        if free {
            self.by_name.insert(topic.name.clone(), id);
            self.by_id.insert(id, topic);
        }
        free
    }

    /// For everything but the name.
    pub(super) fn get_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: TopicId) -> Option<Topic> {
        let topic = self.by_id.remove(&id)?;
        self.by_name.remove(&topic.name);
        Some(topic)
    }
}

impl Tables {
    pub(super) fn create_topic(&mut self, create: CreateTopic) -> Result<Reply, Refusal> {
        let name = TopicName::new(&create.name).map_err(|_| Refusal::InvalidTopicName)?;
        if self.topics.id_of(&name).is_some() || self.topics.get(create.id).is_some() {
            return Err(Refusal::AlreadyExists);
        }
        let keyspace = Keyspace::from_bits(create.keyspace_bits).ok_or(Refusal::InvalidKeyspaceBits)?;
        let key_hash = KeyHash::from_id(create.key_hash).ok_or(Refusal::InvalidKeyHash)?;
        if self.topics.len() >= limits::TOPICS_MAX {
            return Err(Refusal::TooManyTopics);
        }
        let root = RangeId { topic: create.id, seq: RangeSeq(0) };
        let next_range_seq = RangeSeq(1);
        let state = TopicState::Active;
        let topic = Topic { name, keyspace, key_hash, state, next_range_seq, policy: None, arrived_by: None };
        assert!(self.topics.insert(create.id, topic), "both the id and the name were looked up above");
        self.ranges.insert(root, Range::root(keyspace));
        Ok(Reply::TopicCreated { root })
    }

    pub(super) fn seal_topic(&mut self, id: TopicId) -> Result<Reply, Refusal> {
        let topic = self.topics.get_mut(id).ok_or(Refusal::NoSuchTopic)?;
        topic.state = TopicState::Sealed;
        self.ranges.seal_topic(id);
        Ok(Reply::TopicSealed)
    }

    pub(super) fn delete_topic(&mut self, id: TopicId) -> Result<Reply, Refusal> {
        self.topics.get(id).ok_or(Refusal::NoSuchTopic)?;
        let removed = self.remove_topic(id);
        let segments =
            removed.into_iter().map(|(segment, s)| Removed { segment, replicas: s.replicas }).collect();
        Ok(Reply::TopicDeleted { segments })
    }

    /// Points a topic at a policy, or at none. Whether the policy is defined is not known here.
    pub(super) fn bind_topic_policy(&mut self, id: TopicId, name: Option<Bytes>) -> Result<Reply, Refusal> {
        let topic = self.topics.get_mut(id).ok_or(Refusal::NoSuchTopic)?;
        let policy = name.map(|name| PolicyName::new(&name)).transpose();
        topic.policy = policy.map_err(|_| Refusal::InvalidPolicy)?;
        Ok(Reply::PolicyBound)
    }
}
