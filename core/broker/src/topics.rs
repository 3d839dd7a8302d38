//! Topics: made, sealed, removed.
//!
//! Owns the answers of these requests and what this node forgets with a topic. Which names and widths metadata accepts is its own
//! business; a width it would refuse becomes the default here, because existing clients send any value.

use bytes::Bytes;
use metadata::vnode::Removed;
use types::keyspace::{KeyHash, Keyspace};
use types::{RangeId, RangeSeq, TopicId, TopicName};
use wire::Reason;

use crate::action::{Notice, Reply};
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::meta;
use crate::node::Node;
use crate::produce;

impl Node {
    /// Proposes a topic; answered when metadata has decided.
    pub(crate) fn create_topic(&mut self, id: RequestId, session: &Session, topic: Option<&Bytes>, bits: u8) {
        let name = topic.map(|name| &name[..]).unwrap_or_default();
        if !self.may(session, Operation::Produce, name) {
            return self.core.reply(id, Reply::Failed(Reason::PermissionDenied));
        }
        let Some(Ok(name)) = topic.map(|name| TopicName::new(name)) else {
            return self.core.reply(id, Reply::Failed(Reason::InvalidTopicName));
        };
        let keyspace = Keyspace::requested(bits)
            .or_else(|| Keyspace::from_bits(Keyspace::DEFAULT_BITS))
            .expect("the default width is allowed");
        // Zero is the id of a topic that does not exist yet (`Cursor::unborn`).
        let topic = TopicId(self.core.random.u128().max(1));
        self.core.create_topic(id, name, topic, keyspace, KeyHash::Xxh32);
    }

    /// Metadata decided on a topic.
    pub(crate) fn topic_created(
        &mut self,
        id: RequestId,
        name: &TopicName,
        result: Result<RangeId, meta::Error>,
    ) {
        match result {
            Ok(range) => {
                self.core.notice(Notice::TopicCreated { topic: name.as_str().to_owned(), range });
                self.core.reply(id, Reply::Created);
                // A consumer may have come first.
                self.wake(name.as_str().as_bytes(), None);
            }
            Err(error) => self.core.reply(id, Reply::Failed(reason(error))),
        }
    }

    /// Proposes the end of a topic for appends; answered when metadata has decided.
    pub(crate) fn seal_topic(&mut self, id: RequestId, session: &Session, topic: Option<&Bytes>) {
        match self.admin_topic(session, topic) {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(topic) => self.core.seal_topic(id, topic),
        }
    }

    /// Metadata decided on the end of a topic for appends.
    pub(crate) fn topic_sealed(&mut self, id: RequestId, topic: TopicId, result: Result<(), meta::Error>) {
        if let Err(error) = result {
            return self.core.reply(id, Reply::Failed(reason(error)));
        }
        if let Some(name) = self.topic_name(topic) {
            self.core.notice(Notice::TopicSealed { topic: String::from_utf8_lossy(&name).into_owned() });
        }
        for range in self.ranges_of(topic) {
            self.retire(range);
        }
        self.core.reply(id, Reply::Done);
    }

    /// Proposes the removal of a topic; answered when metadata has decided.
    pub(crate) fn delete_topic(&mut self, id: RequestId, session: &Session, topic: Option<&Bytes>) {
        let found = self.admin_topic(session, topic);
        let named = found.map(|id| self.core.meta.of(id).topic(id).map(|topic| (id, topic.name.clone())));
        match named {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(None) => self.core.reply(id, Reply::Failed(Reason::NoSuchTopic)),
            Ok(Some((topic, name))) => self.core.delete_topic(id, topic, name),
        }
    }

    /// Metadata decided on the removal of a topic: nothing of it may be left in this node's memory.
    pub(crate) fn topic_deleted(
        &mut self,
        id: RequestId,
        topic: TopicId,
        name: &TopicName,
        result: Result<Vec<Removed>, meta::Error>,
    ) {
        let removed = match result {
            Ok(removed) => removed,
            Err(error) => return self.core.reply(id, Reply::Failed(reason(error))),
        };
        self.topics.remove(name.as_str().as_bytes());
        let notice = Notice::TopicDeleted { topic: name.as_str().to_owned(), segments: removed.len() };
        self.core.notice(notice);
        for Removed { segment, .. } in removed {
            self.remove_copy(segment);
        }
        self.drop_topic(topic);
        self.core.reply(id, Reply::Done);
        self.end_streams_of(topic);
        self.wake(name.as_str().as_bytes(), None);
    }

    /// Drops what this node has in memory of a topic that is gone.
    pub(crate) fn drop_topic(&mut self, topic: TopicId) {
        for range in self.ranges_of(topic) {
            self.forget_range(range);
        }
        self.keyless_turns.remove(&topic);
        self.forget_groups(topic);
        self.forget_retention(topic);
        self.resizes.forget(topic);
    }

    /// Drops what this node knows of a range whose topic is gone, and answers whoever waits.
    fn forget_range(&mut self, id: RangeId) {
        self.restart_done(id);
        self.stale.remove(&id);
        self.blocked.remove(&id);
        self.refuse_waiting(id, produce::Error::NoSuchTopic);
        let Some(range) = self.ranges.remove(&id) else { return };
        // What the store answers later finds no range and is dropped.
        for append in range.into_in_flight() {
            self.produced(append.asker, append.bytes, Err(produce::Error::NoSuchTopic));
            for echo in append.echoes {
                self.produced(echo.asker, echo.bytes(), Err(produce::Error::NoSuchTopic));
            }
        }
    }

    /// The ranges of a topic that this node knows of.
    pub(crate) fn ranges_of(&self, topic: TopicId) -> Vec<RangeId> {
        let all = RangeId { topic, seq: RangeSeq(0) }..=RangeId { topic, seq: RangeSeq(u64::MAX) };
        self.ranges.range(all).map(|(id, _)| *id).collect()
    }

    /// The topic that an administrator's request names.
    pub(crate) fn admin_topic(
        &mut self,
        session: &Session,
        topic: Option<&Bytes>,
    ) -> Result<TopicId, Reason> {
        if !self.is_admin(session) {
            return Err(Reason::PermissionDenied);
        }
        topic.and_then(|name| self.topic(name)).ok_or(Reason::NoSuchTopic)
    }

    /// The name of a topic, as waiters are indexed.
    pub(crate) fn topic_name(&self, topic: TopicId) -> Option<Bytes> {
        let topic = self.core.meta.of(topic).topic(topic)?;
        Some(Bytes::copy_from_slice(topic.name.as_str().as_bytes()))
    }
}

fn reason(error: meta::Error) -> Reason {
    match error {
        meta::Error::AlreadyExists => Reason::AlreadyExists,
        meta::Error::InvalidTopicName => Reason::InvalidTopicName,
        meta::Error::NoSuchTopic => Reason::NoSuchTopic,
        meta::Error::Unknown => Reason::Timeout,
        meta::Error::Unavailable => Reason::Unavailable,
        meta::Error::Migrating => Reason::Migrating,
        meta::Error::Sealed
        | meta::Error::NoSuchRange
        | meta::Error::CannotSplit
        | meta::Error::NotBuddies
        | meta::Error::InsufficientDomains
        | meta::Error::TooManyRanges
        | meta::Error::TooManyGroups
        | meta::Error::Refused => Reason::InternalError,
    }
}
