//! Heartbeats of many groups between two nodes, and their answers, in one letter.
//!
//! A group in which nothing happens says nothing else, and there may be thousands of them: what is the same for all is
//! left out, and numbers are as short as they are small. What a group says while a read waits for it travels as any
//! other message.
//!
//! ```text
//!   4 count:n ( kind:u8 group:n from:n to:n term:n commit:n )*     kind 0 heartbeat, 1 reply; n is an LEB128 number
//! ```

use bytes::{BufMut, BytesMut};
use raft::{Body, Member, Message, ReplicaId};
use types::codec::{Error, Reader};
use types::{NodeId, RaftIndex, Term, VnodeId};

/// In one letter, so that it never is one of those that go where bulk goes.
pub(crate) const BEATS_MAX: usize = 1024;
/// Of the shortest one.
const BEAT_BYTES_MIN: usize = 6;
/// Of a number.
const NUMBER_BYTES_MAX: u32 = 10;

/// A leader's sign of life to one member, or the member's to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Of which group.
    pub group: VnodeId,
    /// Which replica says it. Its node is the one the letter comes from.
    pub from: ReplicaId,
    /// Which it is for.
    pub to: ReplicaId,
    /// The sender's term.
    pub term: Term,
    /// As in the message.
    pub commit: RaftIndex,
    /// Whether it answers one.
    pub is_reply: bool,
}

impl Beat {
    /// `None` when it is another message, or no read must wait for it.
    pub(crate) fn of(group: VnodeId, message: &Message) -> Option<Self> {
        let (commit, is_reply) = match message.body {
            Body::Heartbeat { commit, round: None } => (commit, false),
            Body::HeartbeatReply { commit, round: None } => (commit, true),
            Body::Heartbeat { .. }
            | Body::HeartbeatReply { .. }
            | Body::Vote { .. }
            | Body::VoteReply { .. }
            | Body::Append { .. }
            | Body::Appended { .. }
            | Body::Rejected { .. }
            | Body::Part { .. }
            | Body::PartReply { .. }
            | Body::TakeOver => return None,
        };
        let (from, to, term) = (message.from.replica, message.to, message.term);
        Some(Self { group, from, to, term, commit, is_reply })
    }

    /// What a node said by it.
    #[must_use]
    pub fn message(&self, node: NodeId) -> Message {
        let Self { from, to, term, commit, is_reply, .. } = *self;
        let body = if is_reply {
            Body::HeartbeatReply { commit, round: None }
        } else {
            Body::Heartbeat { commit, round: None }
        };
        Message { from: Member { replica: from, node }, to, term, body }
    }
}

pub(crate) fn encode(beats: &[Beat], out: &mut BytesMut) {
    put_number(out, beats.len() as u64);
    for beat in beats {
        out.put_u8(beat.is_reply.into());
        for number in [beat.group.0, beat.from.0, beat.to.0, beat.term.0, beat.commit.0] {
            put_number(out, number);
        }
    }
}

/// Reads all that is left.
pub(crate) fn decode(mut reader: Reader) -> Result<Vec<Beat>, Error> {
    let count = usize::try_from(number(&mut reader)?).unwrap_or(usize::MAX);
    if count > BEATS_MAX || count.saturating_mul(BEAT_BYTES_MIN) > reader.remaining() {
        return Err(Error::Invalid("a number of heartbeats"));
    }
    let mut beats = Vec::with_capacity(count);
    for _ in 0..count {
        let is_reply = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Error::Invalid("a heartbeat")),
        };
        let mut next = || number(&mut reader);
        let (group, from, to) = (VnodeId(next()?), ReplicaId(next()?), ReplicaId(next()?));
        let (term, commit) = (Term(next()?), RaftIndex(next()?));
        beats.push(Beat { group, from, to, term, commit, is_reply });
    }
    reader.finish()?;
    Ok(beats)
}

fn put_number(out: &mut BytesMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// In its one shortest form.
fn number(reader: &mut Reader) -> Result<u64, Error> {
    let mut number = 0;
    for at in 0..NUMBER_BYTES_MAX {
        let byte = reader.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << (7 * at) >> (7 * at) != bits || (byte == 0 && at > 0) {
            break;
        }
        number |= bits << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Error::Invalid("a number of a heartbeat"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn numbers_have_one_form_each() {
        for expected in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = BytesMut::new();
            put_number(&mut bytes, expected);
            let mut reader = Reader::new(bytes.freeze());
            assert_eq!(number(&mut reader), Ok(expected));
            reader.finish().unwrap();
        }
        let longer: [&'static [u8]; 4] = [
            &[0x80, 0],
            &[0xff, 0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x80; 11],
        ];
        for bytes in longer {
            assert!(number(&mut Reader::new(Bytes::from_static(bytes))).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn only_what_nobody_waits_for_is_put_together() {
        let from = Member { replica: ReplicaId(2), node: NodeId(7) };
        let of = |body| Message { from, to: ReplicaId(3), term: Term(4), body };
        let commit = RaftIndex(9);
        for body in [Body::Heartbeat { commit, round: None }, Body::HeartbeatReply { commit, round: None }] {
            let message = of(body);
            assert_eq!(Beat::of(VnodeId(5), &message).unwrap().message(NodeId(7)), message);
        }
        for body in [
            Body::Heartbeat { commit, round: Some(1) },
            Body::HeartbeatReply { commit, round: Some(1) },
            Body::TakeOver,
        ] {
            assert_eq!(Beat::of(VnodeId(5), &of(body)), None);
        }
    }
}
