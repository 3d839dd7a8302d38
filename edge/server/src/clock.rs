//! Real time, as the core takes it.

use std::time::{SystemTime, UNIX_EPOCH};

use types::{Instant, WallTime};

/// The process's clocks. Cheap to copy; copies agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }

    /// Monotonic time since the clock was made.
    pub(crate) fn now(self) -> Instant {
        Instant(0).plus(self.start.elapsed())
    }

    /// When that instant is, for a timer.
    pub(crate) fn at(self, instant: Instant) -> tokio::time::Instant {
        self.start + instant.since(Instant(0))
    }

    /// The wall clock; before 1970 counts as 1970.
    pub(crate) fn wall(self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
