//! What came of a run of one seed, and how a run is told of: the same in every world with a clock.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::invariants::Violation;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which world, as the simulator is asked for it.
    pub world: &'static str,
    /// Replays the run exactly.
    pub seed: u64,
    /// When, microseconds of virtual time.
    pub micros: u64,
    /// Which promise.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, seed, micros, violation } = self;
        write!(f, "{violation} (after {} ms); replay: make sim WORLD={world} SEED={seed}", micros / 1000)
    }
}

impl std::error::Error for Failure {}

/// Lets a world do something. An assertion of the product that fails is a failure of that seed, not of the whole run.
pub(crate) fn attempt<W>(
    world: &mut W,
    what: impl FnOnce(&mut W) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| what(world)));
    outcome.unwrap_or_else(|_| Err(Violation::new("PANIC", "an assertion failed, see above")))
}

/// Tells the person who replays a seed.
pub(crate) fn say(is_verbose: bool, now: u64, line: impl FnOnce() -> String) {
    if is_verbose {
        #[expect(clippy::print_stderr, reason = "asked for by the person who replays a seed")]
        {
            eprintln!("{now:>10} {}", line());
        }
    }
}

/// A run's digest with one more thing that happened, and when.
pub(crate) fn mixed(trace: u64, what: u64, now: u64) -> u64 {
    (trace ^ what ^ now).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(29)
}
