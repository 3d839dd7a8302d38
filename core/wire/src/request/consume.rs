//! Reading, by request or by push: where to start, how much, and what has been read.

use bytes::{BufMut, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::limits;

use super::put_strings;
use crate::Str;

/// Where to read and how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// The topic.
    pub topic: Str,
    /// Where to go on; see the operation for what wins over what.
    pub cursor: Str,
    /// Whose committed positions to start from.
    pub group: Str,
    /// Whose share of the group to read.
    pub member: Str,
    /// Records wanted; as sent, see [`max_effective`](Self::max_effective).
    pub max: u32,
    /// Milliseconds to wait when there is nothing; as sent, see [`wait_ms_effective`](Self::wait_ms_effective).
    pub wait_ms: u32,
}

/// A group's positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The topic.
    pub topic: Str,
    /// The group.
    pub group: Str,
    /// The positions; null changes nothing.
    pub cursor: Str,
}

/// Where a group is to stand: where a cursor does, or where another group of the topic does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveGroup {
    /// The topic.
    pub topic: Str,
    /// The group.
    pub group: Str,
    /// Issued for the topic and not to a member; null when `like` is not.
    pub cursor: Str,
    /// Another group of the topic; null when `cursor` is not.
    pub like: Str,
    /// Also while the group has members, who go on where it is put.
    pub force: bool,
    /// Nothing is changed, and what would be is told.
    pub dry_run: bool,
}

/// A push stream to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The topic.
    pub topic: Str,
    /// The group.
    pub group: Str,
    /// Whose share of the group to read.
    pub member: Str,
    /// Records that may be on their way unacknowledged; as sent, see
    /// [`window_effective`](Self::window_effective).
    pub window: u32,
    /// Records in one push; as sent, see [`max_effective`](Self::max_effective).
    pub max: u32,
}

/// Credit and positions of a push stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAck {
    /// That of the subscription.
    pub topic: Str,
    /// That of the subscription.
    pub group: Str,
    /// That of the subscription.
    pub member: Str,
    /// The positions; null commits nothing.
    pub cursor: Str,
    /// Credit returned.
    pub count: u32,
}

impl Fetch {
    /// Most records to answer with.
    #[must_use]
    pub fn max_effective(&self) -> u32 {
        match self.max {
            0 => limits::FETCH_RECORDS_DEFAULT,
            max => max.min(limits::FETCH_RECORDS_MAX),
        }
    }

    /// Longest wait, milliseconds; 0 answers at once.
    #[must_use]
    pub fn wait_ms_effective(&self) -> u32 {
        self.wait_ms.min(limits::FETCH_WAIT_MS_MAX)
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            topic: r.opt_blob()?,
            cursor: r.opt_blob()?,
            group: r.opt_blob()?,
            member: r.opt_blob()?,
            max: r.u32()?,
            wait_ms: r.u32()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_strings(out, [&self.topic, &self.cursor, &self.group, &self.member]);
        out.put_u32(self.max);
        out.put_u32(self.wait_ms);
    }
}

impl Commit {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self { topic: r.opt_blob()?, group: r.opt_blob()?, cursor: r.opt_blob()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_strings(out, [&self.topic, &self.group, &self.cursor]);
    }
}

impl Subscribe {
    /// Records that may be on their way unacknowledged.
    #[must_use]
    pub fn window_effective(&self) -> u32 {
        match self.window {
            0 => limits::STREAM_WINDOW_DEFAULT,
            window => window.min(limits::STREAM_WINDOW_MAX),
        }
    }

    /// Most records of one push.
    #[must_use]
    pub fn max_effective(&self) -> u32 {
        match self.max {
            0 => limits::FETCH_RECORDS_DEFAULT,
            max => max.min(limits::FETCH_RECORDS_MAX),
        }
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            topic: r.opt_blob()?,
            group: r.opt_blob()?,
            member: r.opt_blob()?,
            window: r.u32()?,
            max: r.u32()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_strings(out, [&self.topic, &self.group, &self.member]);
        out.put_u32(self.window);
        out.put_u32(self.max);
    }
}

impl StreamAck {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            topic: r.opt_blob()?,
            group: r.opt_blob()?,
            member: r.opt_blob()?,
            cursor: r.opt_blob()?,
            count: r.u32()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_strings(out, [&self.topic, &self.group, &self.member, &self.cursor]);
        out.put_u32(self.count);
    }
}

impl MoveGroup {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self {
            topic: reader.opt_blob()?,
            group: reader.opt_blob()?,
            cursor: reader.opt_blob()?,
            like: reader.opt_blob()?,
            force: reader.bool()?,
            dry_run: reader.bool()?,
        })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_strings(out, [&self.topic, &self.group, &self.cursor, &self.like]);
        out.put_bool(self.force);
        out.put_bool(self.dry_run);
    }
}
