//! Whole clusters under seeds: a fast set on every build, the checker checked, named stories, and one seed in two
//! processes.

mod common;

use broker::planted::Bug;
use malachi_sim::cluster::{self as world, Options, stories};

use common::seeds;

#[test]
fn eighty_seeds_keep_every_promise() {
    let mut total = world::Summary::default();
    for seed in 0..80 {
        match world::run(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.lives > 500 && total.elections > 800 && total.cuts > 250, "{total:?}");
    assert!(total.acknowledged > 8000 && total.unknown > 1000 && total.reads > 6000, "{total:?}");
    assert!(total.partitions > 300 && total.removed > 50 && total.wiped > 10, "{total:?}");
    assert!(total.compared > 40_000, "{total:?}");
    assert!(total.probes > 300 && total.leaves > 30, "{total:?}");
}

/// What each of them found is in docs/simulation.md.
#[test]
fn seeds_that_found_bugs_of_the_product_stay_clean() {
    for seed in [2, 3, 114, 404, 1351] {
        world::run(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Runs seeds with a bug put in until one fails; gives how many it took.
fn seeds_until_found(bug: Bug, most: u64) -> u64 {
    seeds::until_found(bug, most, |seed| {
        world::run(seed, Options { bug: Some(bug), ..Options::default() }).is_err()
    })
}

#[test]
fn every_planted_bug_is_found() {
    // Several times what it took when the figures were written down, so that a change which makes the checker
    // blind is seen, and one that merely reshuffles the seeds is not.
    for (bug, most) in [
        (Bug::FollowPastGap, 20),
        (Bug::HintReads, 200),
        (Bug::FreshUnasked, 60),
        (Bug::ResendUnknown, 200),
        (Bug::CountLearner, 20),
        (Bug::HearForeign, 20),
        (Bug::AnyFence, 20),
        (Bug::TakeLease, 60),
        (Bug::KeepAttributes, 20),
        (Bug::ReadyUncovered, 40),
        (Bug::RemoveUncopied, 20),
        (Bug::AnyTerm, 10),
        (Bug::ShrinkFirst, 20),
    ] {
        let taken = seeds_until_found(bug, most);
        assert!(taken <= most);
    }
}

#[test]
fn while_two_of_three_do_not_hear_each_other_somebody_leads() {
    for seed in 0..4 {
        for third_leads in [true, false] {
            let partial = stories::partial_partition(seed, third_leads, Options::default());
            let partial = partial.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(partial.served * 100 >= partial.lasted * 95, "seed {seed}: {partial:?}");
            assert!(partial.terms <= 5 && partial.acknowledged > 50, "seed {seed}: {partial:?}");
        }
    }
}

#[test]
fn a_leader_that_is_cut_off_answers_no_write_and_no_read() {
    for seed in 0..6 {
        stories::isolated_leader(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn after_a_power_cut_of_all_nobody_serves_before_a_quorum_is_there() {
    for seed in 0..6 {
        stories::everything_off(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_node_comes_back_after_an_hour() {
    for seed in 0..3 {
        stories::an_hour_away(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_change_of_the_ring_is_ended_however_often_it_is_interrupted() {
    for seed in 0..6 {
        stories::interrupted_ring(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_node_that_lost_its_snapshots_elects_nobody_and_removes_nothing() {
    for seed in 0..2 {
        for are_gone in [false, true] {
            let told = stories::snapshots_lost(seed, are_gone, Options::default());
            told.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("cluster", 40, 12);
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let seed = seeds_until_found(Bug::CountLearner, 20) - 1;
    let options = Options { bug: Some(Bug::CountLearner), ..Options::default() };
    let told = || world::run(seed, options).expect_err("it was found").to_string();
    seeds::says_how_to_replay("cluster", seed, told);
}
