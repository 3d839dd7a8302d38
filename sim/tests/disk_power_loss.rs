//! What a power loss leaves: everything synced, and of the rest every outcome the contract allows.
//!
//! "Every outcome is reached" is checked by counting outcomes over many seeds. Without these tests a
//! simulated disk that loses nothing, or always everything, would let any recovery pass.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use malachi_sim::disk::{Faults, NameLoss, Side, SimDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::{Disk, ErrorKind, FileId, Job, JobId, Name, Output, Path, Step};

mod common;

use common::{Run, below, name, top, write};

const SEEDS: u64 = 5000;

/// The outcomes of one story over many seeds, as text.
fn outcomes(story: impl Fn(&mut Run) -> String) -> BTreeSet<String> {
    (0..SEEDS).map(|seed| story(&mut Run::new(SimDisk::new(seed, Faults::none())))).collect()
}

/// `old` or `new` for each sector of the file, `~` for one that holds both.
fn sectors(content: &[u8], old: u8, new: u8) -> String {
    let letter = |sector: &[u8]| match (sector.contains(&old), sector.contains(&new)) {
        (true, false) => 'o',
        (false, true) => 'n',
        (true, true) => '~',
        (false, false) => '0',
    };
    content.chunks(512).map(letter).collect()
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), &[b'o'; 2048]);
        run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
        run.done(vec![write(file, 0, &[b'n'; 2048])]);
        run.disk.crash();
        sectors(run.disk.bytes("f", Side::View).expect("its name was synced"), b'o', b'n')
    });
    for wanted in ["oooo", "nnnn", "nnoo", "oonn", "onno", "noon", "nn~o", "o~nn", "non~"] {
        assert!(found.contains(wanted), "{wanted} not in {found:?}");
    }
}

#[test]
fn unsynced_writes_are_lost_out_of_order() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), b"---");
        run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
        run.done(vec![write(file, 0, b"a"), write(file, 1, b"b"), write(file, 2, b"c")]);
        run.disk.crash();
        String::from_utf8_lossy(run.disk.bytes("f", Side::View).expect("synced")).into_owned()
    });
    assert_eq!(found.len(), 8, "every subset: {found:?}");
}

#[test]
fn a_lost_extension_may_leave_its_length() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), b"");
        run.done(vec![Step::Sync(file), Step::SyncDir(None), write(file, 0, &[b'n'; 1024])]);
        run.disk.crash();
        sectors(run.disk.bytes("f", Side::View).expect("synced"), b'o', b'n')
    });
    for wanted in ["", "nn", "n", "n0", "0n", "00"] {
        assert!(found.contains(wanted), "{wanted} not in {found:?}");
    }
}

#[test]
fn an_unsynced_truncation_is_kept_or_lost() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), b"0123456789");
        run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
        run.done(vec![Step::Truncate { file, len: 4 }, write(file, 4, b"x")]);
        run.disk.crash();
        String::from_utf8_lossy(run.disk.bytes("f", Side::View).expect("synced")).into_owned()
    });
    let wanted = ["0123456789", "0123", "0123x56789", "0123x"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(wanted));
}

#[test]
fn a_synced_truncation_and_zeroing_stay() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), &[b'x'; 1000]);
        run.done(vec![Step::Sync(file), Step::SyncDir(None)]);
        run.done(vec![Step::Truncate { file, len: 2 }, Step::Zero { file, at: 1, len: 4 }, Step::Sync(file)]);
        run.disk.crash();
        String::from_utf8_lossy(run.disk.bytes("f", Side::View).expect("synced")).into_owned()
    });
    assert_eq!(found, BTreeSet::from(["x\0\0\0\0".to_owned()]));
}

#[test]
fn unsynced_names_are_kept_or_lost_each_for_itself() {
    let story = |run: &mut Run| {
        run.create(&top("a"), b"");
        run.create(&top("b"), b"");
        run.disk.crash();
        run.names()
    };
    let wanted = ["", "a", "a b", "b"].map(str::to_owned);
    assert_eq!(outcomes(story), BTreeSet::from(wanted));
    let prefixes = outcomes(|run| {
        run.disk.faults_mut().names = NameLoss::Prefix;
        story(run)
    });
    assert_eq!(prefixes, BTreeSet::from(["", "a", "a b"].map(str::to_owned)));
}

#[test]
fn a_synced_file_without_its_name_is_gone() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), b"synced");
        run.done(vec![Step::Sync(file)]);
        run.disk.crash();
        run.disk
            .bytes("f", Side::View)
            .map_or("gone".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    });
    assert_eq!(found, BTreeSet::from(["gone", "synced"].map(str::to_owned)));
}

#[test]
fn a_lost_directory_takes_its_synced_names_with_it() {
    let found = outcomes(|run| {
        run.done(vec![Step::CreateDir(name("d"))]);
        run.create(&below("d", "f"), b"");
        run.done(vec![Step::SyncDir(Some(name("d")))]);
        run.disk.crash();
        run.names()
    });
    assert_eq!(found, BTreeSet::from(["", "d d/f"].map(str::to_owned)));
}

#[test]
fn a_removal_not_synced_may_come_back() {
    let found = outcomes(|run| {
        run.done(vec![Step::CreateDir(name("d")), Step::SyncDir(None)]);
        run.create(&below("d", "f"), b"");
        run.done(vec![Step::SyncDir(Some(name("d")))]);
        run.done(vec![Step::Remove(below("d", "f")), Step::RemoveDir(name("d"))]);
        run.disk.crash();
        run.names()
    });
    assert_eq!(found, BTreeSet::from(["", "d", "d d/f"].map(str::to_owned)));
}

/// The file replaced, or the one that replaces it; never neither, never both.
#[test]
fn a_rename_in_one_directory_happens_whole_or_not_at_all() {
    let replace = |run: &mut Run, sync: bool| {
        let old = run.create(&top("meta"), b"old");
        run.done(vec![Step::Sync(old), Step::SyncDir(None)]);
        let new = run.create(&top("meta.new"), b"new");
        run.done(vec![Step::Sync(new), Step::SyncDir(None)]);
        run.done(vec![Step::Rename { from: top("meta.new"), to: top("meta") }]);
        if sync {
            run.done(vec![Step::SyncDir(None)]);
        }
        run.disk.crash();
        let content = String::from_utf8_lossy(run.disk.bytes("meta", Side::View).expect("never neither"));
        format!("{}: {content}", run.names())
    };
    let unsynced = outcomes(|run| replace(run, false));
    assert_eq!(unsynced, BTreeSet::from(["meta meta.new: old", "meta: new"].map(str::to_owned)));
    assert_eq!(outcomes(|run| replace(run, true)), BTreeSet::from(["meta: new".to_owned()]));
}

#[test]
fn a_rename_between_directories_is_two_changes() {
    let story = |run: &mut Run, sync: &[Option<Name>]| {
        run.done(vec![Step::CreateDir(name("d")), Step::SyncDir(None)]);
        run.create(&top("f"), b"");
        run.done(vec![Step::SyncDir(None), Step::Rename { from: top("f"), to: below("d", "f") }]);
        run.done(sync.iter().map(|dir| Step::SyncDir(dir.clone())).chain([Step::Close(FileId(0))]).collect());
        run.disk.crash();
        run.names()
    };
    let all = ["d", "d d/f", "d d/f f", "d f"].map(str::to_owned);
    assert_eq!(outcomes(|run| story(run, &[])), BTreeSet::from(all));
    let moved = BTreeSet::from(["d d/f".to_owned()]);
    assert_eq!(outcomes(|run| story(run, &[Some(name("d")), None])), moved);
    assert!(
        outcomes(|run| story(run, &[None])).contains("d"),
        "gone from both when only the old one is synced"
    );
}

/// What nobody waited for may have happened, in part or whole; what completed has.
#[test]
fn outstanding_jobs_are_dropped_at_any_step() {
    let found = outcomes(|run| {
        run.submit(vec![Step::Create { file: FileId(90), path: top("a") }, Step::SyncDir(None)]);
        run.submit(vec![write(FileId(90), 0, b"x"), Step::Sync(FileId(90))]);
        run.submit(vec![Step::Create { file: FileId(91), path: top("b") }, Step::SyncDir(None)]);
        run.disk.crash();
        assert_eq!(run.disk.wait().map(|completion| completion.job), None, "nobody hears of them");
        let bytes = run.disk.bytes("a", Side::Platter).map_or(0, <[u8]>::len);
        format!("{} {bytes}", run.names())
    });
    for wanted in [" 0", "a 0", "a 1", "a b 1"] {
        assert!(found.contains(wanted), "{wanted} not in {found:?}");
    }
    assert!(!found.contains("b 0"), "the second directory sync covers the first name: {found:?}");
}

#[test]
fn the_end_of_the_process_loses_nothing_until_the_power_goes() {
    let found = outcomes(|run| {
        let file = run.create(&top("f"), b"cached");
        run.done(vec![Step::SyncDir(None)]);
        run.disk.kill();
        assert_eq!(run.disk.bytes("f", Side::View), Some(&b"cached"[..]));
        let error = run.run(vec![Step::Sync(file)]).expect_err("ids end with the process");
        assert_eq!(error.kind, ErrorKind::NotOpen);
        run.disk.crash();
        String::from_utf8_lossy(run.disk.bytes("f", Side::View).expect("its name was synced")).into_owned()
    });
    assert!(found.contains("cached") && found.contains(""), "{found:?}");
}

/// A new process syncs what an old one wrote.
#[test]
fn a_sync_covers_what_an_earlier_process_wrote() {
    let found = outcomes(|run| {
        run.create(&top("f"), b"cached");
        run.disk.kill();
        let file = FileId(50);
        let result =
            run.run(vec![Step::Open { file, path: top("f") }, Step::Sync(file), Step::SyncDir(None)]);
        assert_eq!(result, Ok(Output::Done));
        run.disk.crash();
        String::from_utf8_lossy(run.disk.bytes("f", Side::View).expect("synced")).into_owned()
    });
    assert_eq!(found, BTreeSet::from(["cached".to_owned()]));
}

/// What may lie at one place of a file after a power loss.
#[derive(Default)]
struct Allowed {
    /// Synced content.
    synced: Vec<u8>,
    /// Changes since, in order; `None` is a truncation.
    pending: Vec<(usize, Option<Vec<u8>>)>,
}

impl Allowed {
    fn check(&self, found: &[u8], seed: u64) {
        for (at, byte) in found.iter().enumerate() {
            let synced = self.synced.get(at) == Some(byte);
            // A hole, or a length that outran its bytes, reads as zeros.
            let zero = *byte == 0 && !self.pending.is_empty();
            let written = self.pending.iter().any(|(from, data)| {
                data.as_ref().is_some_and(|data| *from <= at && data.get(at - from) == Some(byte))
            });
            assert!(synced || zero || written, "seed {seed}: byte {byte} at {at} comes from nowhere");
        }
        let cut = self.pending.iter().filter(|(_, data)| data.is_none()).map(|(len, _)| *len).min();
        let least = cut.unwrap_or(usize::MAX).min(self.synced.len());
        assert!(found.len() >= least, "seed {seed}: {} bytes where {least} were synced", found.len());
        if self.pending.is_empty() {
            assert_eq!(found, self.synced, "seed {seed}");
        }
    }
}

/// Random work on a few files, many power losses: nothing synced is ever lost, nothing is ever invented.
#[test]
fn what_is_synced_survives_whatever_happens() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut run = Run::new(SimDisk::new(seed, Faults::none()));
        let paths = [top("a"), top("b"), top("c")];
        let mut allowed: BTreeMap<usize, Allowed> = BTreeMap::new();
        for path in &paths {
            run.create(path, b"");
        }
        run.done(vec![Step::SyncDir(None)]);
        for _ in 0..30 {
            let files: Vec<_> = paths.iter().map(|path| run.open(path)).collect();
            for _ in 0..rng.random_range(0..20) {
                let at = rng.random_range(0..files.len());
                let (file, state) = (files[at], allowed.entry(at).or_default());
                let len = run.disk.bytes(paths[at].name.as_str(), Side::View).map_or(0, <[u8]>::len);
                match rng.random_range(0..10) {
                    0..3 => {
                        run.done(vec![Step::Sync(file)]);
                        state.synced =
                            run.disk.bytes(paths[at].name.as_str(), Side::View).expect("there").to_vec();
                        state.pending.clear();
                    }
                    3 => {
                        let len = rng.random_range(0..=len);
                        run.done(vec![Step::Truncate { file, len: u64::try_from(len).expect("small") }]);
                        state.pending.push((len, None));
                    }
                    _ => {
                        let from = rng.random_range(0..=len.min(5000));
                        let data = vec![rng.random::<u8>(); rng.random_range(1..2000)];
                        let place = u64::try_from(from).expect("small");
                        run.done(vec![write(file, place, &data)]);
                        state.pending.push((from, Some(data)));
                    }
                }
            }
            run.disk.crash();
            for (at, state) in &mut allowed {
                let found =
                    run.disk.bytes(paths[*at].name.as_str(), Side::View).expect("its name was synced");
                state.check(found, seed);
                *state = Allowed { synced: found.to_vec(), pending: Vec::new() };
            }
        }
    }
}

/// Random jobs, faults and power losses without anybody waiting in between.
fn ramble(seed: u64, faults: Faults) -> SimDisk {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut disk = SimDisk::new(seed, faults);
    disk.record_trace();
    let mut next = 0;
    for _ in 0..300 {
        next += 1;
        let number = rng.random_range(0..6u64);
        let path = Path { dir: None, name: name(&format!("f{number}")) };
        let file = FileId(rng.random_range(next.max(20) - 20..next));
        let steps = match rng.random_range(0..9) {
            0 | 1 => vec![Step::Create { file: FileId(next), path }, Step::SyncDir(None)],
            2 => vec![Step::Open { file: FileId(next), path }],
            3 => vec![Step::Read { file, at: number * 100, len: 500 }],
            4 => vec![Step::List(None)],
            5 => vec![Step::Remove(path)],
            _ => {
                let data = vec![Bytes::from(vec![number.to_le_bytes()[0]; 700])];
                vec![Step::Write { file, at: number * 300, data }, Step::Sync(file)]
            }
        };
        disk.submit(Job { id: JobId(next), steps });
        for _ in 0..rng.random_range(0..4) {
            disk.step();
        }
        if rng.random_bool(0.02) {
            disk.crash();
        }
    }
    while disk.wait().is_some() {}
    disk
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let faults = Faults { sync_error: malachi_sim::disk::Chance::one_in(30), ..Faults::none() };
    let mut hashes = BTreeSet::new();
    for seed in 0..40 {
        let (mut first, mut second) = (ramble(seed, faults.clone()), ramble(seed, faults.clone()));
        assert_eq!(first.take_trace(), second.take_trace(), "seed {seed}");
        assert_eq!(first.trace_hash(), second.trace_hash(), "seed {seed}");
        assert_eq!(first.list(Side::Platter), second.list(Side::Platter), "seed {seed}");
        hashes.insert(first.trace_hash());
    }
    assert_eq!(hashes.len(), 40, "different seeds give different runs");
}

#[test]
fn a_clone_goes_on_as_the_original_would() {
    let mut disk = ramble(3, Faults::none());
    let mut twin = disk.clone();
    for disk in [&mut disk, &mut twin] {
        disk.submit(Job {
            id: JobId(1000),
            steps: vec![Step::Create { file: FileId(1000), path: top("new") }],
        });
        disk.crash();
    }
    assert_eq!(disk.trace_hash(), twin.trace_hash());
    assert_eq!(disk.list(Side::View), twin.list(Side::View));
}
