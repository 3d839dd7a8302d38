//! What a failing run says.

use std::fmt;

use crate::invariants::Violation;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays the run exactly.
    pub seed: u64,
    /// Process lifetimes before it.
    pub lives: u64,
    /// Which promise.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, lives, violation } = self;
        write!(f, "{violation} (in lifetime {lives}); replay: make sim WORLD=broker SEED={seed}")
    }
}

impl std::error::Error for Failure {}
