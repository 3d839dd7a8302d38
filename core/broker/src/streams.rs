//! Push streams: records go out as they come, as far as the client's credit reaches.
//!
//! Owns every open stream, its credit and its place. Positions that a client acknowledges are committed like
//! any others (`commit`); how records are collected is `reading`'s business.
//!
//! Invariants:
//! - records pushed and not credited never exceed the window;
//! - one push at a time is on its way to the socket, so a client that does not read costs one push of memory;
//! - credit returns only when the positions it came with are stored.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::cursor::{CursorMember, Tile};
use types::{GroupName, Instant, MemberName, TopicId, TopicName, limits};
use wire::Reason;

use crate::action::{Action, Reply};
use crate::auth::{Operation, Session};
use crate::commit::{self, Proposed};
use crate::event::{ConnectionId, Membership, RequestId, StreamAck, Subscribe};
use crate::fetch::{self, Parked};
use crate::groups::{self, Attendance};
use crate::node::Node;
use crate::planted::Bug;
use crate::reading::{Most, Purpose, Reading};
use crate::tiles;

/// Never: a stream waits as long as it is open.
const NEVER: Instant = Instant(u64::MAX);

/// One open stream.
#[derive(Debug)]
struct Stream {
    session: Session,
    topic: Bytes,
    group: GroupName,
    member: Option<MemberName>,
    window: u32,
    max: u32,
    /// Records pushed and not credited.
    in_flight: u32,
    /// There once the topic exists.
    at: Option<At>,
    doing: Doing,
    /// Since when it is at that.
    since: Instant,
    /// When it pushed something last.
    pushed_at: Option<Instant>,
    /// Something happened while it was busy: it looks again.
    again: bool,
}

/// Where a stream stands.
#[derive(Debug)]
struct At {
    topic: TopicId,
    tiles: Vec<Tile>,
    /// A member's share, which its cursors are stamped with.
    member: Option<CursorMember>,
}

/// What a stream is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Collecting records, or waiting for them.
    Reading,
    /// Its last push is on its way to the socket.
    Pushing,
    /// Out of credit.
    Starved,
}

impl Stream {
    fn goes_on(&mut self, doing: Doing, now: Instant) {
        if self.doing != doing {
            (self.doing, self.since) = (doing, now);
        }
    }
}

/// A stream for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamInfo {
    /// Whose share it reads.
    pub(crate) member: Option<MemberName>,
    /// Records pushed and not credited, and how many may be.
    pub(crate) credit: (u32, u32),
    /// What it is at.
    pub(crate) doing: &'static str,
    /// It is out of credit.
    pub(crate) is_starved: bool,
    /// Since when it is at that.
    pub(crate) since: Instant,
    /// When it pushed something last.
    pub(crate) pushed_at: Option<Instant>,
}

/// An acknowledgement whose positions are on their way through metadata.
#[derive(Clone, Copy, Debug)]
struct Ack {
    stream: RequestId,
    count: u32,
}

/// Every open stream.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// By the request that opened it: ordered by connection, which has one at most.
    streams: BTreeMap<RequestId, Stream>,
    acks: BTreeMap<RequestId, Ack>,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Those of a group on a topic.
    pub(crate) fn of_group(&self, key: &groups::Key) -> impl Iterator<Item = StreamInfo> {
        let is_of = |stream: &&Stream| {
            stream.group == key.group && stream.at.as_ref().is_some_and(|at| at.topic == key.topic)
        };
        self.streams.values().filter(is_of).map(|stream| StreamInfo {
            member: stream.member.clone(),
            credit: (stream.in_flight, stream.window),
            doing: match stream.doing {
                Doing::Reading => "reads, or waits for records",
                Doing::Pushing => "its last push is on its way to the client",
                Doing::Starved => "out of credit",
            },
            is_starved: stream.doing == Doing::Starved,
            since: stream.since,
            pushed_at: stream.pushed_at,
        })
    }

    fn of(&self, connection: ConnectionId) -> Option<RequestId> {
        let first = RequestId { connection, number: 0 };
        let last = RequestId { connection, number: u64::MAX };
        self.streams.range(first..=last).next().map(|(id, _)| *id)
    }
}

impl Node {
    /// Opens a stream; what it finds is pushed at once.
    pub(crate) fn subscribe(&mut self, id: RequestId, session: &Session, request: Subscribe) {
        let Subscribe { who, window, max } = request;
        match self.open_stream(session, &who, window, max) {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(stream) => {
                self.core.reply(id, Reply::Subscribed);
                self.streams.streams.insert(id, stream);
                self.stream_begin(id);
            }
        }
    }

    fn open_stream(
        &mut self,
        session: &Session,
        who: &Membership,
        window: u32,
        max: u32,
    ) -> Result<Stream, Reason> {
        let name = who.topic.clone().unwrap_or_default();
        if !self.may(session, Operation::Consume, &name) {
            return Err(Reason::PermissionDenied);
        }
        let group = who.group.as_ref().and_then(|group| GroupName::new(group).ok());
        let group = group.ok_or(Reason::InvalidGroup)?;
        let member = who.member.as_ref().map(|member| MemberName::new(member));
        let member = member.transpose().map_err(|_| Reason::InvalidGroup)?;
        if self.streams.len() >= limits::STREAMS_MAX {
            return Err(Reason::Overloaded);
        }
        let topic = Bytes::copy_from_slice(possible(&name));
        let effective = |asked: u32, default: u32, most: u32| match asked {
            0 => default,
            asked => asked.min(most),
        };
        Ok(Stream {
            session: session.clone(),
            topic,
            group,
            member,
            window: effective(window, limits::STREAM_WINDOW_DEFAULT, limits::STREAM_WINDOW_MAX),
            max: effective(max, limits::FETCH_RECORDS_DEFAULT, limits::FETCH_RECORDS_MAX),
            in_flight: 0,
            at: None,
            doing: Doing::Starved,
            since: self.core.now,
            pushed_at: None,
            again: false,
        })
    }

    /// Places a stream whose topic may exist now, and lets it read.
    pub(crate) fn stream_begin(&mut self, id: RequestId) {
        let stream = self.streams.streams.get(&id).filter(|stream| stream.at.is_none());
        let Some(stream) = stream else { return };
        let (name, member) = (stream.topic.clone(), stream.member.clone());
        drop(self.waiters.take(id));
        if let Some(topic) = self.topic(&name) {
            let Some(stream) = self.streams.streams.get(&id) else { return };
            let key = groups::Key { topic, group: stream.group.clone() };
            if let Some(member) = &member {
                match self.attend(&key, member) {
                    Err(groups::Full) => return self.end_stream(id, Reason::Overloaded),
                    Ok(Attendance::Asked) => return self.stream_attending(id, &key, member),
                    Ok(Attendance::Share(_)) => self.member_waits(&key, member),
                }
            }
            let at = self.stream_at(&key, member.as_ref(), &[]);
            if let Some(stream) = self.streams.streams.get_mut(&id) {
                stream.at = Some(at);
            }
        }
        self.stream_read_on(id);
    }

    /// Where a stream stands that has read up to `tiles`.
    fn stream_at(&self, key: &groups::Key, member: Option<&MemberName>, tiles: &[Tile]) -> At {
        let (member, spans) = match member {
            Some(member) => {
                let share = self.share(key, member);
                (Some(share.cursor), share.spans)
            }
            None => (None, self.core.meta.of(key.topic).whole_of(key.topic).into_iter().collect()),
        };
        let tiles = tiles::start(tiles, &self.core.positions(&key.group, key.topic), &spans);
        At { topic: key.topic, tiles, member }
    }

    /// Collects as far as the credit reaches. Only when the stream is at nothing else.
    fn stream_read_on(&mut self, id: RequestId) {
        let frame_bytes = self.core.config.frame_bytes_max;
        let ignored = self.core.config.has_bug(Bug::IgnoreCredit);
        let now = self.core.now;
        let Some(stream) = self.streams.streams.get_mut(&id) else { return };
        let Some(at) = &stream.at else {
            stream.goes_on(Doing::Reading, now);
            return self.park_stream(id, Parked::UnbornStream);
        };
        let credit = stream.window.saturating_sub(stream.in_flight);
        let count = if ignored { stream.max } else { stream.max.min(credit) };
        if count == 0 {
            stream.goes_on(Doing::Starved, now);
            return;
        }
        let (of, tiles) = ((stream.topic.clone(), at.topic), at.tiles.clone());
        let group = Some(stream.group.clone());
        let purpose = Purpose::Stream { member: at.member.clone() };
        stream.goes_on(Doing::Reading, now);
        stream.again = false;
        self.reading_turn = self.reading_turn.wrapping_add(1);
        let most = Most { count, frame_bytes };
        let reading = Reading::new(of, tiles, self.reading_turn, most, purpose).for_group(group);
        self.read_on(id, reading);
    }

    /// A stream's reading stopped.
    pub(crate) fn stream_read(&mut self, id: RequestId, reading: Reading) {
        let now = self.core.now;
        let Some(stream) = self.streams.streams.get_mut(&id) else { return };
        if std::mem::take(&mut stream.again) {
            // Its share changed while it read: what it has collected may be somebody else's now.
            return self.stream_read_on(id);
        }
        if !reading.is_empty() {
            let Some((fetched, tiles)) = reading.into_fetched() else {
                return self.end_stream(id, Reason::InternalError);
            };
            stream.in_flight = stream.in_flight.saturating_add(fetched.count);
            stream.goes_on(Doing::Pushing, now);
            stream.pushed_at = Some(now);
            if let Some(at) = &mut stream.at {
                at.tiles = tiles;
            }
            self.core.out.push(Action::Push { stream: id, fetched });
            if self.core.config.has_bug(Bug::PushAhead) {
                self.pushed(id);
            }
            return;
        }
        // What cannot be reached may come back.
        if reading.failed().is_some_and(|error| error != fetch::Error::Unavailable) {
            return self.end_stream(id, Reason::Storage);
        }
        self.park_stream(id, Parked::AtEnd(reading));
    }

    fn park_stream(&mut self, id: RequestId, parked: Parked) {
        let Some(stream) = self.streams.streams.get(&id) else { return };
        let topic = stream.topic.clone();
        if self.waiters.has_room() {
            self.waiters.park(id, topic, NEVER, parked);
        } else {
            self.end_stream(id, Reason::Overloaded);
        }
    }

    /// The last push was written to the socket.
    pub(crate) fn pushed(&mut self, id: RequestId) {
        if self.streams.streams.get(&id).is_some_and(|stream| stream.doing == Doing::Pushing) {
            self.stream_read_on(id);
        }
    }

    /// Stores the positions of an acknowledgement, then returns its credit.
    pub(crate) fn stream_ack(&mut self, id: RequestId, request: &StreamAck) {
        let Some(open) = self.streams.of(id.connection) else {
            return self.core.reply(id, Reply::Failed(Reason::UnknownApiKey));
        };
        match self.take_ack(id, open, request) {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok(Proposed::Yes) => {
                self.streams.acks.insert(id, Ack { stream: open, count: request.count });
            }
            Ok(Proposed::Nothing) => self.credit(id, open, request.count),
        }
    }

    fn take_ack(&mut self, id: RequestId, open: RequestId, request: &StreamAck) -> Result<Proposed, Reason> {
        let stream = self.streams.streams.get(&open).ok_or(Reason::UnknownApiKey)?;
        let StreamAck { who, cursor, .. } = request;
        let member = stream.member.as_ref().map(MemberName::as_bytes);
        let same = possible(who.topic.as_deref().unwrap_or_default()) == &stream.topic[..]
            && who.group.as_deref() == Some(stream.group.as_bytes())
            && who.member.as_deref() == member;
        if !same {
            return Err(Reason::UnexpectedFrame);
        }
        if !self.may(&stream.session, Operation::Consume, &stream.topic) {
            let session_ended = Reason::PermissionDenied;
            self.end_stream(open, session_ended);
            return Err(session_ended);
        }
        let Some(at) = &stream.at else { return Ok(Proposed::Nothing) };
        let key = groups::Key { topic: at.topic, group: stream.group.clone() };
        if let Some(member) = stream.member.clone() {
            // It may have been taken for gone; then its share is a new one.
            self.attend(&key, &member).map_err(|groups::Full| Reason::Overloaded)?;
        }
        self.propose_positions(id, key, cursor.as_ref()).map_err(commit::Error::reason)
    }

    /// Metadata decided on positions; whether they came with an acknowledgement.
    pub(crate) fn stream_committed(&mut self, id: RequestId, result: Result<(), commit::Error>) -> bool {
        let Some(Ack { stream, count }) = self.streams.acks.remove(&id) else { return false };
        match result {
            Ok(()) => self.credit(id, stream, count),
            Err(error) => self.core.reply(id, Reply::Failed(error.reason())),
        }
        true
    }

    fn credit(&mut self, id: RequestId, open: RequestId, count: u32) {
        self.core.reply(id, Reply::Acked);
        let Some(stream) = self.streams.streams.get_mut(&open) else { return };
        stream.in_flight = stream.in_flight.saturating_sub(count);
        if stream.doing == Doing::Starved {
            self.stream_read_on(open);
        }
    }

    /// The shares of a group's members changed: what a stream keeps, it keeps its place in; what it gained
    /// begins at the committed positions.
    pub(crate) fn restream(&mut self, key: &groups::Key) {
        let concerned = |stream: &Stream| {
            stream.group == key.group
                && stream.member.is_some()
                && stream.at.as_ref().is_some_and(|at| at.topic == key.topic)
        };
        let ids: Vec<RequestId> =
            self.streams.streams.iter().filter(|(_, s)| concerned(s)).map(|(id, _)| *id).collect();
        for id in ids {
            let parked = self.waiters.take(id);
            let Some(stream) = self.streams.streams.get(&id) else { continue };
            let Some(at) = &stream.at else { continue };
            // What a waiting reading has stepped over counts as read.
            let stands = match &parked {
                Some(Parked::AtEnd(reading)) => reading.tiles(),
                Some(Parked::Unborn(..) | Parked::UnbornStream) | None => &at.tiles,
            };
            let at = self.stream_at(key, stream.member.as_ref(), stands);
            let Some(stream) = self.streams.streams.get_mut(&id) else { continue };
            stream.at = Some(at);
            match stream.doing {
                Doing::Reading if parked.is_some() => self.stream_read_on(id),
                Doing::Reading => stream.again = true,
                Doing::Pushing | Doing::Starved => {}
            }
        }
    }

    /// Ends the streams whose topic is gone.
    pub(crate) fn end_streams_of(&mut self, topic: TopicId) {
        let at = |stream: &Stream| stream.at.as_ref().is_some_and(|at| at.topic == topic);
        let ids: Vec<RequestId> =
            self.streams.streams.iter().filter(|(_, stream)| at(stream)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_stream(id, Reason::NoSuchTopic);
        }
    }

    /// Ends every stream.
    pub(crate) fn end_all_streams(&mut self, reason: Reason) {
        for id in self.streams.streams.keys().copied().collect::<Vec<_>>() {
            self.end_stream(id, reason);
        }
    }

    pub(crate) fn end_stream(&mut self, id: RequestId, reason: Reason) {
        self.drop_stream(id);
        self.core.out.push(Action::StreamEnded { stream: id, reason });
    }

    /// A connection closed: its stream ends, and its member leaves if nothing else reads as it.
    pub(crate) fn drop_stream_of(&mut self, connection: ConnectionId) {
        let kept = self.core.config.has_bug(Bug::KeepStreams);
        if let Some(id) = self.streams.of(connection).filter(|_| !kept) {
            self.drop_stream(id);
        }
    }

    fn drop_stream(&mut self, id: RequestId) {
        drop(self.waiters.take(id));
        let Some(stream) = self.streams.streams.remove(&id) else { return };
        self.streams.acks.retain(|_, ack| ack.stream != id);
        let Stream { at: Some(at), member: Some(member), group, .. } = stream else { return };
        let key = groups::Key { topic: at.topic, group };
        self.member_waited(&key, &member);
        self.leave_unless_waiting(&key, &member);
    }
}

/// A name that no topic can have waits under none.
fn possible(name: &[u8]) -> &[u8] {
    if TopicName::new(name).is_ok() { name } else { b"" }
}
