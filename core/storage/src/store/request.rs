//! What the broker may ask of a store, and what it gets back.

use types::{Epoch, Offset, SegmentId, WallTime};

use crate::disk::{self, Job};
use crate::format::batch::Batch;

/// Chosen by the caller, echoed in the one reply each request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a store can be asked to do with one segment copy.
///
/// Requests on one copy take effect in the order they were made. Each gets exactly one [`Reply`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Makes a new, empty copy that starts at `base`. Only after the registration of the segment committed.
    Create {
        /// Which segment.
        segment: SegmentId,
        /// Offset of its first record.
        base: Offset,
        /// Epoch given by the registration; appends below it are refused.
        epoch: Epoch,
        /// The copy is expected to fill (its range has just filled another): it gets a recycled file, whose
        /// blocks are written already, when there is one.
        expect_full: bool,
        /// It takes the place of a copy that may have acknowledged more than this one holds, so it is neither a
        /// source nor an answer until it was told to be whole ([`Request::Rebuilt`]) or is sealed. Recorded durably.
        /// A copy here whose `copy.meta` nobody can read is written over.
        rebuilding: bool,
    },
    /// Appends batches at exactly the copy's end, all of them or none, and makes them durable; answered by
    /// [`Reply::Appended`] once the sync that covers the last of them has completed. Should that fail, some of them
    /// may be durable.
    Append {
        /// Which segment.
        segment: SegmentId,
        /// Epoch the sender acts under.
        epoch: Epoch,
        /// At least one. The `base_offset` of the first must be the copy's end, that of each other the end of the one
        /// before.
        batches: Vec<Batch>,
    },
    /// Reads durable batches, the first of which holds `from`.
    Read {
        /// Which segment.
        segment: SegmentId,
        /// First offset wanted: `base <= from < end`.
        from: Offset,
        /// Stop before the batch that would pass this many bytes; at least one batch is returned.
        bytes_max: usize,
    },
    /// The offset of the first batch appended at or after a time.
    SeekTime {
        /// Which segment.
        segment: SegmentId,
        /// The time.
        at: WallTime,
    },
    /// Refuses every append under a lower epoch from now on, durably, and tells where the copy ends.
    Fence {
        /// Which segment.
        segment: SegmentId,
        /// The new epoch; a lower one than recorded is refused.
        epoch: Epoch,
    },
    /// Ends the copy for good at `end`, dropping what lies past it.
    Seal {
        /// Which segment.
        segment: SegmentId,
        /// Exclusive; a batch boundary at or below the copy's durable end.
        end: Offset,
        /// Recorded for people.
        at: WallTime,
    },
    /// Tells a copy that is being rebuilt that it holds everything that was ever acknowledged; recorded durably.
    /// Changes nothing about any other.
    Rebuilt {
        /// Which segment.
        segment: SegmentId,
    },
    /// Takes the copy out of service, durably.
    Latch {
        /// Which segment.
        segment: SegmentId,
        /// Why.
        reason: FailReason,
    },
    /// Checks every frame of the copy; changes nothing.
    Verify {
        /// Which segment.
        segment: SegmentId,
    },
    /// Removes the copy. Succeeds too when there is none.
    Delete {
        /// Which segment.
        segment: SegmentId,
    },
    /// Where the copy stands; recovers it first if it has not been looked at since the start.
    Inspect {
        /// Which segment.
        segment: SegmentId,
    },
}

impl Request {
    /// The segment it is about.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        match self {
            Self::Create { segment, .. }
            | Self::Append { segment, .. }
            | Self::Read { segment, .. }
            | Self::SeekTime { segment, .. }
            | Self::Fence { segment, .. }
            | Self::Seal { segment, .. }
            | Self::Rebuilt { segment }
            | Self::Latch { segment, .. }
            | Self::Verify { segment }
            | Self::Delete { segment }
            | Self::Inspect { segment } => *segment,
        }
    }

    /// Whether it may change what the copy takes or holds, so that it matters what was appended before.
    #[must_use]
    pub fn changes_copy(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Append { .. }
            | Self::Fence { .. }
            | Self::Seal { .. }
            | Self::Rebuilt { .. }
            | Self::Latch { .. }
            | Self::Delete { .. } => true,
            Self::Read { .. } | Self::SeekTime { .. } | Self::Verify { .. } | Self::Inspect { .. } => false,
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The copy exists durably and is empty.
    Created,
    /// Everything below `end` is durable on this copy.
    Appended {
        /// Exclusive.
        end: Offset,
    },
    /// Whole batches in order, at least one; the first holds the offset asked for.
    Read(Vec<Batch>),
    /// First offset appended at or after the time; the copy's end when there is none yet.
    Sought(Offset),
    /// The fence is durable; nothing below its epoch will be appended again.
    Fenced(Extent),
    /// The copy is sealed durably.
    Sealed(Extent),
    /// The copy is not being rebuilt, durably.
    Rebuilt(Extent),
    /// The copy is out of service.
    Latched,
    /// What verification found.
    Verified(Report),
    /// No copy is left.
    Deleted,
    /// Where the copy stands.
    Inspected(Extent),
    /// The request was refused or failed.
    Failed(Error),
}

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of its first record.
    pub base: Offset,
    /// Exclusive durable end.
    pub end: Offset,
    /// Bytes of log up to `end`.
    pub bytes: u64,
    /// Highest epoch it has durably accepted.
    pub epoch: Epoch,
    /// When the last batch was appended, or when the copy was sealed, which is not earlier; `None` when the log of a
    /// copy that is not sealed has not been looked at since the start.
    pub last_append: Option<WallTime>,
    /// It was made in the place of another, and may hold less than that one acknowledged.
    pub rebuilding: bool,
    /// Its state.
    pub state: State,
}

/// What there is of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is being made, and may come to nothing.
    Creating,
    /// It is there. Of an unsealed copy that has not been opened since the start, the extent's end is only what
    /// its `copy.meta` last recorded.
    Here(Extent),
    /// Its `copy.meta` could not be read yet; it is tried again.
    Unread,
    /// Its `copy.meta` is damaged or of a later format: it is left alone, and no request succeeds.
    Unreadable,
    /// It is being removed, or its removal began and failed; asking again goes on.
    Deleting,
}

/// What may be done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes appends.
    Active,
    /// Ended for good at its extent.
    Sealed,
    /// A write failed: takes no more appends in this process lifetime. What its extent covers is intact, can be
    /// read, and may be sealed.
    Stopped(FailReason),
    /// Out of service, durably: it is damaged, or was declared so. Its bytes are kept; what lies before the
    /// damage can be read, but it is no answer to anybody and cannot be sealed.
    Latched(FailReason),
}

/// Why a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailReason {
    /// The volume is full.
    Enospc,
    /// The device failed.
    Eio,
    /// The volume is read-only.
    Erofs,
    /// Damaged bytes, or anything else.
    Other,
}

/// What verification found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Records in intact frames before the first damage.
    pub records: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// The first damage, if any.
    pub damage: Option<Damage>,
}

/// Bytes that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte position in the copy's log file.
    pub position: u64,
    /// What the frame there should begin with.
    pub offset: Offset,
    /// What is wrong.
    pub class: DamageClass,
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DamageClass {
    /// No header of this segment begins there.
    Header,
    /// The header is intact, the payload is not.
    Payload,
    /// An intact frame that is not the next one.
    Order,
    /// The file ends inside the frame, or before it.
    Short,
    /// An intact frame of a later format, which this build must not guess about.
    Unsupported,
    /// `copy.meta` is missing or damaged.
    Meta,
}

/// Why a request failed, and with it what state was left behind: only [`Error::Storage`] after an append or
/// a seal leaves an unknown one (the bytes may be on disk), every other leaves the copy as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This node holds no copy of the segment.
    #[error("no copy of this segment")]
    NoSuchSegment,
    /// The copy exists already.
    #[error("the copy exists")]
    Exists,
    /// The copy ended for good.
    #[error("sealed at {end}")]
    Sealed {
        /// Exclusive.
        end: Offset,
    },
    /// The sender acts under an outdated epoch.
    #[error("fenced by epoch {epoch}")]
    Fenced {
        /// The epoch the copy has accepted.
        epoch: Epoch,
    },
    /// The batch does not start at the copy's end.
    #[error("out of sync: the copy ends at {end}")]
    OutOfSync {
        /// Where an append must start.
        end: Offset,
    },
    /// The offset lies below the copy's base.
    #[error("below the copy's base {base}")]
    OutOfRange {
        /// First offset held.
        base: Offset,
    },
    /// The offset lies at or past the copy's durable end.
    #[error("past the copy's end {end}")]
    EndOfData {
        /// Exclusive.
        end: Offset,
    },
    /// The seal's end is not a batch boundary of this copy, or lies past its durable end.
    #[error("cannot seal there: the copy ends at {end}")]
    CannotSeal {
        /// Exclusive durable end.
        end: Offset,
    },
    /// The bytes that hold the answer are damaged.
    #[error("damaged at position {}: {:?}", .0.position, .0.class)]
    Damaged(Damage),
    /// The copy is stopped or latched.
    #[error("out of service: {0:?}")]
    Latched(FailReason),
    /// A disk operation failed now.
    #[error("disk: {0}")]
    Storage(disk::Error),
    /// The store is still starting, or too much is waiting.
    #[error("overloaded")]
    Overloaded,
}

/// What the driver must do for the store.
#[derive(Clone, Debug)]
pub enum Action {
    /// Run a job; hand its completion to `Store::complete`.
    Disk(Job),
    /// Answer a request.
    Reply(RequestId, Reply),
    /// The store has read what the directory holds and takes requests.
    Started {
        /// Every copy it can vouch for.
        copies: usize,
        /// Names in the directory that no `copy.meta` explains; left alone.
        foreign: Vec<String>,
    },
    /// The directory could not be read.
    StartFailed(disk::Error),
    /// Something an operator would ask about.
    Notice(Notice),
}

/// Changes of state an operator would ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Recovery dropped a tail that was never acknowledged.
    TornTail {
        /// Which copy.
        segment: SegmentId,
        /// Where the log ends now.
        position: u64,
        /// Bytes dropped.
        bytes: u64,
    },
    /// A write failed: the copy takes no more appends until the process starts again.
    Stopped {
        /// Which copy.
        segment: SegmentId,
        /// Why.
        reason: FailReason,
        /// The cause, for people.
        detail: String,
    },
    /// A copy could not be opened; the next request tries again.
    OpenFailed {
        /// Which copy.
        segment: SegmentId,
        /// Why.
        reason: FailReason,
        /// The cause, for people.
        detail: String,
    },
    /// A copy went out of service.
    Latched {
        /// Which copy.
        segment: SegmentId,
        /// Why.
        reason: FailReason,
        /// The cause, for people.
        detail: String,
    },
    /// A directory bears the name of a copy, but its `copy.meta` is damaged or of a later format, or cannot be
    /// read: the copy is out of service and its bytes are left alone. Only in the last case is it read again.
    MetaUnreadable {
        /// Which copy.
        segment: SegmentId,
        /// What is wrong, for people.
        detail: String,
    },
    /// A `copy.meta` that could not be read before has been read: the copy is back.
    MetaRead {
        /// Which copy.
        segment: SegmentId,
    },
    /// The start removed directories that creations or removals had left half-made. Nobody was ever told of the
    /// copies they were for, or their removal was asked for.
    HalfMadeRemoved {
        /// How many.
        directories: usize,
    },
    /// An index file was not usable and is rebuilt from the log.
    IndexRebuilt {
        /// Which copy.
        segment: SegmentId,
    },
}
