//! The store under seeds: a fast set on every build, the checker checked, and one seed in two processes.

mod common;

use malachi_sim::store::{self, Options};
use storage::planted::Bug;

use common::seeds;

#[test]
fn five_hundred_seeds_keep_every_promise() {
    let mut cycles = 0;
    for seed in 0..500 {
        match store::run(seed, Options::default()) {
            Ok(summary) => cycles += summary.cycles,
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(cycles > 4000, "the seeds crash often enough to mean something: {cycles}");
}

/// Runs seeds with a bug put in until one fails; gives how many it took.
fn seeds_until_found(bug: Bug, most: u64) -> u64 {
    seeds::until_found(bug, most, |seed| {
        store::run(seed, Options { bug: Some(bug), verbose: false }).is_err()
    })
}

#[test]
fn planted_bugs_are_found() {
    // A few times what it took when the figure was written down, so that a change which makes the checker blind
    // is seen, and one that merely reshuffles the seeds is not. The one that takes thousands of seeds is run by
    // `make bugs`, and one has only its story.
    for (bug, most) in [
        (Bug::SkipSync, 20),
        (Bug::SkipDirSync, 20),
        (Bug::TrustIndex, 200),
        (Bug::TruncateRot, 60),
        (Bug::ForgetFence, 40),
        (Bug::AppendPastFence, 20),
        (Bug::KeepNonce, 40),
        (Bug::KeepTornTail, 6000),
        (Bug::AdoptUnsyncedNames, 1000),
        (Bug::ForgetFailedRename, 600),
        (Bug::TrustTimeIndex, 3000),
        (Bug::SkipReplay, 100),
        (Bug::ReuseJournalEarly, 5000),
        (Bug::DoubtJournal, 4000),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("store", 40, 30);
}
