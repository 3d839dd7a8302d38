//! Majority arithmetic over one replica set (data-plane notation: `N`, `Q`, `R`).
//!
//! `Q` copies make a record acknowledged, and any `R = N - Q + 1` copies include at least one of them.

/// Copies that must hold a record before it is acknowledged: `floor(n / 2) + 1`.
///
/// `n` is the size of the actual replica set, not of the configured factor. Panics for an empty set, which
/// can acknowledge nothing.
#[must_use]
pub fn ack_count(n: usize) -> usize {
    assert!(n > 0, "an empty replica set has no quorum");
    n / 2 + 1
}

/// Answers that must be counted before a segment may be sealed: `n - ack_count(n) + 1`.
#[must_use]
pub fn seal_count(n: usize) -> usize {
    n - ack_count(n) + 1
}

/// The highest end held by at least `ack_count(n)` replicas, or `None` until so many have reported.
///
/// `ends` has one item for each replica, in any order; a silent replica is `None` and counts below
/// everything.
#[must_use]
pub fn committed<T: Ord + Copy>(ends: &[Option<T>]) -> Option<T> {
    let mut sorted: Vec<Option<T>> = ends.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted[ack_count(ends.len()) - 1]
}
