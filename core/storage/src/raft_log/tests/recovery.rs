//! What is made of a log that was torn, damaged, or written by somebody else.

use bytes::Bytes;
use types::{RaftIndex, Term, VnodeId};

use super::super::*;
use super::world::{A, B, C, World, entries};

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
