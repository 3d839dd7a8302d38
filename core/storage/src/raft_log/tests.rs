//! Stories over a disk in memory. Power loss and every other kind of bad luck is the simulator's
//! (`sim/src/raft_log`); here a restart finds the bytes as they are, or as a test has changed them.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::*;
use crate::disk::{Error as DiskError, ErrorKind, Output, Path, Step};

const A: VnodeId = VnodeId(1);
const B: VnodeId = VnodeId(2);
const C: VnodeId = VnodeId(3);
const NODE: NodeId = NodeId(77);

#[derive(Default)]
struct Memory {
    names: BTreeMap<String, u64>,
    contents: BTreeMap<u64, Vec<u8>>,
    open: BTreeMap<FileId, u64>,
    syncs: usize,
    /// Files synced in this process life.
    synced: BTreeSet<u64>,
    fail_syncs: bool,
}

impl Memory {
    fn run(&mut self, job: Job) -> Completion {
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

    fn step(&mut self, step: Step) -> Result<Output, ErrorKind> {
        let name = |path: &Path| path.name.as_str().to_owned();
        match step {
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
            Step::SyncDir(_) => {}
            Step::CreateDir(_) | Step::RemoveDir(_) | Step::Truncate { .. } => return Err(ErrorKind::Other),
        }
        Ok(Output::Done)
    }

    fn write(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), ErrorKind> {
        let bytes = self.contents.get_mut(self.open.get(&file).ok_or(ErrorKind::NotOpen)?).unwrap();
        let (at, end) = (at as usize, at as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
        Ok(())
    }

    fn logs(&self) -> Vec<String> {
        self.names.keys().filter(|name| name.ends_with(".wal")).cloned().collect()
    }

    fn snapshots(&self) -> Vec<String> {
        self.names.keys().filter(|name| name.contains(".snap")).cloned().collect()
    }

    fn bytes(&mut self, name: &str) -> &mut Vec<u8> {
        self.contents.get_mut(&self.names[name]).unwrap()
    }

    /// Where records begin in the oldest log file: positions of the magic, which no test puts into an entry.
    fn records(&mut self) -> Vec<usize> {
        let first = self.logs()[0].clone();
        memchr::memmem::find_iter(self.bytes(&first), b"RL\x01").collect()
    }

    /// File and position of the last record of the log.
    fn last_record(&mut self) -> (String, usize) {
        for name in self.logs().into_iter().rev() {
            if let Some(at) = memchr::memmem::rfind(self.bytes(&name), b"RL\x01") {
                return (name, at);
            }
        }
        panic!("a log has at least a mark");
    }

    fn flip(&mut self, at: usize) {
        let first = self.logs()[0].clone();
        self.bytes(&first)[at] ^= 0x40;
    }
}

/// A log on a disk that is driven to the end of its work after each request.
struct World {
    config: Config,
    disk: Memory,
    log: RaftLog,
    waiting: VecDeque<Job>,
    replies: BTreeMap<u64, Reply>,
    notices: Vec<Notice>,
    start_failed: Option<StartError>,
    next_request: u64,
}

impl World {
    fn new() -> Self {
        Self::with(Config { file_bytes: 4096, files_max: 3, move_bytes_max: 1024, ..Config::default() })
    }

    fn with(config: Config) -> Self {
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

    fn restart(&mut self) {
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

    fn act(&mut self, actions: Vec<Action>) {
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

    fn drive(&mut self) {
        while !self.waiting.is_empty() {
            self.drive_one();
        }
    }

    fn drive_one(&mut self) {
        let Some(job) = self.waiting.pop_front() else { return };
        let completion = self.disk.run(job);
        let mut out = Vec::new();
        self.log.complete(completion, &mut out);
        self.act(out);
    }

    fn request(&mut self, ask: impl FnOnce(&mut RaftLog, RequestId, &mut Vec<Action>)) -> u64 {
        self.next_request += 1;
        let mut out = Vec::new();
        ask(&mut self.log, RequestId(self.next_request), &mut out);
        self.act(out);
        self.next_request
    }

    fn ask(&mut self, ask: impl FnOnce(&mut RaftLog, RequestId, &mut Vec<Action>)) -> Reply {
        let id = self.request(ask);
        self.drive();
        self.replies.remove(&id).unwrap()
    }

    fn append(&mut self, group: VnodeId, append: Append) -> Reply {
        self.ask(|log, id, out| log.append(id, group, append, out))
    }

    /// Appends one entry of the group's term.
    fn add(&mut self, group: VnodeId, text: &str) {
        let (last, term) = self.log.group(group).map_or((0, 1), |v| (v.last.index.0, v.hard_state.term.0));
        assert_eq!(self.append(group, entries(last + 1, term.max(1), &[text])), Reply::Appended);
    }

    fn vote(&mut self, group: VnodeId, term: u64) -> Reply {
        let commit = self.log.group(group).map_or(RaftIndex(0), |view| view.hard_state.commit);
        let hard_state = Some(HardState { term: Term(term), voted_for: Some(NODE), commit });
        self.append(group, Append { hard_state, ..Append::default() })
    }

    fn commit(&mut self, group: VnodeId, commit: u64) {
        let hard = self.log.group(group).unwrap().hard_state;
        let hard_state = Some(HardState { commit: RaftIndex(commit), ..hard });
        assert_eq!(self.append(group, Append { hard_state, ..Append::default() }), Reply::Appended);
    }

    fn mark(&mut self) {
        let mut out = Vec::new();
        self.log.mark(&mut out);
        self.act(out);
        self.drive();
    }

    fn snapshot(&mut self, group: VnodeId, index: u64, term: u64) -> Reply {
        let mark = SnapshotMark { index: RaftIndex(index), term: Term(term) };
        let data = Bytes::from(format!("state of {group} at {index}"));
        self.ask(|log, id, out| log.save_snapshot(id, group, mark, data, out))
    }

    fn texts(&self, group: VnodeId) -> Vec<String> {
        let view = self.log.group(group).unwrap();
        let first = RaftIndex(view.snapshot.index.0 + 1);
        let entries = self.log.entries(group, first, RaftIndex(u64::MAX)).unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.data.to_vec()).unwrap()).collect()
    }

    fn status(&self, group: VnodeId) -> Option<Status> {
        self.log.group(group).map(|view| view.status)
    }
}

fn entries(first: u64, term: u64, texts: &[&str]) -> Append {
    let entry = |(index, text): (u64, &&str)| {
        let data = Bytes::copy_from_slice(text.as_bytes());
        Entry { index: RaftIndex(index), term: Term(term), data }
    };
    let hard_state = Some(HardState { term: Term(term), voted_for: Some(NODE), commit: RaftIndex(0) });
    Append { entries: (first..).zip(texts).map(entry).collect(), hard_state, ..Append::default() }
}

#[test]
fn what_was_acknowledged_is_found_again() {
    let mut world = World::new();
    assert_eq!(world.append(A, entries(1, 1, &["one", "two"])), Reply::Appended);
    assert_eq!(world.append(B, entries(1, 4, &["other"])), Reply::Appended);
    assert_eq!(world.vote(A, 3), Reply::Appended);
    world.commit(A, 2);
    let before: Vec<_> = world.log.groups().collect();
    for _ in 0..3 {
        world.restart();
        assert_eq!(world.log.groups().collect::<Vec<_>>(), before);
        assert_eq!(world.texts(A), ["one", "two"]);
        assert_eq!(world.texts(B), ["other"]);
        assert_eq!(world.log.term_at(A, RaftIndex(2)), Some(Term(1)));
        assert_eq!(world.notices, []);
    }
}

#[test]
fn groups_that_wait_share_one_sync() {
    let mut world = World::new();
    let syncs = world.disk.syncs;
    let ids: Vec<u64> = (10..110)
        .map(|group| world.request(|log, id, out| log.append(id, VnodeId(group), entries(1, 1, &["x"]), out)))
        .collect();
    world.drive();
    assert!(ids.iter().all(|id| world.replies[id] == Reply::Appended));
    // The first went alone, the others while it was being synced; plus the spare file's.
    assert!(world.disk.syncs - syncs <= 4, "{}", world.disk.syncs - syncs);
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let mut world = World::new();
    world.append(A, entries(1, 2, &["one", "two", "three"]));
    world.commit(A, 2);
    let before = world.log.group(A);
    let other_vote = HardState { term: Term(2), voted_for: Some(NodeId(1)), commit: RaftIndex(0) };
    let lower = HardState { term: Term(1), voted_for: Some(NODE), commit: RaftIndex(0) };
    let past = HardState { term: Term(2), voted_for: Some(NODE), commit: RaftIndex(9) };
    let hard = |hard_state| Append { hard_state: Some(hard_state), ..Append::default() };
    let cut = |from| Append { truncate_from: Some(RaftIndex(from)), ..Append::default() };
    let late = Append { hard_state: None, ..entries(4, 3, &["x"]) };
    let old = Append { hard_state: None, ..entries(4, 1, &["x"]) };
    let bad = [
        hard(other_vote),
        hard(lower),
        hard(past),
        cut(2),
        cut(0),
        cut(5),
        entries(2, 2, &["x"]),
        entries(5, 2, &["x"]),
        entries(0, 2, &["x"]),
        late,
        old,
    ];
    for append in bad {
        let reply = world.append(A, append.clone());
        assert!(matches!(reply, Reply::Failed(Error::Impossible(_))), "{append:?}: {reply:?}");
        assert_eq!(world.log.group(A), before);
    }
    assert_eq!(world.append(A, cut(3)), Reply::Appended);
    world.restart();
    assert_eq!(world.texts(A), ["one", "two"]);
}

#[test]
fn a_conflict_replaces_the_tail() {
    let mut world = World::new();
    world.append(A, entries(1, 1, &["one", "two", "three"]));
    assert_eq!(world.append(A, entries(2, 2, &["TWO"])), Reply::Appended);
    world.restart();
    assert_eq!(world.texts(A), ["one", "TWO"]);
    assert_eq!(world.log.term_at(A, RaftIndex(2)), Some(Term(2)));
    assert_eq!(world.log.term_at(A, RaftIndex(3)), None);
}

#[test]
fn a_snapshot_replaces_entries_and_the_snapshot_before_it() {
    let mut world = World::new();
    world.append(A, entries(1, 1, &["one", "two", "three"]));
    world.commit(A, 3);
    assert_eq!(world.snapshot(A, 1, 1), Reply::SnapshotSaved);
    assert_eq!(world.snapshot(A, 2, 1), Reply::SnapshotSaved);
    assert_eq!(world.snapshot(A, 2, 1), Reply::Failed(Error::Stale));
    assert_eq!(world.disk.snapshots().len(), 2, "rot could still take the record of the later one");
    world.mark();
    assert_eq!(world.disk.snapshots().len(), 1);
    for _ in 0..2 {
        assert_eq!(world.texts(A), ["three"]);
        let data = Bytes::from_static(b"state of 1 at 2");
        let mark = SnapshotMark { index: RaftIndex(2), term: Term(1) };
        assert_eq!(world.ask(|log, id, out| log.load_snapshot(id, A, out)), Reply::Snapshot { mark, data });
        world.restart();
    }
    assert_eq!(world.ask(|log, id, out| log.load_snapshot(id, B, out)), Reply::Failed(Error::NoSuchGroup));
    world.append(B, entries(1, 1, &["x"]));
    assert_eq!(world.ask(|log, id, out| log.load_snapshot(id, B, out)), Reply::Failed(Error::NoSnapshot));
}

#[test]
fn a_snapshot_from_a_leader_replaces_a_log_that_differs() {
    let mut world = World::new();
    world.append(A, entries(1, 1, &["one", "two"]));
    assert_eq!(world.snapshot(A, 2, 3), Reply::SnapshotSaved);
    assert_eq!(world.snapshot(B, 40, 3), Reply::SnapshotSaved);
    world.restart();
    for (group, index) in [(A, 2), (B, 40)] {
        let view = world.log.group(group).unwrap();
        assert_eq!(view.last, SnapshotMark { index: RaftIndex(index), term: Term(3) });
        assert_eq!((view.hard_state.term, view.hard_state.commit), (Term(3), RaftIndex(index)));
    }
    world.add(B, "next");
    world.restart();
    assert_eq!(world.texts(B), ["next"]);
}

#[test]
fn a_large_snapshot_is_written_in_pieces() {
    let mut world = World::new();
    let mark = SnapshotMark { index: RaftIndex(9), term: Term(1) };
    let data = Bytes::from(vec![7; types::limits::SCAN_WINDOW_BYTES * 2 + 5]);
    let saved = data.clone();
    assert_eq!(world.ask(|log, id, out| log.save_snapshot(id, A, mark, saved, out)), Reply::SnapshotSaved);
    world.restart();
    assert_eq!(world.ask(|log, id, out| log.load_snapshot(id, A, out)), Reply::Snapshot { mark, data });
}

#[test]
fn old_files_go_and_an_idle_group_does_not_hold_them() {
    let mut world = World::new();
    world.add(B, "idle");
    for round in 1..=400_u64 {
        world.add(A, "busy entry with some text in it");
        if round % 20 == 0 {
            world.commit(A, round);
            assert_eq!(world.snapshot(A, round, 1), Reply::SnapshotSaved);
        }
    }
    let files = world.disk.logs().len();
    assert!(files <= world.config.files_max + 2, "{files}");
    world.restart();
    assert_eq!(world.texts(B), ["idle"]);
    assert_eq!(world.log.group(A).unwrap().last.index, RaftIndex(400));
}

#[test]
fn live_state_larger_than_the_bound_neither_goes_nor_spins() {
    let mut world = World::new();
    for _ in 0..600 {
        world.add(A, "an entry that stays, because nobody takes a snapshot");
    }
    let (files, syncs) = (world.disk.logs().len(), world.disk.syncs);
    assert!(files > 10);
    world.add(B, "x");
    assert!(world.disk.syncs - syncs <= 3);
    world.restart();
    assert_eq!(world.texts(A).len(), 600);
}

#[test]
fn a_flush_larger_than_a_file_is_written_whole() {
    let mut world = World::new();
    let large = "x".repeat(10_000);
    world.add(A, "small");
    world.add(A, &large);
    world.add(A, "after");
    world.restart();
    assert_eq!(world.texts(A), ["small", large.as_str(), "after"]);
}

#[test]
fn a_torn_tail_is_dropped_and_erased() {
    let mut world = World::new();
    world.add(A, "kept");
    world.add(A, "torn");
    let last = *world.disk.records().last().unwrap();
    world.disk.flip(last + 60);
    world.restart();
    assert_eq!(world.texts(A), ["kept"]);
    assert!(matches!(world.notices[..], [Notice::TornTail { .. }]), "{:?}", world.notices);
    let (name, mark) = world.disk.last_record();
    assert!(world.disk.bytes(&name)[mark + 56..].iter().all(|byte| *byte == 0));
    world.add(A, "new");
    world.restart();
    assert_eq!(world.texts(A), ["kept", "new"]);
    assert_eq!(world.notices, []);
}

#[test]
fn a_mark_makes_the_loss_of_the_last_flush_visible() {
    let mut world = World::new();
    world.add(A, "kept");
    world.add(A, "rotten");
    let last = *world.disk.records().last().unwrap();
    world.mark();
    world.mark();
    assert_eq!(world.disk.records().last(), Some(&(last + 56 + 69 + 12 + 6)), "one mark and no second");
    world.disk.flip(last + 60);
    world.restart();
    assert_eq!(world.status(A), Some(Status::Damaged));
}

#[test]
fn damage_in_a_payload_concerns_its_group_only() {
    let mut world = World::new();
    world.add(A, "a");
    world.add(B, "b");
    world.add(C, "c");
    let records = world.disk.records();
    let payload_of_b = records[records.len() - 2] + 60;
    world.add(A, "a2");
    world.disk.flip(payload_of_b);
    for _ in 0..2 {
        world.restart();
        assert_eq!(world.status(A), Some(Status::Intact));
        assert_eq!(world.status(B), Some(Status::Damaged));
        assert_eq!(world.status(C), Some(Status::Intact));
        assert!(world.notices.iter().any(|n| matches!(n, Notice::GroupDamaged { group: B, .. })));
        assert!(!world.log.unlisted_groups_possible());
        assert_eq!(world.texts(A), ["a", "a2"]);
    }
    assert_eq!(world.append(B, entries(1, 1, &["x"])), Reply::Failed(Error::Damaged));
    assert_eq!(world.log.entries(B, RaftIndex(1), RaftIndex(2)), None);
    assert_eq!(world.ask(|log, id, out| log.forget(id, B, out)), Reply::Forgotten);
    assert_eq!(world.status(B), None);
    assert_eq!(world.append(B, entries(1, 5, &["again"])), Reply::Appended);
    world.restart();
    assert_eq!(world.texts(B), ["again"]);
}

#[test]
fn a_lost_record_whose_group_shows_itself_concerns_no_other() {
    let mut world = World::new();
    world.add(B, "idle");
    world.add(A, "a");
    let header_of_a = *world.disk.records().last().unwrap() + 20;
    world.add(A, "a2");
    world.disk.flip(header_of_a);
    world.restart();
    assert_eq!(world.status(B), Some(Status::Damaged), "A's first record is not known to be its first");

    let mut world = World::new();
    world.add(B, "idle");
    world.add(A, "a");
    world.add(A, "a2");
    let header_of_a2 = *world.disk.records().last().unwrap() + 20;
    world.add(A, "a3");
    world.disk.flip(header_of_a2);
    for _ in 0..3 {
        world.restart();
        assert_eq!(world.status(A), Some(Status::Damaged));
        assert_eq!(world.status(B), Some(Status::Intact));
        assert!(!world.log.unlisted_groups_possible());
    }
}

#[test]
fn a_lost_record_that_nobody_claims_concerns_everyone_it_may_be_of() {
    let mut world = World::new();
    world.add(A, "a");
    world.add(B, "b");
    let header_of_b = *world.disk.records().last().unwrap() + 20;
    world.add(A, "a2");
    world.disk.flip(header_of_b);
    world.restart();
    // A has a record after the loss, and its own serials leave no gap.
    assert_eq!(world.status(A), Some(Status::Intact));
    assert_eq!(world.status(B), None);
    assert!(world.log.unlisted_groups_possible());
    assert_eq!(world.append(B, entries(1, 1, &["x"])), Reply::Failed(Error::Damaged));
    let front = world.disk.logs()[0].clone();
    for _ in 0..200 {
        world.add(A, "the file with the damage stays");
    }
    assert_eq!(world.disk.logs()[0], front);
    let mut out = Vec::new();
    world.log.every_group_is_listed(&mut out);
    world.act(out);
    world.drive();
    assert_eq!(world.append(B, entries(1, 1, &["x"])), Reply::Appended);
}

#[test]
fn damage_before_a_snapshot_does_not_matter() {
    let mut world = World::new();
    world.add(A, "a");
    world.add(A, "b");
    let payload = *world.disk.records().last().unwrap() + 60;
    world.add(A, "c");
    world.commit(A, 3);
    world.snapshot(A, 3, 1);
    world.add(A, "d");
    world.disk.flip(payload);
    world.restart();
    assert_eq!(world.status(A), Some(Status::Intact));
    assert_eq!(world.texts(A), ["d"]);
    assert!(world.notices.iter().any(|n| matches!(n, Notice::Damage { .. })));
}

#[test]
fn a_missing_or_damaged_snapshot_damages_its_group_only() {
    for remove in [true, false] {
        let mut world = World::new();
        world.add(A, "a");
        world.add(B, "b");
        world.commit(A, 1);
        world.snapshot(A, 1, 1);
        let name = world.disk.snapshots()[0].clone();
        if remove {
            world.disk.names.remove(&name);
        } else {
            world.disk.bytes(&name)[50] ^= 1;
        }
        world.restart();
        assert_eq!(world.status(A), Some(Status::Damaged));
        assert_eq!(world.texts(B), ["b"]);
        assert_eq!(world.disk.snapshots().len(), usize::from(!remove), "what is left is kept");
    }
}

#[test]
fn a_snapshot_nobody_recorded_is_removed() {
    let mut world = World::new();
    world.add(A, "a");
    let stray = names::snapshot(A, RaftIndex(9)).name.as_str().to_owned();
    let unfinished = names::unfinished(B, RaftIndex(9)).name.as_str().to_owned();
    world.disk.contents.insert(900, vec![1, 2, 3]);
    world.disk.names.insert(stray, 900);
    world.disk.names.insert(unfinished, 900);
    world.restart();
    assert_eq!(world.disk.snapshots(), Vec::<String>::new());
    assert_eq!(world.texts(A), ["a"]);
}

#[test]
fn a_directory_with_snapshots_and_no_log_is_refused() {
    let mut world = World::new();
    world.add(A, "a");
    world.commit(A, 1);
    world.snapshot(A, 1, 1);
    world.disk.names.retain(|name, _| !name.ends_with(".wal"));
    world.restart();
    assert_eq!(world.start_failed, Some(StartError::LogMissing));
    assert_eq!(world.disk.snapshots().len(), 1);
}

#[test]
fn after_a_failed_sync_nothing_succeeds() {
    let mut world = World::new();
    world.add(A, "a");
    world.disk.fail_syncs = true;
    let first = world.request(|log, id, out| log.append(id, A, entries(2, 1, &["b"]), out));
    let second = world.request(|log, id, out| log.append(id, B, entries(1, 1, &["b"]), out));
    world.drive();
    world.disk.fail_syncs = false;
    for id in [first, second] {
        assert!(matches!(world.replies[&id], Reply::Failed(Error::Storage(_))));
    }
    assert!(matches!(world.vote(A, 9), Reply::Failed(Error::Storage(_))));
    assert!(matches!(world.notices[..], [Notice::Failed { .. }]));
    world.restart();
    assert_eq!(world.texts(A)[0], "a");
    world.add(B, "goes on");
}

#[test]
fn a_forgotten_group_stays_forgotten_and_can_begin_anew() {
    let mut world = World::new();
    world.add(A, "a");
    world.commit(A, 1);
    world.snapshot(A, 1, 1);
    assert_eq!(world.ask(|log, id, out| log.forget(id, A, out)), Reply::Forgotten);
    world.mark();
    assert_eq!(world.disk.snapshots().len(), 0);
    world.restart();
    assert_eq!(world.status(A), None);
    world.append(A, entries(1, 1, &["new life"]));
    world.restart();
    assert_eq!(world.texts(A), ["new life"]);
}

#[test]
fn a_log_of_a_later_build_is_refused() {
    let mut world = World::new();
    world.add(A, "a");
    let first = world.disk.logs()[0].clone();
    let Some(names::Found::Log(stamp)) = Some(names::parse(&first)) else { panic!("a log file") };
    let bytes = world.disk.bytes(&first);
    bytes[2] = 9;
    let seed: Vec<u8> = [&stamp.sequence.to_be_bytes()[..], &stamp.salt.to_be_bytes(), &[0; 8]].concat();
    let crc = crc32fast::hash(&[&seed[..], &bytes[..52]].concat());
    bytes[52..56].copy_from_slice(&crc.to_be_bytes());
    let before = bytes.clone();
    world.restart();
    assert_eq!(world.start_failed, Some(StartError::LaterVersion(9)));
    assert_eq!(*world.disk.bytes(&first), before);
}

#[test]
fn bytes_of_a_client_do_not_imitate_a_record() {
    // The record of another log, put into an entry here, at the place it was written for there.
    let mut other = World::with(Config { seed: 1000, ..World::new().config });
    other.add(A, "victim");
    let at = *other.disk.records().last().unwrap();
    let name = other.disk.logs()[0].clone();
    let forged = String::from_utf8_lossy(&other.disk.bytes(&name)[at..at + 150]).into_owned();
    let mut world = World::new();
    world.add(A, &forged);
    world.add(A, "after");
    world.restart();
    assert_eq!(world.texts(A), [forged.as_str(), "after"]);
}

/// Adds entries until the next flush opens a new file; returns the file before it.
fn fill_a_file(world: &mut World, group: VnodeId) -> String {
    let (full, _) = world.disk.last_record();
    while world.disk.last_record().0 == full {
        world.add(group, "fills the file until the next one is used");
    }
    full
}

#[test]
fn the_first_record_of_a_file_is_found_though_the_log_was_durable_up_to_the_file_before() {
    // Found by the simulator: the unused rest of the file before begins exactly at what is known to be durable.
    let mut world = World::new();
    fill_a_file(&mut world, A);
    let before = world.texts(A);
    world.restart();
    assert_eq!(world.texts(A), before);
}

#[test]
fn a_record_lost_at_the_end_of_a_file_is_damage() {
    // Found by the simulator: the next file's first record does not follow, and must be believed nevertheless.
    let mut world = World::new();
    let full = fill_a_file(&mut world, A);
    let last = memchr::memmem::rfind(world.disk.bytes(&full), b"RL\x01").unwrap();
    world.disk.bytes(&full)[last + 20] ^= 1;
    world.restart();
    assert_eq!(world.status(A), Some(Status::Damaged));
}

#[test]
fn what_nothing_testifies_to_is_made_durable_again_in_every_file_it_lies_in() {
    // Found by the simulator: a flush that fills its file to the last byte was written and not synced when the
    // process ended; the log then goes on in the next file, and power goes.
    let mut world = World::new();
    let (name, at) = world.disk.last_record();
    let room = world.disk.bytes(&name).len() - (at + 56);
    let rest = "x".repeat(room - 56 - 69 - 12);
    let id = world.request(|log, id, out| log.append(id, A, entries(1, 1, &[&rest]), out));
    let write = world.waiting.iter().position(|job| matches!(job.steps[0], Step::Write { .. })).unwrap();
    let mut job = world.waiting.remove(write).unwrap();
    // The next file is there already.
    world.drive();
    job.steps.truncate(1);
    world.disk.run(job);
    world.restart();
    assert!(!world.replies.contains_key(&id));
    assert_eq!(world.texts(A), [rest]);
    assert_ne!(world.disk.last_record().0, name, "the log goes on in the next file");
    assert!(world.disk.synced.contains(&world.disk.names[&name]));
}

#[test]
fn rot_in_the_last_flush_does_not_take_what_it_moved_forward() {
    // Found by the simulator: the only older copy had been removed when nothing testified to the new one yet.
    let mut world = World::new();
    world.add(B, "idle");
    for _ in 0..5 {
        world.add(A, "after the idle group's record");
    }
    let mut index = 5;
    while !last_record_is_of(&mut world, B) {
        assert!(index < 1000, "the idle group is never moved forward");
        if world.waiting.is_empty() {
            index += 1;
            world.request(|log, id, out| log.append(id, A, entries(index, 1, &["busy entry"]), out));
        }
        world.drive_one();
    }
    let (name, at) = world.disk.last_record();
    let removes = |job: &Job| matches!(job.steps[0], Step::Remove(_));
    while let Some(place) = world.waiting.iter().position(removes) {
        let job = world.waiting.remove(place).unwrap();
        world.waiting.push_front(job);
        world.drive_one();
    }
    world.disk.bytes(&name)[at + 60] ^= 1;
    world.restart();
    assert!(matches!(world.notices[..], [Notice::TornTail { .. }]), "{:?}", world.notices);
    assert_eq!(world.texts(B), ["idle"]);
}

fn last_record_is_of(world: &mut World, group: VnodeId) -> bool {
    let (name, at) = world.disk.last_record();
    world.disk.bytes(&name)[at + 16..at + 24] == group.0.to_be_bytes()
}

#[test]
fn a_snapshot_that_was_being_saved_does_not_bring_a_group_back() {
    let mut world = World::new();
    world.add(A, "a");
    world.commit(A, 1);
    let mark = SnapshotMark { index: RaftIndex(1), term: Term(1) };
    let save = world.request(|log, id, out| log.save_snapshot(id, A, mark, Bytes::from_static(b"s"), out));
    let forget = world.request(|log, id, out| log.forget(id, A, out));
    world.drive();
    assert_eq!(world.replies[&save], Reply::Failed(Error::NoSuchGroup));
    assert_eq!(world.replies[&forget], Reply::Forgotten);
    assert_eq!(world.disk.snapshots().len(), 0);
    world.restart();
    assert_eq!(world.status(A), None);
}

/// A log with a bit of everything in it.
fn rich() -> World {
    let mut world = World::new();
    for round in 1..=30 {
        world.add(A, "a busy group");
        if round % 7 == 0 {
            world.commit(A, round);
            world.snapshot(A, round, 1);
            world.vote(B, round);
        }
        if round % 5 == 0 {
            world.add(B, "a slower one");
            world.add(C, "gone soon");
            world.ask(|log, id, out| log.forget(id, C, out));
        }
    }
    world
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn any_bytes_can_be_opened_or_refused_and_opening_twice_tells_the_same(
        changes in proptest::collection::vec((proptest::prelude::any::<u16>(), 0..4096_usize, 1..=255_u8), 1..12),
        cut in proptest::option::of((0..8_usize, 0..4096_usize)),
    ) {
        let mut world = rich();
        let names: Vec<String> = world.disk.names.keys().cloned().collect();
        for (which, at, mask) in changes {
            let bytes = world.disk.bytes(&names[usize::from(which) % names.len()]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        if let Some((which, len)) = cut {
            world.disk.bytes(&names[which % names.len()]).truncate(len);
        }
        world.restart();
        if world.start_failed.is_none() {
            let first: Vec<_> = world.log.groups().collect();
            world.restart();
            for (group, view) in first {
                if view.status == Status::Intact {
                    assert_eq!(world.log.group(group), Some(view));
                } else {
                    assert_eq!(world.status(group), Some(Status::Damaged));
                }
            }
        }
    }
}
