//! Time as an argument: the core never reads a clock, the driver hands these in.

use std::fmt;
use std::time::Duration;

/// A point on the driver's monotonic clock, in microseconds since an arbitrary start.
///
/// Comparable only with instants of the same driver in the same process lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The instant `after` later; saturates at the end of the clock.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Time passed since `earlier`; zero when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch. May step; only for values people and retention read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
