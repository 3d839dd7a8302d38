//! The start: what does the directory hold?
//!
//! One small file is read for each copy; logs are only looked at when somebody asks for them. The names of what
//! is found are synced first: a process that was killed may have left some that only the page cache knows. Frames
//! that only the journal has are brought home before anything else may happen.
//!
//! A directory without a `copy.meta` of its own is nobody's: it is reported and left alone. A `copy.meta` that
//! cannot be read is damage of that copy.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use types::{Epoch, Offset, SegmentId};

use super::copy::Copy;
use super::desk::Owner;
use super::journal::{Journal, State};
use super::replay::Replay;
use super::{Action, Notice, Store};
use crate::disk::{self, Entry, ErrorKind, FileId, Name, Output, Path, Step};
use crate::format::batch::Nonce;
use crate::format::journal::{FILE_HEADER_BYTES, SECOND_HEADER_AT};
use crate::format::meta::{META_BYTES, Meta};
use crate::planted::Bug;
use crate::segment::layout;

/// `copy.meta` files being read at one time.
const PARALLEL: usize = 64;
/// Names of foreign directories that are reported.
const FOREIGN_MAX: usize = 100;

/// A job of the start.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The data directory is being listed.
    Root,
    /// The recycled files are being listed.
    Recycled,
    /// A `copy.meta` is being read.
    Meta(SegmentId, FileId),
    /// A journal file is being opened.
    JournalOpen(usize),
    /// A journal file is being read.
    JournalRead(usize),
    /// A copy is being latched because the journal lost frames nobody can name.
    Latch,
    /// The journal is being emptied.
    Emptied,
}

/// How much of a journal file is read; none of ours is longer.
const JOURNAL_FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How far the start has come.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) done: bool,
    waiting: VecDeque<SegmentId>,
    reading: usize,
    foreign: Vec<String>,
    has_journal: bool,
    journal_files: [Option<FileId>; 2],
    journal_bytes: [Bytes; 2],
    /// The journal has been read; copies are getting what it holds.
    bringing_home: bool,
    /// Copies whose frames are being brought home from the journal.
    recovering: BTreeSet<SegmentId>,
    /// The highest sequence the journal has used.
    sequence: u64,
    /// Some frames could not be brought home: the journal is left as it is.
    keep_journal: bool,
}

impl Store {
    pub(super) fn look(&mut self) {
        self.desk.run(Owner::Start(Lookup::Root), vec![Step::SyncDir(None), Step::List(None)]);
    }

    pub(super) fn looked(&mut self, lookup: Lookup, result: Result<Output, disk::Error>) {
        match (lookup, result) {
            (Lookup::Root, Ok(output)) => self.listed(entries(output)),
            (Lookup::Root, Err(error)) => self.desk.actions.push(Action::StartFailed(error)),
            (Lookup::Recycled, Ok(output)) => {
                self.start.reading -= 1;
                self.forget_recycled(entries(output));
            }
            (Lookup::Recycled, Err(_)) => self.start.reading -= 1,
            (Lookup::Meta(segment, file), result) => {
                self.start.reading -= 1;
                self.desk.run(Owner::Nobody, vec![Step::Close(file)]);
                self.found(segment, result);
            }
            (Lookup::JournalOpen(half), result) => self.journal_opened(half, result),
            (Lookup::JournalRead(half), result) => {
                self.start.reading -= 1;
                match result {
                    Ok(Output::Data(data)) => self.start.journal_bytes[half] = data,
                    Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => {}
                    Err(error) => return self.desk.actions.push(Action::StartFailed(error)),
                }
                if self.start.reading == 0 {
                    self.replay();
                }
                return;
            }
            (Lookup::Latch, result) => {
                self.desk.latching -= 1;
                // What a copy could not record, the journal still shows at the next start.
                self.start.keep_journal |= result.is_err();
                return self.brought_home(None);
            }
            (Lookup::Emptied, result) => {
                self.start.keep_journal |= result.is_err();
                return self.end_start();
            }
        }
        self.look_further();
    }

    /// Removes the names of files that an earlier life put aside.
    ///
    /// A crash inside a rename may have left a file under both of its names; used again under one of them it
    /// would change under the other. Its blocks are not worth that risk.
    fn forget_recycled(&mut self, entries: Vec<Entry>) {
        let dir = Some(self.desk.recycle_dir());
        let names =
            entries.into_iter().filter(|entry| !entry.is_dir).filter_map(|entry| Name::new(&entry.name));
        for name in names.filter(|name| name.as_str().ends_with(".log")) {
            if self.desk.config.has_bug(Bug::ReuseFoundFiles) {
                self.desk.recycled.push(name);
                continue;
            }
            self.desk.run(Owner::Nobody, vec![Step::Remove(Path { dir: dir.clone(), name })]);
        }
    }

    fn listed(&mut self, entries: Vec<Entry>) {
        let recycle = self.desk.recycle_dir();
        for entry in entries.into_iter().filter(|entry| entry.is_dir) {
            match layout::parse_dir(&entry.name) {
                Some(segment) => self.start.waiting.push_back(segment),
                None if entry.name == recycle.as_str() => {
                    self.start.reading += 1;
                    let list = vec![Step::List(Some(recycle.clone()))];
                    self.desk.run(Owner::Start(Lookup::Recycled), list);
                }
                None if entry.name == Journal::dir().as_str() => self.start.has_journal = true,
                None => self.foreign(entry.name),
            }
        }
    }

    fn look_further(&mut self) {
        while self.start.reading < PARALLEL {
            let Some(segment) = self.start.waiting.pop_front() else { break };
            self.start.reading += 1;
            let file = self.desk.new_file();
            let open = Step::Open { file, path: layout::meta(segment) };
            // One byte more than a whole file, so that a longer one is seen to be.
            let read = Step::Read { file, at: 0, len: META_BYTES + 1 };
            let mut steps = vec![Step::SyncDir(Some(layout::dir(segment))), open, read];
            if self.desk.config.has_bug(Bug::AdoptUnsyncedNames) {
                steps.remove(0);
            }
            self.desk.run(Owner::Start(Lookup::Meta(segment, file)), steps);
        }
        if self.start.reading == 0 && self.start.waiting.is_empty() && !self.start.done {
            if std::mem::take(&mut self.start.has_journal) {
                return self.open_journal();
            }
            self.end_start();
        }
    }

    fn end_start(&mut self) {
        self.start.done = true;
        self.desk.starting = false;
        let files = self.start.journal_files;
        if self.start.keep_journal {
            self.desk.journal.state = State::Unusable;
        } else if let ([Some(a), Some(b)], State::Absent) = (files, self.desk.journal.state) {
            self.desk.journal.ready([a, b], self.start.sequence);
        }
        let foreign = std::mem::take(&mut self.start.foreign);
        self.desk.actions.push(Action::Started { copies: self.copies.len(), foreign });
    }

    fn open_journal(&mut self) {
        for half in 0..2 {
            self.start.reading += 1;
            let file = self.desk.new_file();
            self.start.journal_files[half] = Some(file);
            let open =
                vec![Step::SyncDir(Some(Journal::dir())), Step::Open { file, path: Journal::path(half) }];
            self.desk.run(Owner::Start(Lookup::JournalOpen(half)), open);
        }
    }

    fn journal_opened(&mut self, half: usize, result: Result<Output, disk::Error>) {
        let len = match result {
            Ok(Output::Length(len)) => len.min(JOURNAL_FILE_BYTES_MAX),
            Ok(Output::Done | Output::Data(_) | Output::Entries(_)) => 0,
            Err(error) if error.kind == ErrorKind::NotFound => {
                // It was never made, so it was never used.
                self.start.journal_files[half] = None;
                0
            }
            // It may hold what nothing else does: better not to start than to start without it.
            Err(error) => return self.desk.actions.push(Action::StartFailed(error)),
        };
        let Some(file) = self.start.journal_files[half].filter(|_| len > 0) else {
            self.start.reading -= 1;
            if self.start.reading == 0 {
                self.replay();
            }
            return;
        };
        let len = usize::try_from(len).expect("bounded above");
        self.desk.run(Owner::Start(Lookup::JournalRead(half)), vec![Step::Read { file, at: 0, len }]);
    }

    /// Gives each copy what the journal holds for it, and has it brought home.
    fn replay(&mut self) {
        let files = std::mem::take(&mut self.start.journal_bytes);
        let replay = Replay::read(files, self.desk.config.has_bug(Bug::TruncateRot));
        self.start.sequence = replay.sequence;
        self.start.bringing_home = true;
        if replay.unknown_loss {
            for copy in self.copies.values_mut() {
                copy.suspect(&mut self.desk);
            }
        }
        for (segment, owed) in replay.owed {
            if self.desk.config.has_bug(Bug::SkipReplay) {
                break;
            }
            let Some(copy) = self.copies.get_mut(&segment) else { continue };
            // Its frames cannot be brought home, and nothing else may have them.
            self.start.keep_journal |= copy.is_unreadable();
            if copy.bring_home(&mut self.desk, owed) {
                self.start.recovering.insert(segment);
            }
        }
        self.brought_home(None);
    }

    /// A copy may have got its frames: with the last of them the journal is emptied.
    pub(super) fn brought_home(&mut self, segment: Option<SegmentId>) {
        if let Some(segment) = segment.filter(|segment| self.copies.get(segment).is_none_or(Copy::is_idle)) {
            if self.start.recovering.remove(&segment) {
                self.start.keep_journal |= self.copies.get(&segment).is_some_and(|copy| !copy.is_open());
            }
        }
        let waits = self.start.reading > 0 || self.desk.latching > 0 || !self.start.recovering.is_empty();
        if waits || !std::mem::take(&mut self.start.bringing_home) {
            return;
        }
        if self.start.keep_journal {
            return self.end_start();
        }
        let mut steps = Vec::new();
        for file in self.start.journal_files.iter().flatten().copied() {
            // The second goes first: where it is gone, a first header cut by a crash is no loss (see `replay`).
            for at in [SECOND_HEADER_AT, 0] {
                steps.push(Step::Write { file, at, data: vec![Bytes::from_static(&[0; FILE_HEADER_BYTES])] });
                steps.push(Step::Sync(file));
            }
        }
        if self.start.journal_files.contains(&None) {
            // One of the two was never made, so neither was used; both are made anew when they are wanted.
            self.start.journal_files = [None; 2];
            self.desk.run(Owner::Nobody, vec![Step::Remove(Journal::path(0))]);
            self.desk.run(Owner::Nobody, vec![Step::Remove(Journal::path(1))]);
            steps = vec![Step::SyncDir(Some(Journal::dir()))];
        }
        self.desk.run(Owner::Start(Lookup::Emptied), steps);
    }

    fn found(&mut self, segment: SegmentId, result: Result<Output, disk::Error>) {
        let meta = match result {
            Ok(Output::Data(data)) => Meta::decode(&data).map_err(|error| error.to_string()),
            Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => Err("nothing was read".to_owned()),
            Err(error) if error.kind == ErrorKind::NotFound => return self.foreign(segment.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match meta {
            Ok(meta) if meta.segment != segment => self.foreign(segment.to_string()),
            Ok(meta) => self.adopt(meta),
            Err(detail) => {
                self.desk.notice(Notice::MetaUnreadable { segment, detail });
                let meta = Meta::new(segment, Offset::ZERO, Nonce::default(), Epoch::ZERO);
                self.copies.insert(segment, Copy::unreadable(meta));
            }
        }
    }

    fn adopt(&mut self, mut meta: Meta) {
        if self.desk.config.has_bug(Bug::ForgetFence) {
            meta.epoch = Epoch(1);
        }
        let mut copy = Copy::new(meta);
        if meta.deleting {
            copy.delete(&mut self.desk, None);
        }
        self.copies.insert(meta.segment, copy);
    }

    fn foreign(&mut self, name: String) {
        if self.start.foreign.len() < FOREIGN_MAX {
            self.start.foreign.push(name);
        }
    }
}

fn entries(output: Output) -> Vec<Entry> {
    match output {
        Output::Entries(entries) => entries,
        Output::Done | Output::Length(_) | Output::Data(_) => Vec::new(),
    }
}
