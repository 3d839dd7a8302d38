//! All that can happen to a node.
//!
//! Owns the closed list of inputs and the words they are made of. Does not decode anything: requests come
//! decoded, bounded and checked from the edge, completions come from the disks.

use std::sync::Arc;

use bytes::Bytes;
use storage::disk::Completion;
use types::{Incarnation, NodeId, Stamp, WallTime};

use crate::auth::{Permissions, Session};

/// One client connection; never reused within one process lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One request of one connection. Ordered by connection first, so that a connection's requests lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Whose request it is.
    pub connection: ConnectionId,
    /// Chosen by the edge; never reused on one connection. Not the client's correlation id, which may repeat.
    pub number: u64,
}

/// One of the node's data directories: each has a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Volume {
    /// Segment copies.
    Log,
    /// The Raft log and its snapshots.
    Raft,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The process started and the directories may be read. First event, exactly once.
    Start,
    /// What the wall clock says now. Delivered before whatever it should stamp; it may step back.
    Wall(WallTime),
    /// A client asks for something. Answered by exactly one [`Action::Reply`](crate::Action::Reply), unless the
    /// connection is [`Gone`](Event::Gone) first.
    Request {
        /// Echoed in the reply.
        id: RequestId,
        /// Who asks.
        session: Session,
        /// What for.
        request: Request,
    },
    /// Somebody wants to log in on a connection; answered by one [`Action::Reply`](crate::Action::Reply).
    Login {
        /// Echoed in the reply.
        id: RequestId,
        /// What is asked.
        login: Login,
    },
    /// The last push of a stream was handed to the socket: the next one may come.
    Pushed {
        /// The request that opened the stream.
        stream: RequestId,
    },
    /// A connection closed: its parked requests and its stream are dropped without a reply.
    Gone(ConnectionId),
    /// A disk finished a job.
    Disk(Volume, Completion),
    /// Something about another node.
    Peer(NodeId, PeerEvent),
    /// The process is about to end: what this node leads is handed over. Answered once by
    /// [`Action::Left`](crate::Action::Left), at once when there is nobody to hand anything to.
    Leave,
    /// The instant asked for by [`Action::WakeAt`](crate::Action::WakeAt) has come. Harmless when it has not.
    Timer,
}

/// What happened between this node and another. Whoever the other is, it has proven that it is so.
#[derive(Clone, Debug)]
pub enum PeerEvent {
    /// There is a connection now. What was asked over an earlier one is not answered any more.
    Up,
    /// There is none any more: what was asked and not answered failed.
    Down,
    /// It says something.
    Said(peer::Message),
    /// It asks something. Answered by one [`Action::Answer`](crate::Action::Answer).
    Asked {
        /// Echoed in the answer.
        call: CallId,
        /// What.
        message: peer::Message,
    },
    /// It answers.
    Answered {
        /// As in [`Action::Ask`](crate::Action::Ask).
        ask: AskId,
        /// What.
        message: peer::Message,
    },
    /// There is no answer and will be none; whether something was done is not known.
    Unanswered {
        /// As in [`Action::Ask`](crate::Action::Ask).
        ask: AskId,
    },
    /// What failure detection says of it. The slow way to hear of its end, and independent of connections.
    Seen {
        /// Of the life that is spoken of.
        incarnation: Incarnation,
        /// Whether it lives.
        status: membership::Status,
    },
}

/// Something another node asked; chosen by the edge, never reused in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Something this node asks another; never reused in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Makes a topic of one range.
    CreateTopic {
        /// Its name as sent; null is an invalid name.
        topic: Option<Bytes>,
        /// Width of its keyspace; 0 is the default.
        keyspace_bits: u8,
    },
    /// Appends records.
    Produce(Produce),
    /// A producer that is going to repeat itself asks for its name.
    NewProducer {
        /// Topic name as sent.
        topic: Option<Bytes>,
    },
    /// Reads records.
    Fetch(Fetch),
    /// Stores a group's positions.
    Commit(Commit),
    /// A member leaves its group.
    LeaveGroup(Membership),
    /// Opens a push stream. Accepted: [`Reply::Subscribed`](crate::Reply::Subscribed), then pushes.
    Subscribe(Subscribe),
    /// Commits and returns credit on the connection's stream.
    StreamAck(StreamAck),
    /// Describes, changes and removes topics and their ranges.
    Admin(Admin),
    /// Users and their rights; for administrators only.
    Users(Users),
    /// The nodes of the cluster and its ring; for administrators only.
    Cluster(OfCluster),
    /// Storage policies; for administrators only.
    Policies(Policies),
}

impl Request {
    /// Whether a later request of the same connection may start before this one is answered, provided that it
    /// is of this kind too.
    #[must_use]
    pub fn may_overlap(&self) -> bool {
        match self {
            Self::Produce(_) | Self::StreamAck(_) => true,
            Self::CreateTopic { .. }
            | Self::NewProducer { .. }
            | Self::Fetch(_)
            | Self::Commit(_)
            | Self::LeaveGroup(_)
            | Self::Subscribe(_)
            | Self::Admin(_)
            | Self::Users(_)
            | Self::Cluster(_)
            | Self::Policies(_) => false,
        }
    }
}

/// Records to append, walked and checksummed by the edge.
#[derive(Clone, Debug)]
pub struct Produce {
    /// Topic name as sent.
    pub topic: Option<Bytes>,
    /// Records in wire encoding, back to back: exactly `count` of them and nothing else.
    pub records: Bytes,
    /// Number of records; may be 0.
    pub count: u32,
    /// CRC-32 (IEEE) over `records`, with no seed.
    pub crc: u32,
    /// Which request of which producer it is, if that repeats itself; possible for so many records.
    pub stamp: Option<Stamp>,
}

/// Records to read.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Topic name as sent.
    pub topic: Option<Bytes>,
    /// Where to go on, as a client holds it.
    pub cursor: Option<Bytes>,
    /// Group whose positions count when there is no cursor.
    pub group: Option<Bytes>,
    /// Member of that group.
    pub member: Option<Bytes>,
    /// Most records; 0 is the default.
    pub max: u32,
    /// Longest time to wait for a first record, milliseconds.
    pub wait_ms: u32,
    /// What the records are answered as.
    pub form: Form,
}

/// How records are handed to a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As a list of records.
    #[default]
    Records,
    /// As runs of records with the append time and the checksum of each.
    Batches,
}

/// Positions to store.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Topic name as sent.
    pub topic: Option<Bytes>,
    /// The group.
    pub group: Option<Bytes>,
    /// The positions; null changes nothing.
    pub cursor: Option<Bytes>,
}

/// A member of a group on a topic.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Topic name as sent.
    pub topic: Option<Bytes>,
    /// The group.
    pub group: Option<Bytes>,
    /// The member.
    pub member: Option<Bytes>,
}

/// A push stream to open.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Whom it reads as; the member may be null.
    pub who: Membership,
    /// Most records on their way unacknowledged; 0 is the default.
    pub window: u32,
    /// Most records of one push; 0 is the default.
    pub max: u32,
}

/// Positions and credit of a push stream.
#[derive(Clone, Debug)]
pub struct StreamAck {
    /// Must be that of the stream.
    pub who: Membership,
    /// The positions; null commits nothing.
    pub cursor: Option<Bytes>,
    /// Credit returned, records.
    pub count: u32,
}

/// What people and programs ask about topics and ranges.
#[derive(Clone, Debug)]
pub enum Admin {
    /// The topics the session may use, in the byte order of names.
    ListTopics {
        /// Only names that start so; null is every name.
        prefix: Option<Bytes>,
        /// Only names after this one.
        after: Option<Bytes>,
        /// Most topics; 0 is the default.
        max: u32,
    },
    /// One topic and its ranges, in the order of their numbers.
    DescribeTopic {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// Only ranges with at least this number.
        from_range: u64,
        /// Most ranges; 0 is the default.
        max: u32,
    },
    /// Ends a topic for appends, for good.
    SealTopic {
        /// Topic name as sent.
        topic: Option<Bytes>,
    },
    /// Removes a topic and everything of it.
    DeleteTopic {
        /// Topic name as sent.
        topic: Option<Bytes>,
    },
    /// Splits a range at its middle.
    SplitRange {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// Number of the range.
        range: u64,
    },
    /// Merges two halves of one aligned block.
    MergeRanges {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// Number of one range.
        a: u64,
        /// Number of the other.
        b: u64,
    },
    /// A cursor at a time.
    SeekTime {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// First append time wanted, epoch milliseconds; 0 is the beginning, the largest value the end.
        at_ms: u64,
    },
    /// The groups with committed positions, in byte order.
    ListGroups {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// Only names after this one.
        after: Option<Bytes>,
        /// Most names; 0 is the default.
        max: u32,
    },
    /// Puts a group somewhere else.
    MoveGroup(wire::request::MoveGroup),
    /// Forgets a group and where it stands.
    DeleteGroup {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// The group.
        group: Option<Bytes>,
        /// Also while it has members.
        force: bool,
    },
    /// A group's members and how far it is behind.
    DescribeGroup {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// The group.
        group: Option<Bytes>,
    },
}

/// One step of a login. Passwords never come here: the edge verifies them against what it is given.
#[derive(Clone, Debug)]
pub enum Login {
    /// What the user's password is checked against: [`Reply::Credentials`](crate::Reply::Credentials).
    Credentials {
        /// As sent.
        username: Bytes,
        /// The client's address as text.
        address: Arc<str>,
    },
    /// The password was wrong, or there is no such user. Answered once the failure is counted durably.
    Failed {
        /// As sent.
        username: Bytes,
        /// The client's address as text.
        address: Arc<str>,
    },
    /// The identity is proven: [`Reply::Welcome`](crate::Reply::Welcome), or a refusal when the user is gone.
    Succeeded {
        /// As sent.
        username: Bytes,
        /// The client's address as text.
        address: Arc<str>,
        /// The user's revision when the credentials were given out.
        revision: u64,
    },
}

/// User administration. Passwords come as PHC strings, hashed by the edge.
#[derive(Clone, Debug)]
pub enum Users {
    /// Whether the session may administer users: [`Reply::Done`](crate::Reply::Done), or a refusal. Asked before
    /// a password is hashed, and before an undecodable request is told from a forbidden one.
    Check,
    /// Makes a user.
    Create {
        /// As sent.
        username: Bytes,
        /// PHC string.
        hash: Arc<str>,
        /// What it may do on every topic.
        permissions: Permissions,
    },
    /// Removes a user, its rights and its lockouts.
    Delete {
        /// As sent.
        username: Bytes,
    },
    /// Sets a user's password.
    ChangePassword {
        /// As sent.
        username: Bytes,
        /// PHC string.
        hash: Arc<str>,
    },
    /// Whether the session may look at the operator's surfaces: [`Reply::Done`](crate::Reply::Done), or a refusal.
    Look,
    /// Every user, in the order of names, when that fits a frame.
    List,
    /// The same with their roles.
    ListRoles,
    /// Some users with their roles, in the order of names.
    ListPage {
        /// Only names after this one.
        after: Option<Bytes>,
        /// Most users; 0 is the default.
        max: u32,
    },
    /// Gives a user a role, or takes it away.
    SetRole {
        /// As sent.
        username: Bytes,
        /// As sent; `None` takes it away.
        role: Option<Bytes>,
    },
    /// Gives a right.
    Grant(Right),
    /// Takes a right away.
    Revoke(Right),
    /// A user's rights.
    ListRights {
        /// As sent.
        username: Bytes,
    },
    /// Ends a lock.
    Unlock {
        /// As sent.
        username: Bytes,
        /// Only this address; all without.
        address: Option<Arc<str>>,
    },
}

/// Storage policies, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policies {
    /// Defines one, or puts another in its place.
    Define {
        /// As sent.
        name: Bytes,
        /// What it says.
        policy: metadata::cluster::Policy,
    },
    /// Removes one.
    Delete {
        /// As sent.
        name: Bytes,
        /// Although topics point at it: they keep everything then, up to a bound for just that case.
        force: bool,
    },
    /// Points a topic at one, or at none.
    Bind {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// As sent; `None` is none.
        name: Option<Bytes>,
    },
    /// What holds for a topic.
    Get {
        /// Topic name as sent.
        topic: Option<Bytes>,
    },
    /// Every one, in the order of names.
    List,
}

/// What administrators ask about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfCluster {
    /// How it is, and its nodes in the order of ids.
    Status {
        /// Only nodes after this one.
        after: Option<NodeId>,
        /// Most nodes; 0 is the default.
        max: u32,
    },
    /// Drains a node, takes that back, or removes it.
    ChangeNode {
        /// Which node.
        node: NodeId,
        /// What becomes of it.
        change: wire::request::NodeChange,
        /// Only say what would come of it.
        dry_run: bool,
    },
    /// The vnodes of the ring, in the order of tokens.
    Ring {
        /// Only tokens at least this one.
        from_token: u32,
        /// Most vnodes; 0 is the default.
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
    /// Puts one on, for good.
    EnableFlag {
        /// Its name.
        flag: wire::Str,
        /// Only say whether it would be.
        dry_run: bool,
    },
    /// A topic's segments and their copies, in the order of ranges and numbers.
    Segments {
        /// Topic name as sent.
        topic: Option<Bytes>,
        /// Only from this range and segment of it on, inclusive.
        from: (u64, u64),
        /// Most segments; 0 is the default.
        max: u32,
        /// How closely copies are looked at.
        depth: wire::request::Depth,
    },
    /// Why something does or does not move.
    Explain(wire::request::Subject),
}

/// A right of a user on the topics a pattern names. Not checked yet.
#[derive(Clone, Debug)]
pub struct Right {
    /// As sent.
    pub username: Bytes,
    /// As sent.
    pub operation: Bytes,
    /// As sent.
    pub pattern: Bytes,
}
