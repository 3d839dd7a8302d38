//! Random numbers from a seed the driver hands in.
//!
//! Owns nothing but the generator: SplitMix64 (Steele, Lea and Flood, 2014) over each half of a 128-bit seed.
//! Not for secrets: ids drawn from it must be unlikely to repeat, not hard to guess.

/// A seeded generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    low: u64,
    high: u64,
}

impl Random {
    pub(crate) fn new(seed: u128) -> Self {
        let half = |n: u128| u64::try_from(n & u128::from(u64::MAX)).expect("masked to 64 bits");
        Self { low: half(seed), high: half(seed >> 64) }
    }

    pub(crate) fn u128(&mut self) -> u128 {
        let low = mix(&mut self.low);
        let high = mix(&mut self.high);
        // Each half depends on both, so that a poor half of the seed does not show.
        u128::from(low.rotate_left(32) ^ high) << 64 | u128::from(low.wrapping_add(high))
    }
}

fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_numbers_do_not_repeat() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.u128()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut all = draw(0);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }
}
