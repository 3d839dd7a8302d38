//! What the tests of all worlds do with seeds.

#![allow(clippy::disallowed_types, reason = "tests that start the simulator as a process of its own")]

use std::ops::Range;
use std::process::Command;

/// Runs seeds from 0 until one fails; gives how many it took.
#[track_caller]
pub fn until_found(what: impl std::fmt::Debug, most: u64, fails: impl FnMut(u64) -> bool) -> u64 {
    until_found_in(what, 0..most, fails)
}

/// The same from another seed on.
#[track_caller]
pub fn until_found_in(
    what: impl std::fmt::Debug,
    mut seeds: Range<u64>,
    mut fails: impl FnMut(u64) -> bool,
) -> u64 {
    let (first, most) = (seeds.start, seeds.end - seeds.start);
    // An assertion of the product that fails is told as a failure: no need to print each.
    let found = seeds.find(|seed| fails(*seed));
    found.unwrap_or_else(|| panic!("{what:?} was not found in {most} seeds")) - first + 1
}

/// Runs the same seeds of a world in two processes: what happened must be the same.
#[track_caller]
pub fn one_trace_in_two_processes(world: &str, from: u64, seeds: u64) {
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_malachi-sim"))
            .args(["--world", world, "--from", &from.to_string(), "--seeds", &seeds.to_string()])
            .output()
            .expect("the simulator runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let (_, trace) = text.split_once("trace ").expect("it prints its trace");
        trace.chars().take(16).collect::<String>()
    };
    assert_eq!(run(), run());
}

/// A failure names the command that repeats it, and the same seed fails the same way.
#[track_caller]
pub fn says_how_to_replay(world: &str, seed: u64, told: impl Fn() -> String) {
    assert!(told().ends_with(&format!("replay: make sim WORLD={world} SEED={seed}")), "{}", told());
    assert_eq!(told(), told(), "the same seed fails the same way");
}
