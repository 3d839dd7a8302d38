//! What nodes say to each other once both are proved.
//!
//! Owns the messages, the number of each kind, and which stream each goes on by itself. What Raft, a command or a
//! request says is opaque: slices that pass through. Does not know of frames, calls or windows.

pub mod attend;
mod codec;
pub mod copy;
pub(crate) mod kind;
pub mod load;
pub mod part;

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};
use types::{ControlPlaneId, FenceToken, Incarnation, NodeId, RaftIndex, Term, VnodeId};

pub use kind::{Kind, Shape};

use crate::rope::Rope;
use crate::stream::{Class, StreamId};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Raft messages of any groups, in order; at least one.
    ///
    /// Those of one group keep their order among themselves; a batch of several groups (heartbeats) does not wait for
    /// a batch of one group (entries), nor the other way round.
    Raft(Vec<OfGroup>),
    /// A Raft message that is large, but no larger than bulk takes.
    RaftPart(OfGroup),
    /// What the sender is and has; sent once a connection is up and whenever it changes.
    Attributes(Attributes),
    /// A client's request for a node that can serve it.
    Forward(Forward),
    /// What became of it.
    ForwardReply(ForwardReply),
    /// Asks for what a vnode has applied, or applies before long.
    Follow(Follow),
    /// What it did.
    FollowReply(FollowReply),
    /// Asks the leader of a vnode to have a command agreed.
    Propose(Propose),
    /// What became of it.
    ProposeReply(ProposeReply),
    /// Asks the leader of a vnode how far a reader must have applied to be up to date.
    ReadIndex {
        /// Which one.
        vnode: VnodeId,
    },
    /// How far.
    ReadIndexReply(ReadIndexReply),
    /// Asks something of a copy that the receiver holds.
    Copy(copy::OfCopy),
    /// What became of it.
    CopyReply(copy::Reply),
    /// Asks the primary of a range to append records.
    Append(part::Append),
    /// What became of them.
    AppendReply(part::AppendReply),
    /// Asks the primary of a range how far readers may go.
    Watch(part::Watch),
    /// How far.
    WatchReply(part::WatchReply),
    /// Whoever has members of a group asks for their shares again.
    Assigned(attend::Assigned),
    /// Members of groups that the receiver coordinates; at least one.
    Attend(Vec<attend::Attends>),
    /// What they are to it, one by one.
    AttendReply(Vec<attend::Standing>),
    /// Asks the coordinator of a group to store a member's positions.
    CommitAs(attend::CommitAs),
    /// What became of them.
    CommitReply(attend::CommitReply),
    /// Asks the coordinator of a group for its members.
    Members(attend::Key),
    /// Who they are.
    MembersReply(attend::MembersReply),
    /// What ranges take whose metadata the receiver leads; at least one.
    Loads(Vec<load::Load>),
}

/// An encoded Raft message and the group it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfGroup {
    /// The group.
    pub vnode: VnodeId,
    /// The message.
    pub message: Bytes,
}

/// What a node is and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The cluster it belongs to by now.
    pub control_plane: Option<ControlPlaneId>,
    /// Its incarnation; what it said under a lower one is outdated.
    pub incarnation: Incarnation,
    /// Its name, printable.
    pub name: String,
    /// Where others reach it, as `host:port`.
    pub address: String,
    /// Placement attributes.
    pub attributes: BTreeMap<Bytes, Bytes>,
    /// Cluster flags its build can honour, in order.
    pub capabilities: Vec<Bytes>,
    /// Version of the newest ring it knows.
    pub ring_version: u64,
    /// Vnodes it leads, and in which term; in order of the vnodes.
    pub leads: BTreeMap<VnodeId, Term>,
}

/// A client's request on its way to a node that can serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The client's session on the node it is connected to; requests of one keep their order.
    pub session: u64,
    /// Whose session it is; empty for none.
    pub user: Bytes,
    /// Revision of the users and rights the sender judged it by: a receiver that is behind catches up first.
    pub revision: u64,
    /// The request.
    pub body: Bytes,
}

/// What became of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardReply {
    /// The answer for the client.
    Answer(Bytes),
    /// Nothing was done: the receiver does not serve it.
    NotServed {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
    /// Nothing was done: there is too much to do.
    Overloaded,
}

/// Asks for what a vnode applies. Whoever follows asks again and again; there is no more to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The vnode.
    pub vnode: VnodeId,
    /// First entry it has not applied.
    pub from: RaftIndex,
    /// The snapshot it is in the middle of: the last entry in it, and bytes that have arrived.
    pub part: Option<(RaftIndex, u64)>,
    /// How long to wait for something new, milliseconds.
    pub wait_ms: u32,
}

/// What a vnode applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowReply {
    /// From the index asked for, contiguous, each with the term of the leader that appended it; none when nothing was
    /// new for as long as the follower would wait.
    Entries(Vec<(Term, Bytes)>),
    /// Those are gone: a part of the state that stands in for them. Parts come in order and without gaps.
    Part {
        /// Last entry in the state.
        index: RaftIndex,
        /// Bytes of the whole state.
        total: u64,
        /// Where the part begins in it; the part ends at `total` at most.
        offset: u64,
        /// The part.
        bytes: Bytes,
    },
    /// The vnode is not here.
    NotHere {
        /// Who leads it, as far as is known.
        hint: Option<NodeId>,
    },
    /// There are too many followers.
    Overloaded,
}

/// A command for the leader of a vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propose {
    /// The vnode.
    pub vnode: VnodeId,
    /// The lease it is given under; refused when a later one was granted.
    pub fence: Option<FenceToken>,
    /// The command.
    pub command: Bytes,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposeReply {
    /// Agreed and applied.
    Applied {
        /// Where in the log.
        index: RaftIndex,
        /// What the machine answered.
        reply: Bytes,
    },
    /// Nothing was done: the receiver does not lead.
    NotLeader {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
    /// It may be applied, now or later, or never.
    Unknown,
    /// Nothing was done.
    Refused(ProposeRefusal),
}

/// Why a leader did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeRefusal {
    /// There is no such vnode here.
    NoVnode,
    /// There is too much to do.
    Overloaded,
    /// A later lease was granted.
    Fenced,
    /// It is larger than a command may be.
    TooLarge,
}

/// How far a reader must have applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadIndexReply {
    /// So far.
    Ready(RaftIndex),
    /// The receiver does not lead.
    NotLeader {
        /// Who does, as far as it knows.
        hint: Option<NodeId>,
    },
    /// There are too many readers, or no quorum answers.
    Overloaded,
}

impl Message {
    /// Whether the stream it goes on unless the sender says otherwise takes one of its size. What does not fit is never
    /// sent: whoever makes messages has to see to it that they do.
    #[must_use]
    pub fn fits(&self) -> bool {
        let mut bytes = Rope::new();
        self.encode(&mut bytes);
        bytes.remaining() <= self.stream().class().message_bytes_max()
    }

    /// The stream it goes on unless the sender says otherwise.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        let own = |vnode: VnodeId| StreamId::of(Class::Request, vnode.0);
        match self {
            Self::Raft(batch) => match batch.as_slice() {
                // Lane 0 is for batches of several groups, which are small.
                [first, rest @ ..] if rest.iter().all(|other| other.vnode == first.vnode) => {
                    let lanes = u64::from(types::limits::PEER_LANES_MAX) - 1;
                    StreamId::of(Class::Control, 1 + first.vnode.0 % lanes)
                }
                _ => StreamId::of(Class::Control, 0),
            },
            Self::Attributes(_) => StreamId::of(Class::Control, 0),
            Self::RaftPart(part) => StreamId::of(Class::Bulk, part.vnode.0),
            Self::Forward(forward) => StreamId::of(Class::Request, forward.session),
            Self::Follow(follow) => StreamId::of(Class::Bulk, follow.vnode.0),
            Self::Propose(propose) => own(propose.vnode),
            Self::ReadIndex { vnode } => own(*vnode),
            Self::Copy(of) => StreamId::of(if of.bulk { Class::Bulk } else { Class::Request }, of.lane()),
            Self::Append(append) => StreamId::of(Class::Request, part::lane(append.range)),
            Self::Watch(watch) => StreamId::of(Class::Request, part::lane(watch.segment.range)),
            Self::ForwardReply(_)
            | Self::FollowReply(_)
            | Self::ProposeReply(_)
            | Self::ReadIndexReply(_)
            | Self::CopyReply(_)
            | Self::AppendReply(_)
            | Self::WatchReply(_)
            // Who comes and goes must be heard in order.
            | Self::Assigned(_)
            | Self::Attend(_)
            | Self::AttendReply(_)
            | Self::CommitAs(_)
            | Self::CommitReply(_)
            | Self::Members(_)
            | Self::MembersReply(_)
            | Self::Loads(_) => StreamId::of(Class::Request, 0),
        }
    }
}
