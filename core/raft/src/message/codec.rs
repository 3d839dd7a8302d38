//! A message's bytes.
//!
//! ```text
//!   version:u8  from: replica:u64 node:u128  to: replica:u64  term:u64  kind:u8  fields
//! ```
//!
//! All integers big-endian. The group a message belongs to is the carrier's to say. A later version may only add
//! kinds: an unknown one is refused, and the carrier answers that politely.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{NodeId, RaftIndex, Term, limits};

use super::{Body, Message};
use crate::entry::Payload;
use crate::event::{Entry, EntryId, SnapshotMark};
use crate::members::{Member, ReplicaId};

const VERSION: u8 = 1;
/// Terms, indexes and numbers are below this, so that counting them up cannot overflow.
const COUNTER_MAX: u64 = 1 << 62;
/// Term and length of an entry.
const ENTRY_BYTES_MIN: usize = 8 + 4;

const VOTE: u8 = 1;
const VOTE_REPLY: u8 = 2;
const APPEND: u8 = 3;
const APPENDED: u8 = 4;
const REJECTED: u8 = 5;
const HEARTBEAT: u8 = 6;
const HEARTBEAT_REPLY: u8 = 7;
const PART: u8 = 8;
const PART_REPLY: u8 = 9;
const TAKE_OVER: u8 = 10;

impl Message {
    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(128);
        self.encode_to(&mut bytes);
        bytes.freeze()
    }

    /// Adds the message's bytes to others.
    pub fn encode_to(&self, bytes: &mut BytesMut) {
        bytes.put_u8(VERSION);
        bytes.put_u64(self.from.replica.0);
        bytes.put_u128(self.from.node.0);
        bytes.put_u64(self.to.0);
        bytes.put_u64(self.term.0);
        self.body.encode(bytes);
    }

    /// Reads a message, which takes all of `bytes`. What it gives is consistent in itself: entries are contiguous,
    /// of terms that do not go backwards and are not later than the message's, and say something that is known.
    pub fn decode(bytes: Bytes) -> Result<Self, Error> {
        if bytes.len() > limits::RAFT_MESSAGE_BYTES_MAX {
            return Err(Error::Invalid("a message's size"));
        }
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Error::Invalid("a message's version"));
        }
        let from = Member { replica: ReplicaId(positive(&mut reader)?), node: NodeId(reader.u128()?) };
        let to = ReplicaId(positive(&mut reader)?);
        let term = Term(positive(&mut reader)?);
        let body = Body::decode(&mut reader, term)?;
        reader.finish()?;
        Ok(Self { from, to, term, body })
    }
}

impl Body {
    fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Vote { pre, transfer, last, commit } => {
                bytes.put_u8(VOTE);
                bytes.put_bool(*pre);
                bytes.put_bool(*transfer);
                put_entry_id(bytes, *last);
                put_entry_id(bytes, *commit);
            }
            Self::VoteReply { pre, granted, commit } => {
                bytes.put_u8(VOTE_REPLY);
                bytes.put_bool(*pre);
                bytes.put_bool(*granted);
                put_entry_id(bytes, *commit);
            }
            Self::Append { previous, commit, entries } => {
                bytes.put_u8(APPEND);
                put_entry_id(bytes, *previous);
                bytes.put_u64(commit.0);
                bytes.put_count(entries.len());
                for entry in entries {
                    bytes.put_u64(entry.term.0);
                    bytes.put_blob(&entry.data);
                }
            }
            Self::Appended { index, commit } => {
                bytes.put_u8(APPENDED);
                bytes.put_u64(index.0);
                bytes.put_u64(commit.0);
            }
            Self::Rejected { index, hint, commit } => {
                bytes.put_u8(REJECTED);
                bytes.put_u64(index.0);
                put_entry_id(bytes, *hint);
                bytes.put_u64(commit.0);
            }
            Self::Heartbeat { commit, round } => {
                bytes.put_u8(HEARTBEAT);
                bytes.put_u64(commit.0);
                put_round(bytes, *round);
            }
            Self::HeartbeatReply { commit, round } => {
                bytes.put_u8(HEARTBEAT_REPLY);
                bytes.put_u64(commit.0);
                put_round(bytes, *round);
            }
            Self::Part { mark, total, offset, bytes: part } => {
                bytes.put_u8(PART);
                put_mark(bytes, *mark);
                bytes.put_u64(*total);
                bytes.put_u64(*offset);
                bytes.put_blob(part);
            }
            Self::PartReply { mark, received } => {
                bytes.put_u8(PART_REPLY);
                put_mark(bytes, *mark);
                bytes.put_u64(*received);
            }
            Self::TakeOver => bytes.put_u8(TAKE_OVER),
        }
    }

    fn decode(reader: &mut Reader, term: Term) -> Result<Self, Error> {
        Ok(match reader.u8()? {
            VOTE => Self::Vote {
                pre: reader.bool()?,
                transfer: reader.bool()?,
                last: entry_id(reader)?,
                commit: entry_id(reader)?,
            },
            VOTE_REPLY => {
                Self::VoteReply { pre: reader.bool()?, granted: reader.bool()?, commit: entry_id(reader)? }
            }
            APPEND => {
                let previous = entry_id(reader)?;
                let commit = index(reader)?;
                Self::Append { previous, commit, entries: entries(reader, previous, term)? }
            }
            APPENDED => Self::Appended { index: index(reader)?, commit: index(reader)? },
            REJECTED => {
                let at = index(reader)?;
                // A hint is only where to look next: any place will do.
                let hint = EntryId { index: index(reader)?, term: Term(counter(reader)?) };
                Self::Rejected { index: at, hint, commit: index(reader)? }
            }
            HEARTBEAT => Self::Heartbeat { commit: index(reader)?, round: round(reader)? },
            HEARTBEAT_REPLY => Self::HeartbeatReply { commit: index(reader)?, round: round(reader)? },
            PART => part(reader, term)?,
            PART_REPLY => Self::PartReply { mark: mark(reader)?, received: counter(reader)? },
            TAKE_OVER => Self::TakeOver,
            _ => return Err(Error::Invalid("a message's kind")),
        })
    }
}

fn entries(reader: &mut Reader, previous: EntryId, latest: Term) -> Result<Vec<Entry>, Error> {
    let count = reader.count(ENTRY_BYTES_MIN)?;
    let mut entries = Vec::with_capacity(count);
    let mut before = previous;
    for _ in 0..count {
        let id = EntryId { index: before.index.next(), term: Term(positive(reader)?) };
        let data = reader.blob()?;
        if id.term < before.term || id.term > latest {
            return Err(Error::Invalid("an entry's term"));
        }
        if data.len() > limits::RAFT_COMMAND_BYTES_MAX + 1 {
            return Err(Error::Invalid("an entry's size"));
        }
        // Only the group's first entry says who founded it.
        let is_founding = matches!(Payload::decode(data.clone())?, Payload::Founding(_));
        if is_founding != (id.index == RaftIndex(1)) {
            return Err(Error::Invalid("a founding entry"));
        }
        entries.push(Entry { index: id.index, term: id.term, data });
        before = id;
    }
    Ok(entries)
}

fn part(reader: &mut Reader, term: Term) -> Result<Body, Error> {
    let mark = mark(reader)?;
    let (total, offset, bytes) = (reader.u64()?, reader.u64()?, reader.blob()?);
    let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= total);
    if total > limits::RAFT_SNAPSHOT_BYTES_MAX as u64 || !fits || bytes.is_empty() {
        return Err(Error::Invalid("a part of a snapshot"));
    }
    if mark.index == RaftIndex::ZERO || mark.term == Term::ZERO || mark.term > term {
        return Err(Error::Invalid("a snapshot's place"));
    }
    Ok(Body::Part { mark, total, offset, bytes })
}

fn counter(reader: &mut Reader) -> Result<u64, Error> {
    let value = reader.u64()?;
    if value < COUNTER_MAX { Ok(value) } else { Err(Error::Invalid("a counter")) }
}

fn positive(reader: &mut Reader) -> Result<u64, Error> {
    let value = counter(reader)?;
    if value > 0 { Ok(value) } else { Err(Error::Invalid("a counter")) }
}

fn index(reader: &mut Reader) -> Result<RaftIndex, Error> {
    counter(reader).map(RaftIndex)
}

/// The place before the first entry has no term, every other has one.
fn entry_id(reader: &mut Reader) -> Result<EntryId, Error> {
    let id = EntryId { index: index(reader)?, term: Term(counter(reader)?) };
    let both = (id.index == RaftIndex::ZERO) == (id.term == Term::ZERO);
    if both { Ok(id) } else { Err(Error::Invalid("an entry's place")) }
}

fn mark(reader: &mut Reader) -> Result<SnapshotMark, Error> {
    let EntryId { index, term } = entry_id(reader)?;
    Ok(SnapshotMark { index, term })
}

fn round(reader: &mut Reader) -> Result<Option<u64>, Error> {
    if reader.bool()? { reader.u64().map(Some) } else { Ok(None) }
}

fn put_entry_id(bytes: &mut BytesMut, id: EntryId) {
    bytes.put_u64(id.index.0);
    bytes.put_u64(id.term.0);
}

fn put_mark(bytes: &mut BytesMut, mark: SnapshotMark) {
    bytes.put_u64(mark.index.0);
    bytes.put_u64(mark.term.0);
}

fn put_round(bytes: &mut BytesMut, round: Option<u64>) {
    bytes.put_bool(round.is_some());
    if let Some(round) = round {
        bytes.put_u64(round);
    }
}
