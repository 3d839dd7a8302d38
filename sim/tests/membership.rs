//! Membership under seeds: a fast set on every build, the checker checked, one seed in two processes, and how good
//! failure detection is.

mod common;

use malachi_sim::membership::{self as world, Options, loss};
use membership::planted::Bug;

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
    assert!(total.lives > 2500 && total.packets > 200_000 && total.attacks > 30_000, "{total:?}");
    assert!(total.changes > 50_000 && total.renewals > 300, "{total:?}");
    // Far less than the minute they are given.
    assert!(total.healing < 40_000_000, "{total:?}");
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
        (Bug::TakeAnyKey, 20),
        (Bug::TakeReplays, 20),
        (Bug::TakeEarlier, 1000),
        (Bug::AskOnce, 50),
        (Bug::StayDead, 50),
        (Bug::LeaveDead, 200),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("membership", 40, 20);
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::TakeAnyKey, 20) - 1;
    let options = Options { bug: Some(Bug::TakeAnyKey), verbose: false };
    let told = || world::run(seed, options).expect_err("it was found").to_string();
    seeds::says_how_to_replay("membership", seed, told);
}

#[test]
fn at_one_lost_packet_in_ten_nobody_who_lives_is_taken_for_dead() {
    for seed in 0..3 {
        let figures = loss::measure(seed, loss::Setup { seconds: 120, ..loss::Setup::usual() });
        assert_eq!(figures.false_deaths, 0, "{figures:?}");
        assert!(figures.suspicions > 50, "many are suspected: {figures:?}");
        assert!(figures.noticed < 20.0 && figures.known < 20.0, "{figures:?}");
        assert!(figures.joined < 30.0 && figures.bytes_per_second < 6000.0, "{figures:?}");
    }
}
