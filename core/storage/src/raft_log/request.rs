//! What the broker may ask of a Raft log, and what it gets back.

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term, VnodeId};

use crate::disk::{self, Job};
use crate::store::RequestId;

/// Sizes, and what a log file is salted with.
#[derive(Clone, Debug)]
pub struct Config {
    /// A log file is made this large ahead of need, and left when the next flush does not fit any more.
    pub file_bytes: u64,
    /// Log files kept before idle groups are moved forward so that the oldest can go; at least 2.
    pub files_max: usize,
    /// Bytes of live state moved forward in one flush at most; one group is moved whatever it holds, so its
    /// owner keeps that small by taking snapshots (see [`GroupView::bytes`]).
    pub move_bytes_max: usize,
    /// Seeds the salts of new log files; drawn anew for each process.
    pub seed: u64,
    /// Bugs put back on purpose, to show that the simulator finds them.
    #[cfg(feature = "planted")]
    pub planted: Planted,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file_bytes: 16 * 1024 * 1024,
            files_max: 4,
            move_bytes_max: 1024 * 1024,
            seed: 0,
            #[cfg(feature = "planted")]
            planted: Planted::default(),
        }
    }
}

/// Bugs put back on purpose.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Flushes are reported without having been synced.
    pub skip_sync: bool,
    /// Recovery takes the first bad record for a torn tail, wherever it lies.
    pub truncate_at_first_bad: bool,
    /// A snapshot is recorded before its name is durable.
    pub skip_snapshot_dir_sync: bool,
    /// Recovery appends over a torn tail without zeroing it first.
    pub skip_zeroing: bool,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1.
    pub index: RaftIndex,
    /// Term of the leader that appended it.
    pub term: Term,
    /// What it says.
    pub data: Bytes,
}

/// What binds a member across restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term seen; never decreases.
    pub term: Term,
    /// Vote in that term; once given it stays until the term changes.
    pub voted_for: Option<NodeId>,
    /// Commit index known; a lower one than stored is ignored.
    pub commit: RaftIndex,
}

/// Where a snapshot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The last entry it covers; 0 when there is no snapshot.
    pub index: RaftIndex,
    /// That entry's term.
    pub term: Term,
}

/// One atomic change of a group: all of it is durable, or nothing. Applied in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Drops the entries at and after this index; above the commit index.
    pub truncate_from: Option<RaftIndex>,
    /// Contiguous. May start at or before the last index, above the commit index: what it overlaps and all
    /// after it is dropped first.
    pub entries: Vec<Entry>,
    /// Replaces the stored one.
    pub hard_state: Option<HardState>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The change is durable.
    Appended,
    /// The snapshot is durable and recorded; entries up to it are gone from the log.
    SnapshotSaved,
    /// The group's snapshot.
    Snapshot {
        /// What it covers.
        mark: SnapshotMark,
        /// As it was saved.
        data: Bytes,
    },
    /// The group is gone, durably.
    Forgotten,
    /// The request was refused or failed.
    Failed(Error),
}

/// Why a request failed. Only [`Error::Storage`] leaves it unknown whether the change will be found after a
/// restart; every other leaves the group as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The log has not been read yet.
    #[error("the log is not open")]
    NotStarted,
    /// The change does not follow from what is stored: a mistake of the caller.
    #[error("not a possible change: {0}")]
    Impossible(&'static str),
    /// Bytes of this group are damaged. It takes nothing but a forget.
    #[error("the group's log is damaged")]
    Damaged,
    /// The group is not known here.
    #[error("no such group")]
    NoSuchGroup,
    /// The group has no snapshot.
    #[error("no snapshot")]
    NoSnapshot,
    /// The group has a snapshot at or past this one, or another is being saved.
    #[error("a snapshot as late is stored or being saved")]
    Stale,
    /// A disk operation failed. After a failed write or sync of the log, or sync of its directory, nothing is written
    /// any more.
    #[error("disk: {0}")]
    Storage(disk::Error),
}

/// What the driver must do for the log.
#[derive(Clone, Debug)]
pub enum Action {
    /// Run a job; hand its completion to [`super::RaftLog::complete`].
    Disk(Job),
    /// Answer a request.
    Reply(RequestId, Reply),
    /// The log is open and takes requests; [`super::RaftLog::groups`] says what it holds.
    Started {
        /// Names in the directory that are not the log's; left alone.
        foreign: Vec<String>,
    },
    /// The log could not be opened; nothing was changed that matters.
    StartFailed(StartError),
    /// Something an operator would ask about.
    Notice(Notice),
}

/// Why a log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A disk operation failed.
    #[error("disk: {0}")]
    Disk(#[from] disk::Error),
    /// A later build wrote it.
    #[error("raft log version {0} is later than this build's")]
    LaterVersion(u8),
    /// There are snapshots and no log: somebody removed it, and with it votes and entries.
    #[error("the directory holds raft snapshots and no raft log")]
    LogMissing,
    /// Two log files have one number.
    #[error("two raft log files have the number {0}")]
    Ambiguous(u64),
}

/// Changes of state an operator would ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Recovery dropped a tail that was never acknowledged.
    TornTail {
        /// Log file.
        file: u64,
        /// Where the log ends now.
        position: u64,
    },
    /// Bytes that were once durable do not decode.
    Damage {
        /// Log file.
        file: u64,
        /// Where the damage begins.
        position: u64,
        /// Records lost there, when it can be told.
        records: Option<u64>,
    },
    /// A group cannot be vouched for; its bytes are kept until it is forgotten.
    GroupDamaged {
        /// Which group.
        group: VnodeId,
        /// For people.
        detail: String,
    },
    /// Records were lost that may have been of groups this log has no other trace of: a group that is not
    /// listed may be damaged rather than new.
    UnlistedGroupsPossible,
    /// The log failed; it takes no more changes until it is opened again.
    Failed {
        /// For people.
        detail: String,
    },
    /// The next file could not be made ahead of need: it is tried again, and until then the present one grows.
    SpareFailed {
        /// For people.
        detail: String,
    },
    /// A file that is not needed any more could not be removed; it is tried again at the next start.
    NotRemoved {
        /// For people.
        detail: String,
    },
}

/// What a log holds and is busy with, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Groups, the damaged ones included.
    pub groups: usize,
    /// Groups that cannot be vouched for.
    pub groups_damaged: usize,
    /// Bytes of entries after the snapshots, which are all in memory.
    pub entry_bytes: usize,
    /// Changes that wait for the flush under way.
    pub waiting: usize,
    /// Log files from the oldest that is needed to the one that takes records.
    pub files: usize,
    /// Files made ahead: 1, or 0 while it is being made.
    pub spare_files: usize,
    /// Snapshot files.
    pub snapshots: usize,
    /// A write failed: nothing is taken until the log is opened again.
    pub failed: bool,
}

/// Whether a group can be vouched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything that was acknowledged is there.
    Intact,
    /// Something that was acknowledged may be missing: the member must leave its group and come back new.
    Damaged,
}

/// Where a group stands, changes that are on their way to the disk included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Whether the rest can be relied on.
    pub status: Status,
    /// What binds the member.
    pub hard_state: HardState,
    /// Its snapshot; all zero when there is none.
    pub snapshot: SnapshotMark,
    /// Its last entry, or its snapshot when there is none after it.
    pub last: SnapshotMark,
    /// Bytes of the entries after the snapshot, which are all in memory: take a snapshot before it is much.
    pub bytes: usize,
}
