//! What clients are answered.
//!
//! ```text
//! response body = correlation_id:u32 error_code:u16 payload        code 0 = ok, 1 = error
//! error payload = reason:str
//! ```
//!
//! A push on an open stream is the answer of a fetch, under the correlation id of the subscription.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::limits;
use types::record::{Record, Walk};

use crate::frame::PREFIX_BYTES;
use crate::request::decode_strings;
use crate::{ApiKey, Gather, Malformed, Reason, Str};

/// Bytes in front of every payload.
pub const ENVELOPE_BYTES: usize = 6;
/// Longest token taken for a reason this build does not know.
const UNKNOWN_TOKEN_BYTES_MAX: usize = 64;
/// Smallest item of a list of users: a null name and an empty list.
const USER_BYTES_MIN: usize = 1 + 4;
/// Smallest item of a list of rights: two nulls.
const GRANT_BYTES_MIN: usize = 2;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Done.
    Ok(Payload),
    /// Refused or failed.
    Error(Reason),
    /// The same, for a reason a later broker knows and this build does not: `[a-z0-9_]`, 1 to 64 bytes.
    UnknownError(Bytes),
}

/// What comes with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// The session's token, after authentication.
    Token(Bytes),
    /// Records stored.
    Stored(u32),
    /// Records read, or pushed.
    Page(Page),
    /// All users.
    Users(Vec<User>),
    /// A user's rights.
    Grants(Vec<Grant>),
}

/// Records read and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// How many records there are.
    pub count: u32,
    /// The records in wire encoding, in order: cut anywhere, back to back when joined. A decoded page has
    /// one slice, or none when it is empty.
    pub records: Vec<Bytes>,
    /// Where to go on; never null.
    pub next_cursor: Bytes,
}

/// A user as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub username: Str,
    /// What it may do.
    pub permissions: Vec<Str>,
}

/// A right as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The right.
    pub operation: Str,
    /// The topics it holds for.
    pub pattern: Str,
}

/// A response whose payload has not been read yet: what it holds depends on what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request it answers.
    pub correlation_id: u32,
    /// Whether the request succeeded.
    pub ok: bool,
    /// The rest.
    pub payload: Bytes,
}

impl Page {
    /// Bytes of all records.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }

    /// Decodes the records, sharing the page's bytes. For a page that was itself decoded.
    pub fn decode_records(&self) -> Result<Vec<Record>, Malformed> {
        let mut records = Vec::with_capacity(self.records_len() / limits::RECORD_BYTES_MIN);
        for slice in &self.records {
            let mut reader = Reader::new(slice.clone());
            while reader.remaining() > 0 {
                records.push(Record::decode(&mut reader)?);
            }
        }
        Ok(records)
    }

    fn decode(payload: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(payload.clone());
        let count = reader.count(limits::RECORD_BYTES_MIN)?;
        let rest = &payload[4..];
        let mut walk = Walk::new(rest);
        for _ in 0..count {
            walk.next().ok_or(Error::Short)??;
        }
        let records = reader.take(walk.position())?;
        let next_cursor = reader.opt_blob()?.ok_or(Error::Invalid("a null cursor"))?;
        reader.finish()?;
        let count = u32::try_from(count).expect("it was read from 32 bits");
        let records = if records.is_empty() { Vec::new() } else { vec![records] };
        Ok(Self { count, records, next_cursor })
    }
}

impl Reply {
    /// Takes the envelope off a frame's body.
    pub fn split(body: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let correlation_id = reader.u32()?;
        let ok = match reader.u16()? {
            0 => true,
            1 => false,
            _ => return Err(Error::Invalid("an error code").into()),
        };
        let payload = reader.take(reader.remaining())?;
        Ok(Self { correlation_id, ok, payload })
    }

    /// Decodes the payload as the answer to `api_key`, all of it.
    pub fn decode(self, api_key: ApiKey) -> Result<Response, Malformed> {
        if self.ok {
            Ok(Response::Ok(decode_payload(api_key, self.payload)?))
        } else {
            Ok(decode_error(self.payload)?)
        }
    }

    /// The reason, when it is an error; what an unsolicited frame holds.
    pub fn decode_error(self) -> Result<Response, Malformed> {
        if self.ok {
            return Err(Error::Invalid("an unasked success").into());
        }
        Ok(decode_error(self.payload)?)
    }
}

fn decode_error(payload: Bytes) -> Result<Response, Error> {
    let mut reader = Reader::new(payload);
    let token = reader.opt_blob()?.ok_or(Error::Invalid("a null reason"))?;
    reader.finish()?;
    if let Some(reason) = Reason::from_token(&token) {
        return Ok(Response::Error(reason));
    }
    let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    // Whoever logs or prints it must not have to think about what is inside.
    if token.is_empty() || token.len() > UNKNOWN_TOKEN_BYTES_MAX || !token.iter().all(allowed) {
        return Err(Error::Invalid("a reason"));
    }
    Ok(Response::UnknownError(token))
}

fn decode_payload(api_key: ApiKey, payload: Bytes) -> Result<Payload, Error> {
    let mut reader = Reader::new(payload.clone());
    let r = &mut reader;
    let decoded = match api_key {
        ApiKey::Fetch | ApiKey::Subscribe => return Page::decode(payload).map(Payload::Page),
        ApiKey::Auth | ApiKey::MtlsAuth | ApiKey::TokenAuth => {
            Payload::Token(r.opt_blob()?.ok_or(Error::Invalid("a null token"))?)
        }
        ApiKey::Produce => Payload::Stored(r.u32()?),
        ApiKey::ListUsers => {
            let mut users = Vec::new();
            for _ in 0..r.count(USER_BYTES_MIN)? {
                users.push(User { username: r.opt_blob()?, permissions: decode_strings(r)? });
            }
            Payload::Users(users)
        }
        ApiKey::ListAcls => {
            let mut grants = Vec::new();
            for _ in 0..r.count(GRANT_BYTES_MIN)? {
                grants.push(Grant { operation: r.opt_blob()?, pattern: r.opt_blob()? });
            }
            Payload::Grants(grants)
        }
        ApiKey::StreamAck => return Err(Error::Invalid("a success of an operation that has none")),
        ApiKey::CreateTopic
        | ApiKey::Commit
        | ApiKey::LeaveGroup
        | ApiKey::CreateUser
        | ApiKey::DeleteUser
        | ApiKey::ChangePassword
        | ApiKey::GrantAcl
        | ApiKey::RevokeAcl => Payload::Empty,
    };
    reader.finish()?;
    Ok(decoded)
}

impl Response {
    /// Puts the whole frame at the end of `out`, length prefix included; a page's records are linked, not
    /// copied.
    pub fn encode(&self, correlation_id: u32, out: &mut Gather) {
        match self {
            Self::Ok(Payload::Page(page)) => encode_page(page, correlation_id, out),
            Self::Ok(Payload::Empty) => whole(out, correlation_id, 0, |_| {}),
            Self::Ok(Payload::Token(token)) => {
                whole(out, correlation_id, 0, |fields| fields.put_opt_blob(Some(token)));
            }
            Self::Ok(Payload::Stored(count)) => {
                whole(out, correlation_id, 0, |fields| fields.put_u32(*count))
            }
            Self::Ok(Payload::Users(users)) => {
                whole(out, correlation_id, 0, |fields| encode_users(users, fields));
            }
            Self::Ok(Payload::Grants(grants)) => {
                whole(out, correlation_id, 0, |fields| encode_grants(grants, fields));
            }
            Self::Error(reason) => {
                whole(out, correlation_id, 1, |fields| fields.put_opt_blob(Some(reason.as_str().as_bytes())));
            }
            Self::UnknownError(token) => {
                whole(out, correlation_id, 1, |fields| fields.put_opt_blob(Some(token)));
            }
        }
    }
}

/// One frame without linked slices: its length is known once `payload` is written.
fn whole(out: &mut Gather, correlation_id: u32, error_code: u16, payload: impl FnOnce(&mut BytesMut)) {
    let fields = out.fields();
    let start = fields.len();
    fields.put_u32(0);
    fields.put_u32(correlation_id);
    fields.put_u16(error_code);
    payload(fields);
    let length = u32::try_from(fields.len() - start - PREFIX_BYTES).expect("responses stay below 4 GiB");
    fields[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
}

fn encode_page(page: &Page, correlation_id: u32, out: &mut Gather) {
    let length = ENVELOPE_BYTES + 4 + page.records_len() + 5 + page.next_cursor.len();
    let fields = out.fields();
    fields.put_count(length);
    fields.put_u32(correlation_id);
    fields.put_u16(0);
    fields.put_u32(page.count);
    for slice in &page.records {
        out.link(slice.clone());
    }
    out.fields().put_opt_blob(Some(&page.next_cursor));
}

fn encode_users(users: &[User], out: &mut BytesMut) {
    out.put_count(users.len());
    for user in users {
        out.put_opt_blob(user.username.as_deref());
        out.put_count(user.permissions.len());
        user.permissions.iter().for_each(|permission| out.put_opt_blob(permission.as_deref()));
    }
}

fn encode_grants(grants: &[Grant], out: &mut BytesMut) {
    out.put_count(grants.len());
    for grant in grants {
        out.put_opt_blob(grant.operation.as_deref());
        out.put_opt_blob(grant.pattern.as_deref());
    }
}
