//! Stories about blocks that are written ahead of need: spare files, zeros behind a growing log.

use std::time::Duration;

use malachi_sim::disk::{Class, Faults, Injection, Side, SimDisk};
use malachi_sim::store::single::Single;
use storage::disk::ErrorKind;
use storage::segment::layout;
use storage::store::{Config, Reply, Request};
use types::{Epoch, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

const TICK: Duration = Duration::from_millis(250);
/// Longer than the store rests after a failure.
const LONG: Duration = Duration::from_secs(40);

fn segment(seq: u64) -> SegmentId {
    SegmentId { range: RangeId { topic: TopicId(0xa11ce), seq: RangeSeq(0) }, seq: SegmentSeq(seq) }
}

fn config() -> Config {
    Config {
        spare_files_max: 2,
        spare_bytes: 10_000,
        spare_piece_bytes: 3000,
        preallocate_bytes: (2000, 4000),
        preallocate_below_bytes: 500,
        ..Config::default()
    }
}

fn fresh(seed: u64) -> Single {
    Single::start(SimDisk::new(seed, Faults::none()), &config())
}

fn create(store: &mut Single, seq: u64, expect_full: bool) {
    let create = Request::Create {
        segment: segment(seq),
        base: Offset::ZERO,
        epoch: Epoch(1),
        expect_full,
        rebuilding: false,
    };
    let reply = store.call(create);
    assert!(matches!(reply, Reply::Created), "{reply:?}");
}

fn log_len(store: &Single, seq: u64) -> usize {
    let path = layout::log(segment(seq), Offset::ZERO).to_string();
    store.disk.bytes(&path, Side::View).map_or(0, <[u8]>::len)
}

fn recycle_names(store: &Single) -> usize {
    store.disk.list(Side::View).into_keys().filter(|name| name.starts_with("recycle/")).count()
}

#[test]
fn a_range_that_fills_its_segments_finds_the_next_file_made() {
    let mut store = fresh(1);
    create(&mut store, 0, false);
    store.tick(TICK);
    store.append(segment(0), &[0; 400]).expect("a healthy disk");
    store.tick(TICK);
    assert_eq!(recycle_names(&store), 0, "nothing is expected to fill");
    create(&mut store, 1, true);
    assert_eq!(log_len(&store, 1), 0, "the first comes too early");
    store.tick(TICK);
    store.tick(TICK);
    assert_eq!((store.gauges().spare_files, recycle_names(&store)), (2, 2));
    create(&mut store, 2, true);
    assert_eq!((log_len(&store, 2), store.gauges().spare_files), (10_000, 1));
    for byte in 0..18 {
        store.append(segment(2), &[byte; 400]).expect("a healthy disk");
    }
    assert_eq!(log_len(&store, 2), 10_000, "no append has made it longer");
    let mut store = store.after_power_loss();
    assert_eq!(store.read_all(segment(2)).0.len(), 18);
    let reply = store.call(Request::Seal { segment: segment(2), end: Offset(18), at: WallTime(1) });
    assert!(matches!(reply, Reply::Sealed(extent) if extent.bytes == 18 * 472), "{reply:?}");
    assert_eq!(log_len(&store, 2), 18 * 472);
}

#[test]
fn a_copy_that_fills_has_the_next_file_made_before_it_is_asked_for() {
    let mut store = fresh(7);
    create(&mut store, 0, false);
    for _ in 0..6 {
        store.append(segment(0), &[0; 400]).expect("a healthy disk");
    }
    store.tick(TICK);
    store.tick(TICK);
    create(&mut store, 1, true);
    assert_eq!(log_len(&store, 1), 10_000);
}

#[test]
fn spare_files_do_not_outlive_the_process() {
    for power in [false, true] {
        let mut store = fresh(2);
        create(&mut store, 1, true);
        store.tick(TICK);
        assert_eq!(recycle_names(&store), 2);
        let store = if power { store.after_power_loss() } else { store.after_kill() };
        assert_eq!((recycle_names(&store), store.gauges().spare_files), (0, 0));
    }
}

#[test]
fn a_spare_file_that_cannot_be_made_is_tried_again_after_a_while() {
    let mut store = fresh(3);
    create(&mut store, 1, true);
    store.disk.faults_mut().capacity_bytes = Some(4000);
    store.tick(TICK);
    store.tick(TICK);
    assert_eq!((recycle_names(&store), store.gauges().spare_files), (0, 0), "nothing half-made is left");
    store.disk.faults_mut().capacity_bytes = None;
    store.tick(TICK);
    assert_eq!(store.gauges().spare_files, 0, "too early");
    store.tick(LONG);
    assert_eq!(store.gauges().spare_files, 2);
    create(&mut store, 2, true);
    assert_eq!(log_len(&store, 2), 10_000);
}

#[test]
fn a_growing_log_finds_room_when_it_goes_on() {
    let mut store = fresh(4);
    create(&mut store, 0, false);
    store.append(segment(0), &[1; 700]).expect("a healthy disk");
    assert_eq!(log_len(&store, 0), 772, "a large flush is not followed by zeros");
    store.tick(TICK);
    assert_eq!(log_len(&store, 0), 2772);
    store.append(segment(0), &[2; 700]).expect("a healthy disk");
    store.tick(TICK);
    assert_eq!(log_len(&store, 0), 2772, "there is enough for now");
    store.append(segment(0), &[3; 700]).expect("a healthy disk");
    assert_eq!(log_len(&store, 0), 2772);
    let mut store = store.after_power_loss();
    assert_eq!(store.read_all(segment(0)).0.len(), 3);
}

/// Zeros that cannot be written are nobody's loss: the copy goes on taking appends.
#[test]
fn a_failure_behind_the_end_of_a_log_is_not_one_of_the_log() {
    for class in [Class::Write, Class::Sync] {
        let mut store = fresh(5);
        create(&mut store, 0, false);
        store.append(segment(0), &[1; 700]).expect("a healthy disk");
        let path = Some(layout::log(segment(0), Offset::ZERO));
        store.disk.inject(Injection { class, path, skip: 0, times: 1, kind: ErrorKind::Io });
        store.tick(TICK);
        store.append(segment(0), &[2; 700]).expect("the failure was not its own");
        let mut store = store.after_power_loss();
        assert_eq!(store.read_all(segment(0)).0.len(), 2, "{class:?}");
    }
}

#[test]
fn the_gauges_say_what_is_there() {
    let mut store = fresh(6);
    for seq in 0..5 {
        create(&mut store, seq, true);
        store.append(segment(seq), &[7; 100]).expect("a healthy disk");
    }
    let end = Offset(1);
    store.call(Request::Seal { segment: segment(0), end, at: WallTime(1) });
    store.call(Request::Latch { segment: segment(1), reason: storage::store::FailReason::Other });
    store.tick(TICK);
    let gauges = store.gauges();
    assert_eq!((gauges.copies, gauges.active, gauges.latched, gauges.stopped), (5, 3, 1, 0));
    assert_eq!((gauges.open_files, gauges.dirty, gauges.queued, gauges.unanswered), (5, 0, 0, 0));
    assert_eq!((gauges.tail_cache_bytes, gauges.held_bytes, gauges.reads), (500, 0, 0));
    assert_eq!((gauges.spare_files, gauges.recycled_files), (2, 0));
    assert!(gauges.journal_usable && gauges.journal_copies == 0);
}
