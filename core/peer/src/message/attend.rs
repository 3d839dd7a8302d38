//! What the node of a group's members and the coordinator of the group say to each other.
//!
//! Owns these words and their bytes. A cursor is opaque here.
//!
//! ```text
//! attend         = list<key member:name known:u64 idle_ms:u64 leaves:bool>                    at least one
//! attend_reply   = list<standing>                                       one for each that attended, in their order
//! standing       = 0 generation:u64 as_of:u64 list<range:u64> | 1 | 2 | 3 | 4 hint:opt<u128> | 5
//! assigned       = key generation:u64
//! commit_as      = key cursor:blob
//! commit_reply   = 0 as_of:u64 | 1 hint:opt<u128> | 2 refusal:u8 | 3
//! members        = key
//! members_reply  = 0 generation:u64 list<member:name ranges:u32 idle_ms:u64> | 1 hint:opt<u128>
//! key            = topic:u128 group:name
//! name           = blob
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error as Bad, Reader, Writer};
use types::{Generation, GroupName, MemberName, NodeId, RaftIndex, RangeSeq, TopicId, limits};

use super::codec::index;
use crate::hello::{opt_u128, put_opt_u128};
use crate::rope::Rope;

/// A group on one life of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The topic.
    pub topic: TopicId,
    /// The group.
    pub group: GroupName,
}

/// What a node says of one member that is connected to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attends {
    /// Its group.
    pub key: Key,
    /// Its name.
    pub member: MemberName,
    /// Of the assignment its node knows; 0 for none.
    pub known: Generation,
    /// How long ago it was last heard, milliseconds; 0 while it waits.
    pub idle_ms: u64,
    /// It is a member no longer.
    pub leaves: bool,
}

/// What the coordinator says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a member, and this is its share.
    Share {
        /// Of the assignment.
        generation: Generation,
        /// Entry of the vnode's log up to which the tables are that the share was worked out with: whoever reads by it
        /// has these, or later ones.
        as_of: RaftIndex,
        /// In ascending order.
        ranges: Vec<RangeSeq>,
    },
    /// The assignment is the one its node knows.
    Same,
    /// It is a member no longer.
    Gone,
    /// The group, or the coordinator, takes no more members.
    Full,
    /// The receiver does not coordinate groups on this topic.
    NotCoordinator {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
    /// It is a member; its share did not fit this answer: ask again.
    Again,
}

/// The assignment of a group is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The group.
    pub key: Key,
    /// Its assignment.
    pub generation: Generation,
}

/// Positions to be stored for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAs {
    /// Its group.
    pub key: Key,
    /// A cursor that was issued to it.
    pub cursor: Bytes,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitReply {
    /// They are stored, as far as they were the member's to move.
    Stored {
        /// Entry of the vnode's log up to which whoever reads them must be.
        as_of: RaftIndex,
    },
    /// Nothing was done: the receiver does not coordinate groups on this topic.
    NotCoordinator {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
    /// Nothing was stored.
    Refused(Refusal),
    /// They may be stored, now or later, or never.
    Unknown,
}

/// Why positions were not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The cursor was not issued for the topic.
    InvalidCursor,
    /// There is no such topic.
    NoSuchTopic,
    /// The topic has as many groups as it may have.
    TooManyGroups,
    /// There is too much to do.
    Overloaded,
    /// Nothing can be recorded at the moment.
    Unavailable,
    /// The topic is on its way to another vnode.
    Migrating,
}

/// Who the members of a group are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersReply {
    /// These.
    Members {
        /// Of the assignment.
        generation: Generation,
        /// In ascending order of their names.
        members: Vec<Member>,
    },
    /// The receiver does not coordinate groups on this topic.
    NotCoordinator {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: MemberName,
    /// Ranges it owns.
    pub ranges: u32,
    /// Since it was last heard, milliseconds.
    pub idle_ms: u64,
}

impl Key {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u128(self.topic.0);
        out.put_blob(self.group.as_bytes());
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let topic = TopicId(reader.u128()?);
        let group = GroupName::new(&reader.blob()?).map_err(|_| Bad::Invalid("a group's name"))?;
        Ok(Self { topic, group })
    }
}

fn member(reader: &mut Reader) -> Result<MemberName, Bad> {
    MemberName::new(&reader.blob()?).map_err(|_| Bad::Invalid("a member's name"))
}

pub(super) fn encode_attend(members: &[Attends], out: &mut BytesMut) {
    out.put_count(members.len());
    for attends in members {
        attends.key.encode(out);
        out.put_blob(attends.member.as_bytes());
        out.put_u64(attends.known.0);
        out.put_u64(attends.idle_ms);
        out.put_bool(attends.leaves);
    }
}

pub(super) fn read_attend(reader: &mut Reader) -> Result<Vec<Attends>, Bad> {
    let count = reader.count(16 + 4 + 4 + 8 + 8 + 1)?;
    if count == 0 || count > limits::ATTEND_MEMBERS_MAX {
        return Err(Bad::Invalid("a count of members"));
    }
    let attends = |_| {
        let (key, member) = (Key::read(reader)?, member(reader)?);
        let (known, idle_ms) = (Generation(reader.u64()?), reader.u64()?);
        Ok(Attends { key, member, known, idle_ms, leaves: reader.bool()? })
    };
    (0..count).map(attends).collect()
}

impl Standing {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Share { generation, as_of, ranges } => {
                out.put_u8(0);
                out.put_u64(generation.0);
                out.put_u64(as_of.0);
                out.put_count(ranges.len());
                ranges.iter().for_each(|range| out.put_u64(range.0));
            }
            Self::Same => out.put_u8(1),
            Self::Gone => out.put_u8(2),
            Self::Full => out.put_u8(3),
            Self::NotCoordinator { hint } => {
                out.put_u8(4);
                put_opt_u128(out, hint.map(|node| node.0));
            }
            Self::Again => out.put_u8(5),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => {
                let (generation, as_of) = (Generation(reader.u64()?), index(reader)?);
                let count = reader.count(8)?;
                if count > limits::ACTIVE_RANGES_PER_TOPIC_MAX {
                    return Err(Bad::Invalid("a count of ranges"));
                }
                let ranges: Vec<RangeSeq> =
                    (0..count).map(|_| reader.u64().map(RangeSeq)).collect::<Result<_, _>>()?;
                if !ranges.is_sorted_by(|one, next| one < next) {
                    return Err(Bad::Invalid("an order"));
                }
                Self::Share { generation, as_of, ranges }
            }
            1 => Self::Same,
            2 => Self::Gone,
            3 => Self::Full,
            4 => Self::NotCoordinator { hint: opt_u128(reader)?.map(NodeId) },
            5 => Self::Again,
            _ => return Err(Bad::Invalid("a standing")),
        })
    }
}

pub(super) fn encode_standings(standings: &[Standing], out: &mut BytesMut) {
    out.put_count(standings.len());
    standings.iter().for_each(|standing| standing.encode(out));
}

pub(super) fn read_standings(reader: &mut Reader) -> Result<Vec<Standing>, Bad> {
    let count = reader.count(1)?;
    if count > limits::ATTEND_MEMBERS_MAX {
        return Err(Bad::Invalid("a count of members"));
    }
    (0..count).map(|_| Standing::read(reader)).collect()
}

impl Assigned {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        self.key.encode(out);
        out.put_u64(self.generation.0);
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(Self { key: Key::read(reader)?, generation: Generation(reader.u64()?) })
    }
}

impl CommitAs {
    pub(super) fn encode(&self, out: &mut Rope) {
        self.key.encode(out.fields());
        out.fields().put_count(self.cursor.len());
        out.link(self.cursor.clone());
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        let (key, cursor) = (Key::read(reader)?, reader.blob()?);
        let fits = cursor.len() <= limits::CURSOR_BYTES_MAX;
        if fits { Ok(Self { key, cursor }) } else { Err(Bad::Invalid("the size of a cursor")) }
    }
}

impl CommitReply {
    pub(super) fn encode(self, out: &mut BytesMut) {
        match self {
            Self::Stored { as_of } => {
                out.put_u8(0);
                out.put_u64(as_of.0);
            }
            Self::NotCoordinator { hint } => {
                out.put_u8(1);
                put_opt_u128(out, hint.map(|node| node.0));
            }
            Self::Refused(refusal) => {
                out.put_u8(2);
                out.put_u8(match refusal {
                    Refusal::InvalidCursor => 0,
                    Refusal::NoSuchTopic => 1,
                    Refusal::TooManyGroups => 2,
                    Refusal::Overloaded => 3,
                    Refusal::Unavailable => 4,
                    Refusal::Migrating => 5,
                });
            }
            Self::Unknown => out.put_u8(3),
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        Ok(match reader.u8()? {
            0 => Self::Stored { as_of: index(reader)? },
            1 => Self::NotCoordinator { hint: opt_u128(reader)?.map(NodeId) },
            2 => Self::Refused(match reader.u8()? {
                0 => Refusal::InvalidCursor,
                1 => Refusal::NoSuchTopic,
                2 => Refusal::TooManyGroups,
                3 => Refusal::Overloaded,
                4 => Refusal::Unavailable,
                5 => Refusal::Migrating,
                _ => return Err(Bad::Invalid("a refusal")),
            }),
            3 => Self::Unknown,
            _ => return Err(Bad::Invalid("an outcome")),
        })
    }
}

impl MembersReply {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Members { generation, members } => {
                out.put_u8(0);
                out.put_u64(generation.0);
                out.put_count(members.len());
                for Member { name, ranges, idle_ms } in members {
                    out.put_blob(name.as_bytes());
                    out.put_u32(*ranges);
                    out.put_u64(*idle_ms);
                }
            }
            Self::NotCoordinator { hint } => {
                out.put_u8(1);
                put_opt_u128(out, hint.map(|node| node.0));
            }
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, Bad> {
        match reader.u8()? {
            0 => {
                let generation = Generation(reader.u64()?);
                let count = reader.count(4 + 4 + 8)?;
                if count > limits::MEMBERS_PER_GROUP_MAX {
                    return Err(Bad::Invalid("a count of members"));
                }
                let one =
                    |_| Ok(Member { name: member(reader)?, ranges: reader.u32()?, idle_ms: reader.u64()? });
                let members: Vec<Member> = (0..count).map(one).collect::<Result<_, Bad>>()?;
                if !members.is_sorted_by(|one, next| one.name < next.name) {
                    return Err(Bad::Invalid("an order"));
                }
                Ok(Self::Members { generation, members })
            }
            1 => Ok(Self::NotCoordinator { hint: opt_u128(reader)?.map(NodeId) }),
            _ => Err(Bad::Invalid("an outcome")),
        }
    }
}
