//! What clients are answered.
//!
//! ```text
//! response body = correlation_id:u32 error_code:u16 payload        code 0 = ok, 1 = error
//! error payload = reason:str
//! ```
//!
//! A push on an open stream is the answer of a fetch, under the correlation id of the subscription.

mod batches;
mod cluster;
mod groups;
mod hello;
mod inspect;
mod page;
mod placement;
mod topics;
mod users;

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};

pub use batches::{Batch, BatchPage};
pub use cluster::{
    ClusterNode, ClusterStatus, GroupMember, NodeChanged, NodeHealth, NodeState, Resharding, RingPage,
    RingStep, VnodeInfo,
};
pub use groups::{GroupInfo, GroupNames, MemberInfo};
pub use hello::Hello;
pub use inspect::{CopyHealth, CopyInfo, Explanation, SegmentInfo, SegmentPage, Verdict};
pub use page::Page;
pub use placement::{Flag, FlagEnabled, Flags, Rebalancing, VnodeMove};
pub use topics::{RangeInfo, RangeState, TopicInfo, TopicState, TopicSummaries, TopicSummary};
pub use users::{Grant, User, UserPage, UserV2};

use crate::frame::PREFIX_BYTES;
use crate::{ApiKey, Gather, Malformed, Reason};

/// Bytes in front of every payload.
pub const ENVELOPE_BYTES: usize = 6;
/// Longest token taken for a reason this build does not know.
const UNKNOWN_TOKEN_BYTES_MAX: usize = 64;

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
    /// What the broker is.
    Hello(Hello),
    /// All users, with their roles.
    UsersV2(Vec<UserV2>),
    /// Some topics.
    Topics(TopicSummaries),
    /// A topic and some of its ranges.
    Topic(TopicInfo),
    /// Numbers of the two ranges a split made.
    Split {
        /// The lower half.
        left: u64,
        /// The upper half.
        right: u64,
    },
    /// Number of the range a merge made.
    Merged(u64),
    /// A group was put somewhere else, or would be.
    GroupMoved {
        /// Records it had not committed where it was; the most it can be.
        lag_before: u64,
        /// The same where it is now.
        lag_after: u64,
    },
    /// Records read, in runs with checksums.
    Batches(BatchPage),
    /// A place in a topic; never null.
    Cursor(Bytes),
    /// Some groups of a topic.
    Groups(GroupNames),
    /// A group.
    Group(GroupInfo),
    /// Addresses a user was locked out at, or on the way to it, and is not any more.
    Unlocked(u32),
    /// Some users, with their roles.
    UserPage(UserPage),
    /// JSON text about storage policies.
    Policies(Bytes),
    /// How the cluster is, and some of its nodes.
    ClusterStatus(ClusterStatus),
    /// What changing a node came to, or would come to.
    NodeChanged(NodeChanged),
    /// Some vnodes of the ring.
    Ring(RingPage),
    /// What another number of vnodes takes.
    Resharding(Resharding),
    /// What bringing the members of vnodes to their places takes.
    Rebalancing(Rebalancing),
    /// Switches of the cluster.
    Flags(Flags),
    /// What came of putting one on.
    FlagEnabled(FlagEnabled),
    /// Some segments and their copies.
    Segments(SegmentPage),
    /// Why something does or does not move.
    Explanation(Box<Explanation>),
    /// Who a producer is.
    Producer {
        /// Its name; not 0.
        id: u64,
        /// What time it is where its requests go, milliseconds since 1970.
        now_ms: u64,
    },
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
        ApiKey::Produce | ApiKey::ProduceBatch | ApiKey::ProduceOnce => Payload::Stored(r.u32()?),
        ApiKey::NewProducer => Payload::Producer { id: r.u64()?, now_ms: r.u64()? },
        ApiKey::ListUsers => Payload::Users(users::decode(r)?),
        ApiKey::ListUsersV2 => Payload::UsersV2(users::decode_v2(r)?),
        ApiKey::GetPolicy | ApiKey::ListPolicies => Payload::Policies(r.blob()?),
        ApiKey::ListAcls => Payload::Grants(users::decode_grants(r)?),
        ApiKey::Hello => Payload::Hello(Hello::decode(r)?),
        ApiKey::ListTopics => Payload::Topics(TopicSummaries::decode(r)?),
        ApiKey::DescribeTopic => Payload::Topic(TopicInfo::decode(r)?),
        ApiKey::SplitRange => Payload::Split { left: r.u64()?, right: r.u64()? },
        ApiKey::MergeRanges => Payload::Merged(r.u64()?),
        ApiKey::MoveGroup => Payload::GroupMoved { lag_before: r.u64()?, lag_after: r.u64()? },
        ApiKey::FetchBatches => Payload::Batches(BatchPage::decode(r)?),
        ApiKey::SeekTime => Payload::Cursor(r.opt_blob()?.ok_or(Error::Invalid("a null cursor"))?),
        ApiKey::ListGroups => Payload::Groups(GroupNames::decode(r)?),
        ApiKey::DescribeGroup => Payload::Group(GroupInfo::decode(r)?),
        ApiKey::UnlockUser => Payload::Unlocked(r.u32()?),
        ApiKey::ListUsersPage => Payload::UserPage(UserPage::decode(r)?),
        ApiKey::ClusterStatus => Payload::ClusterStatus(ClusterStatus::decode(r)?),
        ApiKey::ChangeNode => Payload::NodeChanged(NodeChanged::decode(r)?),
        ApiKey::DescribeRing => Payload::Ring(RingPage::decode(r)?),
        ApiKey::Reshard => Payload::Resharding(Resharding::decode(r)?),
        ApiKey::Rebalance => Payload::Rebalancing(Rebalancing::decode(r)?),
        ApiKey::ListFlags => Payload::Flags(Flags::decode(r)?),
        ApiKey::EnableFlag => Payload::FlagEnabled(FlagEnabled::decode(r)?),
        ApiKey::ListSegments => Payload::Segments(SegmentPage::decode(r)?),
        ApiKey::Explain => Payload::Explanation(Box::new(Explanation::decode(r)?)),
        ApiKey::StreamAck => return Err(Error::Invalid("a success of an operation that has none")),
        ApiKey::CreateTopic
        | ApiKey::Commit
        | ApiKey::LeaveGroup
        | ApiKey::CreateUser
        | ApiKey::DeleteUser
        | ApiKey::ChangePassword
        | ApiKey::GrantAcl
        | ApiKey::RevokeAcl
        | ApiKey::SetRole
        | ApiKey::DefinePolicy
        | ApiKey::DeletePolicy
        | ApiKey::BindTopicPolicy
        | ApiKey::DeleteGroup
        | ApiKey::SealTopic
        | ApiKey::DeleteTopic => Payload::Empty,
    };
    reader.finish()?;
    Ok(decoded)
}

impl Response {
    /// Puts the whole frame at the end of `out`, length prefix included; a page's records are linked, not
    /// copied.
    pub fn encode(&self, correlation_id: u32, out: &mut Gather) {
        match self {
            Self::Ok(Payload::Page(page)) => page.encode(correlation_id, out),
            Self::Ok(Payload::Batches(page)) => page.encode(correlation_id, out),
            Self::Ok(payload) => whole(out, correlation_id, 0, |fields| encode_payload(payload, fields)),
            Self::Error(reason) => {
                whole(out, correlation_id, 1, |fields| fields.put_opt_blob(Some(reason.as_str().as_bytes())));
            }
            Self::UnknownError(token) => {
                whole(out, correlation_id, 1, |fields| fields.put_opt_blob(Some(token)));
            }
        }
    }
}

fn encode_payload(payload: &Payload, fields: &mut BytesMut) {
    match payload {
        Payload::Empty => {}
        Payload::Token(bytes) | Payload::Cursor(bytes) => fields.put_opt_blob(Some(bytes)),
        Payload::Stored(count) | Payload::Unlocked(count) => fields.put_u32(*count),
        Payload::UserPage(page) => page.encode(fields),
        Payload::Policies(json) => fields.put_blob(json),
        Payload::ClusterStatus(status) => status.encode(fields),
        Payload::NodeChanged(changed) => changed.encode(fields),
        Payload::Ring(page) => page.encode(fields),
        Payload::Resharding(resharding) => resharding.encode(fields),
        Payload::Rebalancing(rebalancing) => rebalancing.encode(fields),
        Payload::Flags(flags) => flags.encode(fields),
        Payload::FlagEnabled(enabled) => enabled.encode(fields),
        Payload::Segments(page) => page.encode(fields),
        Payload::Explanation(explanation) => explanation.encode(fields),
        Payload::Users(users) => users::encode(users, fields),
        Payload::UsersV2(users) => users::encode_v2(users, fields),
        Payload::Grants(grants) => users::encode_grants(grants, fields),
        Payload::Hello(hello) => hello.encode(fields),
        Payload::Topics(topics) => topics.encode(fields),
        Payload::Topic(topic) => topic.encode(fields),
        Payload::Split { left, right } => {
            fields.put_u64(*left);
            fields.put_u64(*right);
        }
        Payload::Producer { id, now_ms } => {
            fields.put_u64(*id);
            fields.put_u64(*now_ms);
        }
        Payload::GroupMoved { lag_before, lag_after } => {
            fields.put_u64(*lag_before);
            fields.put_u64(*lag_after);
        }
        Payload::Merged(range) => fields.put_u64(*range),
        Payload::Groups(groups) => groups.encode(fields),
        Payload::Group(group) => group.encode(fields),
        Payload::Page(_) | Payload::Batches(_) => unreachable!("pages are linked, not written as fields"),
    }
}

/// Envelope of a success whose payload takes `payload_bytes`; the payload is put after it.
fn envelope(out: &mut Gather, correlation_id: u32, payload_bytes: usize) {
    let fields = out.fields();
    fields.put_count(ENVELOPE_BYTES + payload_bytes);
    fields.put_u32(correlation_id);
    fields.put_u16(0);
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
