//! Topics: their names, their lives, their keyspaces.

use std::collections::BTreeMap;

use types::keyspace::KeyHash;
use types::{Keyspace, RangeId, RangeSeq, TopicId, TopicName, limits};

use super::range::{Range, RangeState};
use super::{CreateTopic, Refusal, Removed, Reply, Vnode};

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

    #[cfg(test)]
    pub(super) fn set_next_range_seq(&mut self, id: TopicId, next: RangeSeq) {
        if let Some(topic) = self.by_id.get_mut(&id) {
            topic.next_range_seq = next;
        }
    }

    fn remove(&mut self, id: TopicId) -> Option<Topic> {
        let topic = self.by_id.remove(&id)?;
        self.by_name.remove(&topic.name);
        Some(topic)
    }
}

impl Vnode {
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
        let topic = Topic { name, keyspace, key_hash, state: TopicState::Active, next_range_seq };
        assert!(self.topics.insert(create.id, topic), "both the id and the name were looked up above");
        self.ranges.insert(root, Range::root(keyspace));
        Ok(Reply::TopicCreated { root })
    }

    pub(super) fn seal_topic(&mut self, id: TopicId) -> Result<Reply, Refusal> {
        let topic = self.topics.by_id.get_mut(&id).ok_or(Refusal::NoSuchTopic)?;
        topic.state = TopicState::Sealed;
        for range in self.ranges.of_topic_mut(id) {
            if range.state == RangeState::Active {
                range.state = RangeState::Sealed;
            }
        }
        Ok(Reply::TopicSealed)
    }

    pub(super) fn delete_topic(&mut self, id: TopicId) -> Result<Reply, Refusal> {
        self.topics.remove(id).ok_or(Refusal::NoSuchTopic)?;
        self.ranges.remove_topic(id);
        self.positions.remove_topic(id);
        let removed = self.segments.remove_topic(id);
        let segments =
            removed.into_iter().map(|(segment, s)| Removed { segment, replicas: s.replicas }).collect();
        Ok(Reply::TopicDeleted { segments })
    }
}
