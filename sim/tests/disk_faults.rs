//! Failing, full, read-only, rotten and lying disks.

use malachi_sim::disk::{Chance, Class, Faults, Found, Injection, Lies, NODE_BYTES, Side, SimDisk};
use storage::disk::{ErrorKind, FileId, Output, Step};

mod common;

use common::{Run, below, name, top, write};

fn healthy(seed: u64) -> Run {
    Run::new(SimDisk::new(seed, Faults::none()))
}

impl Run {
    #[track_caller]
    fn fails(&mut self, kind: ErrorKind, step: usize, steps: Vec<Step>) {
        let error = self.run(steps).expect_err("the job cannot succeed");
        assert_eq!((error.kind, error.step), (kind, step), "{error}");
    }

    #[track_caller]
    fn length(&self, path: &str) -> usize {
        self.disk.bytes(path, Side::View).expect("the file is there").len()
    }
}

/// Four jobs that the schedule may put under one sync, the sync failing: each hears of it.
#[test]
fn a_failed_sync_fails_every_job_it_was_for() {
    let mut shared = 0;
    for seed in 0..100 {
        let mut run = healthy(seed);
        let file = run.create(&top("f"), b"");
        run.done(vec![Step::SyncDir(None)]);
        run.disk.inject(Injection::next(Class::Sync, ErrorKind::Io));
        let ids: Vec<_> =
            (0..4).map(|at| run.submit(vec![write(file, at, b"x"), Step::Sync(file)])).collect();
        let mut kinds = Vec::new();
        for id in ids {
            let completion = storage::disk::Disk::wait(&mut run.disk).expect("four jobs");
            assert_eq!(completion.job, id);
            kinds.push(completion.result.expect_err("no sync succeeded").kind);
        }
        assert_eq!(kinds[0], ErrorKind::Io, "seed {seed}");
        assert!(kinds.iter().all(|kind| matches!(kind, ErrorKind::Io | ErrorKind::Poisoned)));
        shared += usize::from(kinds[3] == ErrorKind::Io);
    }
    assert!((1..100).contains(&shared), "some seeds share one sync among all four, some do not: {shared}");
}

/// Fsync that failed: the pages are gone, and neither another try nor another id makes them durable.
#[test]
fn a_failed_sync_is_never_retried_into_success() {
    let (mut lost, mut kept, mut cache_lied) = (0, 0, 0);
    for seed in 0..200 {
        let mut run = healthy(seed);
        let file = run.create(&top("f"), b"old");
        let other = run.open(&top("f"));
        run.done(vec![Step::Sync(file), Step::SyncDir(None), write(file, 0, b"new")]);
        run.disk.inject(Injection::next(Class::Sync, ErrorKind::Io));
        run.fails(ErrorKind::Io, 0, vec![Step::Sync(file)]);
        run.fails(ErrorKind::Poisoned, 0, vec![Step::Sync(file)]);
        run.fails(ErrorKind::Poisoned, 0, vec![write(file, 0, b"NEW")]);
        run.fails(ErrorKind::Io, 0, vec![Step::Sync(other)]);
        run.fails(ErrorKind::Poisoned, 0, vec![Step::Sync(other)]);
        let seen = run.read(file);
        run.done(vec![Step::Close(file)]);
        let file = run.open(&top("f"));
        let held = run.read(file);
        assert_eq!(Some(&held[..]), run.disk.bytes("f", Side::Platter), "seed {seed}");
        run.done(vec![Step::Sync(file)]);
        run.disk.crash();
        assert_eq!(run.disk.bytes("f", Side::View), Some(&held[..]), "seed {seed}");
        lost += usize::from(held == "old");
        kept += usize::from(held == "new");
        cache_lied += usize::from(seen != held);
    }
    assert!(lost > 0 && kept > 0 && cache_lied > 0, "{lost} {kept} {cache_lied}");
}

#[test]
fn a_failed_write_has_done_any_part_of_its_work() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let mut run = healthy(seed);
        let file = run.create(&top("f"), b"");
        run.disk.inject(Injection::next(Class::Write, ErrorKind::Io));
        run.fails(ErrorKind::Io, 0, vec![write(file, 0, b"abcd"), Step::Sync(file)]);
        run.fails(ErrorKind::Poisoned, 0, vec![Step::Sync(file)]);
        lengths.insert(run.length("f"));
        assert!(b"abcd".starts_with(&run.read(file)), "reading stays possible");
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_failed_read_poisons_nothing() {
    let mut run = healthy(1);
    let file = run.create(&top("f"), b"abc");
    run.disk.inject(Injection { path: Some(top("f")), ..Injection::next(Class::Read, ErrorKind::Io) });
    run.fails(ErrorKind::Io, 0, vec![Step::Read { file, at: 0, len: 3 }]);
    assert_eq!(run.read(file), "abc");
    run.done(vec![write(file, 0, b"A"), Step::Sync(file)]);
}

#[test]
fn an_injection_waits_for_its_step() {
    let mut run = healthy(1);
    let (a, b) = (run.create(&top("a"), b""), run.create(&top("b"), b""));
    let injection =
        Injection { path: Some(top("b")), skip: 1, ..Injection::next(Class::Sync, ErrorKind::Full) };
    run.disk.inject(injection);
    run.done(vec![Step::Sync(a), Step::Sync(b), Step::Sync(a)]);
    run.fails(ErrorKind::Full, 1, vec![Step::Sync(a), Step::Sync(b)]);
    let b = run.open(&top("b"));
    run.done(vec![Step::Sync(b)]);
    run.disk.inject(Injection { times: u32::MAX, ..Injection::next(Class::SyncDir, ErrorKind::Io) });
    run.fails(ErrorKind::Io, 0, vec![Step::SyncDir(None)]);
    run.disk.clear_injections();
    run.fails(ErrorKind::Poisoned, 0, vec![Step::SyncDir(None)]);
    run.disk.kill();
    run.done(vec![Step::SyncDir(None)]);
}

/// A full volume takes what fits, refuses the rest, and works again once something was removed.
#[test]
fn a_full_volume_is_full_until_something_goes() {
    let mut run = healthy(1);
    run.disk.faults_mut().capacity_bytes = Some(3 * NODE_BYTES + 1000);
    let (a, b) = (run.create(&top("a"), &[1; 600]), run.create(&top("b"), b""));
    run.done(vec![Step::Sync(a), Step::Sync(b), Step::SyncDir(None)]);
    run.fails(ErrorKind::Full, 0, vec![write(b, 0, &[2; 500]), Step::Sync(b)]);
    assert_eq!(run.length("b"), 400, "what fits is written");
    run.done(vec![write(a, 0, &[3; 600]), Step::Sync(a)]);
    run.fails(ErrorKind::Poisoned, 0, vec![Step::Sync(b)]);
    run.fails(ErrorKind::Full, 0, vec![Step::Create { file: FileId(900), path: top("c") }]);
    run.fails(ErrorKind::Full, 0, vec![Step::CreateDir(name("d"))]);
    run.done(vec![Step::Close(a), Step::Remove(top("a")), Step::SyncDir(None), Step::Close(b)]);
    let b = run.open(&top("b"));
    run.done(vec![write(b, 0, &[2; 500]), Step::Sync(b)]);
    assert_eq!(run.length("b"), 500);
}

#[test]
fn a_read_only_volume_can_be_read() {
    let mut run = healthy(1);
    let file = run.create(&top("f"), b"abc");
    run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
    run.disk.set_read_only(true);
    run.fails(ErrorKind::ReadOnly, 0, vec![write(file, 0, b"x")]);
    run.fails(ErrorKind::Poisoned, 0, vec![Step::Sync(file)]);
    for step in [
        Step::CreateDir(name("d")),
        Step::Create { file: FileId(900), path: top("g") },
        Step::Rename { from: top("f"), to: top("g") },
        Step::Remove(top("f")),
    ] {
        run.fails(ErrorKind::ReadOnly, 0, vec![step]);
    }
    let file = run.open(&top("f"));
    assert_eq!(run.read(file), "abc");
    run.disk.set_read_only(false);
    run.done(vec![write(file, 0, b"x"), Step::Sync(file)]);
}

/// Every random fault strikes sometimes, and never a step of another class.
#[test]
fn random_faults_strike_their_own_steps() {
    let often = Chance::one_in(4);
    let steps = |file| {
        [
            (Class::Read, Step::Read { file, at: 0, len: 3 }),
            (Class::Write, write(file, 0, b"x")),
            (Class::Write, Step::Truncate { file, len: 2 }),
            (Class::Sync, Step::Sync(file)),
            (Class::Name, Step::CreateDir(name("d"))),
            (Class::List, Step::List(None)),
        ]
    };
    for class in [Class::Read, Class::Write, Class::Sync, Class::Name] {
        let mut struck = 0;
        for seed in 0..100 {
            for (of, step) in steps(FileId(101)) {
                let mut run = healthy(seed);
                run.create(&top("f"), b"abc");
                let faults = run.disk.faults_mut();
                match class {
                    Class::Read => faults.read_error = often,
                    Class::Write => faults.write_error = often,
                    Class::Sync => faults.sync_error = often,
                    Class::SyncDir | Class::Open | Class::Name | Class::List => faults.name_error = often,
                }
                let failed = run.run(vec![step]).is_err();
                let expected = of == class || (of, class) == (Class::List, Class::Name);
                assert!(!failed || expected, "{of:?} failed by a fault of {class:?}");
                struck += usize::from(failed);
            }
        }
        assert!(struck > 5, "{class:?} struck {struck} times");
    }
}

#[test]
fn damage_changes_what_it_says_and_stays() {
    let mut run = healthy(1);
    run.done(vec![Step::CreateDir(name("d")), Step::SyncDir(None)]);
    let file = run.create(&below("d", "f"), &[0; 100]);
    run.done(vec![Step::Sync(file), Step::SyncDir(Some(name("d")))]);
    assert!(run.disk.flip_bit(&below("d", "f"), 7, 3));
    assert!(!run.disk.flip_bit(&below("d", "f"), 100, 0), "past the end");
    assert!(!run.disk.flip_bit(&top("f"), 0, 0), "no such file");
    assert_eq!(run.read(file)[7], 8);
    let flip = run.disk.flip_random_durable(|path| path.ends_with("/f")).expect("one file has bytes");
    assert_eq!(flip.path, "d/f");
    assert_eq!(run.disk.flip_random_durable(|path| path == "g"), None);
    assert!(run.disk.cut_file("d/f", 50));
    assert!(run.disk.plant_file("d/Foreign Name", b"?".to_vec()));
    assert!(!run.disk.plant_file("missing/f", Vec::new()));
    run.disk.plant_dir("lost+found");
    run.disk.crash();
    assert_eq!(run.length("d/f"), 50);
    assert_eq!(run.names(), "d d/Foreign Name d/f lost+found");
    run.disk.uproot("d");
    assert_eq!(
        run.disk.list(Side::Platter).into_iter().collect::<Vec<_>>(),
        [("lost+found".into(), Found::Dir)]
    );
    run.disk.wipe();
    assert_eq!(run.names(), "");
    run.create(&top("f"), b"works");
}

/// Bytes in the cache that are newer than the platter's overwrite rot below them.
#[test]
fn a_newer_write_heals_rot() {
    let mut run = healthy(1);
    let file = run.create(&top("f"), b"old");
    run.done(vec![Step::Sync(file), Step::SyncDir(None), write(file, 0, b"new")]);
    assert!(run.disk.flip_bit(&top("f"), 1, 0));
    assert_eq!(run.read(file), "new");
    run.done(vec![Step::Sync(file)]);
    assert_eq!(run.disk.bytes("f", Side::Platter), Some(&b"new"[..]));
}

/// The switches that break the contract do break it, so that a checker can be checked with them.
#[test]
fn lies_lose_what_was_synced() {
    let lose = |lies: Lies| {
        (0..50).any(|seed| {
            let mut run = healthy(seed);
            *run.disk.lies_mut() = lies;
            let file = run.create(&top("f"), b"synced");
            run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
            run.disk.crash();
            run.disk.bytes("f", Side::View) != Some(&b"synced"[..])
        })
    };
    assert!(!lose(Lies::default()));
    assert!(lose(Lies { ignore_sync: true, ..Lies::default() }));
    assert!(lose(Lies { ignore_sync_dir: true, ..Lies::default() }));
}

/// Linux as it is: after a failed sync the cache of a file opened again may show what the platter lacks.
#[test]
fn a_stale_reopening_shows_the_cache() {
    let lied = (0..50).any(|seed| {
        let mut run = healthy(seed);
        run.disk.lies_mut().stale_reopen = true;
        let file = run.create(&top("f"), b"new");
        run.done(vec![Step::SyncDir(None)]);
        run.disk.inject(Injection::next(Class::Sync, ErrorKind::Io));
        run.fails(ErrorKind::Io, 0, vec![Step::Sync(file)]);
        let file = run.open(&top("f"));
        assert_eq!(run.run(vec![Step::Sync(file)]), Ok(Output::Done));
        Some(&run.read(file)[..]) != run.disk.bytes("f", Side::Platter)
    });
    assert!(lied);
}

#[test]
fn counts_tell_what_was_done() {
    let mut run = healthy(1);
    let file = run.create(&top("f"), b"abc");
    run.done(vec![Step::Zero { file, at: 3, len: 7 }, Step::Sync(file), Step::SyncDir(None)]);
    run.read(file);
    run.disk.crash();
    let counts = run.disk.counts();
    assert_eq!((counts.writes, counts.write_bytes), (2, 10));
    assert_eq!((counts.syncs, counts.dir_syncs, counts.reads), (1, 1, 1));
    assert_eq!((counts.crashes, counts.kills, counts.failures), (1, 0, 0));
}
