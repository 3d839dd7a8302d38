//! Pauses between attempts to reach a node: growing, bounded, and different on every node, so that a cluster that
//! lost its power does not dial in step.

use std::time::Duration;

/// Longest first pause.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause while nothing speaks against an attempt.
const LONGEST: Duration = Duration::from_secs(5);
/// Pause after a refusal that somebody has to do something about.
const REFUSED: Duration = Duration::from_secs(10);

/// A series of pauses.
#[derive(Debug)]
pub(super) struct Backoff {
    state: u64,
    longest: Duration,
}

impl Backoff {
    /// Jitter comes from the seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed, longest: FIRST }
    }

    /// The next pause, from the upper half of twice the one before.
    pub(super) fn pause(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LONGEST);
        self.jittered(longest)
    }

    /// The pause after a refusal that does not pass by itself.
    pub(super) fn pause_refused(&mut self) -> Duration {
        self.jittered(REFUSED)
    }

    /// Starts over, after a success.
    pub(super) fn reset(&mut self) {
        self.longest = FIRST;
    }

    fn jittered(&mut self, longest: Duration) -> Duration {
        let half = longest / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_micros(self.draw() % micros)
    }

    /// SplitMix64: any seed will do.
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
    fn pauses_grow_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new(7);
        for longest in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff.pause().as_millis();
            assert!(pause >= longest / 2 && pause < longest, "{pause} of {longest}");
        }
        assert!(backoff.pause_refused() >= REFUSED / 2);
        backoff.reset();
        assert!(backoff.pause() < FIRST);
        assert_ne!(Backoff::new(1).pause(), Backoff::new(2).pause());
    }
}
