//! Reading records: where to start, whether to wait.
//!
//! Owns the precedence of positions, the long poll and the answers of `fetch`. How records are collected is
//! `reading`'s business.
//!
//! Members: there is no coordination of members yet. A fetch that names a member and its group reads all
//! ranges from the group's positions, like a fetch that names the group alone.

use std::time::Duration;

use bytes::Bytes;
use types::cursor::{Cursor, Tile};
use types::{GroupName, Instant, Offset, TopicId, TopicName, limits};
use wire::Reason;

use crate::action::{Fetched, Reply};
use crate::auth::{Operation, Session};
use crate::event::{Fetch, RequestId};
use crate::node::Node;
use crate::reading::Reading;

/// Why a fetch was refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The session may not consume.
    #[error("not allowed to consume")]
    Denied,
    /// The cursor was not issued for this topic.
    #[error("not a cursor of this topic")]
    InvalidCursor,
    /// Every range that had records to give failed to read.
    #[error("nothing could be read")]
    Storage,
    /// The same, for no other reason than that too much is waiting.
    #[error("too much is waiting")]
    Overloaded,
}

impl Error {
    /// What the client is told.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Denied => Reason::PermissionDenied,
            Self::InvalidCursor => Reason::InvalidCursor,
            Self::Storage => Reason::Storage,
            Self::Overloaded => Reason::Overloaded,
        }
    }
}

/// A fetch that waits.
#[derive(Debug)]
pub(crate) enum Parked {
    /// For its topic to be created, until then; everything is looked up again.
    Unborn(Fetch, Instant),
    /// For records at the end of a range.
    AtEnd(Reading),
}

/// Where a fetch starts.
enum Start {
    Unborn,
    Topic { name: Bytes, id: TopicId, tiles: Vec<Tile> },
}

impl Node {
    /// Takes a fetch; answered when records are found or its time is up.
    pub(crate) fn fetch(&mut self, id: RequestId, session: &Session, request: Fetch) {
        if !session.may(Operation::Consume) {
            return self.core.reply(id, Reply::Failed(Error::Denied.reason()));
        }
        let wait = Duration::from_millis(u64::from(request.wait_ms.min(limits::FETCH_WAIT_MS_MAX)));
        let deadline = self.core.now.plus(wait);
        self.begin(id, request, deadline);
    }

    fn begin(&mut self, id: RequestId, request: Fetch, deadline: Instant) {
        match self.start(&request) {
            Err(error) => self.core.reply(id, Reply::Failed(error.reason())),
            Ok(Start::Unborn) => self.wait_for_topic(id, &request, deadline),
            Ok(Start::Topic { name, id: topic, tiles }) => {
                let max = match request.max {
                    0 => limits::FETCH_RECORDS_DEFAULT,
                    max => max.min(limits::FETCH_RECORDS_MAX),
                };
                let reading =
                    Reading::new(name, topic, tiles, max, deadline, self.core.config.frame_bytes_max);
                self.read_on(id, reading);
            }
        }
    }

    /// A member with a group, then the cursor, then the group, then the beginning.
    fn start(&mut self, request: &Fetch) -> Result<Start, Error> {
        let member = request.member.is_some() && request.group.is_some();
        let token = request.cursor.as_ref().filter(|_| !member);
        let cursor =
            token.map(|token| Cursor::decode(token).map_err(|_| Error::InvalidCursor)).transpose()?;
        let Some((name, topic)) = request.topic.as_ref().and_then(|name| self.topic_entry(name)) else {
            return Ok(Start::Unborn);
        };
        let known = match (cursor, &request.group) {
            (Some(cursor), _) if cursor.is_unborn() => Vec::new(),
            (Some(cursor), _) => {
                if cursor.topic != topic || !self.knows_tiles(topic, &cursor.tiles) {
                    return Err(Error::InvalidCursor);
                }
                cursor.tiles
            }
            // A name that is too long has no positions.
            (None, Some(group)) => {
                GroupName::new(group).map(|group| self.core.positions(&group, topic)).unwrap_or_default()
            }
            (None, None) => Vec::new(),
        };
        let tiles = self.leaf_tiles(topic).into_iter();
        let tiles = tiles.map(|leaf| Tile { next: next_in(&known, leaf), ..leaf }).collect();
        Ok(Start::Topic { name, id: topic, tiles })
    }

    fn wait_for_topic(&mut self, id: RequestId, request: &Fetch, deadline: Instant) {
        if deadline <= self.core.now || !self.waiters.has_room() {
            return self.answer_unborn(id, request);
        }
        // Copied: a parked fetch must not keep the buffer alive that its frame arrived in. A name that no
        // topic can have waits under none.
        let copy = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| Bytes::copy_from_slice(bytes));
        let topic = request.topic.as_ref().filter(|name| TopicName::new(name).is_ok()).cloned();
        let request = Fetch {
            topic: copy(&topic),
            cursor: copy(&request.cursor),
            group: copy(&request.group).filter(|group| group.len() <= limits::GROUP_NAME_BYTES_MAX),
            member: request.member.as_ref().map(|_| Bytes::new()),
            ..*request
        };
        let topic = request.topic.clone().unwrap_or_default();
        self.waiters.park(id, topic, deadline, Parked::Unborn(request, deadline));
    }

    /// Zero records; a cursor that was good enough to get here is good enough to come back with.
    fn answer_unborn(&mut self, id: RequestId, request: &Fetch) {
        let cursor = request.cursor.clone().unwrap_or_else(|| Cursor::unborn().encode());
        self.core.reply(id, Reply::Fetched(Fetched { count: 0, records: Vec::new(), cursor }));
    }

    /// The reading stopped: at the end of the data, at a limit, or because nothing could be read.
    pub(crate) fn read_done(&mut self, id: RequestId, reading: Reading) {
        if reading.is_empty() {
            if let Some(error) = reading.failed() {
                return self.core.reply(id, Reply::Failed(error.reason()));
            }
            if reading.deadline() > self.core.now && self.waiters.has_room() {
                let (topic, deadline) = (reading.topic(), reading.deadline());
                return self.waiters.park(id, topic, deadline, Parked::AtEnd(reading));
            }
        }
        self.core.reply(id, Reply::Fetched(reading.into_fetched()));
    }

    /// Something changed in a topic: whoever waits for it looks again.
    pub(crate) fn wake(&mut self, topic: &[u8]) {
        for (id, parked) in self.waiters.take_topic(topic) {
            match parked {
                Parked::Unborn(request, deadline) => self.begin(id, request, deadline),
                Parked::AtEnd(reading) => self.read_on(id, reading.again()),
            }
        }
    }

    /// Answers whoever has waited long enough.
    pub(crate) fn expire_waiters(&mut self) {
        for (id, parked) in self.waiters.take_due(self.core.now) {
            match parked {
                Parked::Unborn(request, _) => self.answer_unborn(id, &request),
                Parked::AtEnd(reading) => self.core.reply(id, Reply::Fetched(reading.into_fetched())),
            }
        }
    }
}

/// Where a reader of the range `leaf` stands for is, by the tiles it holds; the beginning without one.
fn next_in(known: &[Tile], leaf: Tile) -> Offset {
    known
        .iter()
        .find(|tile| tile.range == leaf.range && tile.span == leaf.span)
        .map_or(leaf.next, |tile| tile.next)
}
