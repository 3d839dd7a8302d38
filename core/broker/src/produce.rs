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

use metadata::vnode::RangeState;
use peer::message::part::{Append, AppendReply, Doubt, Outcome, Part as SentPart, Refusal};
use types::{NodeId, RangeId, limits};
use wire::{Effect, Reason};

use crate::action::{Action, Reply};
use crate::auth::{Operation, Session};
use crate::event::{CallId, Produce, RequestId};
use crate::meta;
use crate::node::Node;
use crate::place::{Part, Records};
use crate::route::{Primary, Unrouted};
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
    /// There are fewer failure domains than copies of a segment must lie in; nothing was stored.
    #[error("too few failure domains for a new segment")]
    InsufficientDomains,
    /// The topic's metadata moves to another vnode; nothing was stored.
    #[error("the topic moves")]
    Migrating,
    /// The topic was sealed while the request ran; a part of it may be stored.
    #[error("sealed before every part was stored")]
    Sealed,
    /// Whoever was to store it did not answer; what was stored is unknown.
    #[error("no answer from whoever was to store it")]
    Unanswered,
    /// Too few copies answered in time; what was stored is unknown.
    #[error("too few copies answered")]
    NoQuorum,
    /// The records of one range are more than one node sends another at a time; nothing was stored.
    #[error("too large to be sent to another node")]
    TooLarge,
    /// Nobody remembers whether an earlier request with its stamp was stored; this one was not.
    #[error("its producer is not remembered far enough back")]
    Forgotten,
    /// Its producer has begun a later life; nothing was stored.
    #[error("its producer has begun a later life")]
    Fenced,
    /// A part may be stored, and of the rest nobody remembers whether it was earlier.
    #[error("its producer is not remembered far enough back for all of its parts")]
    OutOfWindow,
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
            Self::InsufficientDomains => Reason::InsufficientDomains,
            Self::Migrating => Reason::Migrating,
            Self::Sealed => Reason::Sealed,
            Self::Unanswered => Reason::Timeout,
            Self::NoQuorum => Reason::NoQuorum,
            Self::TooLarge => Reason::FrameTooLarge,
            Self::Forgotten => Reason::ProducerForgotten,
            Self::Fenced => Reason::ProducerFenced,
            Self::OutOfWindow => Reason::OutOfWindow,
        }
    }

    /// The same, when other parts of the request may be stored: no reason may say that nothing was.
    fn of_a_part(self) -> Self {
        match self {
            Self::Overloaded | Self::TooLarge => Self::Storage,
            Self::Unroutable => Self::Sealed,
            Self::Forgotten | Self::Fenced => Self::OutOfWindow,
            // With a topic go all its records.
            Self::Denied
            | Self::NoSuchTopic
            | Self::Storage
            | Self::Unavailable
            | Self::InsufficientDomains
            | Self::Migrating
            | Self::Sealed
            | Self::Unanswered
            | Self::NoQuorum
            | Self::OutOfWindow => self,
        }
    }
}

impl From<Unrouted> for Error {
    fn from(unrouted: Unrouted) -> Self {
        match unrouted {
            Unrouted::NoSuchTopic => Self::NoSuchTopic,
            Unrouted::NoActiveRange => Self::Unroutable,
            // The client repeats it, and then it is placed as a whole.
            Unrouted::Merged => Self::Unavailable,
        }
    }
}

impl From<meta::Error> for Error {
    fn from(error: meta::Error) -> Self {
        match error {
            meta::Error::NoSuchTopic => Self::NoSuchTopic,
            meta::Error::Sealed => Self::Unroutable,
            meta::Error::Migrating => Self::Migrating,
            meta::Error::InsufficientDomains => Self::InsufficientDomains,
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

/// Who waits until records are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// A client of this node.
    Client(RequestId),
    /// Another node, for a client of its own: the records are a part of a request that it has placed.
    Peer {
        /// Which one.
        node: NodeId,
        /// What it asked.
        call: CallId,
        /// Which of its parts, counted from 0.
        part: u32,
    },
}

impl Asker {
    /// The request of a client of this node.
    pub(crate) fn client(self) -> Option<RequestId> {
        match self {
            Self::Client(id) => Some(id),
            Self::Peer { .. } => None,
        }
    }
}

/// Produce requests that were accepted and not answered.
#[derive(Debug, Default)]
pub(crate) struct Load {
    requests: usize,
    bytes: usize,
    /// Requests of several parts; one of a single part is not here.
    parted: BTreeMap<Asker, Parted>,
    /// What other nodes asked, with the outcomes so far.
    calls: BTreeMap<(NodeId, CallId), Vec<Option<Outcome>>>,
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
    pub(crate) fn is_parted(&self, asker: Asker) -> bool {
        self.parted.contains_key(&asker)
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
    pub(crate) fn part(&mut self, asker: Asker, count: u32, parts: usize) {
        assert!(parts > 0, "a part does not vanish");
        if parts > 1 {
            let parted =
                self.parted.entry(asker).or_insert(Parted { left: 1, count, failed: None, stored: false });
            parted.left += parts - 1;
        }
    }

    /// One part of so many bytes has its outcome; gives the outcome of its request once all parts have theirs.
    fn settle(
        &mut self,
        asker: Asker,
        bytes: usize,
        result: Result<u32, Error>,
    ) -> Option<Result<u32, Error>> {
        assert!(self.bytes >= bytes, "a part is settled once, as it was admitted");
        self.bytes -= bytes;
        let result = match self.parted.entry(asker) {
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
        let Produce { records, count, crc, stamp, .. } = request;
        if count == 0 {
            self.core.reply(id, Reply::Stored(0));
            return Ok(());
        }
        let bytes = records.len();
        let parts = self.place_records(topic, Records { records, count, crc, stamp })?;
        self.load.admit(bytes)?;
        let asker = Asker::Client(id);
        self.load.part(asker, count, parts.len());
        for part in parts {
            self.append_part(asker, part);
        }
        Ok(())
    }

    fn append_part(&mut self, asker: Asker, part: Part) {
        let Part { range, records } = part;
        let request = Waiting { asker, records };
        if self.goes_by_outlet(range) || self.primary_of(range) != Primary::Here {
            return self.send_out(range, request);
        }
        self.know_range(range);
        if self.plant_held(range) {
            return self.produced(asker, request.bytes(), Err(Error::Storage));
        }
        self.append_to(range, request);
    }

    /// Places a request again that waits for a range which takes no more records.
    pub(crate) fn append_again(&mut self, placed: RangeId, request: Waiting) {
        let Waiting { asker, records } = request;
        let (bytes, count) = (records.records.len(), records.count);
        if let Asker::Peer { .. } = asker {
            // Whoever has placed it places it again, in the order in which its client sent.
            return self.produced(asker, bytes, Err(Error::Unroutable));
        }
        match self.place_again(placed, records) {
            Ok(parts) => {
                self.load.part(asker, count, parts.len());
                for part in parts {
                    self.append_part(asker, part);
                }
            }
            Err(error) => self.produced(asker, bytes, Err(error.into())),
        }
    }

    /// One part of an accepted request, of so many bytes, has its outcome.
    pub(crate) fn produced(&mut self, asker: Asker, bytes: usize, result: Result<u32, Error>) {
        let result = self.plant_before_settle(asker, result);
        let Some(result) = self.load.settle(asker, bytes, result) else { return };
        match asker {
            Asker::Client(id) => {
                let reply = match result {
                    Ok(count) => Reply::Stored(count),
                    Err(error) => Reply::Failed(error.reason()),
                };
                self.core.reply(id, reply);
            }
            Asker::Peer { node, call, part } => self.part_settled(node, call, part, told(result)),
        }
    }

    /// A part of what another node asked has its outcome; the node is answered once all have.
    fn part_settled(&mut self, node: NodeId, call: CallId, part: u32, outcome: Outcome) {
        let Some(outcomes) = self.load.calls.get_mut(&(node, call)) else { return };
        if let Some(place) = outcomes.get_mut(part as usize) {
            *place = Some(outcome);
        }
        if let Some(outcomes) = outcomes.iter().copied().collect() {
            self.load.calls.remove(&(node, call));
            let message = peer::Message::AppendReply(AppendReply(outcomes));
            self.core.out.push(Action::Answer { to: node, call, message });
        }
    }

    /// Another node asks for records to be appended to a range.
    pub(crate) fn append_for(&mut self, node: NodeId, call: CallId, append: Append) {
        let Append { range, parts } = append;
        self.load.calls.insert((node, call), vec![None; parts.len()]);
        let mut refused = None;
        for (number, part) in (0..).zip(parts) {
            let asker = Asker::Peer { node, call, part: number };
            // Nothing goes behind what was refused: whoever has placed it may want to send it again before that.
            let taken = refused.map_or(Ok(()), Err).and_then(|()| self.accept_part(asker, range, part));
            if let Err(refusal) = taken {
                refused = Some(refusal);
                self.part_settled(node, call, number, Outcome::NotStored(refusal));
            }
        }
    }

    fn accept_part(&mut self, asker: Asker, range: RangeId, part: SentPart) -> Result<(), Refusal> {
        let SentPart { count, crc, records, stamp } = part;
        if !self.serves() {
            return Err(Refusal::NotPrimary { hint: None });
        }
        let vnode = self.core.meta.of(range.topic);
        let listed = vnode.range(range).ok_or(Refusal::NoSuchTopic)?;
        if listed.state != RangeState::Active {
            return Err(Refusal::Sealed);
        }
        let primary = vnode.active_segment(range).and_then(|(_, active)| active.replicas.first().copied());
        if primary.is_some_and(|primary| primary != self.core.config.node) {
            return Err(Refusal::NotPrimary { hint: primary });
        }
        if primary.is_none() && self.core.gives_way() {
            return Err(Refusal::NotPrimary { hint: Some(self.candidate(range)) });
        }
        // The checksum is what the copies will vouch for; what does not match it was never a client's.
        if crc32fast::hash(&records) != crc {
            return Err(Refusal::Unavailable);
        }
        self.load.admit(records.len()).map_err(|_| Refusal::Overloaded)?;
        self.know_range(range);
        self.append_to(range, Waiting { asker, records: Records { records, count, crc, stamp } });
        Ok(())
    }
}

/// What another node is told of its part.
fn told(result: Result<u32, Error>) -> Outcome {
    let refusal = match result {
        Ok(count) => return Outcome::Stored { count },
        Err(Error::Storage) => return Outcome::Unknown(Doubt::Storage),
        Err(Error::Unanswered | Error::NoQuorum) => return Outcome::Unknown(Doubt::Timeout),
        // Only a request of several parts ends so, and what was asked for another node is one.
        Err(Error::Denied | Error::Sealed | Error::OutOfWindow) => {
            return Outcome::Unknown(Doubt::Storage);
        }
        Err(Error::NoSuchTopic) => Refusal::NoSuchTopic,
        Err(Error::Unroutable) => Refusal::Sealed,
        Err(Error::Overloaded) => Refusal::Overloaded,
        Err(Error::TooLarge) => Refusal::Unroutable,
        Err(Error::Unavailable | Error::Migrating) => Refusal::Unavailable,
        Err(Error::Forgotten) => Refusal::Forgotten,
        Err(Error::Fenced) => Refusal::Fenced,
        Err(Error::InsufficientDomains) => Refusal::InsufficientDomains,
    };
    Outcome::NotStored(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ConnectionId;

    fn id(number: u64) -> Asker {
        Asker::Client(RequestId { connection: ConnectionId(1), number })
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
        let errors = [Error::Overloaded, Error::Unroutable, Error::Storage, Error::Unavailable];
        for error in errors.into_iter().chain([Error::Unanswered, Error::TooLarge]) {
            assert_eq!(error.of_a_part().reason().effect(), Effect::Unknown, "{error}");
        }
    }
}
