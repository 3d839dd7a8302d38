//! Retention, orphans and scrub under seeds: a fast set on every build, and the checker checked.

mod common;

use broker::planted::Bug;
use malachi_sim::upkeep::{self as world, Options};

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
    assert!(total.expired > 2000 && total.orphans > 15 && total.skipped > 3000, "{total:?}");
    assert!(total.verified > 20_000 && total.found > 30 && total.read > 10_000, "{total:?}");
}

#[test]
fn every_planted_bug_is_found() {
    // Several times what it took when the figures were written down.
    for (bug, most) in [
        (Bug::RemoveFirst, 150),
        (Bug::ExpireUnresolved, 50),
        (Bug::SweepAtFirstSight, 300),
        (Bug::KeepOrphans, 300),
    ] {
        let options = Options { bug: Some(bug), verbose: false };
        seeds::until_found(bug, most, |seed| world::run(seed, options).is_err());
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("upkeep", 7, 20);
}
