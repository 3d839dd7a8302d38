//! Reading records: where to start, whether to wait.
//!
//! Owns the precedence of positions, the long poll and the answers of `fetch`. How records are collected is
//! `reading`'s business, whose ranges are whose is that of `groups`.

use std::time::Duration;

use bytes::Bytes;
use types::cursor::{Cursor, Tile};
use types::{GroupName, Instant, MemberName, RangeId, TopicId, TopicName, limits};
use wire::Reason;

use crate::action::{Fetched, Reply};
use crate::auth::{Operation, Session};
use crate::event::{Fetch, RequestId};
use crate::groups::{self, Attendance};
use crate::late::Wanted;
use crate::node::Node;
use crate::reading::{Membered, Most, Purpose, Reading};
use crate::tiles;

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
    /// The same, because no node can be reached that holds them.
    #[error("no copy can be reached")]
    Unavailable,
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
            Self::Unavailable => Reason::Unavailable,
        }
    }
}

/// Somebody who waits for records.
#[derive(Debug)]
pub(crate) enum Parked {
    /// For its topic to be created, until then; everything is looked up again.
    Unborn(Fetch, Instant),
    /// A stream whose topic does not exist.
    UnbornStream,
    /// For records at the end of the ranges it reads.
    AtEnd(Reading),
}

/// Where a fetch starts.
enum Start {
    Unborn,
    /// The cursor names what is not known here.
    Ahead,
    /// Once the coordinator of the member's group has told its share.
    Attending(groups::Key, MemberName),
    Topic {
        of: (Bytes, TopicId),
        group: Option<GroupName>,
        tiles: Vec<Tile>,
        member: Option<Box<Membered>>,
    },
}

impl Node {
    /// Takes a fetch; answered when records are found or its time is up.
    pub(crate) fn fetch(&mut self, id: RequestId, session: &Session, request: Fetch) {
        let name = request.topic.as_deref().unwrap_or_default();
        if !self.may(session, Operation::Consume, name) {
            return self.core.reply(id, Reply::Failed(Error::Denied.reason()));
        }
        let wait = Duration::from_millis(u64::from(request.wait_ms.min(limits::FETCH_WAIT_MS_MAX)));
        let deadline = self.core.now.plus(wait);
        self.begin(id, request, deadline, false);
    }

    /// `sure`: the tables are as far as everything that was decided before the request came.
    pub(crate) fn begin(&mut self, id: RequestId, request: Fetch, deadline: Instant, sure: bool) {
        let by_positions = request.group.is_some() && request.member.is_none() && request.cursor.is_none();
        if by_positions && !sure && self.may_lag() {
            // What the group committed at another node counts.
            return self.look_later(id, Wanted::Positions(request, deadline));
        }
        match self.start(&request) {
            Ok(Start::Ahead) if !sure && self.may_lag() => {
                self.look_later(id, Wanted::Fetch(request, deadline));
            }
            Ok(Start::Ahead) => self.core.reply(id, Reply::Failed(Error::InvalidCursor.reason())),
            Err(error) => self.core.reply(id, Reply::Failed(error.reason())),
            Ok(Start::Attending(key, member)) => {
                self.fetch_attending(id, (&key, &member), kept(&request), deadline);
            }
            Ok(Start::Unborn) => self.wait_for_topic(id, request, deadline, sure),
            Ok(Start::Topic { of, group, tiles, member }) => {
                let count = match request.max {
                    0 => limits::FETCH_RECORDS_DEFAULT,
                    max => max.min(limits::FETCH_RECORDS_MAX),
                };
                let most = Most { count, frame_bytes: self.core.config.frame_bytes_max };
                // A busy range must not starve the others: each reader begins with another one.
                self.reading_turn = self.reading_turn.wrapping_add(1);
                let purpose = Purpose::Fetch { deadline, member };
                let reading = Reading::new(of, tiles, self.reading_turn, most, purpose).for_group(group);
                let waits = deadline > self.core.now;
                let reading = if waits { reading } else { reading.at_once(self.watches.turn()) };
                self.read_on(id, reading);
            }
        }
    }

    /// A member with a group, then the cursor, then the group, then the beginning.
    fn start(&mut self, request: &Fetch) -> Result<Start, Error> {
        let member = request.member.as_ref().filter(|_| request.group.is_some());
        let token = request.cursor.as_ref().filter(|_| member.is_none());
        let cursor =
            token.map(|token| Cursor::decode(token).map_err(|_| Error::InvalidCursor)).transpose()?;
        let Some((name, topic)) = request.topic.as_ref().and_then(|name| self.topic_entry(name)) else {
            return Ok(Start::Unborn);
        };
        // A name that is too long has no positions.
        let group = request.group.as_ref().and_then(|group| GroupName::new(group).ok());
        let member = member.and_then(|member| MemberName::new(member).ok()).zip(group.clone());
        if let Some((member, group)) = member {
            return self.start_member(name, topic, member, group, request);
        }
        let known = match (cursor, &group) {
            (Some(cursor), _) if cursor.is_unborn() => Vec::new(),
            (Some(cursor), _) => {
                if cursor.topic != topic || !self.knows_tiles(topic, &cursor.tiles) {
                    return Ok(Start::Ahead);
                }
                cursor.tiles
            }
            (None, Some(group)) => self.core.positions(group, topic),
            (None, None) => Vec::new(),
        };
        let whole = self.core.meta.of(topic).whole_of(topic);
        let tiles = tiles::start(&known, &[], whole.as_slice());
        Ok(Start::Topic { of: (name, topic), group, tiles, member: None })
    }

    fn start_member(
        &mut self,
        name: Bytes,
        topic: TopicId,
        member: MemberName,
        group: GroupName,
        request: &Fetch,
    ) -> Result<Start, Error> {
        let key = groups::Key { topic, group };
        let share = match self.attend(&key, &member).map_err(|groups::Full| Error::Overloaded)? {
            Attendance::Share(share) => share,
            Attendance::Asked => return Ok(Start::Attending(key, member)),
        };
        let known = self.core.positions(&key.group, topic);
        let tiles = tiles::start(&known, &[], &share.spans);
        let group = Some(key.group.clone());
        let member = Membered { key, cursor: share.cursor, request: kept(request) };
        Ok(Start::Topic { of: (name, topic), group, tiles, member: Some(Box::new(member)) })
    }

    fn wait_for_topic(&mut self, id: RequestId, request: Fetch, deadline: Instant, sure: bool) {
        if deadline <= self.core.now || !self.waiters.has_room() {
            return self.answer_unborn(id, request, sure);
        }
        let request = kept(&request);
        let topic = request.topic.clone().unwrap_or_default();
        self.waiters.park(id, topic, deadline, Parked::Unborn(request, deadline));
    }

    /// Zero records; a cursor that was good enough to get here is good enough to come back with.
    fn answer_unborn(&mut self, id: RequestId, request: Fetch, sure: bool) {
        if !sure && self.may_lag() {
            // It may exist, and a group have positions in it: then this cursor would be a step back.
            return self.look_later(id, Wanted::Fetch(request, self.core.now));
        }
        let cursor = request.cursor.unwrap_or_else(|| Cursor::unborn().encode());
        self.core.reply(id, Reply::Fetched(Fetched { count: 0, runs: Vec::new(), cursor }));
    }

    /// The reading stopped: at the end of the data, at a limit, or because nothing could be read.
    pub(crate) fn read_done(&mut self, id: RequestId, reading: Reading) {
        let deadline = match &reading.purpose {
            Purpose::Fetch { deadline, .. } => *deadline,
            Purpose::Stream { .. } => return self.stream_read(id, reading),
        };
        if reading.is_empty() {
            if !self.serves() {
                // What there is by now is not known here.
                return self.core.reply(id, Reply::Failed(Reason::Unavailable));
            }
            let failed = reading.failed();
            // What cannot be reached may come back while it waits.
            let waits = failed == Some(Error::Unavailable) && deadline > self.core.now;
            if let Some(error) = failed.filter(|_| !waits) {
                return self.core.reply(id, Reply::Failed(error.reason()));
            }
            let exists = self.core.meta.of(reading.id()).topic(reading.id()).is_some();
            if deadline > self.core.now && exists && !reading.is_tired() && self.waiters.has_room() {
                return self.park(id, deadline, reading);
            }
        }
        self.answer_fetch(id, reading);
    }

    fn park(&mut self, id: RequestId, deadline: Instant, reading: Reading) {
        if let Purpose::Fetch { member: Some(member), .. } = &reading.purpose {
            if !self.has_member(&member.key, &member.cursor.member) {
                // It left while this was read, and must not come back by it.
                return self.answer_fetch(id, reading);
            }
            if self.has_another_share(member) {
                // It changed hands while the old one was read: nobody would tell it any more.
                let request = member.request.clone();
                return self.begin(id, request, deadline, false);
            }
            self.member_waits(&member.key, &member.cursor.member);
        }
        self.waiters.park(id, reading.topic(), deadline, Parked::AtEnd(reading));
    }

    /// Whether a member's share is another than its fetch was begun with.
    fn has_another_share(&self, member: &Membered) -> bool {
        let share = self.share(&member.key, &member.cursor.member);
        share.cursor.generation != member.cursor.generation
    }

    fn answer_fetch(&mut self, id: RequestId, reading: Reading) {
        if let Some(error) = reading.failed().filter(|_| reading.is_empty()) {
            return self.core.reply(id, Reply::Failed(error.reason()));
        }
        let reply = match reading.into_fetched() {
            Some((fetched, _)) => Reply::Fetched(fetched),
            None => Reply::Failed(Reason::InternalError),
        };
        self.core.reply(id, reply);
    }

    /// Somebody is not parked any more: a member's session counts from now.
    pub(crate) fn unparked(&mut self, parked: &Parked) {
        if let Parked::AtEnd(reading) = parked
            && let Purpose::Fetch { member: Some(member), .. } = &reading.purpose
        {
            self.member_waited(&member.key, &member.cursor.member);
        }
    }

    /// Something changed in a topic, in one range of it or everywhere: whoever waits for it looks again.
    pub(crate) fn wake(&mut self, topic: &[u8], range: Option<RangeId>) {
        if let Some(range) = range {
            self.tell_watchers(range);
        }
        for (id, parked) in self.waiters.take_topic(topic) {
            self.resume(id, parked, range);
        }
    }

    /// The shares of a group's members changed: those that wait look at theirs.
    pub(crate) fn wake_group(&mut self, topic: &[u8], key: &groups::Key) {
        let is_member = |parked: &Parked| match parked {
            Parked::AtEnd(reading) => match &reading.purpose {
                Purpose::Fetch { member: Some(membered), .. } => membered.key == *key,
                Purpose::Fetch { member: None, .. } | Purpose::Stream { .. } => false,
            },
            Parked::Unborn(..) | Parked::UnbornStream => false,
        };
        for (id, parked) in self.waiters.take_topic_where(topic, is_member) {
            self.resume(id, parked, None);
        }
    }

    /// A member is about to leave: its long polls are answered.
    pub(crate) fn release(&mut self, topic: &[u8], key: &groups::Key, member: &MemberName) {
        let is_its = |parked: &Parked| match parked {
            Parked::AtEnd(reading) => match &reading.purpose {
                Purpose::Fetch { member: Some(membered), .. } => {
                    membered.key == *key && membered.cursor.member == *member
                }
                Purpose::Fetch { member: None, .. } | Purpose::Stream { .. } => false,
            },
            Parked::Unborn(..) | Parked::UnbornStream => false,
        };
        for (id, parked) in self.waiters.take_topic_where(topic, is_its) {
            self.give_up_waiting(id, parked);
        }
    }

    fn resume(&mut self, id: RequestId, parked: Parked, range: Option<RangeId>) {
        self.unparked(&parked);
        match parked {
            Parked::Unborn(request, deadline) => self.begin(id, request, deadline, false),
            Parked::UnbornStream => self.stream_begin(id),
            Parked::AtEnd(mut reading) => {
                if let Purpose::Fetch { deadline, member: Some(member) } = &reading.purpose
                    && self.has_another_share(member)
                {
                    let (request, deadline) = (member.request.clone(), *deadline);
                    return self.begin(id, request, deadline, false);
                }
                let span = range.and_then(|id| self.core.meta.of(id.topic).range(id)).map(|range| range.span);
                if !self.plant_deafness(reading.tiles(), range) {
                    reading.look_again(span);
                }
                self.read_on(id, reading);
            }
        }
    }

    /// Answers whoever has waited long enough.
    pub(crate) fn expire_waiters(&mut self) {
        for (id, parked) in self.waiters.take_due(self.core.now) {
            self.give_up_waiting(id, parked);
        }
    }

    fn give_up_waiting(&mut self, id: RequestId, parked: Parked) {
        self.unparked(&parked);
        match parked {
            Parked::Unborn(request, _) => self.answer_unborn(id, request, false),
            // Streams wait as long as they are open.
            Parked::UnbornStream => {}
            Parked::AtEnd(reading) => self.answer_fetch(id, reading),
        }
    }
}

/// A request to be kept while it waits. Copied: it must not keep the buffer alive that its frame arrived in.
/// A name that no topic can have waits under none.
fn kept(request: &Fetch) -> Fetch {
    let copy = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| Bytes::copy_from_slice(bytes));
    let short = |name: &Option<Bytes>| copy(name).filter(|name| name.len() <= limits::GROUP_NAME_BYTES_MAX);
    let topic = request.topic.as_ref().filter(|name| TopicName::new(name).is_ok()).cloned();
    Fetch {
        topic: copy(&topic),
        cursor: copy(&request.cursor),
        group: short(&request.group),
        member: short(&request.member),
        ..*request
    }
}
