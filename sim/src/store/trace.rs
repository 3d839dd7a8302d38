//! What a failing run says.

use std::fmt;

use crate::invariants::Violation;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays the run exactly.
    pub seed: u64,
    /// Crash-recover cycles before it.
    pub cycles: u64,
    /// Which promise.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, cycles, violation } = self;
        write!(f, "{violation} (after {cycles} cycles); replay: make sim WORLD=store SEED={seed}")
    }
}

impl std::error::Error for Failure {}
