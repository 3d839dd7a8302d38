//! Places inside a range.

use std::fmt;

/// A record's place in its range, from 0, contiguous across the range's segments. Never shown to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first record of every range.
    pub const ZERO: Self = Self(0);

    /// The offset `count` records further on, or `None` past the end of what can be counted.
    #[must_use]
    pub fn checked_add(self, count: u64) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }

    /// The offset `count` records further on. Panics on overflow; for counts that were already accepted.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        self.checked_add(count).expect("offsets that were assigned by counting records do not overflow")
    }

    /// How many records lie in `[earlier, self)`; 0 when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
