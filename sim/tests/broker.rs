//! The node under seeds: a fast set on every build, the checker checked, and one seed in two processes.

mod common;

use broker::planted::Bug;
use malachi_sim::broker::{self as world, Options};

use common::seeds;

#[test]
fn twelve_hundred_seeds_keep_every_promise() {
    let mut total = world::Summary::default();
    for seed in 0..1200 {
        match world::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.lives > 3000 && total.acknowledged > 30_000, "{total:?}");
    assert!(total.delivered > 250_000 && total.commits > 40_000, "{total:?}");
    assert!(total.changes > 3000 && total.unrelated > 5, "{total:?}");
    assert!(total.orphans > 50, "{total:?}");
    // And processes ended in the middle of what is promised to survive it.
    let cuts = total.cuts;
    assert!(cuts.in_birth > 100 && cuts.in_roll > 100, "{cuts:?}");
    assert!(cuts.in_split > 100 && cuts.in_handover > 20, "{cuts:?}");
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
        (Bug::AckEarly, 20),
        (Bug::ReadUncommitted, 60),
        (Bug::ResumeSegment, 20),
        (Bug::SealShort, 20),
        (Bug::LoseCommit, 20),
        (Bug::SkipAtBoundary, 20),
        (Bug::AnswerTwice, 20),
        (Bug::AnswerOldest, 6000),
        (Bug::PersistEarly, 60),
        (Bug::ForgetWake, 100),
        (Bug::ErrorIsEnd, 150),
        (Bug::IgnoreFailure, 5000),
        (Bug::CountLate, 200),
        (Bug::SplitEarly, 2000),
        (Bug::ForgetWaiting, 150),
        (Bug::MergeOneSide, 100),
        (Bug::ReadSiblings, 100),
        (Bug::KeylessElsewhere, 100),
        (Bug::LeaveEarly, 100),
        (Bug::IgnoreCredit, 250),
        (Bug::CommitForOthers, 700),
        (Bug::DeafToChildren, 150),
        (Bug::ForgetFailedPart, 100),
        (Bug::LeaveOwnerless, 500),
        (Bug::TimeGoesBack, 250),
        (Bug::KeepOrphans, 300),
        (Bug::LeaveStreaming, 5000),
        (Bug::ComeBack, 2000),
        (Bug::HoldAll, 5000),
        (Bug::PushAhead, 300),
        (Bug::KeepStreams, 300),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("broker", 40, 30);
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::SealShort, 20) - 1;
    let options = Options { bug: Some(Bug::SealShort), verbose: false };
    let told = || world::run(seed, options).expect_err("it was found").to_string();
    seeds::says_how_to_replay("broker", seed, told);
}
