//! Making topics.
//!
//! Owns the answers of `create_topic` and `leave_group`. Which names and widths metadata accepts is its own
//! business; a width it would refuse becomes the default here, because existing clients send any value.

use bytes::Bytes;
use types::keyspace::{KeyHash, Keyspace};
use types::{RangeId, TopicId, TopicName};
use wire::Reason;

use crate::action::{Notice, Reply};
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::meta;
use crate::node::Node;

impl Node {
    /// Proposes a topic; answered when metadata has decided.
    pub(crate) fn create_topic(&mut self, id: RequestId, session: &Session, topic: Option<&Bytes>, bits: u8) {
        if !session.may(Operation::Produce) {
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
                self.wake(name.as_str().as_bytes());
            }
            Err(error) => self.core.reply(id, Reply::Failed(reason(error))),
        }
    }

    /// There are no members yet, so whoever leaves is gone.
    pub(crate) fn leave_group(&mut self, id: RequestId, session: &Session) {
        let reply = if session.may(Operation::Consume) {
            Reply::Left
        } else {
            Reply::Failed(Reason::PermissionDenied)
        };
        self.core.reply(id, reply);
    }
}

fn reason(error: meta::Error) -> Reason {
    match error {
        meta::Error::AlreadyExists => Reason::AlreadyExists,
        meta::Error::InvalidTopicName => Reason::InvalidTopicName,
        meta::Error::Unknown => Reason::Timeout,
        meta::Error::Unavailable => Reason::Unavailable,
        meta::Error::NoSuchTopic
        | meta::Error::Sealed
        | meta::Error::TooManyGroups
        | meta::Error::Refused => Reason::InternalError,
    }
}
