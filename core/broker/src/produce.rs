//! Appending records: allowed, routed, bounded, then handed to the range.
//!
//! Owns the checks before anything is stored and the node's load of unanswered produce requests. Does not
//! know how a segment is opened, written or ended.
//!
//! A request whose records go to several ranges is one part for each; it is answered when all of them are.
//!
//! Invariants:
//! - every record is routed before any is appended;
//! - `Stored` is answered only when every part is durable;
//! - a request is counted in the load from its acceptance to its one reply, so the load is never above its
//!   limits and is zero when nothing is in flight.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use types::{TopicId, limits};
use wire::{Effect, Reason};

use crate::action::Reply;
use crate::auth::{Operation, Session};
use crate::event::{Produce, RequestId};
use crate::meta;
use crate::node::Node;
use crate::place::{Part, Records};
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
    /// The topic was sealed while the request ran; a part of it may be stored.
    #[error("sealed before every part was stored")]
    Sealed,
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
            Self::Sealed => Reason::Sealed,
        }
    }

    /// The same, when other parts of the request may be stored: no reason may say that nothing was.
    fn of_a_part(self) -> Self {
        match self {
            Self::Overloaded => Self::Storage,
            Self::Unroutable => Self::Sealed,
            // With a topic go all its records.
            Self::Denied | Self::NoSuchTopic | Self::Storage | Self::Unavailable | Self::Sealed => self,
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
            | meta::Error::NoSuchRange
            | meta::Error::CannotSplit
            | meta::Error::NotBuddies
            | meta::Error::TooManyRanges
            | meta::Error::Refused => Self::Unavailable,
        }
    }
}

/// Produce requests that were accepted and not answered.
#[derive(Debug, Default)]
pub(crate) struct Load {
    requests: usize,
    bytes: usize,
    /// Requests of several parts; one of a single part is not here.
    parted: BTreeMap<RequestId, Parted>,
}

/// A request of several parts.
#[derive(Debug)]
struct Parted {
    /// Parts without an outcome.
    left: usize,
    /// Records of all parts.
    count: u32,
    failed: Option<Error>,
    /// A part was stored, or may be.
    stored: bool,
}

impl Load {
    /// Requests and bytes without an answer.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.requests, self.bytes)
    }

    /// Whether a request that waits has several parts.
    pub(crate) fn is_parted(&self, id: RequestId) -> bool {
        self.parted.contains_key(&id)
    }

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

    /// One part of a request, which had `count` records, became `parts` of them.
    fn part(&mut self, id: RequestId, count: u32, parts: usize) {
        assert!(parts > 0, "a part does not vanish");
        if parts > 1 {
            let parted =
                self.parted.entry(id).or_insert(Parted { left: 1, count, failed: None, stored: false });
            parted.left += parts - 1;
        }
    }

    /// One part of so many bytes has its outcome; gives the outcome of its request once all parts have theirs.
    fn settle(
        &mut self,
        id: RequestId,
        bytes: usize,
        result: Result<u32, Error>,
    ) -> Option<Result<u32, Error>> {
        assert!(self.bytes >= bytes, "a part is settled once, as it was admitted");
        self.bytes -= bytes;
        let result = match self.parted.entry(id) {
            Entry::Vacant(_) => result,
            Entry::Occupied(mut entry) => {
                let parted = entry.get_mut();
                parted.left -= 1;
                parted.stored |=
                    result.map_or_else(|error| error.reason().effect() == Effect::Unknown, |_| true);
                parted.failed = parted.failed.or(result.err());
                if parted.left > 0 {
                    return None;
                }
                match entry.remove() {
                    Parted { failed: None, count, .. } => Ok(count),
                    Parted { failed: Some(error), stored: true, .. } => Err(error.of_a_part()),
                    Parted { failed: Some(error), stored: false, .. } => Err(error),
                }
            }
        };
        assert!(self.requests > 0, "a request is answered once");
        self.requests -= 1;
        Some(result)
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
        let name = request.topic.unwrap_or_default();
        if !self.may(session, Operation::Produce, &name) {
            return Err(Error::Denied);
        }
        let topic = self.topic(&name).ok_or(Error::NoSuchTopic)?;
        let Produce { records, count, crc, .. } = request;
        if count == 0 {
            self.core.reply(id, Reply::Stored(0));
            return Ok(());
        }
        let bytes = records.len();
        let parts = self.place_records(topic, Records { records, count, crc })?;
        self.load.admit(bytes)?;
        self.load.part(id, count, parts.len());
        for part in parts {
            self.append_part(id, part);
        }
        Ok(())
    }

    fn append_part(&mut self, id: RequestId, part: Part) {
        let Part { range, records, count, crc } = part;
        self.know_range(range);
        if self.plant_held(range) {
            return self.produced(id, records.len(), Err(Error::Storage));
        }
        self.append_to(range, Waiting { id, records: Records { records, count, crc } });
    }

    /// Places a request again that waits for a range which takes no more records.
    pub(crate) fn append_again(&mut self, topic: TopicId, request: Waiting) {
        let Waiting { id, records } = request;
        let (bytes, count) = (records.records.len(), records.count);
        match self.place_records(topic, records) {
            Ok(parts) => {
                self.load.part(id, count, parts.len());
                for part in parts {
                    self.append_part(id, part);
                }
            }
            Err(error) => self.produced(id, bytes, Err(error.into())),
        }
    }

    /// One part of an accepted request, of so many bytes, has its outcome.
    pub(crate) fn produced(&mut self, id: RequestId, bytes: usize, result: Result<u32, Error>) {
        let result = self.plant_before_settle(id, result);
        let reply = match self.load.settle(id, bytes, result) {
            None => return,
            Some(Ok(count)) => Reply::Stored(count),
            Some(Err(error)) => Reply::Failed(error.reason()),
        };
        self.core.reply(id, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ConnectionId;

    fn id(number: u64) -> RequestId {
        RequestId { connection: ConnectionId(1), number }
    }

    #[test]
    fn one_request_more_than_allowed_is_refused_and_leaves_nothing() {
        let mut load = Load::default();
        for _ in 0..limits::PRODUCES_IN_FLIGHT_MAX {
            assert_eq!(load.admit(1), Ok(()));
        }
        assert_eq!(load.admit(1), Err(Error::Overloaded));
        assert_eq!(load.settle(id(1), 1, Ok(1)), Some(Ok(1)));
        assert_eq!(load.admit(1), Ok(()));
    }

    #[test]
    fn bytes_are_bounded_but_a_single_large_request_passes() {
        let mut load = Load::default();
        let large = limits::PRODUCE_BYTES_IN_FLIGHT_MAX + 1;
        assert_eq!(load.admit(large), Ok(()));
        assert_eq!(load.admit(1), Err(Error::Overloaded));
        assert_eq!(load.settle(id(1), large, Ok(1)), Some(Ok(1)));
        assert_eq!(load.admit(limits::PRODUCE_BYTES_IN_FLIGHT_MAX), Ok(()));
        assert_eq!(load.admit(1), Err(Error::Overloaded));
    }

    #[test]
    fn a_request_of_parts_is_answered_by_its_last_and_fails_with_its_first_failure() {
        let mut load = Load::default();
        assert_eq!(load.admit(10), Ok(()));
        load.part(id(1), 7, 2);
        // One of the two is parted again.
        load.part(id(1), 4, 2);
        assert_eq!(load.settle(id(1), 5, Ok(3)), None);
        assert_eq!(load.settle(id(1), 2, Err(Error::Storage)), None);
        assert_eq!(load.settle(id(1), 3, Err(Error::Unroutable)), Some(Err(Error::Storage)));
        assert!(load.parted.is_empty() && load.requests == 0 && load.bytes == 0);
        assert_eq!(load.admit(10), Ok(()));
        load.part(id(1), 7, 2);
        assert_eq!(load.settle(id(1), 5, Ok(3)), None);
        assert_eq!(load.settle(id(1), 5, Ok(4)), Some(Ok(7)));
    }

    #[test]
    fn nobody_is_told_that_nothing_happened_when_another_part_may_be_stored() {
        let mut load = Load::default();
        let mut of_two = |first, second| {
            assert_eq!(load.admit(10), Ok(()));
            load.part(id(1), 7, 2);
            assert_eq!(load.settle(id(1), 5, first), None);
            load.settle(id(1), 5, second).unwrap()
        };
        assert_eq!(of_two(Ok(3), Err(Error::Unroutable)), Err(Error::Sealed));
        assert_eq!(of_two(Err(Error::Overloaded), Ok(4)), Err(Error::Storage));
        assert_eq!(of_two(Err(Error::Overloaded), Err(Error::Storage)), Err(Error::Storage));
        assert_eq!(of_two(Err(Error::Overloaded), Err(Error::Unroutable)), Err(Error::Overloaded));
        for error in [Error::Overloaded, Error::Unroutable, Error::Storage, Error::Unavailable] {
            assert_eq!(error.of_a_part().reason().effect(), Effect::Unknown, "{error}");
        }
    }
}
