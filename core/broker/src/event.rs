//! All that can happen to a node.
//!
//! Owns the closed list of inputs and the words they are made of. Does not decode anything: requests come
//! decoded, bounded and checked from the edge, completions come from the disks.

use bytes::Bytes;
use storage::disk::Completion;
use types::WallTime;

use crate::auth::Session;

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
    /// A connection closed: its parked requests are dropped without a reply.
    Gone(ConnectionId),
    /// A disk finished a job.
    Disk(Volume, Completion),
    /// The instant asked for by [`Action::WakeAt`](crate::Action::WakeAt) has come. Harmless when it has not.
    Timer,
}

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
    /// Reads records.
    Fetch(Fetch),
    /// Stores a group's positions.
    Commit(Commit),
    /// A member leaves its group.
    LeaveGroup {
        /// Only for the permission.
        topic: Option<Bytes>,
    },
}

impl Request {
    /// Whether a later request of the same connection may start before this one is answered, provided that it
    /// is of this kind too.
    #[must_use]
    pub fn may_overlap(&self) -> bool {
        match self {
            Self::Produce(_) => true,
            Self::CreateTopic { .. } | Self::Fetch(_) | Self::Commit(_) | Self::LeaveGroup { .. } => false,
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
