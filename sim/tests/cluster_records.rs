//! Records in whole clusters under seeds: a fast set on every build, the checker checked, and one seed in two processes.

#![allow(clippy::disallowed_types, reason = "a test that starts the simulator as a process of its own")]

use std::process::Command;

use broker::planted::Bug;
use malachi_sim::cluster::{Options, Summary, records};

#[test]
fn thirty_seeds_lose_no_record() {
    let mut total = Summary::default();
    for seed in 0..30 {
        match records::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.records_acknowledged > 20_000 && total.records_read > 100_000, "{total:?}");
    assert!(total.records_unknown > 500 && total.audits > 2000, "{total:?}");
    assert!(total.damaged > 8 && total.cuts > 60 && total.partitions > 60, "{total:?}");
}

#[test]
fn while_one_copy_lags_and_another_is_gone_nothing_acknowledged_is_lost() {
    for seed in 0..20 {
        let told = records::stories::one_lags_one_is_deleted(seed, Options::default());
        told.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn copies_that_hold_nothing_or_not_everything_yet_are_no_answer() {
    for (bug, most) in [(Bug::CountNothing, 4), (Bug::CountRebuilding, 60)] {
        let found = (0..most).any(|seed| {
            let options = Options { bug: Some(bug), verbose: false };
            records::stories::one_lags_one_is_deleted(seed, options).is_err()
        });
        assert!(found, "{bug:?} was not found in {most} runs of its story");
    }
}

/// Runs seeds with a bug put in until one fails; gives how many it took.
fn seeds_until_found(bug: Bug, most: u64) -> u64 {
    (0..most)
        .find(|seed| records::run(*seed, Options { bug: Some(bug), verbose: false }).is_err())
        .unwrap_or_else(|| panic!("{bug:?} was not found in {most} seeds"))
        + 1
}

#[test]
fn every_planted_bug_of_replication_is_found() {
    // Several times what it took when the figures were written down.
    for (bug, most) in
        [(Bug::AckUnreplicated, 40), (Bug::CountPrimaryTwice, 40), (Bug::ReadPastCommitted, 100)]
    {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_malachi-sim"))
            .args(["--world", "records", "--from", "3", "--seeds", "4"])
            .output()
            .expect("the simulator runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let (_, trace) = text.split_once("trace ").expect("it prints its trace");
        trace.chars().take(16).collect::<String>()
    };
    assert_eq!(run(), run());
}
