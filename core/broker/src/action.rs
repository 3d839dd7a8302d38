//! All that a node can ask its driver to do.
//!
//! Owns the closed list of outputs. Does nothing itself: the driver performs the actions in order.

use bytes::Bytes;
use storage::disk::Job;
use storage::raft_log;
use storage::store;
use types::{Instant, Offset, RangeId, SegmentId};
use wire::Reason;

use crate::event::{RequestId, Volume};

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
    /// Run a job on one disk and bring its completion back as an event.
    Disk(Volume, Job),
    /// Send [`Event::Timer`](crate::Event::Timer) at this instant. Replaces what was asked for before.
    WakeAt(Instant),
    /// Everything was recovered: client requests are served from now on.
    Ready,
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
    /// Records, possibly none.
    Fetched(Fetched),
    /// The positions are stored durably.
    Committed,
    /// The member is gone, whether or not it was there.
    Left,
    /// Refused or failed; `Reason::effect` says what may have happened.
    Failed(Reason),
}

/// Records read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Records in all slices together.
    pub count: u32,
    /// Whole records in wire encoding, in order.
    pub records: Vec<Bytes>,
    /// Where to go on: an encoded [`types::cursor::Cursor`].
    pub cursor: Bytes,
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
    /// A segment takes records now.
    SegmentOpened {
        /// Which one.
        segment: SegmentId,
        /// Offset of its first record.
        base: Offset,
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
    /// The metadata log takes no more writes until the node is started again.
    MetadataStopped {
        /// What failed.
        detail: String,
    },
}
