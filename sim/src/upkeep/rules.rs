//! Which segments may have expired, worked out anew from the tables as they were.

use metadata::cluster::{Cluster, Policy, Setting};
use metadata::vnode::{Segment, Topic};

/// Bounds of one topic at one time: age in milliseconds, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bounds {
    pub(super) age: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// What holds for a topic under these tables.
pub(super) fn bounds(config: &broker::Config, cluster: &Cluster, topic: &Topic) -> Bounds {
    let defaults = (config.retention.age_ms_max, config.retention.bytes_max);
    let Some(name) = &topic.policy else { return Bounds { age: defaults.0, bytes: defaults.1 } };
    let Some(Policy { age_ms_max, bytes_max, .. }) = cluster.policy(name.as_str()) else {
        return Bounds { age: config.retention.unresolved_age_ms_max, bytes: None };
    };
    Bounds { age: over(age_ms_max, defaults.0), bytes: over(bytes_max, defaults.1) }
}

fn over(setting: &Setting<u64>, default: Option<u64>) -> Option<u64> {
    match setting {
        Setting::Inherit => default,
        Setting::Off => None,
        Setting::Value(value) => Some(*value),
    }
}

impl Bounds {
    /// Whether the first of a range's segments may go when the clock shows `wall`; all of the range, in order, those
    /// that take records behind them.
    pub(super) fn allow(self, segments: &[Segment], wall: u64) -> bool {
        let Some(sealed_at) = segments.first().and_then(Segment::sealed_at) else { return false };
        let total: u64 = segments.iter().map(Segment::sealed_bytes).sum();
        let old = self.age.is_some_and(|age| wall.saturating_sub(sealed_at.0) > age);
        old || self.bytes.is_some_and(|bytes| total > bytes)
    }
}
