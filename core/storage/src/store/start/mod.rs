//! The start: what does the directory hold?
//!
//! One small file is read for each copy; logs are only looked at when somebody asks for them. The names of what
//! is found are synced first: a process that was killed may have left some that only the page cache knows. Frames
//! that only the journal has are brought home before anything else may happen ([`home`]).
//!
//! A directory without a `copy.meta` of its own is what a creation left that was cut short, and is removed
//! ([`leftovers`]), or it is nobody's: it is reported and left alone. A `copy.meta` that is not right is damage of
//! that copy; one that could not be read just now is read again later.
//!
//! Of everything there may be thousands of, only a bounded number is under way at one time.

mod home;
mod leftovers;

use std::collections::VecDeque;

use types::SegmentId;

use self::home::Home;
use self::leftovers::Leftover;
use super::copy::{Copy, read_meta};
use super::desk::Owner;
use super::journal::{Journal, State};
use super::{Action, Notice, Store};
use crate::disk::{self, Entry, ErrorKind, FileId, Output, Step};
use crate::format::meta::Meta;
use crate::planted::Bug;
use crate::segment::layout;

/// Jobs under way for as many copies.
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
    /// A directory without one is being looked at.
    Leftover(SegmentId, Leftover),
    /// A journal file is being opened.
    JournalOpen(usize),
    /// A journal file is being read.
    JournalRead(usize),
    /// A copy is being latched because the journal lost frames nobody can name.
    Latch,
    /// The journal is being emptied.
    Emptied,
}

/// How far the start has come.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) done: bool,
    waiting: VecDeque<SegmentId>,
    reading: usize,
    foreign: Vec<String>,
    /// Directories removed that creations had left half-made.
    cleared: usize,
    has_journal: bool,
    home: Home,
}

impl Store {
    pub(super) fn look(&mut self) {
        self.desk.run(Owner::Start(Lookup::Root), vec![Step::SyncDir(None), Step::List(None)]);
    }

    pub(super) fn looked(&mut self, lookup: Lookup, result: Result<Output, disk::Error>) {
        match (lookup, result) {
            (Lookup::Root, Ok(output)) => self.listed(entries(output)),
            (Lookup::Root, Err(error)) => self.desk.actions.push(Action::StartFailed(error)),
            (Lookup::Recycled, result) => {
                self.start.reading -= 1;
                self.forget_recycled(result.map(entries).unwrap_or_default());
            }
            (Lookup::Meta(segment, file), result) => {
                self.start.reading -= 1;
                self.desk.run(Owner::Nobody, vec![Step::Close(file)]);
                self.found(segment, result);
            }
            (Lookup::Leftover(segment, leftover), result) => {
                self.start.reading -= 1;
                self.leftover(segment, leftover, result);
            }
            (Lookup::JournalOpen(half), result) => return self.journal_opened(half, result),
            (Lookup::JournalRead(half), result) => return self.journal_read(half, result),
            (Lookup::Latch, result) => return self.suspect_latched(&result),
            (Lookup::Emptied, result) => return self.journal_emptied(&result),
        }
        self.look_further();
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
            let mut steps = read_meta(segment, file);
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
        let Home { files, keep_journal, sequence, .. } = std::mem::take(&mut self.start.home);
        self.desk.journal.go_on_after(sequence);
        if keep_journal {
            self.desk.journal.state = State::Unusable;
        } else if let ([Some(a), Some(b)], State::Absent) = (files, self.desk.journal.state) {
            self.desk.journal.ready([a, b]);
        }
        if self.start.cleared > 0 {
            self.desk.notice(Notice::HalfMadeRemoved { directories: self.start.cleared });
        }
        let foreign = std::mem::take(&mut self.start.foreign);
        self.desk.actions.push(Action::Started { copies: self.copies.len(), foreign });
    }

    fn found(&mut self, segment: SegmentId, result: Result<Output, disk::Error>) {
        let data = match result {
            Ok(Output::Data(data)) => data,
            Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => Default::default(),
            Err(error) if error.kind == ErrorKind::NotFound => {
                return self.look_at_leftover(segment);
            }
            Err(error) => {
                self.desk.notice(Notice::MetaUnreadable { segment, detail: error.to_string() });
                self.desk.unread.push_back(segment);
                self.copies.insert(segment, Copy::unread(segment));
                return;
            }
        };
        match Meta::decode(&data) {
            Ok(meta) if meta.segment != segment => self.foreign(segment.to_string()),
            Ok(meta) => {
                // Uses of the journal are numbered on from the last that any copy knows of, whatever became of
                // its files: what a later use loses must not look older than a copy.
                self.start.home.sequence = self.start.home.sequence.max(meta.born);
                let mut copy = Copy::new(meta);
                copy.adopt(&mut self.desk, meta);
                self.copies.insert(segment, copy);
            }
            Err(error) => {
                self.desk.notice(Notice::MetaUnreadable { segment, detail: error.to_string() });
                self.copies.insert(segment, Copy::unreadable(segment));
            }
        }
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
