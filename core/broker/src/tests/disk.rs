//! A disk in memory: does what the contract says, loses nothing, and fails when told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use storage::disk::{Completion, Entry, Error, ErrorKind, FileId, Job, Name, Output, Path, Step};

/// One directory in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<Path, usize>,
    contents: Vec<Vec<u8>>,
    dirs: BTreeSet<Name>,
    open: BTreeMap<FileId, usize>,
    poisoned: BTreeSet<FileId>,
    /// Submitted and not done.
    pub(super) jobs: VecDeque<Job>,
    /// Every write fails with this.
    pub(super) fail_writes: Option<ErrorKind>,
    /// Nothing can be created under a path that contains this.
    pub(super) refused: Option<&'static str>,
    /// Jobs that only read are left for later.
    pub(super) hold_reads: bool,
    /// Nothing is done for now.
    pub(super) hold: bool,
    /// No name can be taken away.
    pub(super) keep_names: bool,
    /// Every read fails with this.
    pub(super) fail_reads: Option<ErrorKind>,
}

impl Disk {
    /// Does the oldest job.
    pub(super) fn run_one(&mut self) -> Option<Completion> {
        if self.hold {
            return None;
        }
        let held = |job: &Job| self.hold_reads && job.steps.iter().all(Step::is_reading);
        let next = self.jobs.iter().position(|job| !held(job))?;
        let job = self.jobs.remove(next)?;
        let mut output = Output::Done;
        for (step, what) in job.steps.into_iter().enumerate() {
            match self.run(what) {
                Ok(given) => output = given,
                Err(kind) => {
                    let error = Error { kind, step, detail: "as told".to_owned() };
                    return Some(Completion { job: job.id, result: Err(error) });
                }
            }
        }
        Some(Completion { job: job.id, result: Ok(output) })
    }

    /// What a power loss leaves: nothing is open and nothing is on its way.
    pub(super) fn crash(&mut self) {
        self.open.clear();
        self.poisoned.clear();
        self.jobs.clear();
    }

    /// Changes one byte of the file whose path ends so.
    pub(super) fn flip(&mut self, suffix: &str, at: usize) {
        let found = self.files.iter().find(|(path, _)| path.to_string().ends_with(suffix));
        let (_, &index) = found.expect("the file is there");
        self.contents[index][at] ^= 0x40;
    }

    /// Somebody removes every directory.
    pub(super) fn wipe(&mut self) {
        self.files.retain(|path, _| path.dir.is_none());
        self.dirs.clear();
    }

    /// Directories, in order.
    pub(super) fn dirs(&self) -> Vec<&str> {
        self.dirs.iter().map(Name::as_str).collect()
    }

    pub(super) fn has_file(&self, part: &str) -> bool {
        self.files.keys().any(|path| path.to_string().contains(part))
    }

    fn create(&mut self, file: FileId, path: Path) -> Result<Output, ErrorKind> {
        let dir_exists = path.dir.as_ref().is_none_or(|dir| self.dirs.contains(dir));
        if !dir_exists {
            return Err(ErrorKind::NotFound);
        }
        if self.files.contains_key(&path) {
            return Err(ErrorKind::Exists);
        }
        self.contents.push(Vec::new());
        self.files.insert(path, self.contents.len() - 1);
        self.open.insert(file, self.contents.len() - 1);
        Ok(Output::Done)
    }

    fn writable(&mut self, file: FileId) -> Result<&mut Vec<u8>, ErrorKind> {
        let index = *self.open.get(&file).ok_or(ErrorKind::NotOpen)?;
        if self.poisoned.contains(&file) {
            return Err(ErrorKind::Poisoned);
        }
        if let Some(kind) = self.fail_writes {
            self.poisoned.insert(file);
            return Err(kind);
        }
        Ok(&mut self.contents[index])
    }

    fn write(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<Output, ErrorKind> {
        let at = usize::try_from(at).expect("test files are small");
        let contents = self.writable(file)?;
        contents.resize(contents.len().max(at + data.len()), 0);
        contents[at..at + data.len()].copy_from_slice(data);
        Ok(Output::Done)
    }

    fn run(&mut self, step: Step) -> Result<Output, ErrorKind> {
        let small = |n: u64| usize::try_from(n).expect("test files are small");
        match step {
            Step::CreateDir(_) | Step::Create { .. } if self.fail_writes.is_some() => {
                Err(self.fail_writes.expect("just seen"))
            }
            Step::RemoveDir(_) | Step::Rename { .. } | Step::Remove(_) if self.keep_names => {
                Err(ErrorKind::Other)
            }
            Step::CreateDir(name) if self.refused.is_some_and(|part| name.as_str().contains(part)) => {
                Err(ErrorKind::Full)
            }
            Step::Create { path, .. } if self.refused.is_some_and(|part| path.to_string().contains(part)) => {
                Err(ErrorKind::Full)
            }
            Step::CreateDir(name) => self.dirs.insert(name).then_some(Output::Done).ok_or(ErrorKind::Exists),
            Step::RemoveDir(name) => {
                if self.files.keys().any(|path| path.dir.as_ref() == Some(&name)) {
                    return Err(ErrorKind::NotEmpty);
                }
                self.dirs.remove(&name).then_some(Output::Done).ok_or(ErrorKind::NotFound)
            }
            Step::SyncDir(_) => Ok(Output::Done),
            Step::Open { file, path } => {
                let index = *self.files.get(&path).ok_or(ErrorKind::NotFound)?;
                self.open.insert(file, index);
                Ok(Output::Length(self.contents[index].len() as u64))
            }
            Step::Create { file, path } => self.create(file, path),
            Step::Close(file) => {
                self.open.remove(&file);
                Ok(Output::Done)
            }
            Step::Write { file, at, data } => {
                let data: Vec<u8> = data.iter().flat_map(|slice| slice.to_vec()).collect();
                self.write(file, at, &data)
            }
            Step::Zero { file, at, len } => self.write(file, at, &vec![0; small(len)]),
            Step::Sync(file) => self.writable(file).map(|_| Output::Done),
            Step::Truncate { file, len } => {
                self.writable(file)?.resize(small(len), 0);
                Ok(Output::Done)
            }
            Step::Rename { from, to } => {
                let index = self.files.remove(&from).ok_or(ErrorKind::NotFound)?;
                self.files.insert(to, index);
                Ok(Output::Done)
            }
            Step::Remove(path) => self.files.remove(&path).map(|_| Output::Done).ok_or(ErrorKind::NotFound),
            Step::Read { file, at, len } => {
                let index = *self.open.get(&file).ok_or(ErrorKind::NotOpen)?;
                if let Some(kind) = self.fail_reads {
                    return Err(kind);
                }
                let contents = &self.contents[index];
                let start = small(at).min(contents.len());
                let end = (start + len).min(contents.len());
                Ok(Output::Data(Bytes::copy_from_slice(&contents[start..end])))
            }
            Step::List(dir) => {
                let entry = |name: &Name, is_dir| Entry { name: name.as_str().to_owned(), is_dir };
                let files =
                    self.files.keys().filter(|path| path.dir == dir).map(|path| entry(&path.name, false));
                let dirs = self.dirs.iter().filter(|_| dir.is_none()).map(|name| entry(name, true));
                Ok(Output::Entries(files.chain(dirs).collect()))
            }
        }
    }
}
