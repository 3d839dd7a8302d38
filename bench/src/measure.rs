//! Numbers out of several rounds, and what the process used.

use std::fs;

use serde::Serialize;

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stat {
    /// The middle one; the lower of two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Stat {
    /// The summary of at least one value.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: at(sorted.len().saturating_sub(1) / 2),
            min: at(0),
            max: at(sorted.len().saturating_sub(1)),
        }
    }

    /// The summary of each round's `ours / raw`.
    #[must_use]
    pub fn of_ratios(ours: &[f64], raw: &[f64]) -> Self {
        let ratios: Vec<_> = ours.iter().zip(raw).map(|(ours, raw)| ours / raw).collect();
        Self::of(&ratios)
    }
}

/// Seconds of processor time all living threads of this process have used.
pub(crate) fn cpu_seconds() -> f64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0.0 };
    let nanos: f64 = tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<f64>().ok())
        .sum();
    nanos / 1e9
}

/// Bytes of memory this process holds.
pub(crate) fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) * 1024.0
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(Stat::of(&[3.0, 1.0, 2.0]), Stat { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Stat::of(&[4.0, 1.0]).median, 1.0);
        assert_eq!(Stat::of_ratios(&[2.0, 9.0, 4.0], &[1.0, 1.0, 1.0]).median, 4.0);
    }

    #[test]
    fn the_process_uses_something() {
        assert!(cpu_seconds() > 0.0);
        assert!(resident_bytes() > 0.0);
        assert!(descriptors() > 2);
    }
}
