//! Counts and latencies of a run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Latencies a connection gathers before it hands them over.
const GATHERED: usize = 256;

/// What one connection did, or all of them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests that succeeded, or pushes that came.
    pub(super) operations: u64,
    /// Records in them.
    pub(super) records: u64,
    /// Bytes of their values.
    pub(super) bytes: u64,
    /// Failures by what was said.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.records += other.records;
        self.bytes += other.bytes;
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
    }

    pub(super) fn fail(&mut self, error: String) {
        *self.errors.entry(error).or_default() += 1;
    }

    pub(super) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The latencies of all connections: a uniform sample, and what is exact.
#[derive(Debug)]
pub(super) struct Latencies(Mutex<Reservoir>);

#[derive(Debug)]
struct Reservoir {
    samples: Vec<u64>,
    samples_max: usize,
    random: u64,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// What a run says about latency, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) samples: usize,
    pub(super) min: u64,
    pub(super) mean: u64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p95: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Latencies {
    pub(super) fn new(samples_max: usize, seed: u64) -> Self {
        Self(Mutex::new(Reservoir {
            samples: Vec::new(),
            samples_max,
            random: seed | 1,
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }))
    }

    /// Forgets everything, after a warm-up.
    pub(super) fn clear(&self) {
        let mut reservoir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reservoir.samples.clear();
        (reservoir.count, reservoir.sum, reservoir.min, reservoir.max) = (0, 0, u64::MAX, 0);
    }

    fn take_in(&self, latencies: &mut Vec<u64>) {
        let mut reservoir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latencies.drain(..).for_each(|latency| reservoir.add(latency));
    }

    pub(super) fn summary(&self) -> Summary {
        let reservoir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted = reservoir.samples.clone();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return Summary::default();
        }
        // The nearest rank: the smallest sample that so many of a thousand do not exceed.
        let rank = |of_1000: usize| sorted[(sorted.len() * of_1000).div_ceil(1000).max(1) - 1];
        Summary {
            count: reservoir.count,
            samples: sorted.len(),
            min: reservoir.min,
            mean: u64::try_from(reservoir.sum / u128::from(reservoir.count)).unwrap_or(u64::MAX),
            p50: rank(500),
            p90: rank(900),
            p95: rank(950),
            p99: rank(990),
            p999: rank(999),
            max: reservoir.max,
        }
    }
}

impl Reservoir {
    fn add(&mut self, latency: u64) {
        self.count += 1;
        self.sum += u128::from(latency);
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
        if self.samples.len() < self.samples_max {
            self.samples.push(latency);
            return;
        }
        // Xorshift: good enough to choose a place.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = usize::try_from(self.random % self.count).unwrap_or(usize::MAX);
        if let Some(sample) = self.samples.get_mut(place) {
            *sample = latency;
        }
    }
}

/// One connection's way to the latencies of all.
#[derive(Debug)]
pub(super) struct Recorder<'a> {
    latencies: &'a Latencies,
    gathered: Vec<u64>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(latencies: &'a Latencies) -> Self {
        Self { latencies, gathered: Vec::with_capacity(GATHERED) }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        self.gathered.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if self.gathered.len() == GATHERED {
            self.latencies.take_in(&mut self.gathered);
        }
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.latencies.take_in(&mut self.gathered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(samples_max: usize, nanos: impl IntoIterator<Item = u64>) -> Summary {
        let latencies = Latencies::new(samples_max, 1);
        let mut recorder = Recorder::new(&latencies);
        nanos.into_iter().for_each(|nanos| recorder.add(Duration::from_nanos(nanos)));
        drop(recorder);
        latencies.summary()
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let all = summary(1000, 1..=1000);
        assert_eq!((all.p50, all.p90, all.p95, all.p99, all.p999), (500, 900, 950, 990, 999));
        assert_eq!((all.min, all.mean, all.max, all.count, all.samples), (1, 500, 1000, 1000, 1000));
        let one = summary(10, [7]);
        assert_eq!((one.p50, one.p99, one.p999), (7, 7, 7));
        assert_eq!(summary(10, []), Summary::default());
    }

    #[test]
    fn a_small_sample_is_uniform_and_what_is_exact_stays_exact() {
        let sampled = summary(2000, 1..=200_000);
        assert_eq!((sampled.count, sampled.samples, sampled.min, sampled.max), (200_000, 2000, 1, 200_000));
        assert_eq!(sampled.mean, 100_000);
        for (percentile, expected) in [(sampled.p50, 100_000_i64), (sampled.p90, 180_000)] {
            let off = i64::try_from(percentile).unwrap_or(i64::MAX) - expected;
            assert!(off.abs() < 10_000, "{percentile}");
        }
    }

    #[test]
    fn failures_are_counted_by_what_was_said() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        one.fail("overloaded".to_owned());
        other.fail("overloaded".to_owned());
        other.fail("timeout".to_owned());
        one.add(other);
        assert_eq!((one.errors["overloaded"], one.error_count()), (2, 3));
    }
}
