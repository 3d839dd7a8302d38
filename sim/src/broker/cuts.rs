//! What the node was in the middle of when its process ended.
//!
//! Counted so that it can be required: a promise that holds through a crash at any moment is only shown to hold at
//! the moments at which there were crashes. Judges nothing.

use std::collections::BTreeSet;

use types::{RangeId, TopicId};

use super::world::World;

/// Ends of processes, by what they interrupted. One may count more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// A topic was being made, or was made and nothing was acknowledged in it yet.
    pub in_birth: u64,
    /// A segment that is full or old was on its way to being sealed.
    pub in_roll: u64,
    /// A split or merge was decided, and one of its children had no segment yet.
    pub in_split: u64,
    /// Of these, the parent's segment had not ended.
    pub in_handover: u64,
}

impl Cuts {
    pub(super) fn add(&mut self, other: Self) {
        self.in_birth += other.in_birth;
        self.in_roll += other.in_roll;
        self.in_split += other.in_split;
        self.in_handover += other.in_handover;
    }
}

/// What has begun in this lifetime.
#[derive(Debug, Default)]
pub(super) struct Begun {
    pub(super) topics: BTreeSet<TopicId>,
    /// Ranges that were split or merged.
    pub(super) replaced: BTreeSet<RangeId>,
}

impl World {
    /// The process is about to end.
    pub(super) fn count_cut(&mut self) {
        let Some(process) = self.process.as_ref().filter(|process| process.ready) else { return };
        let begun = std::mem::take(&mut self.begun);
        let gauges = process.node.gauges();
        let model = &self.model;
        let current = || model.names.iter().filter_map(|name| name.current).map(|at| &model.topics[at]);
        let unborn = model.names.iter().any(|name| !name.creating.is_empty());
        let young = current().any(|topic| begun.topics.contains(&topic.id) && topic.log.due() == 0);
        let (mut split, mut handover) = (false, false);
        for topic in current() {
            for (number, child) in topic.ranges.leaves() {
                let parents: Vec<RangeId> =
                    child.parents.iter().map(|parent| topic.range_id(*parent)).collect();
                let now = parents.iter().any(|parent| begun.replaced.contains(parent));
                if now && !model.segments.was_ever_opened(topic.range_id(number)) {
                    split = true;
                    handover |= parents.iter().any(|parent| model.segments.active(*parent).is_some());
                }
            }
        }
        self.summary.cuts.add(Cuts {
            in_birth: (unborn || young).into(),
            in_roll: (gauges.rolling_segments > 0).into(),
            in_split: split.into(),
            in_handover: handover.into(),
        });
    }
}
