//! Settings of what is done without anybody asking: sealed segments expire, copies nobody lists go, copies are verified,
//! ranges are split and merged by what they take.

use std::time::Duration;

use types::{Offset, RangeId, SegmentId};

/// When sealed segments expire, where no policy says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Pause between two sweeps.
    pub every: Duration,
    /// Sealed segments older than this go, milliseconds; `None` never. Zero is a bound like any other.
    pub age_ms_max: Option<u64>,
    /// The oldest sealed segments of a range go while it holds more than this, bytes; `None` never.
    pub bytes_max: Option<u64>,
    /// Age bound of topics whose policy is not defined, milliseconds; `None`: nothing of theirs expires.
    pub unresolved_age_ms_max: Option<u64>,
    /// Skips remembered, so that each is counted once; at least 1.
    pub skips_max: usize,
    /// Time with at most one line about the skips of one reader.
    pub skip_line_every: Duration,
}

/// How careful the search for copies that nobody lists is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanSweep {
    /// Pause between two passes.
    pub every: Duration,
    /// For how long a copy must have been known to this process and unlisted.
    pub min_age: Duration,
    /// Passes in a row that must have found it unlisted; at least 1.
    pub sightings: u32,
    /// Removals asked for in one pass; at least 1.
    pub removals_max: usize,
    /// Copies looked at in one pass, those known longest first; at least 1.
    pub tracked_max: usize,
}

/// How sealed copies are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Pause between two passes; `None` when nothing is verified but what a failed read points at.
    pub every: Option<Duration>,
    /// Copies in one pass; at least 1.
    pub copies_per_pass: usize,
    /// Bytes read in a second, over time; at least 1.
    pub bytes_per_second: u64,
}

/// When ranges are split and merged by what they take and hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Whether that is done at all.
    pub on: bool,
    /// Pause between two reports of what ranges take.
    pub report_every: Duration,
    /// Pause between two looks at what was reported.
    pub every: Duration,
    /// A range that takes more is split, records in a second; at least 1.
    pub records_per_second: u64,
    /// The same in bytes of records.
    pub bytes_per_second: u64,
    /// A range that holds more is split, bytes; at least 1. Two that take or hold less than a quarter of these
    /// together are merged.
    pub held_bytes: u64,
    /// For how long it must go on until a range is split.
    pub split_after: Duration,
    /// For how long two must be quiet until they are merged; the halves of a range that a person split never are.
    pub merge_after: Duration,
    /// Ranges of one topic that take records at one time, beyond which none is split by itself.
    pub ranges_per_topic: usize,
    /// The same over all topics.
    pub ranges_in_cluster: usize,
}

/// Why a range that takes or holds too much is not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Most of what it takes has one key, or keys that lie together: a split would not part them.
    OneKey,
    /// Its slice is a single place.
    Narrow,
    /// Its topic has as many ranges as it may have without being asked for.
    Topic,
    /// The cluster has.
    Cluster,
    /// Its topic has had so many ranges that the rest is left to people.
    History,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::OneKey, Self::Narrow, Self::Topic, Self::Cluster, Self::History];

    /// For scripts and labels.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OneKey => "one_key",
            Self::Narrow => "single_place",
            Self::Topic => "topic_full",
            Self::Cluster => "cluster_full",
            Self::History => "topic_history",
        }
    }
}

/// Why the metadata did not forget a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It takes no writes about the topic now: the topic is on its way to another vnode, or nobody leads.
    Migrating,
    /// Anything else.
    Other,
}

/// What came of verifying a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// It is whole.
    Verified,
    /// It was not, and is now.
    Repaired,
    /// It is not, and another node has a copy.
    Damaged,
    /// It is not, and nobody else has one: nothing is deleted.
    Unrepairable,
    /// It could not be looked at now.
    Skipped,
}

/// Whether a reader that was moved had a position before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It had: it was too slow, and lost records.
    Cursor,
    /// It had none: it begins with what is left.
    Start,
}

/// What an operator would ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A sealed segment was too old, or its range held too much: its records are gone.
    SegmentExpired {
        /// The topic's name.
        topic: String,
        /// Which one.
        segment: SegmentId,
        /// Bytes of its frames.
        bytes: u64,
        /// Copies on nodes that cannot be reached; they go once those are back.
        copies_left: usize,
    },
    /// The metadata did not forget a segment that was to expire; it is tried again with the next sweep.
    ExpiryRefused {
        /// Which one.
        segment: SegmentId,
        /// Why.
        reply: Refused,
        /// The same for people.
        detail: String,
    },
    /// Whether the policies here are the ones that hold could not be learnt: nothing expired.
    RetentionSkipped,
    /// Everything this node leads was looked at.
    RetentionSwept {
        /// How long it took.
        took: Duration,
    },
    /// A topic points at a policy that is not defined: it keeps everything, up to the bound for such topics.
    PolicyUnresolved {
        /// The topic's name.
        topic: String,
        /// The policy's.
        policy: String,
        /// Whether it was otherwise at the last look.
        first: bool,
    },
    /// A sealed copy was verified.
    Scrubbed {
        /// Which one.
        segment: SegmentId,
        /// What came of it.
        result: Scrubbed,
    },
    /// A sealed copy is not what was recorded of it. Told when it is found, not again while it stays so.
    CopyDamaged {
        /// Which one.
        segment: SegmentId,
        /// What is wrong.
        detail: String,
        /// Nobody else has a copy.
        alone: bool,
    },
    /// Which copies nobody lists could not be learnt: none goes.
    OrphanSweepSkipped {
        /// Why.
        detail: &'static str,
    },
    /// A copy that nobody lists is gone.
    OrphanRemoved {
        /// Which one.
        segment: SegmentId,
    },
    /// A range was split because of what it took or held.
    RangeSplit {
        /// The topic's name.
        topic: String,
        /// Which one.
        range: RangeId,
        /// What it took at the last report, records in a second; `None` when nobody knows by now.
        records_per_second: Option<u64>,
    },
    /// Two ranges were merged because they took and held little.
    RangesMerged {
        /// The topic's name.
        topic: String,
        /// Which ones.
        ranges: [RangeId; 2],
    },
    /// A range takes or holds too much and is not split. Told when it begins.
    RangeLimited {
        /// The topic's name.
        topic: String,
        /// Which one.
        range: RangeId,
        /// Why.
        limit: Limit,
    },
    /// The metadata would not have a range split or merged; it is looked at again.
    ResizeRefused {
        /// Which one; the lower of two.
        range: RangeId,
        /// Why.
        detail: String,
    },
    /// A reader stood below what is stored and goes on with what is.
    Skipped {
        /// The topic's name.
        topic: String,
        /// Its group, if it has one.
        group: Option<String>,
        /// Where.
        range: RangeId,
        /// Offset it goes on at.
        to: Offset,
        /// Offsets stepped over that were not counted before.
        offsets: u64,
        /// Of all offsets stepped over, those whose only copy was damaged; the others expired.
        lost: u64,
        /// Whether it lost something.
        origin: Origin,
        /// The records were all the reader's; otherwise it reads a slice of the range and would have been given fewer.
        exact: bool,
        /// Moves of this reader nothing was written about since the last line; `None` when it is not time for a line.
        held_back: Option<u64>,
    },
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(60),
            age_ms_max: None,
            bytes_max: None,
            unresolved_age_ms_max: None,
            skips_max: 10_000,
            skip_line_every: Duration::from_secs(600),
        }
    }
}

impl Default for Resize {
    fn default() -> Self {
        Self {
            on: true,
            report_every: Duration::from_secs(5),
            every: Duration::from_secs(10),
            records_per_second: 50_000,
            bytes_per_second: 32 * 1024 * 1024,
            held_bytes: 64 * 1024 * 1024 * 1024,
            split_after: Duration::from_secs(60),
            merge_after: Duration::from_secs(900),
            ranges_per_topic: 64,
            ranges_in_cluster: 10_000,
        }
    }
}

impl Default for OrphanSweep {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(300),
            min_age: Duration::from_secs(600),
            sightings: 2,
            removals_max: 50,
            tracked_max: 10_000,
        }
    }
}

impl Default for Scrub {
    fn default() -> Self {
        Self { every: Some(Duration::from_secs(60)), copies_per_pass: 1, bytes_per_second: 32 * 1024 * 1024 }
    }
}
