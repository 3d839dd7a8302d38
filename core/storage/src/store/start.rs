//! The start: what does the directory hold?
//!
//! One small file is read for each copy; logs are only looked at when somebody asks for them. The names of what
//! is found are synced first: a process that was killed may have left some that only the page cache knows. A directory
//! without a `copy.meta` of its own is nobody's: it is reported and left alone. A `copy.meta` that cannot be
//! read is damage of that copy.

use std::collections::VecDeque;

use types::{Epoch, Offset, SegmentId};

use super::copy::Copy;
use super::desk::Owner;
use super::{Action, Notice, Store};
use crate::disk::{self, Entry, ErrorKind, FileId, Name, Output, Path, Step};
use crate::format::batch::Nonce;
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
}

/// How far the start has come.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) done: bool,
    waiting: VecDeque<SegmentId>,
    reading: usize,
    foreign: Vec<String>,
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
        }
        self.look_further();
    }

    /// Removes the names of files that an earlier life put aside.
    ///
    /// A crash inside a rename may have left a file under both of its names; used again under one of them it
    /// would change under the other. Its blocks are not worth that risk.
    fn forget_recycled(&mut self, entries: Vec<Entry>) {
        let dir = Some(self.desk.recycle_dir());
        let names = entries.into_iter().filter(|entry| !entry.is_dir).filter_map(|entry| Name::new(&entry.name));
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
        if self.start.reading == 0 && !self.start.done {
            self.start.done = true;
            let foreign = std::mem::take(&mut self.start.foreign);
            self.desk.actions.push(Action::Started { copies: self.copies.len(), foreign });
        }
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
