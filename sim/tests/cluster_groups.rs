//! Groups in whole clusters under seeds: a fast set on every build, the checker checked, and one seed in two processes.

mod common;

use broker::planted::Bug;
use malachi_sim::cluster::{Options, Summary, records};

use common::seeds;

#[test]
fn six_seeds_give_every_group_everything() {
    let mut total = Summary::default();
    for seed in 0..6 {
        match records::run_groups(seed, Options::default()) {
            Ok(summary) => total.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // So much happens in them that their silence means something.
    assert!(total.given > 4000 && total.given_again > 50 && total.commits > 400, "{total:?}");
    assert!(total.left > 20 && total.consumers_failed > 15, "{total:?}");
}

/// Found here first: two parts of one request, brought to one range by a merge.
#[test]
fn a_merge_that_joins_the_parts_of_a_request_is_found() {
    let options = Options { bug: Some(Bug::JoinParts), ..Options::default() };
    seeds::until_found_in(Bug::JoinParts, 3..6, |seed| records::run_groups(seed, options).is_err());
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    seeds::one_trace_in_two_processes("groups", 3, 1);
}
