//! Stories over a disk in memory. Power loss and every other kind of bad luck is the simulator's
//! (`sim/src/raft_log`); here a restart finds the bytes as they are, or as a test has changed them.

#![allow(clippy::unwrap_used)]

mod recovery;
mod world;

use bytes::Bytes;
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::*;
use world::{A, B, NODE, World, entries};

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

/// The log took nothing more until the process was started again, although the file it writes to had room.
#[test]
fn a_full_volume_while_the_next_file_is_made_stops_nothing() {
    let mut world = World::new();
    let mut added = 0;
    let mut add = |world: &mut World| {
        added += 1;
        world.add(A, &format!("an entry that stays, number {added}"));
    };
    world.disk.full = true;
    // The spare file of the start is used, and the next cannot be made.
    while world.notices.is_empty() {
        add(&mut world);
    }
    assert!(matches!(world.notices[..], [Notice::SpareFailed { .. }]), "{:?}", world.notices);
    for _ in 0..10 {
        add(&mut world);
    }
    world.mark();
    assert_eq!(world.notices.len(), 1, "told once: {:?}", world.notices);
    assert_eq!(
        (world.log.gauges().spare_files, world.disk.logs().len()),
        (0, 2),
        "nothing half-made is left"
    );
    world.disk.full = false;
    world.mark();
    assert_eq!((world.log.gauges().spare_files, world.disk.logs().len()), (1, 3));
    for _ in 0..100 {
        add(&mut world);
    }
    assert!(world.disk.logs().len() > 3, "the log goes on over its files");
    world.restart();
    assert_eq!(world.texts(A).len(), added);
}

#[test]
fn a_next_file_that_cannot_be_made_lets_the_present_one_grow() {
    let mut world = World::with(Config { file_bytes: 1024 * 1024, ..World::new().config });
    world.disk.fail_spares = true;
    let large = "x".repeat(100_000);
    for _ in 0..45 {
        world.add(A, &large);
    }
    assert_eq!(world.notices.len(), 1, "{:?}", world.notices);
    let logs = world.disk.logs();
    assert_eq!(logs.len(), 2, "{logs:?}");
    // Tried again once for each mebibyte it has grown, not with every flush.
    assert!((2..=6).contains(&world.disk.creations_failed), "{}", world.disk.creations_failed);
    world.disk.fail_spares = false;
    for _ in 0..15 {
        world.add(A, &large);
    }
    assert!(world.disk.logs().len() > 2);
    world.restart();
    assert_eq!(world.texts(A).len(), 60);
}

#[test]
fn a_directory_that_cannot_be_synced_fails_the_log() {
    let mut world = World::new();
    world.add(A, "one");
    world.commit(A, 1);
    world.disk.fail_dir_syncs = true;
    // Nobody would ever see a name again that is made from here on, so going on would only fill the volume.
    assert!(matches!(world.snapshot(A, 1, 1), Reply::Failed(Error::Storage(_))));
    assert!(world.log.gauges().failed);
    assert!(world.notices.iter().any(|notice| matches!(notice, Notice::Failed { .. })));
    assert!(matches!(world.append(A, entries(2, 1, &["two"])), Reply::Failed(Error::Storage(_))));
    world.disk.fail_dir_syncs = false;
    world.restart();
    assert_eq!(world.texts(A), ["one"]);
    assert_eq!(world.disk.snapshots().len(), 0, "what was not recorded is removed");
    assert_eq!(world.snapshot(A, 1, 1), Reply::SnapshotSaved);
}
