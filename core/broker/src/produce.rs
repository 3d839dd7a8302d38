//! Appending records: allowed, routed, bounded, then handed to the range.
//!
//! Owns the checks before anything is stored and the node's load of unanswered produce requests. Does not
//! know how a segment is opened, written or ended.
//!
//! Invariants:
//! - every record is routed before any is appended;
//! - a request is counted in the load from its acceptance to its one reply, so the load is never above its
//!   limits and is zero when nothing is in flight.

use types::limits;
use wire::Reason;

use crate::action::Reply;
use crate::auth::{Operation, Session};
use crate::event::{Produce, RequestId};
use crate::meta;
use crate::node::Node;
use crate::route::Unrouted;
use crate::segments::Waiting;

/// Why records were not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The session may not produce.
    #[error("not allowed to produce")]
    Denied,
    /// There is no such topic.
    #[error("no such topic")]
    NoSuchTopic,
    /// No active range covers a record's key.
    #[error("no active range takes the record")]
    Unroutable,
    /// Too much is waiting; nothing was stored.
    #[error("too much is waiting")]
    Overloaded,
    /// The copy or its disk failed; what was stored is unknown.
    #[error("the copy failed")]
    Storage,
    /// Metadata could not be written; nothing was stored.
    #[error("metadata could not be written")]
    Unavailable,
}

impl Error {
    /// What the client is told.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Denied => Reason::PermissionDenied,
            Self::NoSuchTopic => Reason::NoSuchTopic,
            Self::Unroutable => Reason::Unroutable,
            Self::Overloaded => Reason::Overloaded,
            Self::Storage => Reason::Storage,
            Self::Unavailable => Reason::Unavailable,
        }
    }
}

impl From<Unrouted> for Error {
    fn from(unrouted: Unrouted) -> Self {
        match unrouted {
            Unrouted::NoSuchTopic => Self::NoSuchTopic,
            Unrouted::NoActiveRange => Self::Unroutable,
        }
    }
}

impl From<meta::Error> for Error {
    fn from(error: meta::Error) -> Self {
        match error {
            meta::Error::NoSuchTopic => Self::NoSuchTopic,
            meta::Error::Sealed => Self::Unroutable,
            meta::Error::Unavailable
            | meta::Error::Unknown
            | meta::Error::AlreadyExists
            | meta::Error::InvalidTopicName
            | meta::Error::TooManyGroups
            | meta::Error::Refused => Self::Unavailable,
        }
    }
}

/// Produce requests that were accepted and not answered.
#[derive(Debug, Default)]
pub(crate) struct Load {
    requests: usize,
    bytes: usize,
}

impl Load {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        let fits = self.requests < limits::PRODUCES_IN_FLIGHT_MAX
            && self.bytes.saturating_add(bytes) <= limits::PRODUCE_BYTES_IN_FLIGHT_MAX;
        // One request larger than the whole allowance must still be possible on an idle node.
        if !fits && self.requests > 0 {
            return Err(Error::Overloaded);
        }
        self.requests += 1;
        self.bytes += bytes;
        Ok(())
    }

    fn release(&mut self, bytes: usize) {
        assert!(self.requests > 0 && self.bytes >= bytes, "a request is released once, as it was admitted");
        self.requests -= 1;
        self.bytes -= bytes;
    }
}

impl Node {
    /// Takes a produce request; the answer follows when its records are durable, or now when it is refused.
    pub(crate) fn produce(&mut self, id: RequestId, session: &Session, request: Produce) {
        if let Err(error) = self.accept(id, session, request) {
            self.core.reply(id, Reply::Failed(error.reason()));
        }
    }

    fn accept(&mut self, id: RequestId, session: &Session, request: Produce) -> Result<(), Error> {
        if !session.may(Operation::Produce) {
            return Err(Error::Denied);
        }
        let name = request.topic.ok_or(Error::NoSuchTopic)?;
        let Produce { records, count, crc, .. } = request;
        if count == 0 {
            self.topic(&name).ok_or(Error::NoSuchTopic)?;
            self.core.reply(id, Reply::Stored(0));
            return Ok(());
        }
        let range = self.route(&name)?;
        self.load.admit(records.len())?;
        self.append_to(range, Waiting { id, records, count, crc });
        Ok(())
    }

    /// Answers an accepted request of so many bytes.
    pub(crate) fn produced(&mut self, id: RequestId, bytes: usize, result: Result<u32, Error>) {
        self.load.release(bytes);
        let reply = match result {
            Ok(count) => Reply::Stored(count),
            Err(error) => Reply::Failed(error.reason()),
        };
        self.core.reply(id, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_more_than_allowed_is_refused_and_leaves_nothing() {
        let mut load = Load::default();
        for _ in 0..limits::PRODUCES_IN_FLIGHT_MAX {
            assert_eq!(load.admit(1), Ok(()));
        }
        assert_eq!(load.admit(1), Err(Error::Overloaded));
        load.release(1);
        assert_eq!(load.admit(1), Ok(()));
    }

    #[test]
    fn bytes_are_bounded_but_a_single_large_request_passes() {
        let mut load = Load::default();
        assert_eq!(load.admit(limits::PRODUCE_BYTES_IN_FLIGHT_MAX + 1), Ok(()));
        assert_eq!(load.admit(1), Err(Error::Overloaded));
        load.release(limits::PRODUCE_BYTES_IN_FLIGHT_MAX + 1);
        assert_eq!(load.admit(limits::PRODUCE_BYTES_IN_FLIGHT_MAX), Ok(()));
        assert_eq!(load.admit(1), Err(Error::Overloaded));
    }
}
