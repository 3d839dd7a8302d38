//! Which range is split and which two are merged, from what they take and hold.
//!
//! Pure: a topic's ranges and their loads go in, at most one change comes out, and why others that would be split are
//! not. All amounts are compared in thousandths of the bound for one range, so that records, bytes and what is held
//! need no rules of their own.
//!
//! ```text
//! 0        250        750       1000      thousandths of what one range is to take
//! |--------|----------|---------|-------▶
//!  two that             is split once it was
//!  together are below   above 1000 and never below 750 for `split_after`
//!  for `merge_after` are merged
//! ```
//!
//! Invariants:
//! - under a load that stays as it is, what was split is not merged and what was merged is not split: the halves of a
//!   range together take and hold what it did;
//! - no change goes over a cap: ranges of a topic at one time, of the cluster at one time, of a topic in its life;
//! - nothing is merged that a person has split, and nothing whose load is not known.

use std::collections::BTreeMap;

use types::{Instant, KeySpan, Position, RangeSeq, limits};

use super::meter::Rate;
use crate::upkeep::{Limit, Resize};

/// A range that takes so much is split, if it goes on.
pub(super) const SPLIT_AT: u64 = 1000;
/// Until it has fallen to this it counts as going on.
const GOES_ON_AT: u64 = 750;
/// Two ranges that together are below this may become one.
const MERGE_BELOW: u64 = 250;
/// A split that leaves more than this in one half helps too little: that half is split instead.
const HALF_MAX: u64 = 800;
/// From fewer keys nothing is concluded.
const KEYS_MIN: usize = 16;
/// Of the ranges a topic may have in its life, those that splits by load leave to people.
const LEFT_TO_PEOPLE: u64 = limits::RANGES_PER_TOPIC_MAX as u64 / 2;

/// One range that takes records, as it was seen last.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) seq: RangeSeq,
    pub(super) span: KeySpan,
    /// What it takes; `None` when nobody has told of late.
    pub(super) rate: Option<Rate>,
    /// Places of keys that came, ascending, and the records without one in a thousand.
    pub(super) keys: (Vec<Position>, u16),
    /// Stored bytes of its slice, those of ranges it came from included.
    pub(super) held: u64,
    /// It came of a split that nobody asked for.
    pub(super) may_merge: bool,
}

/// A topic at one instant.
#[derive(Debug)]
pub(super) struct Topic<'a> {
    /// In the order of their spans, which tile the keyspace.
    pub(super) leaves: &'a [Leaf],
    /// Ranges it ever had.
    pub(super) ranges_ever: u64,
    /// Ranges of all topics that take records.
    pub(super) ranges_in_cluster: usize,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A range, then the half of it that holds `block`, and so on: the last to be split is `block`.
    Split { range: RangeSeq, block: KeySpan },
    /// Two halves of one block.
    Merge { low: RangeSeq, high: RangeSeq },
}

/// What was seen of a topic's ranges so far.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Since when a range takes or holds too much.
    hot: BTreeMap<RangeSeq, Instant>,
    /// Since when two take and hold little, by the lower one.
    quiet: BTreeMap<RangeSeq, (RangeSeq, Instant)>,
}

/// In thousandths of what one range is to take.
pub(super) fn load_of(rules: &Resize, rate: Rate) -> u64 {
    share(rate.records, rules.records_per_second).max(share(rate.bytes, rules.bytes_per_second))
}

/// The worse of what a range takes and what it holds, in thousandths of what one may.
pub(super) fn worst_of(rules: &Resize, rate: Rate, held: u64) -> u64 {
    let load = load_of(rules, rate);
    // What takes nothing is not helped by another place for what comes next.
    if load > 0 { load.max(size_of(rules, held)) } else { 0 }
}

/// In thousandths of what one range is to hold.
fn size_of(rules: &Resize, held: u64) -> u64 {
    share(held, rules.held_bytes)
}

fn share(amount: u64, bound: u64) -> u64 {
    u64::try_from(u128::from(amount) * 1000 / u128::from(bound.max(1))).unwrap_or(u64::MAX)
}

/// Where a range is to be cut, or why that would not help or may not be.
pub(super) fn cut_of(rules: &Resize, topic: &Topic<'_>, leaf: &Leaf) -> Result<KeySpan, Limit> {
    let block = divide(leaf.span, &leaf.keys.0, leaf.keys.1)?;
    let more = (leaf.span.size() / block.size()).ilog2() as usize + 1;
    if topic.leaves.len() + more > rules.ranges_per_topic.min(limits::ACTIVE_RANGES_PER_TOPIC_MAX) {
        return Err(Limit::Topic);
    }
    if topic.ranges_in_cluster + more > rules.ranges_in_cluster {
        return Err(Limit::Cluster);
    }
    if topic.ranges_ever + 2 * more as u64 > LEFT_TO_PEOPLE {
        return Err(Limit::History);
    }
    Ok(block)
}

/// The largest block in `span` whose halves share what comes, as far as the keys seen tell.
fn divide(span: KeySpan, keys: &[Position], keyless: u16) -> Result<KeySpan, Limit> {
    let between = |span: KeySpan| {
        let before = |end: u64| keys.partition_point(|key| u64::from(key.0) < end);
        (before(span.end()) - before(span.start())) as u64
    };
    let (all, keyless) = (between(span), u64::from(keyless.min(1000)));
    let mut block = span;
    loop {
        let (low, high) = block.split().ok_or(if block == span { Limit::Narrow } else { Limit::OneKey })?;
        let (in_low, in_high) = (between(low), between(high));
        if (all as usize) < KEYS_MIN {
            return Ok(block);
        }
        // Records without a key go everywhere in turn.
        let most = in_low.max(in_high) * (1000 - keyless) / all + keyless / 2;
        if most <= HALF_MAX {
            return Ok(block);
        }
        block = if in_low >= in_high { low } else { high };
    }
}

impl History {
    /// Takes in how the topic is now; what is to be done, and which ranges stand at a limit.
    pub(super) fn look(
        &mut self,
        rules: &Resize,
        now: Instant,
        topic: &Topic<'_>,
    ) -> (Option<Change>, Vec<(RangeSeq, Limit)>) {
        let split = self.look_for_splits(rules, now, topic);
        let merge = self.look_for_merges(rules, now, topic);
        let mut limits = Vec::new();
        let mut change = None;
        for leaf in split {
            match cut_of(rules, topic, leaf) {
                Ok(block) if change.is_none() => change = Some(Change::Split { range: leaf.seq, block }),
                Ok(_) => {}
                Err(limit) => limits.push((leaf.seq, limit)),
            }
        }
        (change.or(merge), limits)
    }

    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.hot.is_empty() && self.quiet.is_empty()
    }

    /// Ranges that have taken or held too much for long enough, the worst first.
    fn look_for_splits<'a>(&mut self, rules: &Resize, now: Instant, topic: &Topic<'a>) -> Vec<&'a Leaf> {
        let hot = std::mem::take(&mut self.hot);
        let mut long = Vec::new();
        for leaf in topic.leaves {
            let Some(rate) = leaf.rate else { continue };
            let worst = worst_of(rules, rate, leaf.held);
            let since = hot.get(&leaf.seq).copied().filter(|_| worst >= GOES_ON_AT);
            let Some(since) = since.or((worst >= SPLIT_AT).then_some(now)) else { continue };
            self.hot.insert(leaf.seq, since);
            if now.since(since) >= rules.split_after {
                long.push((worst, leaf));
            }
        }
        long.sort_by_key(|(worst, leaf)| (std::cmp::Reverse(*worst), leaf.seq));
        long.into_iter().map(|(_, leaf)| leaf).collect()
    }

    /// Two that have been quiet for the longest, if that is long enough.
    fn look_for_merges(&mut self, rules: &Resize, now: Instant, topic: &Topic<'_>) -> Option<Change> {
        let quiet = std::mem::take(&mut self.quiet);
        let mut longest: Option<(Instant, Change)> = None;
        for pair in topic.leaves.windows(2) {
            let [low, high] = pair else { continue };
            let (Some(one), Some(other)) = (low.rate, high.rate) else { continue };
            let load = load_of(rules, one).saturating_add(load_of(rules, other));
            let size = size_of(rules, low.held).saturating_add(size_of(rules, high.held));
            let is_pair = low.span.is_buddy_of(high.span) && low.may_merge && high.may_merge;
            if !is_pair || load.max(size) >= MERGE_BELOW {
                continue;
            }
            let known = quiet.get(&low.seq).filter(|(with, _)| *with == high.seq);
            let since = known.map_or(now, |(_, since)| *since);
            self.quiet.insert(low.seq, (high.seq, since));
            let is_long = now.since(since) >= rules.merge_after;
            if is_long && longest.is_none_or(|(other, _)| since < other) {
                longest = Some((since, Change::Merge { low: low.seq, high: high.seq }));
            }
        }
        longest.map(|(_, change)| change)
    }
}
