//! Stories about the journal and about starts: what only the journal knows, what cannot be read just now, and
//! what creations leave half-made. The bugs that seeds have found are told without the seed.

use std::collections::BTreeSet;

use malachi_sim::disk::{Class, Faults, Injection, Side, SimDisk};
use malachi_sim::store::single::Single;
use storage::disk::{Disk, ErrorKind, Path, Step};
use storage::planted::Bug;
use storage::segment::layout;
use storage::store::{Action, Config, Error, Notice, Reply, Request, State, Status, Store};
use types::{Epoch, Instant, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

fn segment(seq: u64) -> SegmentId {
    SegmentId { range: RangeId { topic: TopicId(0xa11ce), seq: RangeSeq(0) }, seq: SegmentSeq(seq) }
}

/// Everything up to 300 bytes goes to the journal.
fn config() -> Config {
    Config {
        preallocate_bytes: (0, 0),
        journal_bytes: 8192,
        journal_copies_min: 1,
        journal_part_bytes_max: 300,
        ..Config::default()
    }
}

/// A store with a journal: its files are made when they would first pay, and used from then on.
fn fresh(seed: u64, config: &Config) -> Single {
    let mut store = Single::start(SimDisk::new(seed, Faults::none()), config);
    create(&mut store, 1000);
    store.append(segment(1000), b"to the file").expect("a healthy disk");
    store
}

fn log_of(segment: SegmentId) -> Path {
    layout::log(segment, Offset::ZERO)
}

/// Appends at the end of a copy that may not have been looked at since the start.
fn append(store: &mut Single, seq: u64, payload: &[u8]) -> Result<Offset, Error> {
    store.inspect(segment(seq))?;
    store.append(segment(seq), payload)
}

fn create(store: &mut Single, seq: u64) {
    let reply = store.create(segment(seq));
    assert!(matches!(reply, Reply::Created), "{reply:?}");
}

fn read_fails(path: Path, times: u32) -> Injection {
    Injection { class: Class::Read, path: Some(path), skip: 0, times, kind: ErrorKind::Io }
}

fn is_latched(store: &mut Single, seq: u64) -> bool {
    matches!(store.inspect(segment(seq)).expect("it can be looked at").state, State::Latched(_))
}

/// Seed 2022117: a bit flipped in the last flush of a log, which nothing in the file testifies for, though the
/// journal held frames that follow. The log was told to end before it; the volume was full, so another copy could
/// not be brought home and the journal stayed; and once the log had grown again, what it held turned up behind
/// frames it had never followed.
#[test]
fn rot_before_frames_that_the_journal_holds_is_damage() {
    let (end, error) = rot_before_journaled_frames(None);
    assert_eq!(end, None);
    assert!(matches!(error, Error::Damaged(damage) if damage.position == 0), "{error}");
    // With the bug put back two acknowledged records are gone, and one of them comes back later.
    let (end, error) = rot_before_journaled_frames(Some(Bug::DoubtJournal));
    assert_eq!((end, error), (Some(Offset(1)), Error::EndOfData { end: Offset(2) }));
}

/// How far an append got after the rot, and what ends the reading one start later.
fn rot_before_journaled_frames(bug: Option<Bug>) -> (Option<Offset>, Error) {
    // The log has room for more when the volume has not.
    let config = Config { bug, preallocate_bytes: (1000, 1000), ..config() };
    let mut store = fresh(1, &config);
    create(&mut store, 0);
    create(&mut store, 1);
    store.append(segment(0), &[7; 500]).expect("to the file");
    store.append(segment(0), b"to the journal").expect("a healthy disk");
    store.append(segment(1), b"to the journal").expect("a healthy disk");
    store.disk.kill();
    let mut disk = store.disk;
    // Of the first frame's payload, so that only what follows can speak for it.
    assert!(disk.flip_bit(&log_of(segment(0)), 100, 0));
    disk.faults_mut().capacity_bytes = Some(0);
    let mut store = Single::start(disk, &config);
    assert!(matches!(store.inspect(segment(1)), Err(Error::Storage(_))), "the journal has to stay");
    let end = append(&mut store, 0, &[8; 500]).ok();
    let mut store = store.after_kill();
    let (_, error) = store.read_all(segment(0));
    (end, error)
}

/// Seed 5024745: a write failed on a full volume while another of the same copy was under way. Whoever waited until
/// the file was whole had it tried again, and again, two attempts side by side, and was never told that it is not.
#[test]
fn who_waits_for_a_file_that_cannot_be_written_is_told() {
    let mut store = fresh(10, &config());
    create(&mut store, 0);
    store.append(segment(0), b"to the journal").expect("a healthy disk");
    store.disk.faults_mut().capacity_bytes = Some(0);
    let large = store.append_request(segment(0), &[1; 500]);
    store.send(large);
    let Request::Append { mut batches, .. } = store.append_request(segment(0), &[2; 500]) else {
        unreachable!()
    };
    batches[0].header.base_offset = Offset(2);
    store.send(Request::Append { segment: segment(0), epoch: Epoch(1), batches });
    let reply = store.call(Request::Seal { segment: segment(0), end: Offset(1), at: WallTime(1) });
    assert!(matches!(reply, Reply::Failed(Error::Storage(_))), "{reply:?}");
    // With room for what the journal has, the copy can be ended where it was acknowledged.
    store.disk.faults_mut().capacity_bytes = None;
    let reply = store.call(Request::Seal { segment: segment(0), end: Offset(1), at: WallTime(1) });
    assert!(matches!(reply, Reply::Sealed(_)), "{reply:?}");
    assert_eq!(store.after_power_loss().read_all(segment(0)).0, [&b"to the journal"[..]]);
}

/// Frames that were brought to the log in one flush testify for nothing of each other; the journal does, as long
/// as it holds one of them.
#[test]
fn the_journal_testifies_for_everything_before_what_it_holds() {
    // A journal file takes one record of these, so that the first is gone and the second still there.
    let config = Config { journal_bytes: 1024 + 250, ..config() };
    let mut store = fresh(2, &config);
    create(&mut store, 0);
    create(&mut store, 1);
    store.append(segment(0), &[1; 90]).expect("to the first file");
    store.append(segment(0), &[2; 90]).expect("to the second");
    store.idle();
    store.append(segment(1), &[3; 90]).expect("to the first again");
    store.disk.kill();
    let mut disk = store.disk;
    assert!(disk.flip_bit(&log_of(segment(0)), 80, 0));
    let mut store = Single::start(disk, &config);
    let (payloads, error) = store.read_all(segment(0));
    assert!(payloads.is_empty());
    assert!(matches!(error, Error::Damaged(_)), "{error}");
}

/// A journal that lost frames nobody can name takes every copy that may miss some out of service. While it cannot
/// be emptied, because a copy it owes frames to cannot be read, it did so at every start, to copies too that were
/// made long after.
#[test]
fn a_damaged_journal_that_stays_is_no_danger_to_copies_made_later() {
    let mut store = fresh(3, &config());
    for seq in 0..3 {
        create(&mut store, seq);
        store.append(segment(seq), b"to the journal").expect("a healthy disk");
    }
    store.append(segment(0), b"testifies for all before").expect("a healthy disk");
    store.disk.kill();
    let mut disk = store.disk;
    // The header of the second record, and the explanation of the third copy.
    let record = 80 + 72 + "to the journal".len() as u64;
    assert!(disk.corrupt("journal/a.log", 1024 + record + 10, &[1]));
    assert!(disk.flip_bit(&layout::meta(segment(2)), 50, 0));
    let mut store = Single::start(disk, &config());
    for seq in [0, 1] {
        assert!(is_latched(&mut store, seq), "copy {seq} may have lost frames");
    }
    create(&mut store, 3);
    store.append(segment(3), b"later").expect("a copy made later takes appends");
    for start in 0..3 {
        store = if start % 2 == 0 { store.after_kill() } else { store.after_power_loss() };
        assert!(!is_latched(&mut store, 3), "start {start}");
        create(&mut store, 4 + start);
        store.append(segment(4 + start), b"later still").expect("a copy made later takes appends");
    }
    let (payloads, error) = store.read_all(segment(3));
    assert_eq!((payloads, error), (vec!["later".into()], Error::EndOfData { end: Offset(1) }));
}

/// Uses of the journal are numbered on from what the copies know, should its files be gone: otherwise the loss of a
/// later use would look older than a copy that had frames in it.
#[test]
fn the_journal_never_counts_from_the_beginning_again() {
    let mut store = fresh(4, &config());
    create(&mut store, 0);
    store.append(segment(0), b"first use").expect("a healthy disk");
    for _ in 0..3 {
        store = store.after_kill();
        append(&mut store, 0, b"another").expect("a healthy disk");
    }
    create(&mut store, 1);
    store.idle();
    let mut disk = store.disk;
    disk.crash();
    disk.uproot("journal/a.log");
    disk.uproot("journal/b.log");
    let mut store = Single::start(disk, &config());
    // The first makes the files anew.
    append(&mut store, 0, b"to the file").expect("a healthy disk");
    append(&mut store, 1, b"to the journal").expect("a healthy disk");
    append(&mut store, 0, b"testifies for all before").expect("a healthy disk");
    store.disk.kill();
    let mut disk = store.disk;
    assert!(disk.corrupt("journal/a.log", 1024 + 10, &[1]), "the record of the second copy");
    let mut store = Single::start(disk, &config());
    assert!(is_latched(&mut store, 1), "what it lost is not older than it");
}

/// A failed read of `copy.meta` at the start put the copy out for as long as the process lived.
#[test]
fn a_copy_that_could_not_be_read_comes_back_with_the_next_request() {
    let mut store = fresh(5, &config());
    create(&mut store, 0);
    store.append(segment(0), b"to the journal").expect("a healthy disk");
    store.disk.kill();
    let mut disk = store.disk;
    disk.inject(read_fails(layout::meta(segment(0)), 2));
    let mut store = Single::start(disk, &config());
    assert_eq!(store.status(segment(0)), Some(Status::Unread));
    assert!(matches!(store.inspect(segment(0)), Err(Error::Storage(_))), "once more it cannot be read");
    assert_eq!(store.inspect(segment(0)).expect("now it can").end, Offset(1));
    let (payloads, _) = store.read_all(segment(0));
    assert_eq!(payloads, [&b"to the journal"[..]], "what the journal had for it is home");
    store.append(segment(0), b"and on").expect("a healthy disk");
    let (payloads, _) = store.after_power_loss().read_all(segment(0));
    assert_eq!(payloads, [&b"to the journal"[..], b"and on"]);
}

#[test]
fn a_copy_that_could_not_be_read_comes_back_by_itself() {
    let mut store = fresh(6, &config());
    for seq in 0..9 {
        create(&mut store, seq);
    }
    store.disk.kill();
    let mut disk = store.disk;
    for seq in 0..9 {
        disk.inject(read_fails(layout::meta(segment(seq)), 1));
    }
    let mut store = Single::start(disk, &config());
    let unread =
        |store: &Single| (0..9).filter(|seq| store.status(segment(*seq)) == Some(Status::Unread)).count();
    assert_eq!(unread(&store), 9);
    store.idle();
    assert_eq!(unread(&store), 5, "a few with each tick");
    store.idle();
    store.idle();
    assert_eq!(unread(&store), 0);
    let told = |notice: &&Notice| matches!(notice, Notice::MetaRead { .. });
    assert_eq!(store.notices.iter().filter(told).count(), 9);
}

/// A copy that could not be read when a journal with unknown losses was, leaves service once it can be.
#[test]
fn a_copy_that_could_not_be_read_hears_of_the_journals_damage_later() {
    let mut store = fresh(7, &config());
    for seq in 0..2 {
        create(&mut store, seq);
        store.append(segment(seq), b"to the journal").expect("a healthy disk");
    }
    store.append(segment(0), b"testifies for all before").expect("a healthy disk");
    store.disk.kill();
    let mut disk = store.disk;
    let record = 80 + 72 + "to the journal".len() as u64;
    assert!(disk.corrupt("journal/a.log", 1024 + record + 10, &[1]), "the record of the second copy");
    disk.inject(read_fails(layout::meta(segment(1)), 1));
    let mut store = Single::start(disk, &config());
    assert!(is_latched(&mut store, 1));
    assert!(is_latched(&mut store.after_power_loss(), 1));
}

/// A process that died inside a creation left a directory that was called foreign for ever.
#[test]
fn whatever_a_creation_left_half_made_is_removed_and_told_once() {
    let create_request = || Request::Create {
        segment: segment(0),
        base: Offset::ZERO,
        epoch: Epoch(1),
        expect_full: false,
        rebuilding: false,
    };
    let (mut cleared, mut whole) = (0, 0);
    for seed in 0..300 {
        let mut store = fresh(seed, &config());
        store.send(create_request());
        let mut store = if seed % 2 == 0 { store.after_kill() } else { store.after_power_loss() };
        assert!(store.foreign.is_empty(), "seed {seed}: {:?}", store.foreign);
        let told =
            store.notices.iter().filter(|notice| **notice == Notice::HalfMadeRemoved { directories: 1 });
        let told = told.count();
        cleared += told;
        let there = store.status(segment(0)).is_some();
        whole += usize::from(there);
        if !there {
            assert!(
                !store.disk.list(Side::View).contains_key(layout::dir(segment(0)).as_str()),
                "seed {seed}"
            );
            create(&mut store, 0);
        }
        append(&mut store, 0, b"one").expect("it is whole");
        let mut store = store.after_power_loss();
        assert_eq!(store.notices, [], "seed {seed}");
        assert_eq!(store.read_all(segment(0)).0, [&b"one"[..]], "seed {seed}");
    }
    assert!(cleared > 20 && whole > 20, "{cleared} were cut short, {whole} were not");
}

#[test]
fn a_log_with_bytes_in_it_is_never_a_leftover() {
    let mut disk = SimDisk::new(8, Faults::none());
    let dir = layout::dir(segment(0));
    disk.plant_dir(dir.as_str());
    disk.plant_file(&layout::meta_aside(segment(0)).to_string(), vec![1; 40]);
    disk.plant_file(&log_of(segment(0)).to_string(), vec![0]);
    let store = Single::start(disk, &config());
    assert_eq!(store.foreign, [dir.as_str()]);
    assert!(store.disk.bytes(&log_of(segment(0)).to_string(), Side::View).is_some());
    assert!(store.disk.bytes(&layout::meta_aside(segment(0)).to_string(), Side::View).is_some());
}

/// A start with many copies must not ask everything of the disk at once.
#[test]
fn a_start_asks_for_a_bounded_number_of_things_at_a_time() {
    const COPIES: u64 = 400;
    let config = Config { journal_bytes: 1 << 20, open_copies_max: 1000, ..config() };
    let mut store = fresh(9, &config);
    for seq in 0..COPIES {
        create(&mut store, seq);
        store.append(segment(seq), b"to the journal").expect("a healthy disk");
    }
    store.disk.kill();
    let mut disk = store.disk;
    // Each is latched and gets its frames: the record before the last lost its header.
    let record = 80 + 72 + "to the journal".len() as u64;
    assert!(disk.corrupt("journal/a.log", 1024 + (COPIES - 2) * record + 10, &[1]));
    let mut store = Store::new(config);
    let (mut out, mut most, mut started) = (Vec::new(), 0, false);
    let mut busy = BTreeSet::new();
    store.start(&mut out);
    while !started {
        for action in out.drain(..) {
            match action {
                Action::Disk(job) => {
                    if job.steps.iter().any(|step| !matches!(step, Step::Close(_) | Step::Remove(_))) {
                        busy.insert(job.id);
                    }
                    disk.submit(job);
                }
                Action::Started { copies, .. } => started = copies as u64 == COPIES + 1,
                Action::Notice(_) => {}
                Action::Reply(..) | Action::StartFailed(_) => panic!("{action:?}"),
            }
        }
        most = most.max(busy.len());
        let Some(completion) = disk.wait() else { break };
        busy.remove(&completion.job);
        store.complete(Instant(1), completion, &mut out);
    }
    assert!(started);
    assert!(most <= 70, "{most} jobs were under way at one time");
    let latched = |(_, status): &(SegmentId, Status)| matches!(status, Status::Here(extent) if matches!(extent.state, State::Latched(_)));
    assert_eq!(store.copies().filter(latched).count() as u64, COPIES + 1);
}
