//! Ranges that are split and merged by what they take and hold, without anybody asking.
//!
//! Owns what the leader of a vnode was told of its ranges, the look at it now and then, and the changes on their way.
//! What a range takes is counted by its primary (`meter`) and told in a message of a few bytes for each range that
//! took something or has a neighbour (`report`). What is to be done is decided in `decide`, from that and the tables;
//! why a range stands at a limit is told by `told`, with the same words. Does not move a record: a change is a command
//! like one of a person, and everything behind it is the same.
//!
//! Nothing of it is durable. A leader that is new waits as long as one that has just started, so that a change of the
//! lead makes splits later, never more of them.
//!
//! Invariants:
//! - only the leader of a topic's vnode changes its ranges by itself, one at a time;
//! - a split that has to go deeper, because all keys lie in one half, goes on from its own result: nobody looks again
//!   in between.

mod decide;
mod meter;
mod report;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::vnode::{SegmentState, Vnode};
use types::{Instant, KeySpan, RangeId, RangeSeq, TopicId, VnodeId};

use self::decide::{Change, History, Leaf, Topic};
use self::report::Heard;
use crate::meta::{self, CLUSTER};
use crate::node::Node;
use crate::upkeep::{Limit, Notice};

pub(crate) use meter::Meter;
pub(crate) use told::Standing;

/// Ranges looked at in one step, so that a look at many does not hold up everything else.
const RANGES_PER_STEP: usize = 1_000;
/// Pause between two steps of a look.
const BETWEEN_STEPS: Duration = Duration::from_millis(1);
/// Changes begun in one look.
const CHANGES_PER_LOOK: usize = 16;
/// What the cluster has is counted again after that.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// What a node knows for it.
#[derive(Debug, Default)]
pub(crate) struct Resizes {
    /// When the next report goes out, and when the last one did; there once the node serves.
    report: Option<(Instant, Instant)>,
    /// When the next look begins.
    due: Option<Instant>,
    look: Option<Look>,
    heard: BTreeMap<RangeId, Heard>,
    histories: BTreeMap<TopicId, History>,
    /// Splits on their way, with the block that is to be cut last, and merges.
    going: BTreeMap<TopicId, Option<KeySpan>>,
    /// Ranges that would be split, and why they are not.
    limited: BTreeMap<RangeId, Limit>,
    /// Ranges of the cluster that take records, and when they were counted.
    counted: Option<(Instant, usize)>,
}

/// One pass through the vnodes this node leads.
#[derive(Debug)]
struct Look {
    vnode: VnodeId,
    /// Behind this range.
    after: Option<RangeId>,
    changes: usize,
}

impl Resizes {
    /// A topic is gone.
    pub(crate) fn forget(&mut self, topic: TopicId) {
        self.histories.remove(&topic);
        self.heard.retain(|range, _| range.topic != topic);
        self.limited.retain(|range, _| range.topic != topic);
    }
}

impl Node {
    /// Tells what ranges take, and looks at what was told.
    pub(crate) fn keep_resizing(&mut self) {
        if !self.serves() || !self.core.config.resize.on {
            return;
        }
        self.report_loads();
        let now = self.core.now;
        let every = self.core.config.resize.every;
        let due = *self.resizes.due.get_or_insert(now.plus(every));
        if self.resizes.look.is_none() && due <= now {
            self.resizes.due = Some(now.plus(every));
            self.resizes.forget_old(now);
            let first = self.vnodes_led().min();
            self.resizes.look = first.map(|vnode| Look { vnode, after: None, changes: 0 });
        }
        self.go_on_looking();
    }

    /// When there is something to do.
    pub(crate) fn next_resizing(&self) -> Option<Instant> {
        if !self.core.config.resize.on {
            return None;
        }
        let look = self.resizes.look.as_ref().map(|_| self.core.now.plus(BETWEEN_STEPS));
        let report = self.resizes.report.map(|(next, _)| next);
        [look, report, self.resizes.due].into_iter().flatten().min()
    }

    fn vnodes_led(&self) -> impl Iterator<Item = VnodeId> {
        self.core.meta.led_groups().filter(|group| *group != CLUSTER)
    }

    /// Looks at some topics. Those of a vnode that this node leads no more are left to the node that does.
    fn go_on_looking(&mut self) {
        let Some(Look { vnode, after, changes }) = self.resizes.look.take() else { return };
        let meta = &self.core.meta;
        let ranges = meta.leads(vnode).then(|| meta.tables_of(vnode).ranges_after(after));
        let ranges: Vec<RangeId> =
            ranges.into_iter().flatten().map(|(id, _)| id).take(RANGES_PER_STEP).collect();
        let more = ranges.len() == RANGES_PER_STEP;
        let topics: BTreeSet<TopicId> = ranges.iter().map(|range| range.topic).collect();
        // A topic is looked at as a whole.
        let after = topics.last().map(|topic| RangeId { topic: *topic, seq: RangeSeq(u64::MAX) });
        let mut changes = changes;
        for topic in topics {
            changes += usize::from(self.look_at_topic(topic, changes < CHANGES_PER_LOOK));
        }
        let next = match self.vnodes_led().filter(|led| *led > vnode).min() {
            _ if more => Some((vnode, after)),
            next => next.map(|vnode| (vnode, None)),
        };
        self.resizes.look = next.map(|(vnode, after)| Look { vnode, after, changes });
    }

    /// Looks at the ranges of a topic; whether one is changed.
    fn look_at_topic(&mut self, id: TopicId, may_change: bool) -> bool {
        if self.resizes.going.contains_key(&id) {
            return false;
        }
        let of_topic =
            RangeId { topic: id, seq: RangeSeq(0) }..=RangeId { topic: id, seq: RangeSeq(u64::MAX) };
        let is_heard = self.resizes.heard.range(of_topic).next().is_some();
        let vnode = self.core.meta.of(id);
        let Some(listed) = vnode.topic(id) else { return false };
        let ranges_ever = listed.next_range_seq.0;
        if !is_heard && vnode.active_ranges_of(id).nth(1).is_none() {
            self.resizes.histories.remove(&id);
            return false;
        }
        let leaves = self.leaves_of(id);
        let ranges_in_cluster = self.ranges_in_cluster();
        let topic = Topic { leaves: &leaves, ranges_ever, ranges_in_cluster };
        let history = self.resizes.histories.entry(id).or_default();
        let (change, limited) = history.look(&self.core.config.resize, self.core.now, &topic);
        if history.is_empty() {
            self.resizes.histories.remove(&id);
        }
        self.note_limits(id, &leaves, limited);
        match change.filter(|_| may_change) {
            None => return false,
            Some(Change::Split { range, block }) => {
                self.resizes.going.insert(id, Some(block));
                self.core.split_by_load(RangeId { topic: id, seq: range });
            }
            Some(Change::Merge { low, high }) => {
                self.resizes.going.insert(id, None);
                self.core.merge_by_load([low, high].map(|seq| RangeId { topic: id, seq }));
            }
        }
        true
    }

    /// The ranges of a topic that take records, as they are known here.
    fn leaves_of(&self, topic: TopicId) -> Vec<Leaf> {
        let (now, vnode) = (self.core.now, self.core.meta.of(topic));
        let mut leaves: Vec<Leaf> = vnode
            .active_ranges_of(topic)
            .map(|(id, range)| {
                let heard = self.resizes.heard.get(&id).filter(|heard| heard.is_fresh(now));
                // What has no segment takes nothing; of one that has, its primary has to tell.
                let idle = vnode.active_segment(id).is_none().then(Default::default);
                Leaf {
                    seq: id.seq,
                    span: range.span,
                    rate: heard.map(|heard| heard.rate).or(idle),
                    keys: heard.map(|heard| (heard.keys.clone(), heard.keyless)).unwrap_or_default(),
                    held: 0,
                    may_merge: range.load_splits > 0,
                }
            })
            .collect();
        hold(vnode, topic, &mut leaves);
        leaves
    }

    /// Counted now and then: it is a cap, not a promise.
    fn ranges_in_cluster(&mut self) -> usize {
        let now = self.core.now;
        match self.resizes.counted {
            Some((at, count)) if now.since(at) < COUNT_EVERY => count,
            Some(_) | None => {
                let count = self.core.meta.vnodes().map(Vnode::leaf_count).sum();
                self.resizes.counted = Some((now, count));
                count
            }
        }
    }

    /// Tells of ranges that have come to a limit.
    fn note_limits(&mut self, topic: TopicId, leaves: &[Leaf], limited: Vec<(RangeSeq, Limit)>) {
        for leaf in leaves.iter().filter(|leaf| limited.iter().all(|(seq, _)| *seq != leaf.seq)) {
            self.resizes.limited.remove(&RangeId { topic, seq: leaf.seq });
        }
        for (seq, limit) in limited {
            let range = RangeId { topic, seq };
            if self.resizes.limited.insert(range, limit) != Some(limit) {
                let topic = self.topic_text(topic);
                self.core.upkeep(Notice::RangeLimited { topic, range, limit });
            }
        }
    }

    /// Metadata decided on a split by load.
    pub(crate) fn split_by_load(&mut self, range: RangeId, result: Result<(RangeId, RangeId), meta::Error>) {
        let block = self.resizes.going.remove(&range.topic).flatten();
        let (left, right) = match result {
            Ok(halves) => halves,
            Err(error) => return self.resize_refused(range, error),
        };
        let records_per_second = self.resizes.heard.remove(&range).map(|heard| heard.rate.records);
        self.resizes.limited.remove(&range);
        if let Some((_, count)) = &mut self.resizes.counted {
            *count += 1;
        }
        let topic = self.topic_text(range.topic);
        self.core.upkeep(Notice::RangeSplit { topic, range, records_per_second });
        self.retire(range);
        self.ranges_changed(range);
        // All that comes lies in one half: that one is the one to split.
        let vnode = self.core.meta.of(range.topic);
        let holds = |half: &RangeId| {
            let span = vnode.range(*half).map(|half| half.span);
            span.zip(block).is_some_and(|(span, block)| span.covers(block))
        };
        if let Some(half) = [left, right].into_iter().find(holds) {
            self.resizes.going.insert(range.topic, block);
            self.core.split_by_load(half);
        }
    }

    /// Metadata decided on a merge by load.
    pub(crate) fn merged_by_load(&mut self, ranges: [RangeId; 2], result: Result<RangeId, meta::Error>) {
        let [low, _] = ranges;
        self.resizes.going.remove(&low.topic);
        let child = match result {
            Ok(child) => child,
            Err(error) => return self.resize_refused(low, error),
        };
        if let Some((_, count)) = &mut self.resizes.counted {
            *count = count.saturating_sub(1);
        }
        let topic = self.topic_text(low.topic);
        self.core.upkeep(Notice::RangesMerged { topic, ranges });
        for range in ranges {
            self.resizes.heard.remove(&range);
            self.retire(range);
        }
        self.ranges_changed(child);
    }

    fn resize_refused(&mut self, range: RangeId, error: meta::Error) {
        self.core.upkeep(Notice::ResizeRefused { range, detail: error.to_string() });
    }
}

/// Gives each leaf the stored bytes of its slice, also of ranges it came from: a range that was split holds what its
/// halves will read, and what is held in them is not gone with the split.
fn hold(vnode: &Vnode, topic: TopicId, leaves: &mut [Leaf]) {
    for (id, range) in vnode.ranges_of(topic) {
        let bytes: u64 = vnode
            .segments_of(id)
            .map(|(_, segment)| match segment.state {
                SegmentState::Active => 0,
                SegmentState::Sealed(sealed) => sealed.byte_size,
            })
            .sum();
        if bytes == 0 {
            continue;
        }
        let from = leaves.partition_point(|leaf| leaf.span.end() <= range.span.start());
        for leaf in leaves[from..].iter_mut().take_while(|leaf| leaf.span.start() < range.span.end()) {
            // Of two aligned blocks that overlap one lies in the other.
            let common = leaf.span.size().min(range.span.size());
            let share = u128::from(bytes) * u128::from(common) / u128::from(range.span.size());
            leaf.held = leaf.held.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        }
    }
}
