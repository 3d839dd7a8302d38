//! Groups of several nodes with real logs under seeds: a fast set on every build, the checker checked, and one seed in
//! two processes.

mod common;

use consensus::planted::Bug;
use malachi_sim::consensus::{self as world, Options, idle::Idle};

use common::seeds;

#[test]
fn three_hundred_seeds_keep_every_promise() {
    let mut total = world::Summary::default();
    for seed in 0..300 {
        match world::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.lives > 2000 && total.groups > 1500 && total.elections > 5000, "{total:?}");
    assert!(total.acknowledged > 40_000 && total.reads > 12_000 && total.unknown > 2000, "{total:?}");
    assert!(total.changes > 2000 && total.installed > 500 && total.left > 300, "{total:?}");
    assert!(total.flips > 50 && total.lost > 15 && total.wiped > 30, "{total:?}");
    assert!(total.doubtful * 20 < total.groups, "most groups must go on in the end: {total:?}");
}

/// Runs seeds with a bug put in until one fails; gives how many it took.
fn seeds_until_found(bug: Bug, most: u64) -> u64 {
    seeds::until_found(bug, most, |seed| {
        world::run(seed, Options { bug: Some(bug), verbose: false }).is_err()
    })
}

#[test]
fn every_planted_bug_is_found() {
    // Several times what it took when the figures were written down, so that a change which makes the checker
    // blind is seen, and one that merely reshuffles the seeds is not.
    for (bug, most) in [
        (Bug::PersistEarly, 150),
        (Bug::ClearUnlisted, 3000),
        (Bug::KeepOldState, 60),
        (Bug::ForgetAnyone, 60),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("consensus", 40, 30);
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::ForgetAnyone, 60) - 1;
    let options = Options { bug: Some(Bug::ForgetAnyone), verbose: false };
    let told = || world::run(seed, options).expect_err("it was found").to_string();
    seeds::says_how_to_replay("consensus", seed, told);
}

/// What idle groups say is bounded, whatever it costs in time on a machine.
#[test]
fn idle_groups_say_little() {
    const GROUPS: u64 = 60;
    let mut idle = Idle::new(GROUPS);
    idle.ticks(40);
    let (letters, bytes) = (idle.letters, idle.bytes);
    idle.ticks(100);
    // A heartbeat to two others every two ticks, and their answers: of all groups together at each tick.
    assert!(idle.letters - letters <= 3 * 4 * 100, "{} letters", idle.letters - letters);
    assert!(idle.bytes - bytes <= GROUPS * 4 * 50 * 12, "{} bytes", idle.bytes - bytes);
    assert!(idle.letters > letters, "somebody leads");
}
