//! A perfect disk in memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use storage::disk::{Completion, Entry, Error, ErrorKind, FileId, Job, Output, Path, Step};

#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    names: BTreeMap<String, u64>,
    contents: BTreeMap<u64, Vec<u8>>,
    open: BTreeMap<FileId, u64>,
    /// Files of snapshots cannot be made.
    pub(super) refuses_snapshots: bool,
    /// Nothing is written.
    pub(super) is_broken: bool,
}

impl Memory {
    pub(super) fn run(&mut self, job: Job) -> Completion {
        let mut output = Output::Done;
        for (step, what) in job.steps.into_iter().enumerate() {
            match self.step(what) {
                Ok(given) => output = given,
                Err(kind) => {
                    let error = Error { kind, step, detail: "planned".to_owned() };
                    return Completion { job: job.id, result: Err(error) };
                }
            }
        }
        Completion { job: job.id, result: Ok(output) }
    }

    /// The process ends.
    pub(super) fn close(&mut self) {
        self.open.clear();
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.contents.retain(|inode, _| named.contains(inode));
    }

    /// Every name with those letters in it.
    pub(super) fn names(&self, part: &str) -> Vec<String> {
        self.names.keys().filter(|name| name.contains(part)).cloned().collect()
    }

    pub(super) fn bytes(&mut self, name: &str) -> &mut Vec<u8> {
        self.contents.get_mut(&self.names[name]).unwrap()
    }

    fn step(&mut self, step: Step) -> Result<Output, ErrorKind> {
        let name = |path: &Path| path.name.as_str().to_owned();
        match step {
            Step::Create { path, .. } if self.refuses_snapshots && name(&path).contains("snap") => {
                return Err(ErrorKind::Full);
            }
            Step::Create { file, path } => {
                let inode = self.contents.keys().last().map_or(1, |last| last + 1);
                self.contents.insert(inode, Vec::new());
                if self.names.insert(name(&path), inode).is_some() {
                    return Err(ErrorKind::Exists);
                }
                self.open.insert(file, inode);
            }
            Step::Open { file, path } => {
                let inode = *self.names.get(&name(&path)).ok_or(ErrorKind::NotFound)?;
                self.open.insert(file, inode);
                return Ok(Output::Length(self.contents[&inode].len() as u64));
            }
            Step::Close(file) => drop(self.open.remove(&file)),
            Step::Write { file, at, data } => self.write(file, at, &data.concat())?,
            Step::Zero { file, at, len } => self.write(file, at, &vec![0; len as usize])?,
            Step::Sync(_) | Step::SyncDir(_) => {}
            Step::Rename { from, to } => {
                let inode = self.names.remove(&name(&from)).ok_or(ErrorKind::NotFound)?;
                self.names.insert(name(&to), inode);
            }
            Step::Remove(path) => drop(self.names.remove(&name(&path)).ok_or(ErrorKind::NotFound)?),
            Step::Read { file, at, len } => {
                let bytes = &self.contents[self.open.get(&file).ok_or(ErrorKind::NotOpen)?];
                let start = (at as usize).min(bytes.len());
                let end = (start + len).min(bytes.len());
                return Ok(Output::Data(Bytes::copy_from_slice(&bytes[start..end])));
            }
            Step::List(_) => {
                let entry = |name: &String| Entry { name: name.clone(), is_dir: false };
                return Ok(Output::Entries(self.names.keys().map(entry).collect()));
            }
            Step::CreateDir(_) | Step::RemoveDir(_) | Step::Truncate { .. } => return Err(ErrorKind::Other),
        }
        Ok(Output::Done)
    }

    fn write(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), ErrorKind> {
        if self.is_broken {
            return Err(ErrorKind::Io);
        }
        let bytes = self.contents.get_mut(self.open.get(&file).ok_or(ErrorKind::NotOpen)?).unwrap();
        let (at, end) = (at as usize, at as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
        Ok(())
    }
}
