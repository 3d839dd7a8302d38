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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_published_table_of_sizes() {
        let rows = [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 3, 2), (5, 3, 3), (7, 4, 4)];
        for (n, ack, seal) in rows {
            assert_eq!((ack_count(n), seal_count(n)), (ack, seal), "{n} replicas");
        }
    }

    fn ends() -> impl Strategy<Value = Vec<Option<u64>>> {
        prop::collection::vec(prop::option::of(0_u64..12), 1..8)
    }

    /// Replicas that hold everything below `end`.
    fn holders(ends: &[Option<u64>], end: u64) -> usize {
        ends.iter().flatten().filter(|held| **held >= end).count()
    }

    proptest! {
        // P-12: searched for, not computed the same way again.
        #[test]
        fn committed_is_the_largest_end_a_majority_holds(ends in ends()) {
            let largest = (0..12).rev().find(|end| holders(&ends, *end) >= ack_count(ends.len()));
            prop_assert_eq!(committed(&ends), largest);
        }

        // P-13
        #[test]
        fn committed_never_decreases_while_acks_arrive(
            n in 1_usize..8, acks in prop::collection::vec((0_usize..8, 0_u64..50), 0..40),
        ) {
            let mut ends = vec![None; n];
            let mut before = None;
            for (replica, end) in acks {
                let held = &mut ends[replica % n];
                *held = (*held).max(Some(end));
                let now = committed(&ends);
                prop_assert!(now >= before);
                before = now;
            }
        }

        // P-14
        #[test]
        fn an_end_is_committed_exactly_when_a_majority_holds_it(ends in ends(), end in 0_u64..12) {
            let is_committed = committed(&ends).is_some_and(|committed| committed >= end);
            prop_assert_eq!(is_committed, holders(&ends, end) >= ack_count(ends.len()));
        }

        #[test]
        fn who_seals_always_meets_who_acknowledged(n in 1_usize..100) {
            prop_assert!(ack_count(n) + seal_count(n) == n + 1);
            prop_assert!(ack_count(n) * 2 > n);
        }
    }
}
