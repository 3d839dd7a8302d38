//! Runs single steps against the data directory.
//!
//! [`Shared`] is what readers need too: the directory and the open files. [`Volume`] is the storage thread's
//! alone: it changes names and files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use storage::disk::{Completion, Dir, Entry, ErrorKind, FileId, Job, Name, Output, Path, Step};

use super::counters::Counters;
use super::failure::Failure;
use super::file::OpenFile;
use super::root::{LOCK_NAME, Root};
use super::syncers::{self, Synced, Syncers, Target};

/// Directories kept open, so that a sync of one costs no lookup.
const DIRS_OPEN_MAX: usize = 64;

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// What all threads of one disk use.
#[derive(Debug)]
pub(super) struct Shared {
    root: Root,
    files: RwLock<BTreeMap<FileId, Arc<OpenFile>>>,
    pub(super) counters: Counters,
}

impl Shared {
    pub(super) fn new(root: Root) -> Self {
        Self { root, files: RwLock::default(), counters: Counters::default() }
    }

    /// The open file of that number.
    pub(super) fn file(&self, file: FileId) -> Result<Arc<OpenFile>, Failure> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(&file).cloned().ok_or_else(|| Failure::new(ErrorKind::NotOpen, format!("{file:?}")))
    }

    /// A directory, for people: the data directory in full, what lies in it as other paths are shown.
    fn shown(&self, dir: &Dir) -> String {
        dir.as_ref().map_or_else(|| self.root.path.display().to_string(), |name| name.as_str().to_owned())
    }

    fn open_dir(&self, name: &Name) -> Result<OwnedFd, Failure> {
        rustix::fs::openat(&self.root.fd, name.as_str(), DIR_FLAGS, Mode::empty())
            .map_err(|errno| Failure::from_errno(name.as_str(), errno))
    }

    fn read_step(&self, step: &Step) -> Result<Output, Failure> {
        match step {
            Step::Read { file, at, len } => {
                self.file(*file)?.read(*at, *len, &self.counters).map(Output::Data)
            }
            Step::List(dir) => self.list(dir).map(Output::Entries),
            Step::CreateDir(_)
            | Step::RemoveDir(_)
            | Step::SyncDir(_)
            | Step::Open { .. }
            | Step::Create { .. }
            | Step::Close(_)
            | Step::Write { .. }
            | Step::Zero { .. }
            | Step::Sync(_)
            | Step::Truncate { .. }
            | Step::Rename { .. }
            | Step::Remove(_) => unreachable!("only reading steps come here"),
        }
    }

    fn list(&self, dir: &Dir) -> Result<Vec<Entry>, Failure> {
        let shown = self.shown(dir);
        let failed = |errno| Failure::from_errno(&shown, errno);
        let opened;
        let fd = match dir {
            None => self.root.fd.as_fd(),
            Some(name) => {
                opened = self.open_dir(name)?;
                opened.as_fd()
            }
        };
        let mut entries = Vec::new();
        // Reads from a descriptor of its own, so that two listings do not share one place.
        for entry in rustix::fs::Dir::read_from(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // The lock is this module's own.
            if name == "." || name == ".." || (dir.is_none() && name == LOCK_NAME) {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                kind = kind_of(fd, entry.file_name()).map_err(failed)?;
            }
            entries.push(Entry { name, is_dir: kind == FileType::Directory });
        }
        Ok(entries)
    }
}

fn kind_of(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Runs a job of reading steps.
pub(super) fn read_job(shared: &Shared, job: &Job) -> Completion {
    let mut result = Ok(Output::Done);
    for (index, step) in job.steps.iter().enumerate() {
        result = shared.read_step(step).map_err(|failure| failure.in_step(index));
        if result.is_err() {
            shared.counters.failed();
            break;
        }
    }
    Completion { job: job.id, result }
}

/// The storage thread's hold on the directory.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) shared: Arc<Shared>,
    pub(super) syncers: Arc<Syncers>,
    dirs: BTreeMap<Name, Arc<OwnedFd>>,
    /// Directories whose sync failed on the device. The kernel reports such a failure once, so a second sync
    /// that succeeded would prove nothing.
    poisoned: BTreeSet<Dir>,
}

impl Volume {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, syncers: Arc::default(), dirs: BTreeMap::new(), poisoned: BTreeSet::new() }
    }

    /// Runs one step; a failed change of a file poisons it.
    pub(super) fn run(&mut self, step: &Step) -> Result<Output, Failure> {
        match step {
            Step::Write { file, at, data } => self.change(*file, |file, counters| {
                let data: Vec<_> = data.iter().filter(|slice| !slice.is_empty()).cloned().collect();
                file.check_extent(*at, data.iter().map(|slice| slice.len() as u64).sum())?;
                file.write(*at, &data, counters).map_err(|unwritten| unwritten.failure)
            }),
            Step::Zero { file, at, len } => self.change(*file, |file, counters| {
                file.check_extent(*at, *len)?;
                file.zero(*at, *len, counters).map_err(|unwritten| unwritten.failure)
            }),
            Step::Truncate { file, len } => self.change(*file, |file, _| file.truncate(*len)),
            Step::Sync(file) => self.change(*file, |file, counters| file.sync(counters)),
            Step::Close(file) => {
                let mut files = self.shared.files.write().unwrap_or_else(PoisonError::into_inner);
                files.remove(file);
                Ok(Output::Done)
            }
            Step::Open { file, path } => self.open(*file, path),
            Step::Create { file, path } => self.create(*file, path),
            Step::Read { .. } | Step::List(_) => self.shared.read_step(step),
            Step::CreateDir(name) => self.create_dir(name),
            Step::RemoveDir(name) => self.remove_dir(name),
            Step::SyncDir(dir) => self.sync_dir(dir),
            Step::Rename { from, to } => self.rename(from, to),
            Step::Remove(path) => self.remove(path),
        }
    }

    fn change(
        &self,
        file: FileId,
        work: impl FnOnce(&OpenFile, &Counters) -> Result<(), Failure>,
    ) -> Result<Output, Failure> {
        let file = self.shared.file(file)?;
        file.check_writable()?;
        work(&file, &self.shared.counters).inspect_err(|_| file.poison())?;
        Ok(Output::Done)
    }

    /// The descriptor of a directory, kept open for the next time.
    fn dir(&mut self, dir: &Dir) -> Result<BorrowedFd<'_>, Failure> {
        match dir {
            None => Ok(self.shared.root.fd.as_fd()),
            Some(name) => self.hold_dir(name).map(|held| held.as_fd()),
        }
    }

    fn hold_dir(&mut self, name: &Name) -> Result<&Arc<OwnedFd>, Failure> {
        if !self.dirs.contains_key(name) {
            if self.dirs.len() >= DIRS_OPEN_MAX {
                self.dirs.clear();
            }
            self.dirs.insert(name.clone(), Arc::new(self.shared.open_dir(name)?));
        }
        Ok(self.dirs.get(name).expect("inserted above"))
    }

    /// Runs a system call on a name in a directory.
    fn at<T>(
        &mut self,
        path: &Path,
        call: impl FnOnce(BorrowedFd<'_>, &str) -> Result<T, Errno>,
    ) -> Result<T, Failure> {
        let dir = self.dir(&path.dir)?;
        call(dir, path.name.as_str()).map_err(|errno| Failure::from_errno(path, errno))
    }

    fn open(&mut self, file: FileId, path: &Path) -> Result<Output, Failure> {
        self.check_free(file)?;
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (fd, read_only) = self.at(path, |dir, name| {
            match rustix::fs::openat(dir, name, flags | OFlags::RDWR, Mode::empty()) {
                // What is there can still be read.
                Err(Errno::ROFS) => {
                    rustix::fs::openat(dir, name, flags | OFlags::RDONLY, Mode::empty()).map(|fd| (fd, true))
                }
                other => other.map(|fd| (fd, false)),
            }
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Failure::from_errno(path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Failure::new(ErrorKind::Other, format!("{path}: not a regular file")));
        }
        let open = OpenFile::new(fd, path.clone(), read_only);
        let length = open.length()?;
        self.hold(file, open);
        Ok(Output::Length(length))
    }

    fn create(&mut self, file: FileId, path: &Path) -> Result<Output, Failure> {
        self.check_free(file)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        let fd = self.at(path, |dir, name| rustix::fs::openat(dir, name, flags, mode))?;
        self.hold(file, OpenFile::new(fd, path.clone(), false));
        Ok(Output::Done)
    }

    fn check_free(&self, file: FileId) -> Result<(), Failure> {
        match self.shared.file(file) {
            Ok(open) => Err(Failure::new(ErrorKind::Other, format!("{file:?} is in use for {}", open.path))),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn hold(&self, file: FileId, open: OpenFile) {
        let mut files = self.shared.files.write().unwrap_or_else(PoisonError::into_inner);
        files.insert(file, Arc::new(open));
    }

    fn create_dir(&mut self, name: &Name) -> Result<Output, Failure> {
        rustix::fs::mkdirat(&self.shared.root.fd, name.as_str(), Mode::from_raw_mode(0o700))
            .map_err(|errno| Failure::from_errno(name.as_str(), errno))?;
        Ok(Output::Done)
    }

    fn remove_dir(&mut self, name: &Name) -> Result<Output, Failure> {
        rustix::fs::unlinkat(&self.shared.root.fd, name.as_str(), AtFlags::REMOVEDIR).map_err(|errno| {
            // Both are allowed for a directory that is not empty.
            let errno = if errno == Errno::EXIST { Errno::NOTEMPTY } else { errno };
            Failure::from_errno(name.as_str(), errno)
        })?;
        // The descriptor would lead to a directory without a name, not to the next of that name.
        self.dirs.remove(name);
        self.poisoned.remove(&Some(name.clone()));
        Ok(Output::Done)
    }

    fn sync_dir(&mut self, dir: &Dir) -> Result<Output, Failure> {
        self.check_dir(dir)?;
        let (shown, shared) = (self.shared.shown(dir), self.shared.clone());
        let result = syncers::sync_dir(self.dir(dir)?, &shown, &shared.counters);
        self.dir_synced(dir, result).map(|()| Output::Done)
    }

    /// Syncs several directories side by side; each gets its own result.
    pub(super) fn sync_dirs(&mut self, dirs: BTreeSet<Dir>) -> BTreeMap<Dir, Synced> {
        let mut results = BTreeMap::new();
        let mut dirs = dirs.into_iter().peekable();
        while dirs.peek().is_some() {
            let (mut names, mut targets) = (Vec::new(), Vec::new());
            // No more descriptors than are kept open anyway.
            for dir in dirs.by_ref().take(DIRS_OPEN_MAX) {
                let held = match &dir {
                    Some(name) => self.check_dir(&dir).and_then(|()| self.hold_dir(name).cloned()),
                    None => {
                        let result = self.sync_dir(&None).map(|_| ());
                        results.insert(None, result);
                        continue;
                    }
                };
                match held {
                    Ok(held) => {
                        targets.push(Target::Dir(held, dir.clone()));
                        names.push(dir);
                    }
                    Err(failure) => drop(results.insert(dir, Err(failure))),
                }
            }
            let synced = self.syncers.sync_all(targets, &self.shared.counters);
            for (dir, result) in names.into_iter().zip(synced) {
                let result = self.dir_synced(&dir, result);
                results.insert(dir, result);
            }
        }
        results
    }

    fn check_dir(&self, dir: &Dir) -> Result<(), Failure> {
        if self.poisoned.contains(dir) {
            let shown = self.shared.shown(dir);
            return Err(Failure::new(ErrorKind::Poisoned, format!("sync of {shown}: failed before")));
        }
        Ok(())
    }

    fn dir_synced(&mut self, dir: &Dir, result: Synced) -> Synced {
        if result.as_ref().is_err_and(|failure| failure.kind == ErrorKind::Io) {
            self.poisoned.insert(dir.clone());
        }
        result
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<Output, Failure> {
        let kind = self.at(from, |dir, name| kind_of(dir, name))?;
        if kind != FileType::RegularFile {
            return Err(Failure::new(ErrorKind::Other, format!("{from}: not a regular file")));
        }
        // Opening the second directory may close what the cache holds, so the first is held on its own.
        let from_dir = self.dir(&from.dir)?.try_clone_to_owned();
        let from_dir =
            from_dir.map_err(|error| Failure::new(ErrorKind::Other, format!("{from}: {error}")))?;
        let to_dir = self.dir(&to.dir)?;
        rustix::fs::renameat(from_dir, from.name.as_str(), to_dir, to.name.as_str())
            .map_err(|errno| Failure::from_errno(format_args!("{from} to {to}"), errno))?;
        Ok(Output::Done)
    }

    fn remove(&mut self, path: &Path) -> Result<Output, Failure> {
        self.at(path, |dir, name| rustix::fs::unlinkat(dir, name, AtFlags::empty()))?;
        Ok(Output::Done)
    }
}
