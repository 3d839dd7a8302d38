//! Old bugs that can be put back, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// An append is acknowledged after its write, without a sync.
    SkipSync,
    /// A replaced `copy.meta` and a new directory are not made durable by syncing their directories.
    SkipDirSync,
    /// An index entry is believed without looking at the frame it points at.
    TrustIndex,
    /// Recovery cuts the log at the first frame that does not decode, whatever stands behind it.
    TruncateRot,
    /// A restarted copy forgets the epoch it was fenced with.
    ForgetFence,
    /// A copy takes appends under an epoch below the one it was fenced with.
    AppendPastFence,
    /// A recycled file is used again as if its old frames were the new copy's.
    KeepNonce,
    /// A torn tail is dropped without being erased.
    KeepTornTail,
    /// A start believes names that only the page cache may know (found by seed 0 of the first run).
    AdoptUnsyncedNames,
    /// A fence or an idle record of a damaged copy lowers the evidence of its damage (seed 477). Shown by its story
    /// alone: since a damaged copy is latched by the same write, no reader and no start is misled by it any more.
    LowerEvidence,
    /// A file that could not be put aside for reuse counts as removed (seed 7060).
    ForgetFailedRename,
    /// Recycled files found at the start are used, although a crash may have left one under two names (seed 4417).
    ReuseFoundFiles,
    /// A search by time that an index entry leads past every frame answers "the end" (seed 6146).
    TrustTimeIndex,
    /// A start forgets what only the journal has.
    SkipReplay,
    /// A journal file is used again although copies still need what it holds.
    ReuseJournalEarly,
    /// Bad bytes before frames that the journal holds are taken for a torn tail (seed 2022117).
    DoubtJournal,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 16] = [
        Self::SkipSync,
        Self::SkipDirSync,
        Self::TrustIndex,
        Self::TruncateRot,
        Self::ForgetFence,
        Self::AppendPastFence,
        Self::KeepNonce,
        Self::KeepTornTail,
        Self::AdoptUnsyncedNames,
        Self::LowerEvidence,
        Self::ForgetFailedRename,
        Self::ReuseFoundFiles,
        Self::TrustTimeIndex,
        Self::SkipReplay,
        Self::ReuseJournalEarly,
        Self::DoubtJournal,
    ];
}
