//! All that a node can ask its driver to do.
//!
//! Owns the closed list of outputs. Does nothing itself: the driver performs the actions in order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::disk::Job;
use storage::raft_log;
use storage::store;
use types::{Instant, NodeId, Offset, ProducerId, RangeId, SegmentId, WallTime};
use wire::Reason;

use crate::auth::{Permissions, Role, Session};

use crate::event::{AskId, CallId, ConnectionId, RequestId, Volume};
use crate::upkeep;

/// What the driver must do, in order.
pub type Actions = Vec<Action>;

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Action {
    /// Answer a client. The connection may be gone by then; dropping the reply is right.
    Reply {
        /// Whose request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// Give records to a stream, under the id of the request that opened it. There is one at a time: the next
    /// comes after [`Event::Pushed`](crate::Event::Pushed).
    Push {
        /// The request that opened the stream.
        stream: RequestId,
        /// At least one record.
        fetched: Fetched,
    },
    /// A stream is over: tell the client why and close its connection.
    StreamEnded {
        /// The request that opened the stream.
        stream: RequestId,
        /// Why.
        reason: Reason,
    },
    /// The user of this connection changed its own password on it: the connection goes on in this session, which
    /// is told before the reply and before the others are [`Revoked`](Action::Revoked).
    Renewed {
        /// Which one.
        connection: ConnectionId,
        /// From now on.
        session: Session,
    },
    /// Every connection of this user whose session has a lower revision must be closed.
    Revoked {
        /// Whose.
        user: Arc<str>,
        /// Sessions of this revision and later ones stay.
        revision: u64,
    },
    /// This user of [`Config::seed_users`](crate::Config::seed_users) did not exist and was made.
    Seeded {
        /// Its name.
        user: Arc<str>,
    },
    /// Tell another node something. Dropped when there is no connection.
    Say {
        /// Whom.
        to: NodeId,
        /// What.
        message: peer::Message,
    },
    /// Ask another node. Brings back exactly one [`PeerEvent::Answered`](crate::PeerEvent::Answered) or
    /// [`PeerEvent::Unanswered`](crate::PeerEvent::Unanswered), unless the connection is
    /// [`Down`](crate::PeerEvent::Down) first.
    Ask {
        /// Whom.
        to: NodeId,
        /// Echoed.
        ask: AskId,
        /// What.
        message: peer::Message,
        /// How long the answer may take.
        within: Duration,
    },
    /// Answer another node.
    Answer {
        /// Whom.
        to: NodeId,
        /// What it asked.
        call: CallId,
        /// The answer.
        message: peer::Message,
    },
    /// These are the other nodes of the cluster, and where they are: keep a connection to each.
    Peers(Vec<(NodeId, String)>),
    /// Run a job on one disk and bring its completion back as an event.
    Disk(Volume, Job),
    /// Send [`Event::Timer`](crate::Event::Timer) at this instant. Replaces what was asked for before.
    WakeAt(Instant),
    /// Everything was recovered: client requests are served from now on.
    Ready,
    /// Nothing that could be handed over is led here any more: the process may end.
    Left,
    /// Client requests are refused from now on, for the rest of this process lifetime; a [`Notice`] says why.
    Suspended,
    /// The node cannot serve what it found and must stop, changing nothing more.
    Stop(Stop),
    /// Something an operator would ask about.
    Notice(Notice),
}

/// The answer to a [`Request`](crate::Request).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The topic exists durably.
    Created,
    /// So many records are durable on a quorum.
    Stored(u32),
    /// Who a producer is, and what time it is for it.
    Producer {
        /// Its name.
        id: ProducerId,
        /// Later than all its topic holds, as far as is known.
        now: WallTime,
    },
    /// Records, possibly none.
    Fetched(Fetched),
    /// The positions are stored durably.
    Committed,
    /// The member is gone, whether or not it was there.
    Left,
    /// The stream is open; nothing is sent for it but pushes.
    Subscribed,
    /// The positions are stored and the credit counts; nothing is sent.
    Acked,
    /// The topic, range or user is as asked for; or the failure is counted.
    Done,
    /// Topics, and whether there are more.
    Topics(Vec<TopicSummary>, bool),
    /// A topic, some of its ranges, and whether there are more.
    Topic(TopicSummary, Vec<RangeInfo>, bool),
    /// The two halves, lower first.
    Split {
        /// Number of the lower half.
        left: u64,
        /// Number of the upper half.
        right: u64,
    },
    /// The range that took the place of two.
    Merged {
        /// Its number.
        child: u64,
    },
    /// An encoded cursor.
    Sought(Bytes),
    /// Names of groups, and whether there are more.
    Groups(Vec<Bytes>, bool),
    /// A group's members and lag.
    Group(GroupInfo),
    /// A group stands somewhere else, or would.
    GroupMoved {
        /// Records it had not committed where it was; the most it can be.
        lag_before: u64,
        /// The same where it is now.
        lag_after: u64,
    },
    /// What a password is to be checked against.
    Credentials(Credentials),
    /// Who logged in.
    Welcome(Session),
    /// Every user.
    Users(Vec<UserInfo>),
    /// Every user, with their roles.
    UsersAndRoles(Vec<UserInfo>),
    /// Some users with their roles, and whether there are more.
    UserPage(Vec<UserInfo>, bool),
    /// At how many addresses something was counted for the user, and is not any more.
    Unlocked(u32),
    /// Rights as (operation, pattern).
    Rights(Vec<(&'static str, String)>),
    /// What holds for a topic.
    Policy(Box<TopicPolicy>),
    /// Every storage policy, in the order of names.
    Policies(Vec<(String, metadata::cluster::Policy)>),
    /// How the cluster is, and some of its nodes. These six are for people alone, so they are the protocol's own.
    ClusterStatus(Box<wire::response::ClusterStatus>),
    /// What is on a node that was changed, or would be.
    NodeChanged(wire::response::NodeChanged),
    /// Some vnodes of the ring.
    Ring(wire::response::RingPage),
    /// What another number of vnodes takes.
    Resharding(wire::response::Resharding),
    /// What bringing the members of vnodes to their places takes.
    Rebalancing(wire::response::Rebalancing),
    /// Switches of the cluster.
    Flags(wire::response::Flags),
    /// What came of putting one on.
    FlagEnabled(wire::response::FlagEnabled),
    /// Some segments and their copies.
    Segments(wire::response::SegmentPage),
    /// Why something does or does not move.
    Explained(Box<wire::response::Explanation>),
    /// Refused or failed; `Reason::effect` says what may have happened.
    Failed(Reason),
}

/// Records read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Records in all runs together.
    pub count: u32,
    /// Runs of records in order.
    pub runs: Vec<Run>,
    /// Where to go on: an encoded [`types::cursor::Cursor`].
    pub cursor: Bytes,
}

/// Records that lie together in one stored batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whole records in wire encoding.
    pub records: Bytes,
    /// How many.
    pub count: u32,
    /// When they were appended.
    pub append_time: WallTime,
}

/// One topic, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    /// Its name.
    pub name: Bytes,
    /// Whether it takes no more records.
    pub sealed: bool,
    /// Width of its keyspace.
    pub keyspace_bits: u8,
    /// All ranges, replaced ones included.
    pub ranges: u32,
    /// Ranges that take records.
    pub active_ranges: u32,
    /// Segments of all ranges.
    pub segments: u32,
    /// Bytes of frames in sealed segments.
    pub bytes: u64,
    /// Groups with committed positions.
    pub groups: u32,
}

/// What may be done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    /// It takes records.
    Active,
    /// Its topic was sealed.
    Sealed,
    /// It was split or merged.
    Replaced,
}

/// One range, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    /// Its number.
    pub range: u64,
    /// What may be done with it.
    pub state: RangeState,
    /// First position of its slice.
    pub key_start: u64,
    /// One past the last.
    pub key_end: u64,
    /// The ranges it took the place of.
    pub parents: Vec<u64>,
    /// Its segments.
    pub segments: u32,
    /// Records stored, as far as this node knows.
    pub records: u64,
    /// Bytes of frames in sealed segments.
    pub bytes: u64,
}

/// A group on a topic, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Of the assignment; 0 without members.
    pub generation: u64,
    /// In byte order.
    pub members: Vec<MemberInfo>,
    /// Records behind the committed positions.
    pub lag: u64,
    /// Whether every record counted is the group's to read: ancestors read by slice count whole.
    pub lag_exact: bool,
}

/// A member of a group, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its name.
    pub name: Bytes,
    /// Ranges assigned to it.
    pub ranges: u32,
    /// Since it was last heard of, milliseconds.
    pub idle_ms: u64,
}

/// What a password is to be checked against.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// PHC string; `None` when there is no such user.
    pub hash: Option<Arc<str>>,
    /// Goes back with the success.
    pub revision: u64,
    /// Whether attempts from this address are refused for now.
    pub locked: bool,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { revision, locked, .. } = self;
        f.debug_struct("Credentials")
            .field("revision", revision)
            .field("locked", locked)
            .finish_non_exhaustive()
    }
}

/// A user, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// Its name.
    pub name: Arc<str>,
    /// What it may do on every topic.
    pub permissions: Permissions,
    /// What it may do on the operator's surfaces.
    pub role: Option<Role>,
}

/// What holds for a topic, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPolicy {
    /// The policy it points at.
    pub name: Option<String>,
    /// Whether that policy is defined.
    pub is_defined: bool,
    /// Sealed segments older than this go, milliseconds.
    pub age_ms_max: Effective<u64>,
    /// The oldest sealed segments of a range go while it holds more than this, bytes.
    pub bytes_max: Effective<u64>,
    /// The age at which sealed segments go that every group is past, milliseconds.
    pub read_age_ms_max: Effective<u64>,
    /// The age at which those go that some group is not past, milliseconds.
    pub unread_age_ms_max: Effective<u64>,
    /// Attribute in which the copies of a segment should differ.
    pub spread_by: Effective<Bytes>,
}

/// A setting as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective<T> {
    /// `None` when there is no such rule.
    pub value: Option<T>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a setting of a topic comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The topic's policy says it.
    Policy,
    /// It is what holds for every topic.
    Default,
    /// The topic points at a policy that is not defined.
    Undefined,
}

/// Why a node must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A directory could not be read.
    #[error("cannot read the {volume:?} directory: {detail}")]
    Unreadable {
        /// Which one.
        volume: Volume,
        /// What the disk said.
        detail: String,
    },
    /// The metadata log is damaged, so that what it says can not be trusted.
    #[error("the metadata log is damaged: {detail}")]
    Damaged {
        /// What is wrong with it.
        detail: String,
    },
    /// There are segment copies, but the metadata knows of nothing: it was lost, or belongs elsewhere.
    #[error("{copies} segment copies and no metadata that lists them")]
    Orphans {
        /// How many.
        copies: usize,
    },
    /// There are segment copies that were never registered, as far as the metadata tells: it is older than they are, and
    /// what else it lacks nobody can know.
    #[error(
        "{copies} segment copies were never registered in the metadata, which is older than they are: {names:?}"
    )]
    Outdated {
        /// How many.
        copies: usize,
        /// The first few.
        names: Vec<String>,
    },
    /// A switch of the cluster is on that this build cannot honour.
    #[error("the cluster's flag {flag} is on, and this build knows only {known:?}")]
    UnknownFlag {
        /// Which.
        flag: String,
        /// Those it can honour.
        known: Vec<String>,
    },
    /// A later build wrote what lies there.
    #[error("the {volume:?} directory is in a later format: {detail}")]
    LaterFormat {
        /// Which directory.
        volume: Volume,
        /// What was found.
        detail: String,
    },
}

/// Why a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It reached its size.
    Size,
    /// It was active in an earlier process lifetime.
    Restart,
    /// A request on it failed.
    Failure,
    /// It reached its age.
    Age,
    /// Its range was split or merged, or its topic sealed.
    Replaced,
    /// Other nodes are to hold what comes next.
    Moved,
    /// Its primary could not be reached.
    Lost,
}

/// Changes of state an operator would ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A topic was created.
    TopicCreated {
        /// Its name.
        topic: String,
        /// Its root range.
        range: RangeId,
    },
    /// A topic takes no more records.
    TopicSealed {
        /// Its name.
        topic: String,
    },
    /// A topic and everything of it is gone.
    TopicDeleted {
        /// Its name.
        topic: String,
        /// Segments whose copies go.
        segments: usize,
    },
    /// A range was split or merged.
    RangeReplaced {
        /// Which one.
        range: RangeId,
    },
    /// A segment takes records now.
    SegmentOpened {
        /// Which one.
        segment: SegmentId,
        /// Offset of its first record.
        base: Offset,
        /// How long the oldest request had to wait because the range's parents had to end first.
        paused: Option<Duration>,
    },
    /// A group's members or ranges changed.
    Assigned {
        /// The topic's name.
        topic: String,
        /// The group.
        group: Bytes,
        /// Of the new assignment.
        generation: u64,
        /// Members now.
        members: usize,
    },
    /// Too many logins failed: the user must wait at that address.
    AccountLocked {
        /// The name that was tried; nobody has to have it.
        user: Arc<str>,
        /// Where from.
        address: Arc<str>,
        /// Failures that count.
        failures: u32,
        /// When attempts are looked at again.
        until: WallTime,
    },
    /// Users could not be seeded.
    SeedFailed {
        /// Why.
        detail: String,
    },
    /// A segment ended for good.
    SegmentSealed {
        /// Which one.
        segment: SegmentId,
        /// Exclusive.
        end: Offset,
        /// Why.
        cause: Cause,
    },
    /// Ending a segment failed; it is tried again later and the range answers `storage` meanwhile.
    SegmentStuck {
        /// Which one.
        segment: SegmentId,
        /// What failed.
        detail: String,
    },
    /// This copy is damaged or its device failed: its range takes no more records.
    RangeStopped {
        /// Which one.
        range: RangeId,
        /// Why.
        detail: String,
    },
    /// The only copy of a segment is damaged: what lies behind its end and before the offset where its range goes on is
    /// lost, as far as it was there.
    RecordsLost {
        /// Which one.
        segment: SegmentId,
        /// End of what is intact, exclusive.
        end: Offset,
        /// Where the next segment begins.
        goes_on: Offset,
    },
    /// A segment that should be here is not; it is sealed empty, which is right only if it never took a record.
    SegmentMissing {
        /// Which one.
        segment: SegmentId,
    },
    /// Records could not be read.
    ReadFailed {
        /// From where.
        segment: SegmentId,
        /// First offset wanted.
        offset: Offset,
        /// What failed.
        detail: String,
    },
    /// The store has something to say.
    Store(store::Notice),
    /// The Raft log has something to say.
    RaftLog(raft_log::Notice),
    /// The store found names in its directory that it does not know; they are left alone.
    Foreign {
        /// How many.
        count: usize,
        /// The first few.
        names: Vec<String>,
    },
    /// The start found copies that nobody lists: a crash came between a removal's entry and the removal.
    OrphansFound {
        /// How many.
        copies: usize,
        /// The first few.
        names: Vec<String>,
        /// Whether they are removed.
        removing: bool,
    },
    /// Something of what is done without anybody asking.
    Upkeep(upkeep::Notice),
    /// Copies of other nodes, too, were looked after.
    Healing(crate::healing::Notice),
    /// A copy nobody lists could not be removed; it is tried again unless its `copy.meta` is not readable.
    CopyLeft {
        /// Which one.
        segment: SegmentId,
        /// What failed.
        detail: String,
    },
    /// A group of the metadata went on to a version this build does not have: the node serves nothing until a later
    /// build takes over.
    LeftBehind {
        /// Which one, for people.
        group: String,
        /// The version it runs at.
        version: u16,
        /// The latest this build has.
        build: u16,
    },
    /// What this node's replica of a group had stored is damaged or gone. It takes no part in the group any more, whose
    /// leader puts another replica in its place.
    ReplicaLost {
        /// The group's name, for people.
        group: String,
    },
    /// The metadata log takes no more writes until the node is started again.
    MetadataStopped {
        /// What failed.
        detail: String,
    },
    /// The cluster's list of nodes is at odds with what this node is; told when that is found, once.
    Unlisted(Unlisted),
}

/// How the cluster's list of nodes is at odds with what a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// The node was removed from the cluster, for good.
    Removed,
    /// Another node is listed under its name.
    NameTaken {
        /// Which.
        by: NodeId,
    },
    /// It is listed under the name it had at its first start.
    Renamed {
        /// That name.
        listed: String,
    },
}
