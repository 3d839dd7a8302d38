//! How long to wait before something is tried again. Pure: whoever asks does the waiting, and the jitter
//! comes from a seed.

use std::time::Duration;

use wire::{Reason, Retry};

/// Between two tries of a request that was refused while routing settles.
pub const SETTLING: Duration = Duration::from_millis(200);
/// Longest first pause of a growing series.
const FIRST_MS: u64 = 100;
/// Longest pause of all.
const LONGEST_MS: u64 = 5000;

/// A series of growing, jittered pauses: each is drawn from the upper half of twice the one before, so that
/// clients that lost the same broker do not come back to it at the same moment.
#[derive(Clone, Debug)]
pub struct Backoff {
    state: u64,
    longest_ms: u64,
}

impl Backoff {
    /// A series with jitter from `seed`: the same seed, the same pauses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed, longest_ms: FIRST_MS }
    }

    /// The next pause: more than half of 100 ms at first, 5 s at most.
    pub fn pause(&mut self) -> Duration {
        let longest = self.longest_ms;
        self.longest_ms = (longest * 2).min(LONGEST_MS);
        let half = longest / 2;
        Duration::from_millis(half + 1 + self.draw() % half)
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.longest_ms = FIRST_MS;
    }

    /// The pause before a request that was refused for `reason` is sent again by itself; `None` when that is
    /// for the caller to decide. Only refusals that say what they mean and pass by themselves are repeated.
    pub fn pause_after(&mut self, reason: Reason) -> Option<Duration> {
        match reason.retry() {
            Retry::Soon if matches!(reason, Reason::Migrating | Reason::NotOwner) => Some(SETTLING),
            Retry::BackOff if reason == Reason::Overloaded => Some(self.pause()),
            Retry::Soon | Retry::BackOff | Retry::AfterChange | Retry::Never => None,
        }
    }

    /// SplitMix64: any seed will do, zero included.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_with_jitter_in_the_upper_half() {
        for seed in 0..50 {
            let mut backoff = Backoff::new(seed);
            for longest in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
                let pause = backoff.pause().as_millis();
                assert!(pause > longest / 2 && pause <= longest, "{pause} of {longest}");
            }
            backoff.reset();
            assert!(backoff.pause().as_millis() <= 100);
        }
    }

    #[test]
    fn the_seed_decides_and_seeds_differ() {
        let series = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..8).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        assert_eq!(series(7), series(7));
        assert_ne!(series(7), series(8));
    }

    #[test]
    fn only_what_passes_by_itself_and_left_nothing_in_doubt_is_repeated() {
        let repeated: Vec<&str> = Reason::ALL
            .iter()
            .filter(|reason| Backoff::new(1).pause_after(**reason).is_some())
            .map(|reason| reason.as_str())
            .collect();
        assert_eq!(repeated, ["migrating", "not_owner", "overloaded"]);
    }
}
