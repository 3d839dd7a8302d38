//! What clients ask, one variant for each operation.
//!
//! ```text
//! request body = api_key:u16 correlation_id:u32 payload
//! ```
//!
//! Decoding has two steps because the broker checks between them: the envelope says which operation it is
//! and whom to answer even when the payload turns out to be garbage. Does not judge values: a null topic or
//! an impossible name decodes, and is then simply a topic that does not exist.

mod cluster;
mod consume;
mod inspect;
mod produce;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{NodeId, limits};

pub use cluster::NodeChange;
pub(crate) use cluster::{node, opt_node, put_opt_node};
pub use consume::{Commit, Fetch, MoveGroup, StreamAck, Subscribe};
pub use inspect::{Depth, Subject};
pub use produce::{Produce, ProduceBatch, ProduceOnce, checksum};

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
    /// Says what the client is and asks what the broker is.
    Hello {
        /// Name and version, for logs.
        client: Str,
        /// What it understands, see [`crate::features`]; unknown bits are ignored.
        features: u64,
    },
    /// Gives a user its role in the console.
    SetRole {
        /// The user.
        username: Str,
        /// The role; null takes it away.
        role: Str,
    },
    /// Lists users with their roles.
    ListUsersV2,
    /// Defines a storage policy, or puts another in its place.
    DefinePolicy {
        /// Its name.
        name: Str,
        /// What it says, as JSON text. Not judged here.
        json: Bytes,
    },
    /// Removes a storage policy.
    DeletePolicy {
        /// Its name.
        name: Str,
        /// Although topics point at it.
        force: bool,
    },
    /// Points a topic at a storage policy.
    BindTopicPolicy {
        /// The topic.
        topic: Str,
        /// The policy; null is none.
        name: Str,
    },
    /// What holds for a topic, and where it comes from.
    GetPolicy {
        /// The topic.
        topic: Str,
    },
    /// Lists storage policies.
    ListPolicies,
    /// Lists topics in order of their names.
    ListTopics {
        /// Only names that begin with it; null for all.
        prefix: Str,
        /// Only names after it, so that a list goes on; null for all.
        after: Str,
        /// Topics wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// Describes a topic and its ranges in order of their numbers.
    DescribeTopic {
        /// The topic.
        topic: Str,
        /// First range number wanted, inclusive: 0, then one more than the last that came.
        from_range: u64,
        /// Ranges wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// Ends a topic for writers.
    SealTopic {
        /// The topic.
        topic: Str,
    },
    /// Removes a topic and all its records.
    DeleteTopic {
        /// The topic.
        topic: Str,
    },
    /// Replaces a range by its two halves.
    SplitRange {
        /// The topic.
        topic: Str,
        /// Number of the range.
        range: u64,
    },
    /// Replaces two buddies by one range.
    MergeRanges {
        /// The topic.
        topic: Str,
        /// Number of one.
        a: u64,
        /// Number of the other.
        b: u64,
    },
    /// Appends records that carry their own checksum.
    ProduceBatch(ProduceBatch),
    /// Reads records with the checksum of each run of them; fields as in [`Request::Fetch`].
    FetchBatches(Fetch),
    /// Asks for the cursor of a point in time.
    SeekTime {
        /// The topic.
        topic: Str,
        /// Append time, milliseconds since 1970: 0 is the beginning, `u64::MAX` the end.
        at_ms: u64,
    },
    /// Lists a topic's groups in order of their names.
    ListGroups {
        /// The topic.
        topic: Str,
        /// Only names after it; null for all.
        after: Str,
        /// Groups wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// Describes a group of a topic: its members and how far it is behind.
    DescribeGroup {
        /// The topic.
        topic: Str,
        /// The group.
        group: Str,
    },
    /// Puts a group of a topic somewhere else.
    MoveGroup(MoveGroup),
    /// Forgets a group of a topic and where it stands.
    DeleteGroup {
        /// The topic.
        topic: Str,
        /// The group.
        group: Str,
        /// Also while it has members.
        force: bool,
    },
    /// Ends a user's lockouts.
    UnlockUser {
        /// The user; does not have to exist.
        username: Str,
        /// Only of logins from there; null for all.
        address: Str,
    },
    /// Lists users with their roles, in order of their names.
    ListUsersPage {
        /// Only names after it; null for all.
        after: Str,
        /// Users wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// How the cluster is, and its nodes in the order of their ids.
    ClusterStatus {
        /// Only nodes after it; null for all.
        after: Option<NodeId>,
        /// Nodes wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// Changes how far a node belongs to the cluster.
    ChangeNode {
        /// Which node.
        node: NodeId,
        /// What becomes of it.
        change: NodeChange,
        /// Only say what would come of it.
        dry_run: bool,
    },
    /// Lists the vnodes of the ring in the order of their tokens.
    DescribeRing {
        /// First token wanted, inclusive: 0, then one more than the last that came.
        from_token: u32,
        /// Vnodes wanted; as sent, see [`list_max_effective`].
        max: u32,
    },
    /// Gives the ring another number of vnodes.
    Reshard {
        /// How many.
        to: u32,
        /// Only say what it takes.
        dry_run: bool,
    },
    /// Brings the members of vnodes to where they would be placed now.
    Rebalance {
        /// Only say what it takes.
        dry_run: bool,
    },
    /// Lists the switches of the cluster.
    ListFlags,
    /// Puts a switch of the cluster on, for good.
    EnableFlag {
        /// Its name.
        flag: Str,
        /// Only say whether it would be.
        dry_run: bool,
    },
    /// Lists a topic's segments in the order of their ranges and numbers, with their copies.
    ListSegments {
        /// The topic.
        topic: Str,
        /// First range number wanted, inclusive.
        from_range: u64,
        /// First segment number wanted of that range, inclusive.
        from_segment: u64,
        /// Segments wanted; as sent, see [`list_max_effective`].
        max: u32,
        /// How closely their copies are looked at.
        depth: Depth,
    },
    /// Asks why something does or does not move.
    Explain(Subject),
    /// Asks for a producer's name and the time, to stamp requests with.
    NewProducer {
        /// The topic it is going to produce to.
        topic: Str,
    },
    /// Appends records, unless a request with the same stamp has appended them.
    ProduceOnce(ProduceOnce),
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

/// Items to answer a list operation with.
#[must_use]
pub fn list_max_effective(max: u32) -> u32 {
    match max {
        0 => limits::LIST_ITEMS_DEFAULT,
        max => max.min(limits::LIST_ITEMS_MAX),
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
            Self::Hello { .. } => ApiKey::Hello,
            Self::SetRole { .. } => ApiKey::SetRole,
            Self::ListUsersV2 => ApiKey::ListUsersV2,
            Self::DefinePolicy { .. } => ApiKey::DefinePolicy,
            Self::DeletePolicy { .. } => ApiKey::DeletePolicy,
            Self::BindTopicPolicy { .. } => ApiKey::BindTopicPolicy,
            Self::GetPolicy { .. } => ApiKey::GetPolicy,
            Self::ListPolicies => ApiKey::ListPolicies,
            Self::ListTopics { .. } => ApiKey::ListTopics,
            Self::DescribeTopic { .. } => ApiKey::DescribeTopic,
            Self::SealTopic { .. } => ApiKey::SealTopic,
            Self::DeleteTopic { .. } => ApiKey::DeleteTopic,
            Self::SplitRange { .. } => ApiKey::SplitRange,
            Self::MergeRanges { .. } => ApiKey::MergeRanges,
            Self::ProduceBatch(_) => ApiKey::ProduceBatch,
            Self::FetchBatches(_) => ApiKey::FetchBatches,
            Self::SeekTime { .. } => ApiKey::SeekTime,
            Self::ListGroups { .. } => ApiKey::ListGroups,
            Self::DescribeGroup { .. } => ApiKey::DescribeGroup,
            Self::MoveGroup(_) => ApiKey::MoveGroup,
            Self::DeleteGroup { .. } => ApiKey::DeleteGroup,
            Self::UnlockUser { .. } => ApiKey::UnlockUser,
            Self::ListUsersPage { .. } => ApiKey::ListUsersPage,
            Self::ClusterStatus { .. } => ApiKey::ClusterStatus,
            Self::ChangeNode { .. } => ApiKey::ChangeNode,
            Self::DescribeRing { .. } => ApiKey::DescribeRing,
            Self::Reshard { .. } => ApiKey::Reshard,
            Self::Rebalance { .. } => ApiKey::Rebalance,
            Self::ListFlags => ApiKey::ListFlags,
            Self::EnableFlag { .. } => ApiKey::EnableFlag,
            Self::ListSegments { .. } => ApiKey::ListSegments,
            Self::Explain(_) => ApiKey::Explain,
            Self::NewProducer { .. } => ApiKey::NewProducer,
            Self::ProduceOnce(_) => ApiKey::ProduceOnce,
        }
    }

    /// Decodes one operation's payload, all of it. The lists of users and `mtls_auth` ignore theirs.
    pub fn decode(api_key: ApiKey, payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let r = &mut reader;
        let request = match api_key {
            ApiKey::ListUsers => return Ok(Self::ListUsers),
            ApiKey::ListUsersV2 => return Ok(Self::ListUsersV2),
            ApiKey::ListPolicies => return Ok(Self::ListPolicies),
            ApiKey::MtlsAuth => return Ok(Self::MtlsAuth),
            ApiKey::Auth => Self::Auth { username: r.opt_blob()?, password: r.opt_blob()? },
            ApiKey::CreateTopic => Self::CreateTopic { topic: r.opt_blob()?, keyspace_bits: r.u8()? },
            ApiKey::Produce => Self::Produce(Produce::decode(r)?),
            ApiKey::Fetch => Self::Fetch(Fetch::decode(r)?),
            ApiKey::Commit => Self::Commit(Commit::decode(r)?),
            ApiKey::Subscribe => Self::Subscribe(Subscribe::decode(r)?),
            ApiKey::StreamAck => Self::StreamAck(StreamAck::decode(r)?),
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
            ApiKey::Hello => Self::Hello { client: r.opt_blob()?, features: r.u64()? },
            ApiKey::SetRole => Self::SetRole { username: r.opt_blob()?, role: r.opt_blob()? },
            ApiKey::DefinePolicy => Self::DefinePolicy { name: r.opt_blob()?, json: r.blob()? },
            ApiKey::DeletePolicy => Self::DeletePolicy { name: r.opt_blob()?, force: r.bool()? },
            ApiKey::BindTopicPolicy => Self::BindTopicPolicy { topic: r.opt_blob()?, name: r.opt_blob()? },
            ApiKey::GetPolicy => Self::GetPolicy { topic: r.opt_blob()? },
            ApiKey::ListTopics => {
                Self::ListTopics { prefix: r.opt_blob()?, after: r.opt_blob()?, max: r.u32()? }
            }
            ApiKey::DescribeTopic => {
                Self::DescribeTopic { topic: r.opt_blob()?, from_range: r.u64()?, max: r.u32()? }
            }
            ApiKey::SealTopic => Self::SealTopic { topic: r.opt_blob()? },
            ApiKey::DeleteTopic => Self::DeleteTopic { topic: r.opt_blob()? },
            ApiKey::SplitRange => Self::SplitRange { topic: r.opt_blob()?, range: r.u64()? },
            ApiKey::MergeRanges => Self::MergeRanges { topic: r.opt_blob()?, a: r.u64()?, b: r.u64()? },
            ApiKey::ProduceBatch => Self::ProduceBatch(ProduceBatch::decode(r)?),
            ApiKey::FetchBatches => Self::FetchBatches(Fetch::decode(r)?),
            ApiKey::SeekTime => Self::SeekTime { topic: r.opt_blob()?, at_ms: r.u64()? },
            ApiKey::ListGroups => {
                Self::ListGroups { topic: r.opt_blob()?, after: r.opt_blob()?, max: r.u32()? }
            }
            ApiKey::DescribeGroup => Self::DescribeGroup { topic: r.opt_blob()?, group: r.opt_blob()? },
            ApiKey::MoveGroup => Self::MoveGroup(MoveGroup::decode(r)?),
            ApiKey::DeleteGroup => {
                Self::DeleteGroup { topic: r.opt_blob()?, group: r.opt_blob()?, force: r.bool()? }
            }
            ApiKey::UnlockUser => Self::UnlockUser { username: r.opt_blob()?, address: r.opt_blob()? },
            ApiKey::ListUsersPage => Self::ListUsersPage { after: r.opt_blob()?, max: r.u32()? },
            ApiKey::ClusterStatus => Self::ClusterStatus { after: opt_node(r)?, max: r.u32()? },
            ApiKey::ChangeNode => {
                Self::ChangeNode { node: node(r)?, change: NodeChange::decode(r)?, dry_run: r.bool()? }
            }
            ApiKey::DescribeRing => Self::DescribeRing { from_token: r.u32()?, max: r.u32()? },
            ApiKey::Reshard => Self::Reshard { to: r.u32()?, dry_run: r.bool()? },
            ApiKey::Rebalance => Self::Rebalance { dry_run: r.bool()? },
            ApiKey::ListFlags => Self::ListFlags,
            ApiKey::EnableFlag => Self::EnableFlag { flag: r.opt_blob()?, dry_run: r.bool()? },
            ApiKey::ListSegments => Self::ListSegments {
                topic: r.opt_blob()?,
                from_range: r.u64()?,
                from_segment: r.u64()?,
                max: r.u32()?,
                depth: Depth::decode(r)?,
            },
            ApiKey::Explain => Self::Explain(Subject::decode(r)?),
            ApiKey::NewProducer => Self::NewProducer { topic: r.opt_blob()? },
            ApiKey::ProduceOnce => Self::ProduceOnce(ProduceOnce::decode(r)?),
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
            Self::Produce(produce) => produce.encode(out),
            Self::ProduceBatch(batch) => batch.encode(out),
            Self::Fetch(fetch) | Self::FetchBatches(fetch) => fetch.encode(out),
            Self::Commit(commit) => commit.encode(out),
            Self::Subscribe(subscribe) => subscribe.encode(out),
            Self::StreamAck(ack) => ack.encode(out),
            Self::LeaveGroup { topic, group, member } => put_strings(out, [topic, group, member]),
            Self::CreateUser { username, password, permissions } => {
                put_strings(out, [username, password]);
                out.put_count(permissions.len());
                put_strings(out, permissions);
            }
            Self::ChangePassword { username, new_password } => put_strings(out, [username, new_password]),
            Self::ListUsers | Self::ListUsersV2 | Self::ListPolicies | Self::MtlsAuth => {}
            Self::TokenAuth { jwt } => put_strings(out, [jwt]),
            Self::GrantAcl(Acl { username, operation, pattern })
            | Self::RevokeAcl(Acl { username, operation, pattern }) => {
                put_strings(out, [username, operation, pattern]);
            }
            Self::DeleteUser { username } | Self::ListAcls { username } => put_strings(out, [username]),
            Self::Hello { client, features } => {
                put_strings(out, [client]);
                out.put_u64(*features);
            }
            Self::SetRole { username, role } => put_strings(out, [username, role]),
            Self::DefinePolicy { name, json } => {
                put_strings(out, [name]);
                out.put_blob(json);
            }
            Self::DeletePolicy { name, force } => {
                put_strings(out, [name]);
                out.put_bool(*force);
            }
            Self::BindTopicPolicy { topic, name } => put_strings(out, [topic, name]),
            Self::GetPolicy { topic } => put_strings(out, [topic]),
            Self::ListTopics { prefix: first, after, max }
            | Self::ListGroups { topic: first, after, max } => {
                put_strings(out, [first, after]);
                out.put_u32(*max);
            }
            Self::DescribeTopic { topic, from_range, max } => {
                put_strings(out, [topic]);
                out.put_u64(*from_range);
                out.put_u32(*max);
            }
            Self::SealTopic { topic } | Self::DeleteTopic { topic } | Self::NewProducer { topic } => {
                put_strings(out, [topic]);
            }
            Self::SplitRange { topic, range: number } | Self::SeekTime { topic, at_ms: number } => {
                put_strings(out, [topic]);
                out.put_u64(*number);
            }
            Self::MergeRanges { topic, a, b } => {
                put_strings(out, [topic]);
                out.put_u64(*a);
                out.put_u64(*b);
            }
            Self::DescribeGroup { topic, group } => put_strings(out, [topic, group]),
            Self::MoveGroup(moves) => moves.encode(out),
            Self::DeleteGroup { topic, group, force } => {
                put_strings(out, [topic, group]);
                out.put_bool(*force);
            }
            Self::UnlockUser { username, address } => put_strings(out, [username, address]),
            Self::ListUsersPage { after, max } => {
                put_strings(out, [after]);
                out.put_u32(*max);
            }
            Self::ClusterStatus { after, max } => {
                put_opt_node(out, *after);
                out.put_u32(*max);
            }
            Self::ChangeNode { node, change, dry_run } => {
                out.put_u128(node.0);
                out.put_u8(change.number());
                out.put_bool(*dry_run);
            }
            Self::DescribeRing { from_token, max } => {
                out.put_u32(*from_token);
                out.put_u32(*max);
            }
            Self::Reshard { to, dry_run } => {
                out.put_u32(*to);
                out.put_bool(*dry_run);
            }
            Self::Rebalance { dry_run } => out.put_bool(*dry_run),
            Self::ListFlags => {}
            Self::EnableFlag { flag, dry_run } => {
                put_strings(out, [flag]);
                out.put_bool(*dry_run);
            }
            Self::ListSegments { topic, from_range, from_segment, max, depth } => {
                put_strings(out, [topic]);
                out.put_u64(*from_range);
                out.put_u64(*from_segment);
                out.put_u32(*max);
                out.put_u8(depth.number());
            }
            Self::Explain(subject) => subject.encode(out),
            Self::ProduceOnce(once) => once.encode(out),
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
