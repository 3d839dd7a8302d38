//! The node under seeds: a fast set on every build, the checker checked, and one seed in two processes.

#![allow(clippy::disallowed_types, reason = "a test that starts the simulator as a process of its own")]

use std::process::Command;

use broker::planted::Bug;
use malachi_sim::broker::{self as world, Options};

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
    // An assertion of the product that fails is told as a failure: no need to print each.
    (0..most)
        .find(|seed| world::run(*seed, Options { bug: Some(bug), verbose: false }).is_err())
        .unwrap_or_else(|| panic!("{bug:?} was not found in {most} seeds"))
        + 1
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
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_malachi-sim"))
            .args(["--world", "broker", "--from", "40", "--seeds", "30"])
            .output()
            .expect("the simulator runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let (_, trace) = text.split_once("trace ").expect("it prints its trace");
        trace.chars().take(16).collect::<String>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::SealShort, 20) - 1;
    let options = Options { bug: Some(Bug::SealShort), verbose: false };
    let told = |options| world::run(seed, options).expect_err("it was found").to_string();
    assert!(
        told(options).ends_with(&format!("replay: make sim WORLD=broker SEED={seed}")),
        "{}",
        told(options)
    );
    assert_eq!(told(options), told(options), "the same seed fails the same way");
}
