//! Which segments may have expired, worked out anew from the tables as they were.

use metadata::cluster::{Cluster, Policy, Setting};
use metadata::vnode::{Segment, Topic, Vnode};
use types::TopicId;

/// Bounds of one topic at one time: age in milliseconds of what is not read by everybody and of what is, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bounds {
    pub(super) age: Option<u64>,
    pub(super) read_age: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// What holds for a topic under these tables.
pub(super) fn bounds(config: &broker::Config, cluster: &Cluster, topic: &Topic) -> Bounds {
    let defaults = (config.retention.age_ms_max, config.retention.bytes_max);
    let plain = |(age, bytes)| Bounds { age, read_age: age, bytes };
    let Some(name) = &topic.policy else { return plain(defaults) };
    let Some(policy) = cluster.policy(name.as_str()) else {
        return plain((config.retention.unresolved_age_ms_max, None));
    };
    let Policy { age_ms_max, bytes_max, read_age_ms_max, unread_age_ms_max, spread_by: _ } = policy;
    let mut bounds = plain((over(age_ms_max, defaults.0), over(bytes_max, defaults.1)));
    if let Setting::Value(unread) = unread_age_ms_max {
        bounds.age = Some(*unread);
        bounds.read_age = Some(bounds.read_age.map_or(*unread, |age| age.min(*unread)));
        if let Setting::Value(read) = read_age_ms_max {
            bounds.read_age = bounds.read_age.map(|age| age.min(*read));
        }
    }
    bounds
}

/// Offsets below this were committed by every group of a topic of one range, of which there is at least one; else 0.
pub(super) fn read_by_all(vnode: &Vnode, topic: TopicId) -> u64 {
    let of_group = |group| match vnode.positions(topic, group) {
        [tile] => tile.next.0,
        _ => 0,
    };
    vnode.groups_of(topic).map(of_group).min().unwrap_or(0)
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
    /// that take records behind them. Everybody is past the offsets below `read`.
    pub(super) fn allow(self, segments: &[Segment], read: u64, wall: u64) -> bool {
        let Some(first) = segments.first() else { return false };
        let (Some(sealed_at), Some(end)) = (first.sealed_at(), first.end()) else { return false };
        let total: u64 = segments.iter().map(Segment::sealed_bytes).sum();
        let age = if end.0 <= read { self.read_age } else { self.age };
        let old = age.is_some_and(|age| wall.saturating_sub(sealed_at.0) > age);
        old || self.bytes.is_some_and(|bytes| total > bytes)
    }
}
