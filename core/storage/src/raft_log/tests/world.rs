//! A disk in memory, and a log on it that is driven to the end of its work after each request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::super::*;
use crate::disk::{Error as DiskError, ErrorKind, Output, Path, Step};

pub(super) const A: VnodeId = VnodeId(1);
pub(super) const B: VnodeId = VnodeId(2);
pub(super) const C: VnodeId = VnodeId(3);
pub(super) const NODE: NodeId = NodeId(77);

#[derive(Default)]
pub(super) struct Memory {
    pub(super) names: BTreeMap<String, u64>,
    pub(super) contents: BTreeMap<u64, Vec<u8>>,
    pub(super) open: BTreeMap<FileId, u64>,
    pub(super) syncs: usize,
    /// Files synced in this process life.
    pub(super) synced: BTreeSet<u64>,
    pub(super) fail_syncs: bool,
    pub(super) fail_dir_syncs: bool,
    /// No file gets longer.
    pub(super) full: bool,
    /// No file is made.
    pub(super) fail_spares: bool,
    pub(super) creations_failed: usize,
}

impl Memory {
    pub(super) fn run(&mut self, job: Job) -> Completion {
        let mut output = Output::Done;
        for (step, what) in job.steps.into_iter().enumerate() {
            match self.step(what) {
                Ok(given) => output = given,
                Err(kind) => {
                    let error = DiskError { kind, step, detail: "planned".to_owned() };
                    return Completion { job: job.id, result: Err(error) };
                }
            }
        }
        Completion { job: job.id, result: Ok(output) }
    }

    pub(super) fn step(&mut self, step: Step) -> Result<Output, ErrorKind> {
        let name = |path: &Path| path.name.as_str().to_owned();
        match step {
            Step::Create { .. } if self.fail_spares => {
                self.creations_failed += 1;
                return Err(ErrorKind::Io);
            }
            Step::Create { file, path } => {
                if self.names.contains_key(&name(&path)) {
                    return Err(ErrorKind::Exists);
                }
                let inode = self.contents.keys().last().map_or(1, |last| last + 1);
                self.contents.insert(inode, Vec::new());
                self.names.insert(name(&path), inode);
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
            Step::Sync(file) => {
                self.syncs += 1;
                let inode = *self.open.get(&file).ok_or(ErrorKind::NotOpen)?;
                if self.fail_syncs {
                    return Err(ErrorKind::Io);
                }
                self.synced.insert(inode);
            }
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
                let entry = |name: &String| disk::Entry { name: name.clone(), is_dir: false };
                return Ok(Output::Entries(self.names.keys().map(entry).collect()));
            }
            Step::SyncDir(_) if self.fail_dir_syncs => return Err(ErrorKind::Io),
            Step::SyncDir(_) => {}
            Step::CreateDir(_) | Step::RemoveDir(_) | Step::Truncate { .. } => return Err(ErrorKind::Other),
        }
        Ok(Output::Done)
    }

    pub(super) fn write(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), ErrorKind> {
        let bytes = self.contents.get_mut(self.open.get(&file).ok_or(ErrorKind::NotOpen)?).unwrap();
        if self.full && at as usize + data.len() > bytes.len() {
            return Err(ErrorKind::Full);
        }
        let (at, end) = (at as usize, at as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
        Ok(())
    }

    pub(super) fn logs(&self) -> Vec<String> {
        self.names.keys().filter(|name| name.ends_with(".wal")).cloned().collect()
    }

    pub(super) fn snapshots(&self) -> Vec<String> {
        self.names.keys().filter(|name| name.contains(".snap")).cloned().collect()
    }

    pub(super) fn bytes(&mut self, name: &str) -> &mut Vec<u8> {
        self.contents.get_mut(&self.names[name]).unwrap()
    }

    /// Where records begin in the oldest log file: positions of the magic, which no test puts into an entry.
    pub(super) fn records(&mut self) -> Vec<usize> {
        let first = self.logs()[0].clone();
        memchr::memmem::find_iter(self.bytes(&first), b"RL\x01").collect()
    }

    /// File and position of the last record of the log.
    pub(super) fn last_record(&mut self) -> (String, usize) {
        for name in self.logs().into_iter().rev() {
            if let Some(at) = memchr::memmem::rfind(self.bytes(&name), b"RL\x01") {
                return (name, at);
            }
        }
        panic!("a log has at least a mark");
    }

    pub(super) fn flip(&mut self, at: usize) {
        let first = self.logs()[0].clone();
        self.bytes(&first)[at] ^= 0x40;
    }
}

/// A log on a disk that is driven to the end of its work after each request.
pub(super) struct World {
    pub(super) config: Config,
    pub(super) disk: Memory,
    pub(super) log: RaftLog,
    pub(super) waiting: VecDeque<Job>,
    pub(super) replies: BTreeMap<u64, Reply>,
    pub(super) notices: Vec<Notice>,
    pub(super) start_failed: Option<StartError>,
    pub(super) next_request: u64,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config { file_bytes: 4096, files_max: 3, move_bytes_max: 1024, ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Self {
        let log = RaftLog::new(config.clone());
        let mut world = Self {
            config,
            disk: Memory::default(),
            log,
            waiting: VecDeque::new(),
            replies: BTreeMap::new(),
            notices: Vec::new(),
            start_failed: None,
            next_request: 0,
        };
        world.restart();
        world
    }

    pub(super) fn restart(&mut self) {
        self.log = RaftLog::new(Config { seed: self.config.seed + 1, ..self.config.clone() });
        self.disk.open.clear();
        self.disk.synced.clear();
        self.waiting.clear();
        self.notices.clear();
        let mut out = Vec::new();
        self.log.start(&mut out);
        self.act(out);
        self.drive();
    }

    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Disk(job) => self.waiting.push_back(job),
                Action::Reply(id, reply) => assert!(self.replies.insert(id.0, reply).is_none()),
                Action::Started { .. } => {}
                Action::StartFailed(error) => self.start_failed = Some(error),
                Action::Notice(notice) => self.notices.push(notice),
            }
        }
    }

    pub(super) fn drive(&mut self) {
        while !self.waiting.is_empty() {
            self.drive_one();
        }
    }

    pub(super) fn drive_one(&mut self) {
        let Some(job) = self.waiting.pop_front() else { return };
        let completion = self.disk.run(job);
        let mut out = Vec::new();
        self.log.complete(completion, &mut out);
        self.act(out);
    }

    pub(super) fn request(&mut self, ask: impl FnOnce(&mut RaftLog, RequestId, &mut Vec<Action>)) -> u64 {
        self.next_request += 1;
        let mut out = Vec::new();
        ask(&mut self.log, RequestId(self.next_request), &mut out);
        self.act(out);
        self.next_request
    }

    pub(super) fn ask(&mut self, ask: impl FnOnce(&mut RaftLog, RequestId, &mut Vec<Action>)) -> Reply {
        let id = self.request(ask);
        self.drive();
        self.replies.remove(&id).unwrap()
    }

    pub(super) fn append(&mut self, group: VnodeId, append: Append) -> Reply {
        self.ask(|log, id, out| log.append(id, group, append, out))
    }

    /// Appends one entry of the group's term.
    pub(super) fn add(&mut self, group: VnodeId, text: &str) {
        let (last, term) = self.log.group(group).map_or((0, 1), |v| (v.last.index.0, v.hard_state.term.0));
        assert_eq!(self.append(group, entries(last + 1, term.max(1), &[text])), Reply::Appended);
    }

    pub(super) fn vote(&mut self, group: VnodeId, term: u64) -> Reply {
        let commit = self.log.group(group).map_or(RaftIndex(0), |view| view.hard_state.commit);
        let hard_state = Some(HardState { term: Term(term), voted_for: Some(NODE), commit });
        self.append(group, Append { hard_state, ..Append::default() })
    }

    pub(super) fn commit(&mut self, group: VnodeId, commit: u64) {
        let hard = self.log.group(group).unwrap().hard_state;
        let hard_state = Some(HardState { commit: RaftIndex(commit), ..hard });
        assert_eq!(self.append(group, Append { hard_state, ..Append::default() }), Reply::Appended);
    }

    pub(super) fn mark(&mut self) {
        let mut out = Vec::new();
        self.log.mark(&mut out);
        self.act(out);
        self.drive();
    }

    pub(super) fn snapshot(&mut self, group: VnodeId, index: u64, term: u64) -> Reply {
        let mark = SnapshotMark { index: RaftIndex(index), term: Term(term) };
        let data = Bytes::from(format!("state of {group} at {index}"));
        self.ask(|log, id, out| log.save_snapshot(id, group, mark, data, out))
    }

    pub(super) fn texts(&self, group: VnodeId) -> Vec<String> {
        let view = self.log.group(group).unwrap();
        let first = RaftIndex(view.snapshot.index.0 + 1);
        let entries = self.log.entries(group, first, RaftIndex(u64::MAX)).unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.data.to_vec()).unwrap()).collect()
    }

    pub(super) fn status(&self, group: VnodeId) -> Option<Status> {
        self.log.group(group).map(|view| view.status)
    }
}

pub(super) fn entries(first: u64, term: u64, texts: &[&str]) -> Append {
    let entry = |(index, text): (u64, &&str)| {
        let data = Bytes::copy_from_slice(text.as_bytes());
        Entry { index: RaftIndex(index), term: Term(term), data }
    };
    let hard_state = Some(HardState { term: Term(term), voted_for: Some(NODE), commit: RaftIndex(0) });
    Append { entries: (first..).zip(texts).map(entry).collect(), hard_state, ..Append::default() }
}
