//! After a crash: where one unsealed copy really ends, and whether it may go on.
//!
//! ```text
//!            S = max(durable before of any header of ours, copy.meta)
//!            │
//! ├─frames───┼──frames──┤bad├──?──?──┤        bad at or above S: the flush it belongs to never completed, so
//!            S          P                     nothing in it was acknowledged: torn, dropped
//!
//! ├─frames──┤bad├──frames──┼──?──┤            bad below S: it was synced once, perhaps acknowledged: rot,
//!           P              S                  kept as it is, and the copy leaves service
//! ```
//!
//! The journal testifies too. What it holds of a copy was put there when everything before it was durable, in the
//! file or in the journal (see `store::copy::log`), so bad bytes before any of it are rot as well. That says
//! nothing of the file itself: only the file's own `S` counts for what need not be synced again.
//!
//! Rules, each held by an invariant of the simulator:
//! - Rot is never truncated and never written over (INV-22), and only a torn tail is ever dropped (INV-23).
//! - Frames between `S` and the end are in the page cache, which proves nothing: they may have been written by
//!   a process that was killed before its sync, or have survived a sync that failed. They are written again and
//!   synced before the end is told to anybody.
//! - A dropped tail is zeroed and synced before the copy may be appended to: otherwise a later recovery could
//!   take leftovers of it for frames that follow the new ones.
//! - Where the log stops and the journal has the frames that follow, they are put in their place first.
//! - A copy that is damaged or latched is only read, but for frames that nothing except the journal has: they
//!   are put where they belong, so that they can be salvaged with the rest.
//!
//! Memory is one window, whatever the size of the file and its frames.

use bytes::Bytes;
use types::limits::SCAN_WINDOW_BYTES;
use types::{Offset, WallTime};

use crate::disk::{FileId, Step};
use crate::format::batch::HEADER_BYTES;
use crate::format::meta::Meta;
use crate::planted::Bug;
use crate::segment::index::Sparse;
use crate::segment::scan::{Scan, Stop, TailSearch};
use crate::store::replay::{Owed, Patch};
use crate::store::{Config, Damage, DamageClass};

/// What recovery found, once nothing is left to do.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Exclusive durable end.
    pub(crate) end: Offset,
    /// Its byte position.
    pub(crate) position: u64,
    /// When the last frame was appended.
    pub(crate) last_time: WallTime,
    /// The sparse index of what is intact.
    pub(crate) index: Sparse,
    /// Bytes of torn frames that were dropped.
    pub(crate) torn_bytes: u64,
    /// Damage that must be kept; the copy may not go on.
    pub(crate) damage: Option<Damage>,
}

/// What the machine needs next.
#[derive(Debug)]
pub(crate) enum Next {
    /// These bytes of the log.
    Read(u64, usize),
    /// These steps, as one job.
    Run(Vec<Step>),
    /// Nothing: the verdict is ready.
    Done,
}

/// Recovery of one unsealed copy's log file, open as `file`.
#[derive(Debug)]
pub(crate) struct Recovery {
    meta: Meta,
    file: FileId,
    file_len: u64,
    truncate_rot: bool,
    keep_tail: bool,
    doubt_journal: bool,
    stage: Stage,
    scan: Scan,
    testimony: u64,
    /// What the journal holds for this copy and is not in its place.
    owed: Owed,
    patched: bool,
    verdict: Verdict,
}

#[derive(Debug)]
enum Stage {
    Scan,
    /// A run of frames from the journal is being put in its place.
    Patch(Patch),
    Tail(Box<TailSearch>),
    /// What the journal has for a copy that is out of service is being put where it belongs.
    Salvage,
    /// Writing `[at, position)` again.
    Rewrite {
        at: u64,
        read: Option<Bytes>,
        erase: (u64, u64),
    },
    Sync,
    Done,
}

impl Recovery {
    /// Starts on a log file of `file_len` bytes.
    #[must_use]
    pub(crate) fn new(config: &Config, meta: Meta, file: FileId, file_len: u64, owed: Owed) -> Self {
        let verdict = Verdict {
            end: meta.base,
            position: 0,
            last_time: WallTime::default(),
            index: Sparse::default(),
            torn_bytes: 0,
            damage: None,
        };
        let scan = Scan::new(meta.identity(), 0, meta.base, file_len);
        let (truncate_rot, keep_tail) = (config.has_bug(Bug::TruncateRot), config.has_bug(Bug::KeepTornTail));
        let testimony = meta.durable_position;
        let mut recovery = Self {
            meta,
            file,
            file_len,
            truncate_rot,
            keep_tail,
            doubt_journal: config.has_bug(Bug::DoubtJournal),
            stage: Stage::Scan,
            scan,
            testimony,
            // An earlier life may have put some in their place and been killed before its sync.
            patched: !owed.patches.is_empty(),
            owed,
            verdict,
        };
        recovery.after_scan();
        recovery
    }

    /// What to do now. Call again after each [`read`](Self::read) and after each job has succeeded.
    #[must_use]
    pub(crate) fn advance(&mut self) -> Next {
        let file = self.file;
        match &mut self.stage {
            Stage::Scan => wanted(self.scan.wants()),
            Stage::Patch(patch) => {
                let write = Step::Write { file, at: patch.position, data: vec![patch.bytes.clone()] };
                self.file_len = self.file_len.max(patch.position + patch.bytes.len() as u64);
                self.patched = true;
                let (position, end) = (self.verdict.position, self.verdict.end);
                self.scan = Scan::new(self.meta.identity(), position, end, self.file_len);
                self.stage = Stage::Scan;
                Next::Run(vec![write])
            }
            Stage::Tail(search) => wanted(search.wants()),
            Stage::Salvage => {
                self.stage = Stage::Done;
                let write = |patch: Patch| Step::Write { file, at: patch.position, data: vec![patch.bytes] };
                let mut steps: Vec<Step> =
                    std::mem::take(&mut self.owed.patches).into_iter().map(write).collect();
                steps.push(Step::Sync(file));
                Next::Run(steps)
            }
            Stage::Rewrite { at, read: None, .. } if *at < self.verdict.position => {
                let left = usize::try_from(self.verdict.position - *at).unwrap_or(usize::MAX);
                Next::Read(*at, left.min(SCAN_WINDOW_BYTES))
            }
            Stage::Rewrite { at, read: Some(data), .. } => {
                let write = Step::Write { file, at: *at, data: vec![data.clone()] };
                *at += data.len() as u64;
                let Stage::Rewrite { read, .. } = &mut self.stage else { unreachable!("matched above") };
                *read = None;
                Next::Run(vec![write])
            }
            Stage::Rewrite { read: None, erase: (from, to), .. } => {
                let (at, len) = (*from, *to - *from);
                self.stage = Stage::Sync;
                let mut steps = vec![Step::Zero { file, at, len }, Step::Sync(file)];
                if len == 0 {
                    steps.remove(0);
                }
                Next::Run(steps)
            }
            Stage::Sync => {
                self.stage = Stage::Done;
                Next::Done
            }
            Stage::Done => Next::Done,
        }
    }

    /// Takes the bytes last wanted.
    pub(crate) fn read(&mut self, data: Bytes) {
        match &mut self.stage {
            Stage::Scan => {
                let (index, testimony) = (&mut self.verdict.index, &mut self.testimony);
                let last_time = &mut self.verdict.last_time;
                self.scan.feed(data, &mut |found| {
                    *testimony = (*testimony).max(found.durable_before);
                    *last_time = (*last_time).max(found.header.append_time);
                    index.note(found.entry());
                    true
                });
                self.after_scan();
            }
            Stage::Tail(search) => {
                search.feed(&data);
                if search.wants().is_none() {
                    self.after_tail();
                }
            }
            Stage::Rewrite { read, at, .. } => {
                if data.is_empty() {
                    // The file shrank under us; what is left of the range cannot be made durable.
                    *at = self.verdict.position;
                }
                *read = Some(data).filter(|data| !data.is_empty());
            }
            Stage::Patch(_) | Stage::Salvage | Stage::Sync | Stage::Done => {}
        }
    }

    /// Bytes of the log file.
    #[must_use]
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The verdict. Only after [`Next::Done`].
    #[must_use]
    pub(crate) fn into_verdict(self) -> Verdict {
        self.verdict
    }

    fn after_scan(&mut self) {
        let (position, end) = match self.scan.stop() {
            None => return,
            Some(Stop::Limit { position, end }) => (position, end),
            Some(Stop::Bad(damage)) => (damage.position, damage.offset),
        };
        self.verdict.position = position;
        self.verdict.end = end;
        let covers =
            |patch: &Patch| (patch.position..patch.position + patch.bytes.len() as u64).contains(&position);
        if let Some(at) = self.owed.patches.iter().position(covers) {
            self.stage = Stage::Patch(self.owed.patches.remove(at));
            return;
        }
        self.stage = Stage::Tail(Box::new(TailSearch::new(self.meta.identity(), position, self.file_len)));
        if position >= self.file_len {
            self.after_tail();
        }
    }

    fn after_tail(&mut self) {
        let Stage::Tail(search) = std::mem::replace(&mut self.stage, Stage::Done) else { return };
        let synced = self.testimony.max(search.testimony);
        let position = self.verdict.position;
        let class = match self.scan.stop() {
            Some(Stop::Bad(damage)) => damage.class,
            Some(Stop::Limit { .. }) | None => DamageClass::Short,
        };
        let journaled = if self.doubt_journal { 0 } else { self.journaled() };
        let rotten = position < synced.max(journaled) && !self.truncate_rot;
        if rotten || class == DamageClass::Unsupported {
            self.verdict.damage = Some(Damage { position, offset: self.verdict.end, class });
            self.stage = self.salvage();
            return;
        }
        self.verdict.torn_bytes = search.reach - position;
        if self.meta.latched.is_some() {
            self.stage = self.salvage();
            return;
        }
        if position <= synced && search.clean && search.reach == position && !self.patched {
            return;
        }
        // A header cut by the crash decodes nowhere, but is not left to confuse a person either.
        let header_end =
            if search.clean { position } else { self.file_len.min(position + HEADER_BYTES as u64) };
        let erase_to = if self.keep_tail { position } else { search.reach.max(header_end) };
        self.stage = Stage::Rewrite { at: synced.min(position), read: None, erase: (position, erase_to) };
    }

    /// How far the journal says that the log was durable, in one place or the other.
    fn journaled(&self) -> u64 {
        let before = self.owed.patches.iter().map(|patch| patch.position);
        before.max().unwrap_or(0).max(self.owed.must_reach)
    }

    fn salvage(&self) -> Stage {
        if self.owed.patches.is_empty() && !self.patched { Stage::Done } else { Stage::Salvage }
    }
}

fn wanted(bytes: Option<(u64, usize)>) -> Next {
    bytes.map_or(Next::Done, |(at, len)| Next::Read(at, len))
}
