//! Sealed segments that are too old or too many expire.
//!
//! Owns which segments expire and when they are looked for: on the node that leads the range's vnode. Does not remove
//! copies: whoever holds one removes it when it comes to the entry that removed the segment from the tables.
//!
//! Invariants:
//! - only sealed segments expire, and only the oldest of a range: what is left of a range is its end, without a hole;
//! - nothing is decided by tables that lag behind. When it cannot be known that the policies here are the ones that
//!   hold, nothing expires;
//! - a policy that nothing defines is not "no policy": its topics keep everything, up to a bound for just that case;
//! - what some group has not read is kept for longer than the rest where its policy says so, and never beyond the bound
//!   that it says with it; what there is no group for counts as not read;
//! - nothing is removed before the metadata has forgotten it, and nothing at all when the metadata refused;
//! - a wall clock that is ahead expires segments earlier by no more than it is ahead, one that is behind expires later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::cluster::{Cluster, Policy, Setting};
use metadata::vnode::{Sealed, Segment, SegmentState, Topic};
use types::{Instant, NodeId, Offset, RangeId, SegmentId, TopicId, VnodeId, WallTime};

use crate::meta::{self, CLUSTER, Purpose};
use crate::node::Node;
use crate::planted::Bug;
use crate::progress;
use crate::upkeep::{self, Notice, Refused};

/// Ranges looked at in one step, so that a sweep over many does not hold up everything else.
const RANGES_PER_STEP: usize = 2_000;
/// Positions of groups looked at in one step, or those of one range.
const GROUPS_PER_STEP: usize = 10_000;
/// Removals from the tables on their way at one time.
const EXPIRING_MAX: usize = 256;
/// Pause between two steps of a sweep.
const BETWEEN_STEPS: Duration = Duration::from_millis(1);

/// How far the sweep is.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// When the next one begins; there once the node serves.
    due: Option<Instant>,
    sweep: Sweep,
    /// Removals from the tables on their way, with the bytes of the segments.
    expiring: BTreeMap<SegmentId, u64>,
    /// Ranges of which this sweep had a removal refused: they wait for the next one.
    refused: BTreeSet<RangeId>,
    /// Topics whose policy nothing defined when they were last looked at.
    unresolved: BTreeSet<TopicId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sweep {
    #[default]
    Resting,
    /// It is being learnt whether the tables here are up to date.
    Asking { since: Instant },
    /// Through the ranges of the vnodes this node leads, behind this one.
    Going { since: Instant, vnode: VnodeId, after: Option<RangeId> },
}

/// What holds for the segments of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of segments that some group has not read, or that there is no group for; milliseconds.
    age_max: Option<u64>,
    /// Of segments that every group is past; never above `age_max`.
    read_age_max: Option<u64>,
    bytes_max: Option<u64>,
    /// Its policy is defined, or it has none.
    resolved: bool,
}

/// What holds for a topic: its policy over the defaults, or the bound for a policy that nothing defines.
fn bounds(defaults: &upkeep::Retention, cluster: &Cluster, topic: &Topic) -> Bounds {
    match topic.policy.as_ref().map(|name| cluster.policy(name.as_str())) {
        None => by_policy(defaults, &Policy::default()),
        Some(Some(policy)) => by_policy(defaults, policy),
        Some(None) => {
            let age_max = defaults.unresolved_age_ms_max;
            Bounds { age_max, read_age_max: age_max, bytes_max: None, resolved: false }
        }
    }
}

/// A policy over the defaults.
fn by_policy(defaults: &upkeep::Retention, policy: &Policy) -> Bounds {
    let age_max = over(&policy.age_ms_max, defaults.age_ms_max);
    let (read, unread) = (over(&policy.read_age_ms_max, None), over(&policy.unread_age_ms_max, None));
    Bounds {
        // What somebody has not read may be kept for longer; its own bound holds then.
        age_max: unread.or(age_max),
        read_age_max: [read, unread, age_max].into_iter().flatten().min(),
        bytes_max: over(&policy.bytes_max, defaults.bytes_max),
        resolved: true,
    }
}

impl Bounds {
    const NONE: Self = Self { age_max: None, read_age_max: None, bytes_max: None, resolved: true };

    /// Whether it makes a difference how far groups are.
    fn asks_groups(&self) -> bool {
        self.age_max != self.read_age_max
    }
}

fn over(setting: &Setting<u64>, default: Option<u64>) -> Option<u64> {
    match setting {
        Setting::Inherit => default,
        Setting::Off => None,
        Setting::Value(bound) => Some(*bound),
    }
}

/// How many of a range's oldest segments expire; all of `segments` of a range, in their order. Every group is past
/// the offsets below `read`.
fn expired<'a>(
    segments: impl DoubleEndedIterator<Item = &'a Segment> + Clone,
    bounds: Bounds,
    read: Offset,
    now: WallTime,
) -> usize {
    let ended = segments.map_while(|segment| match segment.state {
        SegmentState::Active => None,
        SegmentState::Sealed(sealed) => Some((segment.start, sealed)),
    });
    let is_old = |(start, sealed): &(Offset, Sealed)| {
        let is_read = start.0.checked_add(sealed.length).is_some_and(|end| end <= read.0);
        let age_max = if is_read { bounds.read_age_max } else { bounds.age_max };
        // A clock that is behind the sealer's says nothing about age.
        age_max.is_some_and(|age_max| now.0.saturating_sub(sealed.at.0) > age_max)
    };
    let old = ended.clone().take_while(is_old).count();
    let sealed = ended.map(|(_, sealed)| sealed);
    let above = bounds.bytes_max.map_or(0, |bytes_max| {
        let mut total: u128 = sealed.clone().map(|sealed| u128::from(sealed.byte_size)).sum();
        let over = sealed.clone().take_while(|sealed| {
            let goes = total > u128::from(bytes_max);
            total -= u128::from(sealed.byte_size);
            goes
        });
        over.count()
    });
    old.max(above)
}

impl Retention {
    /// Segments whose removal from the tables is on its way.
    #[cfg(feature = "planted")]
    pub(crate) fn expiring(&self) -> impl Iterator<Item = SegmentId> {
        self.expiring.keys().copied()
    }
}

impl Node {
    /// Begins a sweep when one is due, and goes on with the one under way.
    pub(crate) fn keep_retention(&mut self) {
        let (now, every) = (self.core.now, self.core.config.retention.every);
        if !self.serves() {
            return;
        }
        // Not at once: a clock that is wrong right after the machine started may have been set by then.
        let due = *self.retention.due.get_or_insert(now.plus(every));
        match self.retention.sweep {
            Sweep::Resting if due <= now => {
                self.retention.due = Some(now.plus(every));
                let led: Vec<VnodeId> = self.led_vnodes().collect();
                if !led.is_empty() {
                    self.retention.sweep = Sweep::Asking { since: now };
                    self.core.confirm(Purpose::Retention, std::iter::once(CLUSTER).chain(led));
                }
            }
            Sweep::Going { since, vnode, after } => self.expire(since, vnode, after),
            Sweep::Resting | Sweep::Asking { .. } => {}
        }
    }

    /// When it goes on, if not by what comes from elsewhere.
    pub(crate) fn next_retention(&self) -> Option<Instant> {
        match self.retention.sweep {
            Sweep::Resting => self.retention.due,
            Sweep::Asking { .. } => None,
            Sweep::Going { .. } if self.retention.expiring.len() >= EXPIRING_MAX => None,
            Sweep::Going { .. } => Some(self.core.now.plus(BETWEEN_STEPS)),
        }
    }

    fn led_vnodes(&self) -> impl Iterator<Item = VnodeId> {
        self.core.meta.led_groups().filter(|group| *group != CLUSTER)
    }

    /// The tables are known to be up to date, or it cannot be learnt whether they are.
    pub(crate) fn retention_confirmed(&mut self, confirmed: bool) {
        let Sweep::Asking { since } = self.retention.sweep else { return };
        self.retention.sweep = Sweep::Resting;
        self.retention.refused.clear();
        if !confirmed {
            return self.core.upkeep(Notice::RetentionSkipped);
        }
        if let Some(vnode) = self.led_vnodes().min() {
            self.retention.sweep = Sweep::Going { since, vnode, after: None };
        }
    }

    /// Looks at some ranges of a vnode. One that this node leads no more is left to the node that does.
    fn expire(&mut self, since: Instant, vnode: VnodeId, after: Option<RangeId>) {
        let room = EXPIRING_MAX.saturating_sub(self.retention.expiring.len());
        if room == 0 {
            return;
        }
        let meta = &self.core.meta;
        let ranges = meta.leads(vnode).then(|| meta.tables_of(vnode).ranges_after(after));
        let ranges = ranges.into_iter().flatten().map(|(id, _)| id);
        let ranges: Vec<RangeId> = ranges.take(RANGES_PER_STEP).collect();
        let (mut done, mut going, mut more) = (after, Vec::new(), ranges.len() == RANGES_PER_STEP);
        let mut groups = 0;
        for range in ranges {
            if done.is_none_or(|done| done.topic != range.topic) {
                self.note_unresolved(range.topic);
            }
            groups += self.add_expired(range, &mut going);
            if going.len() >= room {
                // There may be more of this one: it is looked at again.
                going.truncate(room);
                more = true;
                break;
            }
            done = Some(range);
            if groups >= GROUPS_PER_STEP {
                more = true;
                break;
            }
        }
        for (segment, bytes) in going {
            if self.core.config.has_bug(Bug::RemoveFirst) {
                self.remove_copy(segment);
            }
            self.retention.expiring.insert(segment, bytes);
            self.core.expire_segment(segment);
        }
        self.retention.sweep = match self.led_vnodes().filter(|led| *led > vnode).min() {
            _ if more => Sweep::Going { since, vnode, after: done },
            Some(vnode) => Sweep::Going { since, vnode, after: None },
            None => {
                self.core.upkeep(Notice::RetentionSwept { took: self.core.now.since(since) });
                Sweep::Resting
            }
        };
    }

    /// Adds the segments of a range that expire and are not on their way, with their bytes. Gives the number of groups
    /// whose positions were looked at.
    fn add_expired(&self, range: RangeId, going: &mut Vec<(SegmentId, u64)>) -> usize {
        let (vnode, defaults) = (self.core.meta.of(range.topic), &self.core.config.retention);
        let Some(topic) = vnode.topic(range.topic) else { return 0 };
        let mut bounds = bounds(defaults, self.core.meta.cluster(), topic);
        if !bounds.resolved && self.core.config.has_bug(Bug::ExpireUnresolved) {
            bounds = by_policy(defaults, &Policy::default());
        }
        if bounds == (Bounds { resolved: bounds.resolved, ..Bounds::NONE })
            || self.retention.refused.contains(&range)
        {
            return 0;
        }
        let segments: Vec<(SegmentId, &Segment)> = vnode.segments_of(range).collect();
        let row = vnode.range(range).filter(|_| bounds.asks_groups());
        let read = row.and_then(|row| progress::read_by_all(vnode, range, row)).unwrap_or(Offset::ZERO);
        let count = expired(segments.iter().map(|(_, segment)| *segment), bounds, read, self.core.wall);
        let oldest = segments[..count].iter().map(|(id, segment)| (*id, segment.sealed_bytes()));
        going.extend(oldest.filter(|(id, _)| !self.retention.expiring.contains_key(id)));
        row.map_or(0, |_| vnode.groups_of(range.topic).count())
    }

    fn note_unresolved(&mut self, id: TopicId) {
        let Some(topic) = self.core.meta.of(id).topic(id) else { return };
        let policy =
            topic.policy.as_ref().filter(|name| self.core.meta.cluster().policy(name.as_str()).is_none());
        let Some(policy) = policy.map(ToString::to_string) else {
            self.retention.unresolved.remove(&id);
            return;
        };
        let topic = topic.name.as_str().to_owned();
        let first = self.retention.unresolved.insert(id);
        self.core.upkeep(Notice::PolicyUnresolved { topic, policy, first });
    }

    /// A topic is gone.
    pub(crate) fn forget_retention(&mut self, topic: TopicId) {
        self.retention.unresolved.remove(&topic);
    }

    /// The metadata has forgotten a segment, or not.
    pub(crate) fn segment_expired(&mut self, segment: SegmentId, result: Result<Vec<NodeId>, meta::Error>) {
        let bytes = self.retention.expiring.remove(&segment).unwrap_or_default();
        let replicas = match result {
            Ok(replicas) => replicas,
            // Somebody else was first, or its topic is gone.
            Err(meta::Error::NoSuchTopic) => return,
            Err(error) => {
                self.retention.refused.insert(segment.range);
                let reply = match error {
                    meta::Error::Migrating | meta::Error::Unavailable => Refused::Migrating,
                    meta::Error::AlreadyExists
                    | meta::Error::InvalidTopicName
                    | meta::Error::NoSuchTopic
                    | meta::Error::NoSuchRange
                    | meta::Error::CannotSplit
                    | meta::Error::NotBuddies
                    | meta::Error::InsufficientDomains
                    | meta::Error::TooManyRanges
                    | meta::Error::Sealed
                    | meta::Error::TooManyGroups
                    | meta::Error::Refused
                    | meta::Error::Unknown => Refused::Other,
                };
                return self.core.upkeep(Notice::ExpiryRefused { segment, reply, detail: error.to_string() });
            }
        };
        let own = self.core.config.node;
        let away = replicas.iter().filter(|node| **node != own && !self.core.meta.is_up(**node)).count();
        let topic = self.topic_text(segment.range.topic);
        self.core.upkeep(Notice::SegmentExpired { topic, segment, bytes, copies_left: away });
        if replicas.contains(&own) {
            self.remove_copy(segment);
        }
    }

    /// The name of a topic for people; its id when the tables do not know it.
    pub(crate) fn topic_text(&self, id: TopicId) -> String {
        let topic = self.core.meta.of(id).topic(id);
        topic.map_or_else(|| id.to_string(), |topic| topic.name.as_str().to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments(rows: &[(u64, u64)], active: bool) -> Vec<Segment> {
        let segment =
            |state| Segment { start: Offset::ZERO, replicas: vec![NodeId(1)], opened_at: WallTime(0), state };
        let sealed = |&(at, byte_size): &(u64, u64)| {
            segment(SegmentState::Sealed(Sealed { length: 1, byte_size, lost: 0, at: WallTime(at) }))
        };
        rows.iter().map(sealed).chain(active.then(|| segment(SegmentState::Active))).collect()
    }

    fn count(rows: &[(u64, u64)], age_max: Option<u64>, bytes_max: Option<u64>, now: u64) -> usize {
        let segments = segments(rows, true);
        let bounds = Bounds { age_max, read_age_max: age_max, bytes_max, resolved: true };
        expired(segments.iter(), bounds, Offset::ZERO, WallTime(now))
    }

    #[test]
    fn what_somebody_has_not_read_has_a_bound_of_its_own() {
        let policy = |age: Option<u64>, read: Option<u64>, unread: Option<u64>| {
            let setting = |value: Option<u64>| value.map_or(Setting::Inherit, Setting::Value);
            let (age_ms_max, read_age_ms_max) = (setting(age), setting(read));
            let unread_age_ms_max = setting(unread);
            Policy { age_ms_max, read_age_ms_max, unread_age_ms_max, ..Policy::default() }
        };
        let defaults = upkeep::Retention { age_ms_max: Some(500), ..upkeep::Retention::default() };
        let ages = |age, read, unread| {
            let bounds = by_policy(&defaults, &policy(age, read, unread));
            (bounds.read_age_max, bounds.age_max)
        };
        assert_eq!(ages(None, None, None), (Some(500), Some(500)));
        assert_eq!(ages(None, Some(0), Some(900)), (Some(0), Some(900)));
        assert_eq!(ages(None, None, Some(900)), (Some(500), Some(900)), "kept for those who are late");
        assert_eq!(
            ages(Some(700), Some(800), Some(900)),
            (Some(700), Some(900)),
            "never above what is for all"
        );
        assert_eq!(ages(None, Some(800), Some(100)), (Some(100), Some(100)), "nor above what is not read");

        // Three segments of one record each, sealed at 100, 200 and 300.
        let segments: Vec<Segment> = (0..3)
            .map(|at| {
                let sealed = Sealed { length: 1, byte_size: 10, lost: 0, at: WallTime(100 * (at + 1)) };
                let state = SegmentState::Sealed(sealed);
                Segment { start: Offset(at), replicas: vec![NodeId(1)], opened_at: WallTime(0), state }
            })
            .collect();
        let gone = |read: u64, bytes_max, now| {
            let bounds = Bounds { age_max: Some(600), read_age_max: Some(50), bytes_max, resolved: true };
            expired(segments.iter(), bounds, Offset(read), WallTime(now))
        };
        assert_eq!([0, 1, 2, 3, u64::MAX].map(|read| gone(read, None, 400)), [0, 1, 2, 3, 3]);
        assert_eq!(gone(3, None, 220), 1, "what was read goes when it is old enough");
        assert_eq!(
            [701, 801, 901].map(|now| gone(0, None, now)),
            [1, 2, 3],
            "nobody holds anything for ever"
        );
        assert_eq!(gone(0, Some(10), 400), 2, "nor more bytes than there may be");
    }

    #[test]
    fn a_young_segment_keeps_the_older_ones_behind_it() {
        // The third was sealed by a clock that was behind.
        let rows = [(100, 10), (900, 10), (100, 10)];
        assert_eq!(count(&rows, Some(500), None, 1000), 1);
        assert_eq!(count(&rows, Some(900), None, 1000), 0, "a bound is reached, not passed");
        assert_eq!(count(&rows, Some(0), None, 50), 0, "a clock that is behind says nothing");
        assert_eq!(count(&rows, None, Some(20), 0), 1);
        assert_eq!(count(&rows, None, Some(19), 0), 2);
        assert_eq!(count(&rows, Some(500), Some(0), 1000), 3, "the larger of the two, never the active one");
        assert_eq!(
            count(&[(0, u64::MAX), (0, u64::MAX)], None, Some(u64::MAX), 0),
            1,
            "sums do not overflow"
        );
    }

    proptest! {
        /// P-36: a prefix, never the active one, and larger bounds or an earlier clock never remove more.
        #[test]
        fn larger_bounds_never_remove_more(
            rows in prop::collection::vec((0..1000_u64, 0..100_u64), 0..12),
            active: bool,
            age in prop::option::of(0..1000_u64),
            read in (0..20_u64, prop::option::of(0..1000_u64)),
            bytes in prop::option::of(0..500_u64),
            more in (0..200_u64, 0..200_u64, 0..200_u64),
            now in 0..1500_u64,
        ) {
            let segments = segments(&rows, active);
            let of = |age_max, bytes_max, now| {
                let read_age_max = [read.1, age_max].into_iter().flatten().min();
                let bounds = Bounds { age_max, read_age_max, bytes_max, resolved: true };
                expired(segments.iter(), bounds, Offset(read.0), WallTime(now))
            };
            let gone = of(age, bytes, now);
            prop_assert!(gone <= rows.len());
            prop_assert!(of(age.map(|age| age + more.0), bytes.map(|bytes| bytes + more.1), now) <= gone);
            prop_assert!(of(age, bytes, now.saturating_sub(more.2)) <= gone);
            prop_assert!(of(None, bytes, now) <= gone && of(age, None, now) <= gone);
            prop_assert!(read.1.is_some() || of(None, None, now) == 0);
            if age.is_none() && read.1.is_none() {
                let left: u64 = rows[gone..].iter().map(|(_, bytes)| bytes).sum();
                prop_assert!(bytes.is_none_or(|bytes| left <= bytes));
            }
        }
    }
}
