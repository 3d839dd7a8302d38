//! Groups begin, go on after a restart, and come to agree.

use types::VnodeId;

use super::world::{GROUP, World, node};

#[test]
fn one_member_alone_goes_from_nothing_to_applied_entries() {
    let mut world = World::new(1);
    assert!(world.has_told(node(1), "listed"));
    world.found(&[node(1)]);
    assert!(world.has_told(node(1), "found vnode 7 blank true") || world.nodes[&node(1)].told.len() > 1);
    world.propose("a");
    world.propose("b");
    assert_eq!(world.texts(node(1)), "a b");
    assert!(!world.node(node(1)).host.needs_ticks(), "nobody waits for time");
    assert_eq!(world.node(node(1)).host.requests_waiting(), 0);
}

#[test]
fn a_restart_finds_what_was_applied_with_and_without_a_snapshot() {
    for snapshot_entries in [3, 1_000_000] {
        let mut world = World::with_snapshots_after(1, snapshot_entries);
        world.found(&[node(1)]);
        for text in ["a", "b", "c", "d", "e"] {
            world.propose(text);
        }
        let has_snapshot = world.node(node(1)).host.gauges().snapshots > 0;
        assert_eq!(has_snapshot, snapshot_entries == 3);
        world.restart(node(1));
        assert_eq!(world.texts(node(1)), "a b c d e");
        world.propose("f");
        world.restart(node(1));
        assert_eq!(world.texts(node(1)), "a b c d e f");
    }
}

#[test]
fn a_group_that_was_founded_and_never_begun_is_blank_at_the_next_start() {
    let mut world = World::new(1);
    world.node(node(1)).begins = false;
    world.ask(node(1), |host| host.found_group(GROUP, &[node(1)]));
    world.settle();
    world.restart(node(1));
    assert!(
        world.nodes[&node(1)].told.iter().any(|told| told.starts_with("found") && told.ends_with("true"))
    );
    world.propose("a");
    assert_eq!(world.texts(node(1)), "a");
}

#[test]
fn three_founders_agree_and_one_that_restarts_catches_up() {
    let all = [node(1), node(2), node(3)];
    let mut world = World::new(3);
    world.found(&all);
    world.propose("a");
    world.away.insert(node(3));
    world.propose("b");
    world.away.clear();
    world.restart(node(3));
    world.ticks(40);
    world.propose("c");
    world.ticks(5);
    for id in all {
        assert_eq!(world.texts(id), "a b c");
    }
}

#[test]
fn founding_twice_or_elsewhere_changes_nothing() {
    let mut world = World::new(2);
    world.found(&[node(1)]);
    world.propose("a");
    world.ask(node(1), |host| host.found_group(GROUP, &[node(1), node(2)]));
    world.ask(node(2), |host| host.found_group(GROUP, &[node(1)]));
    world.ask(node(1), |host| host.found_group(VnodeId(u64::MAX), &[node(1)]));
    world.ask(node(1), |host| host.found_group(VnodeId(u64::MAX - 1), &[node(1)]));
    world.settle();
    assert!(!world.node(node(2)).host.has(GROUP));
    assert_eq!(world.node(node(1)).host.groups().count(), 1);
    assert_eq!(world.texts(node(1)), "a");
}

/// Other nodes may say what a node is to found before it has read what it is: with a list of a few entries, and with
/// one that is a file of its own.
#[test]
fn nothing_is_founded_before_the_list_was_read() {
    for listed in [1, 300] {
        let mut world = World::new(1);
        world.node(node(1)).begins = false;
        for group in 100..100 + listed {
            world.ask(node(1), |host| host.found_group(VnodeId(group), &[node(1)]));
            world.settle();
        }
        world.restart_unread(node(1));
        let mut jobs = 0;
        while !world.has_told(node(1), "listed") {
            world.ask(node(1), |host| host.found_group(GROUP, &[node(1)]));
            // And one that it has.
            world.ask(node(1), |host| host.found_group(VnodeId(100), &[node(1)]));
            assert!(world.run_job(node(1)), "it is never listed");
            jobs += 1;
        }
        assert!(jobs > 1, "there is something to read");
        assert!(!world.has_told(node(1), "failed") && !world.node(node(1)).host.has(GROUP));
        world.settle();
        world.ask(node(1), |host| host.found_group(GROUP, &[node(1)]));
        world.settle();
        for _ in 0..2 {
            let groups = (100..100 + listed).chain([GROUP.0]);
            let has = groups.filter(|group| world.node(node(1)).host.has(VnodeId(*group)));
            assert_eq!(has.count() as u64, listed + 1);
            world.restart(node(1));
        }
    }
}

#[test]
fn a_laggard_is_sent_a_snapshot() {
    let all = [node(1), node(2), node(3)];
    let mut world = World::with_snapshots_after(3, 4);
    world.found(&all);
    let leader = world.lead();
    let laggard = all.into_iter().find(|id| *id != leader).unwrap();
    world.away.insert(laggard);
    world.ticks(60);
    for number in 0..30 {
        world.propose(&number.to_string());
    }
    world.away.clear();
    world.ticks(80);
    world.propose("last");
    world.ticks(5);
    assert!(world.nodes[&laggard].told.iter().any(|told| told.starts_with("restored")));
    assert_eq!(world.texts(laggard), world.texts(leader));
    world.restart(laggard);
    world.ticks(40);
    assert_eq!(world.texts(laggard), world.texts(leader));
}
