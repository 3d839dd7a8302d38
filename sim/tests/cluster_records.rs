//! Records in whole clusters under seeds: a fast set on every build, the checker checked, and one seed in two processes.

#![allow(clippy::disallowed_types, reason = "a test that starts the simulator as a process of its own")]

use std::process::Command;

use broker::planted::Bug;
use malachi_sim::cluster::{Options, Summary, records};

#[test]
fn twelve_seeds_lose_no_record() {
    let mut total = Summary::default();
    for seed in 5..17 {
        match records::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.records_acknowledged > 5000 && total.records_read > 25_000, "{total:?}");
    assert!(total.records_unknown > 100 && total.audits > 400, "{total:?}");
    assert!(total.damaged > 1 && total.cuts > 15 && total.partitions > 15, "{total:?}");
}

#[test]
fn while_one_copy_lags_and_another_is_gone_nothing_acknowledged_is_lost() {
    for seed in 0..20 {
        let told = records::stories::one_lags_one_is_deleted(seed, Options::default());
        told.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_copy_that_holds_nothing_is_no_answer() {
    let options = Options { bug: Some(Bug::CountNothing), verbose: false };
    let found = (0..4).any(|seed| records::stories::one_lags_one_is_deleted(seed, options).is_err());
    assert!(found, "the bug was not found in 4 runs of its story");
}

#[test]
fn every_planted_bug_of_replication_is_found() {
    // Several times what it took when the figures were written down.
    for (bug, seeds) in [
        (Bug::AckUnreplicated, 5..15),
        (Bug::CountPrimaryTwice, 5..15),
        (Bug::ResumeSegment, 5..15),
        (Bug::SealShortest, 0..15),
    ] {
        let most = seeds.end - seeds.start;
        let options = Options { bug: Some(bug), verbose: false };
        let found = seeds.into_iter().any(|seed| records::run(seed, options).is_err());
        assert!(found, "{bug:?} was not found in {most} seeds");
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_malachi-sim"))
            .args(["--world", "records", "--from", "5", "--seeds", "4"])
            .output()
            .expect("the simulator runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let (_, trace) = text.split_once("trace ").expect("it prints its trace");
        trace.chars().take(16).collect::<String>()
    };
    assert_eq!(run(), run());
}
