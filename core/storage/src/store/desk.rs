//! What all copies of a store share: numbers, jobs under way, the budget of the tail cache, open files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{Instant, Offset, SegmentId};

use super::copy::{Mark, ReadOp};
use super::journal::Journal;
use super::spares::{Piece, Spares};
use super::start::Lookup;
use super::{Action, Config, Notice, Reply, RequestId};
use crate::disk::{FileId, Job, JobId, Name, Step};
use crate::format::batch::Nonce;
use crate::format::journal::Spot;
use crate::planted::Bug;

/// Copies that are closed at one time so that others can be opened.
const WANTING_MAX: usize = 64;

/// Who waits for a job.
#[derive(Debug)]
pub(super) enum Owner {
    /// The start of the store.
    Start(Lookup),
    /// A flush of a copy to its file, up to a mark.
    Flush { flight: u64, segment: SegmentId, mark: Mark },
    /// A write to the journal that covers copies up to marks, and where it ends.
    Journal { flight: u64, spot: Spot, covered: Vec<(SegmentId, Mark)> },
    /// The journal's files are being made.
    MakeJournal([FileId; 2]),
    /// Zeros ahead of need.
    Piece(Piece),
    /// A read of a copy's log.
    Read(SegmentId, Box<ReadOp>),
    /// The task a copy is busy with.
    Task(SegmentId),
    /// Nobody: its failure changes nothing.
    Nobody,
}

/// Shared by all copies of one store.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) config: Config,
    pub(super) now: Instant,
    pub(super) actions: Vec<Action>,
    jobs: BTreeMap<JobId, Owner>,
    next_job: u64,
    next_file: u64,
    random: u64,
    /// Copies whose creation failed half-way in this process lifetime, with their base offsets: what lies in their
    /// directories is ours.
    pub(super) half_created: BTreeMap<SegmentId, Offset>,
    /// Open files by last use.
    opened: BTreeMap<u64, SegmentId>,
    /// Copies whose file is being opened or made.
    pub(super) opening: usize,
    /// Copies that wait until they may open or make theirs, in the order they came.
    pub(super) wanting: VecDeque<SegmentId>,
    next_use: u64,
    /// Cached batches in the order they were appended, over all copies.
    cached: VecDeque<(SegmentId, Offset, usize)>,
    cached_bytes: usize,
    /// Appended to since their durable end was last recorded.
    pub(super) unrecorded: BTreeMap<SegmentId, Instant>,
    /// Files of removed copies, free for reuse.
    pub(super) recycled: Vec<Name>,
    next_recycled: u64,
    pub(super) spares: Spares,
    pub(super) journal: Journal,
    /// The store takes no requests yet.
    pub(super) starting: bool,
    /// Copies whose latch the start waits for.
    pub(super) latching: usize,
    /// Copies with something to send.
    pub(super) dirty: BTreeSet<SegmentId>,
    /// The last copy of a flight that could not take all that waited.
    pub(super) flushed_last: Option<SegmentId>,
    /// The same for the journal.
    pub(super) journaled_last: Option<SegmentId>,
    /// Copies whose `copy.meta` could not be read yet, the next to try first.
    pub(super) unread: VecDeque<SegmentId>,
    /// Flights under way, with the jobs each still waits for.
    pub(super) flights: BTreeMap<u64, usize>,
    pub(super) next_flight: u64,
}

impl Desk {
    pub(super) fn new(config: Config) -> Self {
        let random = config.seed;
        let journal = Journal::new(config.journal_bytes, config.has_bug(Bug::ReuseJournalEarly));
        Self {
            config,
            now: Instant::default(),
            actions: Vec::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            next_file: 0,
            random,
            half_created: BTreeMap::new(),
            opened: BTreeMap::new(),
            opening: 0,
            wanting: VecDeque::new(),
            next_use: 0,
            cached: VecDeque::new(),
            cached_bytes: 0,
            unrecorded: BTreeMap::new(),
            recycled: Vec::new(),
            next_recycled: 0,
            spares: Spares::default(),
            journal,
            starting: true,
            latching: 0,
            dirty: BTreeSet::new(),
            flushed_last: None,
            journaled_last: None,
            unread: VecDeque::new(),
            flights: BTreeMap::new(),
            next_flight: 0,
        }
    }

    /// Submits a job.
    pub(super) fn run(&mut self, owner: Owner, steps: Vec<Step>) {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.jobs.insert(id, owner);
        self.actions.push(Action::Disk(Job { id, steps }));
    }

    /// Who waits for a completed job; `None` for one this store did not submit.
    pub(super) fn owner_of(&mut self, job: JobId) -> Option<Owner> {
        self.jobs.remove(&job)
    }

    pub(super) fn reply(&mut self, id: RequestId, reply: Reply) {
        self.actions.push(Action::Reply(id, reply));
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.actions.push(Action::Notice(notice));
    }

    pub(super) fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    /// The nonce of a new copy.
    pub(super) fn new_nonce(&mut self) -> Nonce {
        if self.config.has_bug(Bug::KeepNonce) {
            return Nonce(0);
        }
        Nonce(self.random())
    }

    /// The salt of a new use of a journal file.
    pub(super) fn new_salt(&mut self) -> u64 {
        self.random()
    }

    /// SplitMix64: all that is needed is that two lives of a copy or file differ.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A name for a file that is put aside for reuse.
    pub(super) fn new_recycled(&mut self) -> Name {
        self.next_recycled += 1;
        Name::new(&format!("{:020}.log", self.next_recycled)).expect("digits and a suffix make a name")
    }

    /// Where files wait for reuse.
    pub(super) fn recycle_dir(&self) -> Name {
        Name::new("recycle").expect("lower-case letters make a name")
    }

    /// Notes that a copy's file was used now; gives its new stamp.
    pub(super) fn used(&mut self, segment: SegmentId, last: Option<u64>) -> u64 {
        if let Some(last) = last {
            self.opened.remove(&last);
        }
        self.next_use += 1;
        self.opened.insert(self.next_use, segment);
        self.next_use
    }

    /// Notes that a copy's file was closed.
    pub(super) fn closed(&mut self, last: u64) {
        self.opened.remove(&last);
    }

    /// Log files open.
    pub(super) fn open_files(&self) -> usize {
        self.opened.len()
    }

    /// Whether one more file may be opened. However many copies are asked for at one time, the others wait: a
    /// process has only so many descriptors.
    pub(super) fn may_open(&self) -> bool {
        self.opened.len() + self.opening < self.config.open_copies_max.max(1)
    }

    /// Copies to close, least recently used first, when too many are open or others wait for their turn.
    pub(super) fn surplus(&self) -> Vec<SegmentId> {
        let wanted = self.opened.len() + self.opening + self.wanting.len().min(WANTING_MAX);
        let surplus = wanted.saturating_sub(self.config.open_copies_max.max(1));
        self.opened.values().take(surplus).copied().collect()
    }

    /// Takes note of a cached batch; gives the batches to drop to stay within the budget, oldest first.
    pub(super) fn cache(&mut self, segment: SegmentId, base: Offset, bytes: usize) {
        self.cached.push_back((segment, base, bytes));
        self.cached_bytes += bytes;
    }

    /// Bytes in the tail cache.
    pub(super) fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    /// The oldest cached batch, while the cache is over its budget.
    pub(super) fn cache_surplus(&mut self) -> Option<(SegmentId, Offset)> {
        if self.cached_bytes <= self.config.tail_cache_bytes {
            return None;
        }
        let (segment, base, bytes) = self.cached.pop_front()?;
        self.cached_bytes -= bytes;
        Some((segment, base))
    }
}
