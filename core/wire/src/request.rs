//! What clients ask, one variant for each operation.
//!
//! ```text
//! request body = api_key:u16 correlation_id:u32 payload
//! ```
//!
//! Decoding has two steps because the broker checks between them: the envelope says which operation it is
//! and whom to answer even when the payload turns out to be garbage. Does not judge values: a null topic or
//! an impossible name decodes, and is then simply a topic that does not exist.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::limits;
use types::record::{Record, Walk};

use crate::frame::PREFIX_BYTES;
use crate::{ApiKey, Malformed, Str};

/// Bytes in front of every payload.
pub const ENVELOPE_BYTES: usize = 6;

/// Most permissions in one list; there are three to name.
const PERMISSIONS_MAX: usize = 256;

/// What stands in front of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Number of the operation; not necessarily one there is, see [`ApiKey::from_number`].
    pub api_key: u16,
    /// Chosen by the client and echoed; any value.
    pub correlation_id: u32,
}

impl Envelope {
    /// Takes the envelope off a frame's body and leaves the payload; `None` when the body is too short.
    #[must_use]
    pub fn split(mut body: Bytes) -> Option<(Self, Bytes)> {
        if body.len() < ENVELOPE_BYTES {
            return None;
        }
        let envelope = Self { api_key: body.get_u16(), correlation_id: body.get_u32() };
        Some((envelope, body))
    }
}

/// A request. Byte strings are as they came: [`Str`] where null is possible, unchecked bytes inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Password authentication.
    Auth {
        /// Null is refused like a wrong one.
        username: Str,
        /// Null is refused like a wrong one.
        password: Str,
    },
    /// Makes a topic.
    CreateTopic {
        /// Its name.
        topic: Str,
        /// Width of its keyspace; 0 asks for the default.
        keyspace_bits: u8,
    },
    /// Appends records.
    Produce(Produce),
    /// Reads records.
    Fetch(Fetch),
    /// Stores a group's positions.
    Commit(Commit),
    /// Opens a push stream.
    Subscribe(Subscribe),
    /// Commits and returns credit on a push stream.
    StreamAck(StreamAck),
    /// Takes a member out of its group.
    LeaveGroup {
        /// The topic.
        topic: Str,
        /// The group.
        group: Str,
        /// The member.
        member: Str,
    },
    /// Makes a user.
    CreateUser {
        /// The name.
        username: Str,
        /// In clear.
        password: Str,
        /// What it may do.
        permissions: Vec<Str>,
    },
    /// Removes a user.
    DeleteUser {
        /// The name.
        username: Str,
    },
    /// Sets a user's password.
    ChangePassword {
        /// The name.
        username: Str,
        /// In clear.
        new_password: Str,
    },
    /// Lists users.
    ListUsers,
    /// Authentication by the connection's client certificate.
    MtlsAuth,
    /// Authentication by token.
    TokenAuth {
        /// The token.
        jwt: Str,
    },
    /// Gives a right.
    GrantAcl(Acl),
    /// Takes a right away.
    RevokeAcl(Acl),
    /// Lists a user's rights.
    ListAcls {
        /// The user.
        username: Str,
    },
}

/// Records for a topic, as one slice that is stored as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produce {
    /// The topic.
    pub topic: Str,
    /// Well-formed records in wire encoding, back to back.
    pub records: Bytes,
    /// How many there are.
    pub count: u32,
}

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

/// A push stream to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The topic.
    pub topic: Str,
    /// The group.
    pub group: Str,
    /// Whose share of the group to read.
    pub member: Str,
    /// Records that may be on their way unacknowledged; as sent.
    pub window: u32,
    /// Records in one push; as sent.
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

/// A right of a user on the topics a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// The user.
    pub username: Str,
    /// The right.
    pub operation: Str,
    /// The topics.
    pub pattern: Str,
}

impl Produce {
    /// The request for `records`. Panics above `u32::MAX` of them, which no frame holds.
    #[must_use]
    pub fn of(topic: &[u8], records: &[Record]) -> Self {
        let mut bytes = BytesMut::with_capacity(records.iter().map(Record::encoded_len).sum());
        records.iter().for_each(|record| record.encode(&mut bytes));
        let count = u32::try_from(records.len()).expect("a frame holds fewer records than 2^32");
        Self { topic: Some(Bytes::copy_from_slice(topic)), records: bytes.freeze(), count }
    }

    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let topic = reader.opt_blob()?;
        let count = reader.count(limits::RECORD_BYTES_MIN)?;
        let records = reader.take(reader.remaining())?;
        let mut walked = 0;
        for span in Walk::new(&records) {
            span?;
            walked += 1;
        }
        if walked != count {
            return Err(Error::Invalid("the number of records"));
        }
        let count = u32::try_from(count).expect("it was read from 32 bits");
        Ok(Self { topic, records, count })
    }
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
}

impl Acl {
    fn decode(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self { username: reader.opt_blob()?, operation: reader.opt_blob()?, pattern: reader.opt_blob()? })
    }
}

impl Request {
    /// Which operation it is.
    #[must_use]
    pub fn api_key(&self) -> ApiKey {
        match self {
            Self::Auth { .. } => ApiKey::Auth,
            Self::CreateTopic { .. } => ApiKey::CreateTopic,
            Self::Produce(_) => ApiKey::Produce,
            Self::Fetch(_) => ApiKey::Fetch,
            Self::Commit(_) => ApiKey::Commit,
            Self::Subscribe(_) => ApiKey::Subscribe,
            Self::StreamAck(_) => ApiKey::StreamAck,
            Self::LeaveGroup { .. } => ApiKey::LeaveGroup,
            Self::CreateUser { .. } => ApiKey::CreateUser,
            Self::DeleteUser { .. } => ApiKey::DeleteUser,
            Self::ChangePassword { .. } => ApiKey::ChangePassword,
            Self::ListUsers => ApiKey::ListUsers,
            Self::MtlsAuth => ApiKey::MtlsAuth,
            Self::TokenAuth { .. } => ApiKey::TokenAuth,
            Self::GrantAcl(_) => ApiKey::GrantAcl,
            Self::RevokeAcl(_) => ApiKey::RevokeAcl,
            Self::ListAcls { .. } => ApiKey::ListAcls,
        }
    }

    /// Decodes one operation's payload, all of it. `list_users` and `mtls_auth` ignore theirs.
    pub fn decode(api_key: ApiKey, payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let r = &mut reader;
        let request = match api_key {
            ApiKey::ListUsers => return Ok(Self::ListUsers),
            ApiKey::MtlsAuth => return Ok(Self::MtlsAuth),
            ApiKey::Auth => Self::Auth { username: r.opt_blob()?, password: r.opt_blob()? },
            ApiKey::CreateTopic => Self::CreateTopic { topic: r.opt_blob()?, keyspace_bits: r.u8()? },
            ApiKey::Produce => Self::Produce(Produce::decode(r)?),
            ApiKey::Fetch => Self::Fetch(Fetch {
                topic: r.opt_blob()?,
                cursor: r.opt_blob()?,
                group: r.opt_blob()?,
                member: r.opt_blob()?,
                max: r.u32()?,
                wait_ms: r.u32()?,
            }),
            ApiKey::Commit => {
                Self::Commit(Commit { topic: r.opt_blob()?, group: r.opt_blob()?, cursor: r.opt_blob()? })
            }
            ApiKey::Subscribe => Self::Subscribe(Subscribe {
                topic: r.opt_blob()?,
                group: r.opt_blob()?,
                member: r.opt_blob()?,
                window: r.u32()?,
                max: r.u32()?,
            }),
            ApiKey::StreamAck => Self::StreamAck(StreamAck {
                topic: r.opt_blob()?,
                group: r.opt_blob()?,
                member: r.opt_blob()?,
                cursor: r.opt_blob()?,
                count: r.u32()?,
            }),
            ApiKey::LeaveGroup => {
                Self::LeaveGroup { topic: r.opt_blob()?, group: r.opt_blob()?, member: r.opt_blob()? }
            }
            ApiKey::CreateUser => Self::CreateUser {
                username: r.opt_blob()?,
                password: r.opt_blob()?,
                permissions: decode_strings(r)?,
            },
            ApiKey::DeleteUser => Self::DeleteUser { username: r.opt_blob()? },
            ApiKey::ChangePassword => {
                Self::ChangePassword { username: r.opt_blob()?, new_password: r.opt_blob()? }
            }
            ApiKey::TokenAuth => Self::TokenAuth { jwt: r.opt_blob()? },
            ApiKey::GrantAcl => Self::GrantAcl(Acl::decode(r)?),
            ApiKey::RevokeAcl => Self::RevokeAcl(Acl::decode(r)?),
            ApiKey::ListAcls => Self::ListAcls { username: r.opt_blob()? },
        };
        reader.finish()?;
        Ok(request)
    }

    /// Appends the whole frame to `out`, length prefix included.
    pub fn encode(&self, correlation_id: u32, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        out.put_u16(self.api_key().number());
        out.put_u32(correlation_id);
        self.encode_payload(out);
        let length = u32::try_from(out.len() - start - PREFIX_BYTES).expect("frames are limited below 4 GiB");
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    fn encode_payload(&self, out: &mut BytesMut) {
        match self {
            Self::Auth { username, password } => put_strings(out, [username, password]),
            Self::CreateTopic { topic, keyspace_bits } => {
                put_strings(out, [topic]);
                out.put_u8(*keyspace_bits);
            }
            Self::Produce(Produce { topic, records, count }) => {
                put_strings(out, [topic]);
                out.put_u32(*count);
                out.extend_from_slice(records);
            }
            Self::Fetch(Fetch { topic, cursor, group, member, max, wait_ms }) => {
                put_strings(out, [topic, cursor, group, member]);
                out.put_u32(*max);
                out.put_u32(*wait_ms);
            }
            Self::Commit(Commit { topic, group, cursor }) => put_strings(out, [topic, group, cursor]),
            Self::Subscribe(Subscribe { topic, group, member, window, max }) => {
                put_strings(out, [topic, group, member]);
                out.put_u32(*window);
                out.put_u32(*max);
            }
            Self::StreamAck(StreamAck { topic, group, member, cursor, count }) => {
                put_strings(out, [topic, group, member, cursor]);
                out.put_u32(*count);
            }
            Self::LeaveGroup { topic, group, member } => put_strings(out, [topic, group, member]),
            Self::CreateUser { username, password, permissions } => {
                put_strings(out, [username, password]);
                out.put_count(permissions.len());
                put_strings(out, permissions);
            }
            Self::ChangePassword { username, new_password } => put_strings(out, [username, new_password]),
            Self::ListUsers | Self::MtlsAuth => {}
            Self::TokenAuth { jwt } => put_strings(out, [jwt]),
            Self::GrantAcl(Acl { username, operation, pattern })
            | Self::RevokeAcl(Acl { username, operation, pattern }) => {
                put_strings(out, [username, operation, pattern]);
            }
            Self::DeleteUser { username } | Self::ListAcls { username } => put_strings(out, [username]),
        }
    }
}

fn put_strings<'a>(out: &mut BytesMut, strings: impl IntoIterator<Item = &'a Str>) {
    for string in strings {
        out.put_opt_blob(string.as_deref());
    }
}

/// `list<str>` of a user's permissions.
pub(crate) fn decode_strings(reader: &mut Reader) -> Result<Vec<Str>, Error> {
    let count = reader.count(1)?;
    // A counted byte becomes an item 32 times its size, so the count alone does not bound memory.
    if count > PERMISSIONS_MAX {
        return Err(Error::Invalid("a count"));
    }
    (0..count).map(|_| reader.opt_blob()).collect()
}
