//! Runs one step against the names and the files, faults included.
//!
//! Owns the state of the volume and of the process's open files. Does not decide when a step runs, nor
//! which jobs share a sync: that is the queue's.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use storage::disk::{ErrorKind, FileId, JobId, Output, Path, Step};

use super::faults::{Class, Faults, Injection, Lies};
use super::file::{FILE_BYTES_MAX, File};
use super::names::{FileNo, Names};
use super::trace::Trace;

/// What a file or a directory costs on a volume of bounded capacity.
pub const NODE_BYTES: u64 = 512;

/// How often a disk did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes and zeroings.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of directories.
    pub dir_syncs: u64,
    /// Reads.
    pub reads: u64,
    /// Steps that failed, whatever for.
    pub failures: u64,
    /// Power losses.
    pub crashes: u64,
    /// Process ends without power loss.
    pub kills: u64,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: String,
}

impl Failure {
    fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

#[derive(Clone, Debug)]
struct OpenFile {
    no: FileNo,
    /// The name it was opened under, for people and for injections.
    path: String,
    poisoned: bool,
    failed_syncs_seen: u64,
}

/// The volume and what the process holds open on it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) names: Names,
    pub(crate) files: BTreeMap<FileNo, File>,
    open: BTreeMap<FileId, OpenFile>,
    pub(crate) faults: Faults,
    pub(crate) lies: Lies,
    pub(crate) injections: Vec<Injection>,
    pub(crate) read_only: bool,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    /// Its own stream, so that another workload or schedule meets the same faults.
    pub(crate) rng: SmallRng,
    sweep_at: usize,
}

impl Machine {
    pub(crate) fn new(rng: SmallRng, faults: Faults) -> Self {
        Self {
            names: Names::new(),
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            faults,
            lies: Lies::default(),
            injections: Vec::new(),
            read_only: false,
            counts: Counts::default(),
            trace: Trace::default(),
            rng,
            sweep_at: 64,
        }
    }

    /// Runs one step. `continued` marks the rest of a write whose faults were already drawn, and a sync for
    /// jobs that were already found to be allowed one.
    pub(crate) fn run(&mut self, job: JobId, step: &Step, continued: bool) -> Result<Output, Failure> {
        let result = self.run_checked(step, continued);
        self.trace.add_step(job, step, &result);
        if let Err(failure) = &result {
            self.counts.failures += 1;
            self.poison(step, failure.kind);
        }
        result
    }

    fn run_checked(&mut self, step: &Step, continued: bool) -> Result<Output, Failure> {
        match step {
            Step::Write { file, at, data } => self.write(*file, *at, data, continued),
            Step::Zero { file, at, len } => self.zero(*file, *at, *len, continued),
            Step::Truncate { file, len } => self.truncate(*file, *len),
            Step::Sync(file) => {
                if !continued {
                    self.check_writable(*file)?;
                }
                self.sync(*file)
            }
            Step::Read { file, at, len } => self.read(*file, *at, *len),
            Step::Close(file) => {
                self.open.remove(file);
                Ok(Output::Done)
            }
            Step::Open { file, path } => self.open(*file, path),
            Step::Create { file, path } => self.create(*file, path),
            Step::CreateDir(_)
            | Step::RemoveDir(_)
            | Step::SyncDir(_)
            | Step::Rename { .. }
            | Step::Remove(_)
            | Step::List(_) => self.name_step(step),
        }
    }

    /// A file that failed takes nothing more under that id.
    fn poison(&mut self, step: &Step, kind: ErrorKind) {
        let file = match step {
            Step::Write { file, .. }
            | Step::Zero { file, .. }
            | Step::Truncate { file, .. }
            | Step::Sync(file) => file,
            Step::SyncDir(dir) => {
                // As on the real disk: a device that failed to write names is not asked again.
                if kind == ErrorKind::Io {
                    self.names.sync_failing(dir);
                }
                return;
            }
            Step::CreateDir(_)
            | Step::RemoveDir(_)
            | Step::Open { .. }
            | Step::Create { .. }
            | Step::Close(_)
            | Step::Rename { .. }
            | Step::Remove(_)
            | Step::Read { .. }
            | Step::List(_) => return,
        };
        if let Some(open) = self.open.get_mut(file) {
            open.poisoned = true;
        }
    }

    /// Whether an id takes writes and syncs at all.
    pub(crate) fn check_writable(&self, file: FileId) -> Result<(), Failure> {
        let open = self.opened(file)?;
        if open.poisoned {
            return Err(Failure::new(ErrorKind::Poisoned, format!("{}: failed before", open.path)));
        }
        Ok(())
    }

    /// Files the process has open.
    pub(super) fn open_files(&self) -> usize {
        self.open.len()
    }

    fn opened(&self, file: FileId) -> Result<&OpenFile, Failure> {
        self.open.get(&file).ok_or_else(|| Failure::new(ErrorKind::NotOpen, format!("{file:?}")))
    }

    /// The open file, what it was opened as, and the generator, borrowed together.
    fn parts(&mut self, file: FileId) -> Result<(&mut File, &str, &mut SmallRng), Failure> {
        let Some(open) = self.open.get(&file) else {
            return Err(Failure::new(ErrorKind::NotOpen, format!("{file:?}")));
        };
        let bytes = self.files.get_mut(&open.no).expect("an open file is never swept");
        Ok((bytes, &open.path, &mut self.rng))
    }

    /// Whether an injected or a random fault strikes; the kind of failure.
    fn strikes(&mut self, class: Class, paths: &[&str]) -> Option<ErrorKind> {
        // Every injection counts the step, not only those before the first that strikes.
        let mut struck = None;
        for injection in &mut self.injections {
            if injection.strikes(class, paths) {
                struck = struck.or(Some(injection.kind));
            }
        }
        let chance = match class {
            Class::Read => self.faults.read_error,
            Class::Write => self.faults.write_error,
            Class::Sync => self.faults.sync_error,
            Class::SyncDir | Class::Open | Class::Name | Class::List => self.faults.name_error,
        };
        struck.or_else(|| chance.strikes(&mut self.rng).then_some(ErrorKind::Io))
    }

    fn file_strikes(&mut self, class: Class, file: FileId) -> Result<Option<ErrorKind>, Failure> {
        let path = self.opened(file)?.path.clone();
        Ok(self.strikes(class, &[&path]))
    }

    /// Bytes that may still be added; sweeps first, so that removed files give their room back.
    fn room(&mut self) -> u64 {
        let Some(capacity) = self.faults.capacity_bytes else { return u64::MAX };
        self.sweep();
        let directories = self.names.directory_count();
        let nodes = u64::try_from(self.files.len() + directories).expect("a count fits");
        let bytes: u64 =
            self.files.values().map(|file| u64::try_from(file.view().len()).expect("a length fits")).sum();
        capacity.saturating_sub(bytes + nodes * NODE_BYTES)
    }

    /// Checks everything that can refuse a write of `[at, at + len)`; a failure names the bytes that still
    /// take effect.
    fn admit(&mut self, file: FileId, at: u64, len: u64, continued: bool) -> Result<(), (Failure, u64)> {
        self.check_writable(file).map_err(|failure| (failure, 0))?;
        let struck =
            if continued { None } else { self.file_strikes(Class::Write, file).map_err(|f| (f, 0))? };
        let read_only = self.read_only;
        let (bytes, path, rng) = self.parts(file).map_err(|failure| (failure, 0))?;
        let fail = |kind, words| Failure::new(kind, format!("{path} at {at}: {words}"));
        let end = u64::try_from(bytes.view().len()).expect("a length fits");
        if read_only {
            return Err((fail(ErrorKind::ReadOnly, "read-only volume"), 0));
        }
        if at.checked_add(len).is_none_or(|to| to > FILE_BYTES_MAX) {
            return Err((fail(ErrorKind::Other, "file too large"), 0));
        }
        if let Some(kind) = struck {
            let done = rng.random_range(0..=len);
            return Err((fail(kind, "injected failure of a write"), done));
        }
        let full = fail(ErrorKind::Full, "no space left");
        let grow = (at + len).saturating_sub(end);
        if grow > 0 {
            let room = self.room();
            if grow > room {
                return Err((full, (end + room).saturating_sub(at).min(len)));
            }
        }
        Ok(())
    }

    fn write(&mut self, file: FileId, at: u64, data: &[Bytes], continued: bool) -> Result<Output, Failure> {
        let data = join(data);
        let len = u64::try_from(data.len()).expect("a length fits");
        let admitted = self.admit(file, at, len, continued);
        let done = admitted.as_ref().map_or_else(|(_, done)| *done, |()| len);
        self.counts.writes += 1;
        self.counts.write_bytes += done;
        if done > 0 {
            let part = data.slice(..usize::try_from(done).expect("a part is no longer than the whole"));
            self.parts(file)?.0.write(at, part);
        }
        admitted.map(|()| Output::Done).map_err(|(failure, _)| failure)
    }

    fn zero(&mut self, file: FileId, at: u64, len: u64, continued: bool) -> Result<Output, Failure> {
        let admitted = self.admit(file, at, len, continued);
        let done = admitted.as_ref().map_or_else(|(_, done)| *done, |()| len);
        self.counts.writes += 1;
        self.counts.write_bytes += done;
        if done > 0 {
            self.parts(file)?.0.zero(at, done);
        }
        admitted.map(|()| Output::Done).map_err(|(failure, _)| failure)
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<Output, Failure> {
        // Growing takes no blocks, so only what refuses any change refuses this.
        self.check_writable(file)?;
        let struck = self.file_strikes(Class::Write, file)?;
        let read_only = self.read_only;
        let (bytes, path, rng) = self.parts(file)?;
        if read_only {
            return Err(Failure::new(ErrorKind::ReadOnly, format!("{path}: read-only volume")));
        }
        if len > FILE_BYTES_MAX {
            return Err(Failure::new(ErrorKind::Other, format!("{path}: file too large")));
        }
        if struck.is_none() || rng.random_bool(0.5) {
            bytes.truncate(len);
        }
        match struck {
            Some(kind) => Err(Failure::new(kind, format!("{path}: injected failure of a truncation"))),
            None => Ok(Output::Done),
        }
    }

    fn sync(&mut self, file: FileId) -> Result<Output, Failure> {
        self.counts.syncs += 1;
        let struck = self.file_strikes(Class::Sync, file)?;
        let (read_only, ignore) = (self.read_only, self.lies.ignore_sync);
        let seen = self.opened(file)?.failed_syncs_seen;
        let (bytes, path, rng) = self.parts(file)?;
        if bytes.failed_syncs != seen {
            // Its bytes may have been dropped with those of the id whose sync failed.
            return Err(Failure::new(ErrorKind::Io, format!("{path}: a sync under another id failed")));
        }
        let refused = (read_only && bytes.is_dirty()).then_some(ErrorKind::ReadOnly);
        if let Some(kind) = struck.or(refused) {
            let failure = Failure::new(kind, format!("{path}: sync failed"));
            bytes.sync_failing(rng);
            return Err(failure);
        }
        if !ignore {
            bytes.sync();
        }
        Ok(Output::Done)
    }

    fn read(&mut self, file: FileId, at: u64, len: usize) -> Result<Output, Failure> {
        self.counts.reads += 1;
        let struck = self.file_strikes(Class::Read, file)?;
        let (bytes, path, _) = self.parts(file)?;
        if let Some(kind) = struck {
            return Err(Failure::new(kind, format!("{path} at {at}: injected failure of a read")));
        }
        let view = bytes.view();
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(view.len());
        let to = from.saturating_add(len).min(view.len());
        Ok(Output::Data(Bytes::copy_from_slice(&view[from..to])))
    }

    fn open(&mut self, file: FileId, path: &Path) -> Result<Output, Failure> {
        let shown = path.to_string();
        if let Some(kind) = self.strikes(Class::Open, &[&shown]) {
            return Err(Failure::new(kind, format!("{shown}: injected failure of an open")));
        }
        let no = self.names.file(path).map_err(|kind| Failure::new(kind, shown.clone()))?;
        let stale = self.lies.stale_reopen;
        let bytes = self.files.get_mut(&no).expect("a named file is never swept");
        if !stale {
            bytes.reopen();
        }
        let length = u64::try_from(bytes.view().len()).expect("a length fits");
        let failed_syncs_seen = bytes.failed_syncs;
        self.hold(file, OpenFile { no, path: shown, poisoned: false, failed_syncs_seen });
        Ok(Output::Length(length))
    }

    fn create(&mut self, file: FileId, path: &Path) -> Result<Output, Failure> {
        let shown = path.to_string();
        self.admit_name(Class::Name, &[&shown], NODE_BYTES)?;
        let no = self.names.create(path).map_err(|kind| Failure::new(kind, shown.clone()))?;
        self.files.insert(no, File::default());
        self.hold(file, OpenFile { no, path: shown, poisoned: false, failed_syncs_seen: 0 });
        if self.files.len() > self.sweep_at {
            self.sweep();
        }
        Ok(Output::Done)
    }

    fn hold(&mut self, file: FileId, open: OpenFile) {
        let before = self.open.insert(file, open);
        assert!(before.is_none(), "{file:?} was used before in this process lifetime");
    }

    /// Checks everything but the names themselves that can refuse a change of names.
    fn admit_name(&mut self, class: Class, paths: &[&str], bytes: u64) -> Result<(), Failure> {
        let shown = || paths.join(" to ");
        if let Some(kind) = self.strikes(class, paths) {
            return Err(Failure::new(kind, format!("{}: injected failure on names", shown())));
        }
        if self.read_only {
            return Err(Failure::new(ErrorKind::ReadOnly, format!("{}: read-only volume", shown())));
        }
        if bytes > 0 && self.room() < bytes {
            return Err(Failure::new(ErrorKind::Full, format!("{}: no space left", shown())));
        }
        Ok(())
    }

    fn name_step(&mut self, step: &Step) -> Result<Output, Failure> {
        let dir_name = |dir: &Option<_>| dir.as_ref().map_or(".", storage::disk::Name::as_str).to_owned();
        let on = |shown: &str, done: Result<(), ErrorKind>| {
            done.map(|()| Output::Done).map_err(|kind| Failure::new(kind, shown))
        };
        match step {
            Step::CreateDir(name) => {
                self.admit_name(Class::Name, &[name.as_str()], NODE_BYTES)?;
                on(name.as_str(), self.names.create_dir(name))
            }
            Step::RemoveDir(name) => {
                self.admit_name(Class::Name, &[name.as_str()], 0)?;
                on(name.as_str(), self.names.remove_dir(name))
            }
            Step::Rename { from, to } => {
                let (from_name, to_name) = (from.to_string(), to.to_string());
                self.admit_name(Class::Name, &[&from_name, &to_name], 0)?;
                on(&format!("{from_name} to {to_name}"), self.names.rename(from, to))
            }
            Step::Remove(path) => {
                let shown = path.to_string();
                self.admit_name(Class::Name, &[&shown], 0)?;
                on(&shown, self.names.remove(path))
            }
            Step::SyncDir(dir) => {
                self.counts.dir_syncs += 1;
                let shown = dir_name(dir);
                on(&shown, self.names.check_sync(dir))?;
                if let Some(kind) = self.strikes(Class::SyncDir, &[&shown]) {
                    return Err(Failure::new(kind, format!("{shown}: sync of the directory failed")));
                }
                if self.lies.ignore_sync_dir { Ok(Output::Done) } else { on(&shown, self.names.sync(dir)) }
            }
            Step::List(dir) => {
                let shown = dir_name(dir);
                if let Some(kind) = self.strikes(Class::List, &[&shown]) {
                    return Err(Failure::new(kind, format!("{shown}: injected failure of a listing")));
                }
                self.names.list(dir).map(Output::Entries).map_err(|kind| Failure::new(kind, shown))
            }
            Step::Open { .. }
            | Step::Create { .. }
            | Step::Close(_)
            | Step::Write { .. }
            | Step::Zero { .. }
            | Step::Sync(_)
            | Step::Truncate { .. }
            | Step::Read { .. } => unreachable!("steps on files are run elsewhere"),
        }
    }

    /// Drops files that neither a name nor an open id leads to.
    pub(crate) fn sweep(&mut self) {
        let mut live = self.names.sweep();
        live.extend(self.open.values().map(|open| open.no));
        self.files.retain(|no, _| live.contains(no));
        self.sweep_at = self.files.len() * 2 + 64;
    }

    /// The process ends; the volume stays as the cache shows it.
    pub(crate) fn kill(&mut self) {
        self.open.clear();
        self.names.forget();
        self.sweep();
    }

    /// The power goes.
    pub(crate) fn lose_power(&mut self) {
        self.open.clear();
        self.names.lose_power(self.faults.names, &mut self.rng);
        for file in self.files.values_mut() {
            file.lose_power(&mut self.rng);
        }
        self.sweep();
    }
}

/// The slices of a write as one; a single slice stays shared.
fn join(data: &[Bytes]) -> Bytes {
    match data {
        [one] => one.clone(),
        several => several.concat().into(),
    }
}
