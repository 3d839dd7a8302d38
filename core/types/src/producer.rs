//! Who produced a batch, and which of its batches it is: what lets a broker tell a repetition from a new request.
//!
//! Owns the words and the arithmetic on them. What is remembered of producers, and for how long, is the broker's;
//! `docs/idempotence.md` says why it is enough.

use crate::WallTime;
use crate::keyspace::{Keyspace, Position};

/// A producer. Drawn at random, so that nobody can guess another's; 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u64);

/// The life of a producer, chosen by it: once a later one was seen, an earlier one is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub u32);

/// One request of a producer. Whatever carries the same producer, epoch and `first` is the same request, sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who.
    pub producer: ProducerId,
    /// In which life.
    pub epoch: ProducerEpoch,
    /// Sequence number of its first record; the records of a life are numbered on and on, whatever ranges they go to.
    pub first: u32,
    /// Every request below this number has an outcome and is never sent again. At most `first`.
    pub settled: u32,
    /// When it was sent for the first time, by the clock that a broker gave its producer. Never later than the append
    /// time of a frame of it.
    pub born: WallTime,
}

impl Stamp {
    /// Whether a request of so many records can bear it.
    #[must_use]
    pub fn fits(&self, count: u32) -> bool {
        self.producer.0 != 0
            && self.settled <= self.first
            && self.first.checked_add(count).is_some()
            && self.born > WallTime(0)
    }

    /// Where its records without a key go: the same place however often and wherever it is placed.
    #[must_use]
    pub fn keyless_position(&self, keyspace: Keyspace) -> Position {
        // SplitMix64's finalizer: neighbouring sequences must not lie together.
        let mut mixed = self.producer.0 ^ u64::from(self.first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        Position(u32::try_from(mixed % keyspace.size()).expect("a keyspace has at most 2^32 positions"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stamp(first: u32) -> Stamp {
        let (producer, epoch) = (ProducerId(7), ProducerEpoch(1));
        Stamp { producer, epoch, first, settled: 0, born: WallTime(1) }
    }

    #[test]
    fn a_stamp_that_cannot_be_is_seen() {
        assert!(stamp(5).fits(3) && stamp(u32::MAX - 3).fits(3));
        assert!(!stamp(u32::MAX - 3).fits(4));
        assert!(!Stamp { producer: ProducerId(0), ..stamp(5) }.fits(1));
        assert!(!Stamp { settled: 6, ..stamp(5) }.fits(1));
        assert!(!Stamp { born: WallTime(0), ..stamp(5) }.fits(1));
    }

    #[test]
    fn records_without_a_key_are_spread_and_stay_where_they_are() {
        let keyspace = Keyspace::from_bits(3).unwrap();
        let mut hits = [0; 8];
        for first in 0..8000 {
            let at = stamp(first).keyless_position(keyspace);
            let again = Stamp { settled: first, born: WallTime(9), ..stamp(first) };
            assert_eq!(again.keyless_position(keyspace), at);
            hits[usize::try_from(at.0).unwrap()] += 1;
        }
        assert!(hits.iter().all(|hits| (800..1200).contains(hits)), "{hits:?}");
    }
}
