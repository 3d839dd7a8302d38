//! Records in whole clusters under seeds: a fast set on every build, the checker checked, and one seed in two processes.

mod common;

use broker::planted::Bug;
use malachi_sim::cluster::{Options, Summary, records};

use common::seeds;

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

/// What each of them found is in docs/simulation.md.
#[test]
fn seeds_that_found_bugs_of_the_product_stay_clean() {
    for seed in [3, 4, 12, 51, 114] {
        records::run(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn while_one_copy_lags_and_another_is_gone_nothing_acknowledged_is_lost() {
    for seed in 0..20 {
        let told = records::stories::one_lags_one_is_deleted(seed, Options::default());
        told.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn while_one_copy_lags_and_another_is_made_anew_nothing_acknowledged_is_lost() {
    for seed in 0..6 {
        let told = records::stories::one_lags_one_is_made_anew(seed, Options::default());
        told.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_copy_that_holds_nothing_is_no_answer() {
    let options = Options { bug: Some(Bug::CountNothing), ..Options::default() };
    let fails = |seed| records::stories::one_lags_one_is_deleted(seed, options).is_err();
    seeds::until_found(Bug::CountNothing, 4, fails);
}

#[test]
fn a_copy_that_is_being_made_anew_is_no_answer() {
    let options = Options { bug: Some(Bug::CountRebuilding), ..Options::default() };
    let told = |seed| records::stories::one_lags_one_is_made_anew(seed, options).err();
    let fails = |seed| told(seed).is_some_and(|failure| failure.violation.invariant != "STORY");
    seeds::until_found(Bug::CountRebuilding, 6, fails);
}

#[test]
fn every_planted_bug_of_replication_is_found() {
    // Several times what it took when the figures were written down.
    for (bug, seeds) in [
        (Bug::AckUnreplicated, 5..15),
        (Bug::CountPrimaryTwice, 5..15),
        (Bug::ResumeSegment, 5..15),
        (Bug::SealShortest, 0..15),
        (Bug::TrimBelowSeal, 0..15),
        // Those about repetitions are asserted from the seed that shows them: runs are long.
        (Bug::ForgetProducers, 3..6),
        (Bug::AcceptForgotten, 3..6),
        (Bug::ForgetParents, 8..10),
        (Bug::EchoEarly, 8..10),
        (Bug::KeepUnstored, 10..12),
    ] {
        let options = Options { bug: Some(bug), ..Options::default() };
        seeds::until_found_in(bug, seeds, |seed| records::run(seed, options).is_err());
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("records", 5, 4);
}
