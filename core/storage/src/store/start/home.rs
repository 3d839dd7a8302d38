//! Bringing home what only the journal has.
//!
//! Order of things:
//! 1. Both files are read whole, and what they hold is told to the copies ([`Replay`]).
//! 2. If frames are lost that nobody can name, every copy that may miss some leaves service, durably.
//! 3. Copies that are owed frames are recovered, which puts the frames in their place.
//! 4. When all that has succeeded, the journal is emptied; else it is kept for the next start, and not written to.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use types::SegmentId;

use super::{Lookup, PARALLEL};
use crate::disk::{self, ErrorKind, FileId, Output, Step};
use crate::format::journal::{FILE_HEADER_BYTES, SECOND_HEADER_AT};
use crate::planted::Bug;
use crate::store::copy::Copy;
use crate::store::desk::Owner;
use crate::store::journal::Journal;
use crate::store::replay::Replay;
use crate::store::{Action, Store};

/// How much of a journal file is read; none of ours is longer.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How far the homecoming has come.
#[derive(Debug, Default)]
pub(super) struct Home {
    pub(super) files: [Option<FileId>; 2],
    bytes: [Bytes; 2],
    /// The journal has been read; copies are getting what it holds.
    under_way: bool,
    /// Copies to take out of service.
    suspects: VecDeque<SegmentId>,
    /// Copies that are owed frames.
    waiting: VecDeque<SegmentId>,
    /// Copies that are getting theirs.
    recovering: BTreeSet<SegmentId>,
    /// The highest use of the journal that anything speaks of.
    pub(super) sequence: u64,
    /// Something could not be brought home: the journal is left as it is.
    pub(super) keep_journal: bool,
}

impl Store {
    pub(super) fn open_journal(&mut self) {
        for half in 0..2 {
            self.start.reading += 1;
            let file = self.desk.new_file();
            self.start.home.files[half] = Some(file);
            let open =
                vec![Step::SyncDir(Some(Journal::dir())), Step::Open { file, path: Journal::path(half) }];
            self.desk.run(Owner::Start(Lookup::JournalOpen(half)), open);
        }
    }

    pub(super) fn journal_opened(&mut self, half: usize, result: Result<Output, disk::Error>) {
        let len = match result {
            Ok(Output::Length(len)) => len.min(FILE_BYTES_MAX),
            Ok(Output::Done | Output::Data(_) | Output::Entries(_)) => 0,
            Err(error) if error.kind == ErrorKind::NotFound => {
                // It was never made, so it was never used.
                self.start.home.files[half] = None;
                0
            }
            // It may hold what nothing else does: better not to start than to start without it.
            Err(error) => return self.desk.actions.push(Action::StartFailed(error)),
        };
        let Some(file) = self.start.home.files[half].filter(|_| len > 0) else {
            return self.journal_file_known();
        };
        let len = usize::try_from(len).expect("bounded above");
        self.desk.run(Owner::Start(Lookup::JournalRead(half)), vec![Step::Read { file, at: 0, len }]);
    }

    pub(super) fn journal_read(&mut self, half: usize, result: Result<Output, disk::Error>) {
        match result {
            Ok(Output::Data(data)) => self.start.home.bytes[half] = data,
            Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => {}
            Err(error) => return self.desk.actions.push(Action::StartFailed(error)),
        }
        self.journal_file_known();
    }

    fn journal_file_known(&mut self) {
        self.start.reading -= 1;
        if self.start.reading == 0 {
            self.replay();
        }
    }

    /// Tells each copy what the journal holds for it.
    fn replay(&mut self) {
        let files = std::mem::take(&mut self.start.home.bytes);
        let replay = Replay::read(files, self.desk.config.has_bug(Bug::TruncateRot));
        let home = &mut self.start.home;
        home.sequence = home.sequence.max(replay.sequence);
        home.under_way = true;
        if let Some(sequence) = replay.unknown_loss {
            for (segment, copy) in &mut self.copies {
                if copy.is_unread() {
                    copy.remember_loss(sequence);
                    home.keep_journal = true;
                } else if copy.may_have_lost(sequence) {
                    home.suspects.push_back(*segment);
                }
            }
        }
        for (segment, lives) in replay.owed {
            if self.desk.config.has_bug(Bug::SkipReplay) {
                break;
            }
            let Some(copy) = self.copies.get_mut(&segment) else { continue };
            // Its frames cannot be brought home, and nothing else may have them.
            home.keep_journal |= copy.is_out_of_reach();
            if copy.is_unread() {
                copy.remember_lives(lives);
            } else if copy.owe(&lives) {
                home.waiting.push_back(segment);
            }
        }
        self.go_home();
    }

    /// Goes on with as many copies as may be under way.
    fn go_home(&mut self) {
        while self.desk.latching + self.start.home.recovering.len() < PARALLEL {
            // A copy that leaves service does so before its log is looked at, which is then only read.
            if let Some(segment) = self.start.home.suspects.pop_front() {
                if let Some(copy) = self.copies.get_mut(&segment) {
                    copy.suspect(&mut self.desk);
                }
            } else if let Some(segment) = self.start.home.waiting.pop_front() {
                if let Some(copy) = self.copies.get_mut(&segment) {
                    copy.bring_home(&mut self.desk);
                    self.start.home.recovering.insert(segment);
                }
            } else {
                break;
            }
        }
        let Home { under_way, suspects, waiting, recovering, .. } = &self.start.home;
        let waits = self.start.reading > 0 || self.desk.latching > 0 || !recovering.is_empty();
        if *under_way && !waits && suspects.is_empty() && waiting.is_empty() {
            self.start.home.under_way = false;
            self.empty_journal();
        }
    }

    pub(super) fn suspect_latched(&mut self, result: &Result<Output, disk::Error>) {
        self.desk.latching -= 1;
        // What a copy could not record, the journal still shows at the next start.
        self.start.home.keep_journal |= result.is_err();
        self.go_home();
    }

    /// A copy may have got its frames.
    pub(in crate::store) fn brought_home(&mut self, segment: SegmentId) {
        let idle = self.copies.get(&segment).is_none_or(Copy::is_idle);
        if idle && self.start.home.recovering.remove(&segment) {
            self.start.home.keep_journal |= self.copies.get(&segment).is_some_and(|copy| !copy.is_open());
        }
        self.go_home();
    }

    fn empty_journal(&mut self) {
        if self.start.home.keep_journal {
            return self.end_start();
        }
        let mut steps = Vec::new();
        for file in self.start.home.files.iter().flatten().copied() {
            // The second goes first: where it is gone, a first header cut by a crash is no loss (see `replay`).
            for at in [SECOND_HEADER_AT, 0] {
                steps.push(Step::Write { file, at, data: vec![Bytes::from_static(&[0; FILE_HEADER_BYTES])] });
                steps.push(Step::Sync(file));
            }
        }
        if self.start.home.files.contains(&None) {
            // One of the two was never made, so neither was used; both are made anew when they are wanted.
            self.start.home.files = [None; 2];
            self.desk.run(Owner::Nobody, vec![Step::Remove(Journal::path(0))]);
            self.desk.run(Owner::Nobody, vec![Step::Remove(Journal::path(1))]);
            steps = vec![Step::SyncDir(Some(Journal::dir()))];
        }
        self.desk.run(Owner::Start(Lookup::Emptied), steps);
    }

    pub(super) fn journal_emptied(&mut self, result: &Result<Output, disk::Error>) {
        self.start.home.keep_journal |= result.is_err();
        self.end_start();
    }
}
