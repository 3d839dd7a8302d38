//! A group on several nodes under seeds: a fast set on every build, the checker checked, and one seed in two
//! processes.

mod common;

use malachi_sim::raft::{self as world, Options};
use raft::planted::Bug;

use common::seeds;

#[test]
fn four_hundred_seeds_keep_every_promise() {
    let mut total = world::Summary::default();
    for seed in 0..400 {
        match world::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.lives > 2000 && total.elections > 1500, "{total:?}");
    assert!(total.acknowledged > 60_000 && total.reads > 25_000 && total.unknown > 4000, "{total:?}");
    assert!(total.changes > 500 && total.installed > 500, "{total:?}");
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
        (Bug::SendEarly, 20),
        (Bug::ForgetVote, 60),
        (Bug::CountUnstored, 200),
        (Bug::ReadAlone, 40),
        (Bug::LeadEarly, 500),
        (Bug::AnyLife, 5000),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("raft", 40, 30);
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::SendEarly, 20) - 1;
    let options = Options { bug: Some(Bug::SendEarly), verbose: false };
    let told = || world::run(seed, options).expect_err("it was found").to_string();
    seeds::says_how_to_replay("raft", seed, told);
}
