//! What a range takes, as its primary sees it.
//!
//! Owns the counts since the last report and the places of a few keys. An append costs two additions; a key is looked
//! at a few times a second, however much comes.

use std::collections::VecDeque;
use std::time::Duration;

use types::{Instant, Position, limits};

/// Between two looks at a key.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of a batch only so many records are walked for a key.
const WALK_MAX: u32 = 16;

/// Fewer batches than this are let pass before a look.
const PASS_BELOW: u32 = 8;

/// What a range takes in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) records: u64,
    /// Of records, without the headers of batches.
    pub(crate) bytes: u64,
}

/// Counts of one range.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    records: u64,
    bytes: u64,
    /// The latest keys that were looked at; `None` for a record without one.
    seen: VecDeque<Option<Position>>,
    look_at: Instant,
    /// Batches to be let pass, once it is time. Whoever sends in step with the looks would be seen through one key.
    pass: u32,
    /// What the next such choice is drawn from.
    draw: u32,
    /// What the last report said.
    pub(crate) rate: Rate,
}

impl Meter {
    /// A batch was given its offsets.
    pub(crate) fn took(&mut self, records: u32, bytes: usize) {
        self.records = self.records.saturating_add(u64::from(records));
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Which record of a batch of so many is to be looked at, if it is time for one.
    pub(crate) fn turn(&mut self, now: Instant, records: u32) -> Option<usize> {
        if now < self.look_at || records == 0 {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        self.look_at = now.plus(LOOK_EVERY);
        // A generator of the simplest kind, the same in every run: nothing hangs on it but which keys are seen.
        self.draw = self.draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.pass = (self.draw >> 16) % PASS_BELOW;
        Some(((self.draw >> 24) % records.min(WALK_MAX)) as usize)
    }

    /// Where the key of that record lies; `None` when it has none.
    pub(crate) fn saw(&mut self, key: Option<Position>) {
        if self.seen.len() >= limits::LOAD_KEYS_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(key);
    }

    /// Ends an interval: what was taken in a second of it.
    pub(crate) fn end(&mut self, took: Duration) -> Rate {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let per_second = |count: u64| {
            let rate = u128::from(count) * 1_000_000 / u128::from(micros);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        self.rate = Rate { records: per_second(self.records), bytes: per_second(self.bytes) };
        (self.records, self.bytes) = (0, 0);
        self.rate
    }

    /// Where the keys lay that were looked at last, ascending.
    pub(crate) fn keys(&self) -> Vec<Position> {
        let mut keys: Vec<Position> = self.seen.iter().copied().flatten().collect();
        keys.sort_unstable();
        keys
    }

    /// Of a thousand records that were looked at, those without a key.
    pub(crate) fn keyless(&self) -> u16 {
        let without = self.seen.iter().filter(|key| key.is_none()).count();
        u16::try_from(without * 1000 / self.seen.len().max(1)).unwrap_or(1000)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_came_in_a_second_of_the_interval() {
        let mut meter = Meter::default();
        (0..10).for_each(|_| meter.took(100, 5_000));
        assert_eq!(meter.end(Duration::from_secs(4)), Rate { records: 250, bytes: 12_500 });
        assert_eq!(meter.end(Duration::from_secs(4)), Rate::default(), "each interval for itself");
        assert_eq!(meter.end(Duration::ZERO), Rate::default(), "nothing in no time");
    }

    /// How many of two keys are seen when a batch of each comes every 50 ms.
    fn seen_in_step() -> usize {
        let mut meter = Meter::default();
        for batch in 0..2000_u64 {
            if meter.turn(Instant(batch / 2 * 50_000), 1).is_some() {
                meter.saw(Some(Position((batch % 2) as u32)));
            }
        }
        let mut keys = meter.keys();
        keys.dedup();
        keys.len()
    }

    #[test]
    fn keys_are_looked_at_now_and_then_and_the_latest_are_kept() {
        let mut meter = Meter::default();
        let mut looks = 0_u32;
        for at in 0..6_000_000 {
            if let Some(turn) = meter.turn(Instant(at * 10), 1000) {
                assert!(turn < 16);
                looks += 1;
                meter.saw((!looks.is_multiple_of(4)).then_some(Position(looks)));
            }
        }
        assert_eq!(looks, 60_000 / 50, "however much comes");
        assert_eq!(seen_in_step(), 2, "both of two that come in turn");
        assert_eq!(meter.seen.len(), limits::LOAD_KEYS_MAX);
        assert_eq!((meter.keyless(), meter.keys().len()), (250, 96));
        assert!(meter.keys().is_sorted() && meter.keys()[0] > Position(looks - 128));
        assert_eq!(meter.turn(Instant(u64::MAX), 0), None);
    }
}
