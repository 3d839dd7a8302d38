//! Shared syncs and failures that need a device that fails: `/dev/full` takes no write, `/dev/null` no
//! sync, and a sealed memory file nothing past its end.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use storage::disk::{Completion, ErrorKind, FileId, Job, JobId, Name, Output, Path, Step};
use tempfile::TempDir;

use super::file::OpenFile;
use super::volume::{Shared, Volume};
use super::{Options, RealDisk, flush, root};

fn path(name: &str) -> Path {
    Path { dir: None, name: Name::new(name).expect("test names are names") }
}

fn write(file: FileId, at: u64, content: &[u8]) -> Step {
    Step::Write { file, at, data: vec![Bytes::copy_from_slice(content)] }
}

fn device(path: &str) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDWR, Mode::empty()).expect("the device is there")
}

/// A file of one page that cannot grow.
fn sealed_page() -> OwnedFd {
    let fd = rustix::fs::memfd_create("page", MemfdFlags::ALLOW_SEALING).expect("memory files are there");
    rustix::fs::ftruncate(&fd, 4096).expect("memory is there");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW).expect("sealing was allowed");
    fd
}

/// What a job gave: an error's kind and step only.
type Outcome = Result<Output, (ErrorKind, usize)>;

const DONE: Outcome = Ok(Output::Done);

/// A volume driven by hand.
struct Bench {
    volume: Volume,
    _root: TempDir,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let opened = root::open(root.path()).expect("it can be opened");
        Self { volume: Volume::new(Arc::new(Shared::new(opened))), _root: root }
    }

    fn hold(&self, file: FileId, fd: OwnedFd) {
        self.volume.hold(file, OpenFile::new(fd, path(&format!("f{}", file.0)), false));
    }

    fn create(&mut self, file: FileId) {
        let outcome = self.run(vec![vec![Step::Create { file, path: path(&format!("f{}", file.0)) }]]);
        assert_eq!(outcome, [DONE]);
    }

    /// Runs jobs that all wait at once.
    fn run(&mut self, jobs: Vec<Vec<Step>>) -> Vec<Outcome> {
        let numbered = (0..).zip(jobs).map(|(id, steps)| Job { id: JobId(id), steps });
        let mut waiting: VecDeque<_> = numbered.collect();
        let done = Mutex::new(Vec::new());
        while !waiting.is_empty() {
            let complete = |completion: Completion| done.lock().expect("no panic").push(completion);
            flush::run_next(&mut self.volume, &mut waiting, &complete);
        }
        let done = done.into_inner().expect("no panic");
        assert!(done.iter().map(|completion| completion.job.0).eq(0..done.len() as u64), "out of order");
        done.into_iter().map(|done| done.result.map_err(|error| (error.kind, error.step))).collect()
    }

    fn content(&mut self, file: FileId) -> Bytes {
        match self.run(vec![vec![Step::Read { file, at: 0, len: 1 << 20 }]]).remove(0) {
            Ok(Output::Data(data)) => data,
            other => panic!("a read gave {other:?}"),
        }
    }
}

const A: FileId = FileId(1);
const B: FileId = FileId(2);

#[test]
fn waiting_appends_are_one_write_and_one_sync() {
    let mut bench = Bench::new();
    bench.create(A);
    bench.create(B);
    let before = bench.volume.shared.counters.snapshot();
    let mut jobs: Vec<_> = (0..50).map(|at| vec![write(A, at * 3, b"abc"), Step::Sync(A)]).collect();
    jobs.insert(20, vec![write(B, 0, b"b"), write(B, 1, b"b"), Step::Sync(B)]);
    jobs.insert(21, vec![Step::Zero { file: B, at: 2, len: 5 }, Step::Sync(B)]);
    assert!(bench.run(jobs).iter().all(|outcome| *outcome == DONE));
    let after = bench.volume.shared.counters.snapshot();
    assert_eq!((after.flushes - before.flushes, after.flushed_jobs - before.flushed_jobs), (1, 52));
    assert_eq!((after.write_calls - before.write_calls, after.syncs - before.syncs), (3, 2));
    assert_eq!(after.written_bytes - before.written_bytes, 150 + 2 + 5);
    assert_eq!(bench.content(A), "abc".repeat(50));
    assert_eq!(bench.content(B), "bb\0\0\0\0\0");
}

#[test]
fn a_full_device_fails_its_jobs_and_no_others() {
    let mut bench = Bench::new();
    bench.hold(A, device("/dev/full"));
    bench.create(B);
    let outcomes = bench.run(vec![
        vec![write(B, 0, b"b"), Step::Sync(B)],
        vec![write(A, 0, b"a"), Step::Sync(A)],
        vec![write(A, 1, b"a"), Step::Sync(A)],
        vec![write(B, 1, b"b"), write(A, 2, b"a"), Step::Sync(B)],
        vec![Step::Zero { file: A, at: 0, len: 1 }, Step::Sync(A)],
        vec![write(B, 2, b"b"), Step::Sync(B)],
    ]);
    let poisoned = |step| Err((ErrorKind::Poisoned, step));
    let expected = [DONE, Err((ErrorKind::Full, 0)), poisoned(0), poisoned(1), poisoned(0), DONE];
    assert_eq!(outcomes, expected);
    assert_eq!(bench.content(B), "bbb");
}

/// Of writes joined into one call, those whose bytes are in place hold.
#[test]
fn a_joined_write_that_breaks_off_fails_from_there_on() {
    let mut bench = Bench::new();
    bench.hold(A, sealed_page());
    let page = |at: u64| vec![write(A, at, &[1; 2048]), Step::Sync(A)];
    let outcomes = bench.run(vec![page(0), page(2048), page(4096), page(6144)]);
    let failed = [Err((ErrorKind::Other, 0)), Err((ErrorKind::Poisoned, 0))];
    assert_eq!(outcomes, [[DONE, DONE], failed].concat());
    assert_eq!(bench.content(A), vec![1; 4096], "reading stays possible");
    assert_eq!(bench.run(vec![vec![Step::Sync(A)]]), [Err((ErrorKind::Poisoned, 0))]);
}

/// One job's own earlier write fails late, when a later one of the same job forces it out.
#[test]
fn a_write_that_fails_late_fails_its_own_step() {
    let mut bench = Bench::new();
    bench.hold(A, device("/dev/full"));
    let outcomes = bench.run(vec![
        vec![write(A, 0, b"a"), write(A, 100, b"b"), Step::Sync(A)],
        vec![write(A, 0, b"c"), Step::Zero { file: A, at: 0, len: 9 }, Step::Sync(A)],
    ]);
    assert_eq!(outcomes, [Err((ErrorKind::Full, 0)), Err((ErrorKind::Poisoned, 0))]);
}

#[test]
fn a_failed_sync_fails_every_job_it_was_for() {
    let mut bench = Bench::new();
    bench.hold(A, device("/dev/null"));
    bench.create(B);
    let outcomes = bench.run(vec![
        vec![write(A, 0, b"a"), Step::Sync(A)],
        vec![write(B, 0, b"b"), Step::Sync(B), Step::Sync(A)],
        vec![write(A, 1, b"a"), Step::Sync(A)],
        vec![write(B, 1, b"b"), Step::Sync(B)],
    ]);
    let failed = |step| Err((ErrorKind::Other, step));
    assert_eq!(outcomes, [failed(1), failed(2), failed(1), DONE]);
    assert_eq!(bench.run(vec![vec![Step::Sync(A)]]), [Err((ErrorKind::Poisoned, 0))]);
}

/// Helpers sync beside the storage thread; each job still gets the result of its own file.
#[test]
fn files_synced_side_by_side_keep_their_own_results() {
    let mut bench = Bench::new();
    let ids: Vec<_> = (1..=40).map(FileId).collect();
    for (at, id) in ids.iter().enumerate() {
        if at % 7 == 3 { bench.hold(*id, device("/dev/null")) } else { bench.create(*id) }
    }
    let (syncers, shared) = (bench.volume.syncers.clone(), bench.volume.shared.clone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| syncers.help(&shared.counters));
        }
        for round in 0..20 {
            let before = shared.counters.snapshot().syncs;
            let jobs = ids.iter().map(|id| vec![write(*id, round, b"x"), Step::Sync(*id)]).collect();
            let expected = (0..ids.len()).map(|at| match (at % 7 == 3, round) {
                (true, 0) => Err((ErrorKind::Other, 1)),
                (true, _) => Err((ErrorKind::Poisoned, 0)),
                (false, _) => DONE,
            });
            assert!(bench.run(jobs).into_iter().eq(expected), "round {round}");
            let synced = if round == 0 { 40 } else { 34 };
            assert_eq!(shared.counters.snapshot().syncs - before, synced, "round {round}");
        }
        syncers.stop();
    });
}

/// The lookups of a store's start: their directories are synced side by side, each job keeps its own failures.
#[test]
fn lookups_that_wait_share_their_syncs_and_not_their_failures() {
    let mut bench = Bench::new();
    let dir = |number: u64| Name::new(&format!("d{number}")).expect("a name");
    let file = |number: u64| Path { dir: Some(dir(number)), name: Name::new("f").expect("a name") };
    for number in 1..=100 {
        let create = Step::Create { file: FileId(number), path: file(number) };
        let steps = vec![Step::CreateDir(dir(number)), create, write(FileId(number), 0, b"found")];
        assert_eq!(bench.run(vec![steps, vec![Step::Close(FileId(number))]]), [DONE, DONE]);
    }
    let look = |number: u64| {
        let id = FileId(1000 + number);
        let open = Step::Open { file: id, path: file(number) };
        vec![
            Step::SyncDir(None),
            Step::SyncDir(Some(dir(number))),
            open,
            Step::Read { file: id, at: 0, len: 9 },
        ]
    };
    let before = bench.volume.shared.counters.snapshot().syncs;
    let outcomes = bench.run((1..=101).map(look).collect());
    for (outcome, number) in outcomes.into_iter().zip(1..) {
        let missing = Err((ErrorKind::NotFound, 1));
        assert_eq!(outcome, if number <= 100 { Ok(Output::Data("found".into())) } else { missing });
    }
    assert_eq!(bench.volume.shared.counters.snapshot().syncs - before, 101, "the root and each directory");
}

/// What makes a file in a directory of its own, as a copy is made.
fn making(dir: &Name, file: FileId, content: &[u8]) -> Vec<Step> {
    let at = |name: &str| Path { dir: Some(dir.clone()), name: Name::new(name).expect("a name") };
    vec![
        Step::Create { file, path: at("aside") },
        write(file, 0, content),
        Step::Sync(file),
        Step::Close(file),
        Step::Rename { from: at("aside"), to: at("f") },
        Step::SyncDir(Some(dir.clone())),
        Step::SyncDir(None),
    ]
}

#[test]
fn jobs_with_nothing_in_common_share_the_wait_and_not_their_failures() {
    let mut bench = Bench::new();
    let dir = |number: u64| Name::new(&format!("d{number}")).expect("a name");
    // Somebody was there before.
    assert_eq!(bench.run(vec![vec![Step::CreateDir(dir(7))]]), [DONE]);
    let all = |number: u64| {
        let mut steps = vec![Step::CreateDir(dir(number))];
        steps.extend(making(&dir(number), FileId(number), b"made"));
        steps
    };
    let before = bench.volume.shared.counters.snapshot().syncs;
    let outcomes = bench.run((1..=40).map(all).collect());
    for (outcome, number) in outcomes.into_iter().zip(1..) {
        assert_eq!(outcome, if number == 7 { Err((ErrorKind::Exists, 0)) } else { DONE }, "{number}");
    }
    let syncs = bench.volume.shared.counters.snapshot().syncs - before;
    assert_eq!(syncs, 39 + 39 + 1, "each file, each directory, and the root once");
    for number in (1..=40).filter(|number| *number != 7) {
        let path = Path { dir: Some(dir(number)), name: Name::new("f").expect("a name") };
        let id = FileId(100 + number);
        assert_eq!(bench.run(vec![vec![Step::Open { file: id, path }]]), [Ok(Output::Length(4))]);
        assert_eq!(bench.content(id), &b"made"[..]);
    }
}

#[test]
fn jobs_that_reach_the_same_run_one_after_the_other() {
    let mut bench = Bench::new();
    let dir = |number: u64| Name::new(&format!("d{number}")).expect("a name");
    let mut jobs: Vec<Vec<Step>> = (0..3).map(|number| vec![Step::CreateDir(dir(number))]).collect();
    let path = |number| Path { dir: Some(dir(number)), name: Name::new("f").expect("a name") };
    for round in 0..5 {
        for number in 0..3 {
            let content = format!("{number} {round}");
            jobs.push(making(&dir(number), FileId(10 * round + number), content.as_bytes()));
            if round < 4 {
                jobs.push(vec![Step::Remove(path(number)), Step::SyncDir(Some(dir(number)))]);
            }
        }
    }
    let expected = vec![DONE; jobs.len()];
    assert_eq!(bench.run(jobs), expected);
    for number in 0..3 {
        let id = FileId(1000 + number);
        assert_eq!(
            bench.run(vec![vec![Step::Open { file: id, path: path(number) }]]),
            [Ok(Output::Length(3))]
        );
        assert_eq!(bench.content(id), format!("{number} 4"));
    }
}

#[test]
fn truncations_share_syncs_and_keep_their_place_among_writes() {
    let mut bench = Bench::new();
    let (a, b) = (FileId(1), FileId(2));
    bench.create(a);
    bench.create(b);
    let before = bench.volume.shared.counters.snapshot().syncs;
    let outcomes = bench.run(vec![
        vec![write(a, 0, b"abcdef"), Step::Sync(a)],
        vec![Step::Truncate { file: a, len: 2 }, Step::Sync(a)],
        vec![Step::Truncate { file: b, len: 3 }, Step::Sync(b)],
        vec![write(a, 2, b"x"), Step::Sync(a)],
    ]);
    assert_eq!(outcomes, [DONE, DONE, DONE, DONE]);
    assert_eq!(bench.volume.shared.counters.snapshot().syncs - before, 2, "one for each file");
    assert_eq!((bench.content(a), bench.content(b)), (Bytes::from("abx"), Bytes::from("\0\0\0")));
}

/// While one completion is being handled nothing else completes; all that came meanwhile shares one sync.
#[test]
fn jobs_gather_while_the_disk_is_busy() {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let (open_gate, gate) = mpsc::channel::<()>();
    let (done, completions) = mpsc::channel();
    let gate = Mutex::new(gate);
    let disk = RealDisk::open(root.path(), &Options::default(), move |completion: Completion| {
        if completion.job == JobId(0) {
            let _ = gate.lock().expect("no panic").recv();
        }
        let _ = done.send(completion);
    });
    let disk = disk.expect("a temporary directory can be opened");
    disk.submit(Job { id: JobId(0), steps: vec![Step::Create { file: A, path: path("f") }] });
    for id in 1..=100 {
        disk.submit(Job { id: JobId(id), steps: vec![write(A, id, b"x"), Step::Sync(A)] });
    }
    open_gate.send(()).expect("the disk waits for it");
    for id in 0..=100 {
        let completion = completions.recv().expect("the disk is alive");
        assert_eq!((completion.job, completion.result), (JobId(id), Ok(Output::Done)));
    }
    let counters = disk.counters();
    assert_eq!((counters.flushes, counters.write_calls, counters.syncs), (1, 1, 1));
}

#[test]
fn dropping_a_disk_completes_what_was_submitted() {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let (done, completions) = mpsc::channel();
    let disk = RealDisk::open(
        root.path(),
        &Options { readers: 1, ..Options::default() },
        move |completion: Completion| {
            let _ = done.send(completion.job);
        },
    );
    let disk = disk.expect("a temporary directory can be opened");
    disk.submit(Job { id: JobId(0), steps: vec![Step::Create { file: A, path: path("f") }] });
    for id in 1..=200 {
        let steps =
            if id % 2 == 0 { vec![Step::List(None)] } else { vec![write(A, id, b"x"), Step::Sync(A)] };
        disk.submit(Job { id: JobId(id), steps });
    }
    drop(disk);
    let mut completed: Vec<_> = completions.iter().map(|job| job.0).collect();
    completed.sort_unstable();
    assert!(completed.into_iter().eq(0..=200));
}
