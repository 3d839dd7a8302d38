//! The Raft log in the simulator: a fixed batch of seeds, the same seed twice, and the checker checked.

#![allow(clippy::unwrap_used)]

use malachi_sim::raft_log::{Failure, Options, run};
use storage::raft_log::Planted;

#[track_caller]
fn seeds(range: std::ops::Range<u64>, options: Options) {
    let (mut damaged, mut flips) = (0, 0);
    for seed in range {
        match run(seed, options) {
            Ok(summary) => {
                damaged += summary.damaged;
                flips += summary.flips;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert_eq!(flips > 0, options.rot);
    assert_eq!(damaged > 0, options.rot, "some bits rot where it matters");
}

#[test]
fn nothing_promised_is_broken_by_power_and_device_failures() {
    seeds(0..400, Options { rot: false, ..Options::default() });
}

#[test]
fn nothing_promised_is_broken_by_rot() {
    seeds(0..400, Options::default());
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 0..20 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}

fn first_failure(planted: Planted, rot: bool) -> Option<Failure> {
    let options = Options { planted, rot, ..Options::default() };
    (0..2000).find_map(|seed| run(seed, options).err())
}

#[test]
fn old_bugs_put_back_are_found() {
    let none = Planted::default();
    for (planted, rot) in [
        (Planted { skip_sync: true, ..none }, false),
        (Planted { skip_snapshot_dir_sync: true, ..none }, false),
        (Planted { skip_zeroing: true, ..none }, false),
        (Planted { truncate_at_first_bad: true, ..none }, true),
    ] {
        assert!(first_failure(planted, rot).is_some(), "{planted:?} goes unnoticed");
    }
}
