//! Runs seeds and says what it did; a failure prints the one line that replays it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use malachi_sim::store;
use storage::planted::Bug;

/// Runs the deterministic simulator.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which simulated world.
    #[arg(long, value_enum, default_value_t = Kind::Store)]
    world: Kind,
    /// Replay this one seed and print everything that happens.
    #[arg(long)]
    seed: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Stop after this many seconds, whatever is left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Go on after a failure, and print only the failures.
    #[arg(long)]
    keep_going: bool,
    /// Put an old bug back (its name as in `storage::planted::Bug`).
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Segment copies on a bad disk.
    Store,
}

#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a command for people, which times itself")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bug = match arguments.bug.as_deref().map(find_bug) {
        Some(None) => {
            println!("no such bug; there are {:?}", Bug::ALL);
            return ExitCode::FAILURE;
        }
        Some(bug) => bug,
        None => None,
    };
    let options = store::Options { bug, verbose: arguments.seed.is_some() };
    let (first, count) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    let started = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let mut total = store::Summary::default();
    let (mut runs, mut failures) = (0u64, 0u64);
    for seed in first..first.saturating_add(count) {
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        runs += 1;
        match store::run(seed, options) {
            Ok(summary) => {
                total.cycles += summary.cycles;
                total.replies += summary.replies;
                total.batches_checked += summary.batches_checked;
                total.flips += summary.flips;
                total.trace = total.trace.rotate_left(1) ^ summary.trace;
            }
            Err(failure) => {
                println!("{failure}");
                failures += 1;
                if !arguments.keep_going {
                    break;
                }
            }
        }
    }
    println!(
        "store: {runs} seeds, {} crash-recover cycles, {} replies judged, {} batches read back, {} bits flipped, {failures} failures, trace {:016x}, {:.1} s",
        total.cycles, total.replies, total.batches_checked, total.flips, total.trace,
        started.elapsed().as_secs_f64()
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn find_bug(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}
