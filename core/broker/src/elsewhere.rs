//! What was decided without this node having asked, or after it had given up waiting.
//!
//! Owns what each change of a vnode's tables means to what this node holds in memory: ranges that end, topics that are
//! gone, readers that wait. Decides nothing. Whoever asked hears from the subject itself; here nobody waits, and doing
//! it twice does no harm.

use metadata::vnode::{Command, RangeState, Removed};
use types::{RangeId, SegmentId, TopicId, VnodeId};

use crate::node::Node;
use crate::segments::{Range, State};

impl Node {
    /// Another node's command was applied, or one of this node's that it had given up.
    pub(crate) fn decided_elsewhere(&mut self, command: &Command, removed: Vec<Removed>) {
        match command {
            Command::CreateTopic(create) => self.wake(&create.name, None),
            Command::SealTopic { topic } => {
                self.ranges_of(*topic).into_iter().for_each(|range| self.retire(range));
            }
            Command::DeleteTopic { topic } => {
                let segments = removed.into_iter().map(|removed| removed.segment);
                self.topic_gone(*topic, segments.collect());
            }
            Command::SplitRange { range } | Command::SplitByLoad { range } => {
                self.retire(*range);
                self.ranges_changed(*range);
            }
            Command::MergeRanges { a, b } | Command::MergeByLoad { a, b } => {
                self.retire(*a);
                self.retire(*b);
                self.ranges_changed(*a);
            }
            Command::RegisterSegment(register) => {
                self.take_up_leftover(register.segment.range);
                self.watch_changed(register.segment.range);
            }
            Command::SealSegment(seal) => {
                self.sealed_elsewhere(seal.segment);
                self.watch_changed(seal.segment.range);
                self.ended_by(seal.segment);
            }
            Command::DeleteSegment { segment } => self.remove_if_here(*segment),
            // Nothing in memory hangs on these.
            Command::BindTopicPolicy { .. }
            | Command::SetSegmentReplicas(_)
            | Command::CommitPositions { .. }
            | Command::ExpireGroup(_)
            | Command::BeginMigration(_)
            | Command::EndMigration(_)
            | Command::ExtractTopic(_)
            | Command::InsertTopic { .. }
            | Command::SetArc(_)
            | Command::Upgrade { .. } => {}
        }
    }

    /// The tables of a vnode went on over entries that this node never saw: everything is compared with them.
    pub(crate) fn tables_jumped(&mut self, vnode: VnodeId) {
        let ranges: Vec<RangeId> = self.ranges.keys().copied().collect();
        let there = |id: &RangeId| self.core.meta.home(id.topic) == Some(vnode);
        let ranges = ranges.into_iter().filter(there).collect();
        self.compare(ranges);
        self.watches_changed();
    }

    /// A topic is another vnode's now, and what came last at the one before may not have come here one by one.
    pub(crate) fn topic_moved(&mut self, topic: TopicId) {
        self.compare(self.ranges_of(topic));
        let name = self.topic_name(topic);
        self.reassign_topic(topic);
        if let Some(name) = name {
            self.wake(&name, None);
        }
    }

    /// A topic that was on its way to another vnode was deleted there.
    pub(crate) fn topic_vanished(&mut self, topic: TopicId) {
        let copies = self.core.copies().map(|(segment, _)| segment);
        let copies = copies.filter(|segment| segment.range.topic == topic).collect();
        self.topic_gone(topic, copies);
    }

    /// Compares what is here of ranges with the tables.
    fn compare(&mut self, ranges: Vec<RangeId>) {
        for id in ranges {
            if let Some(segment) = self.ranges.get(&id).and_then(Range::segment) {
                self.recorded_after_all(id, segment);
            }
            match self.core.meta.of(id.topic).range(id).map(|range| range.state) {
                None => self.topic_vanished(id.topic),
                Some(RangeState::Active) => self.take_up_leftover(id),
                Some(RangeState::Replaced | RangeState::Sealed) => {
                    self.retire(id);
                    self.ranges_changed(id);
                }
            }
        }
    }

    fn topic_gone(&mut self, topic: TopicId, segments: Vec<SegmentId>) {
        let names = self.topics.iter().filter(|(_, id)| **id == topic).map(|(name, _)| name.clone());
        let names: Vec<_> = names.collect();
        self.drop_topic(topic);
        self.watches.forget_topic(topic);
        self.end_streams_of(topic);
        segments.into_iter().for_each(|segment| self.remove_if_here(segment));
        for name in names {
            self.topics.remove(&name);
            self.wake(&name, None);
        }
    }

    fn remove_if_here(&mut self, segment: SegmentId) {
        if self.core.copies().any(|(copy, _)| copy == segment) {
            self.remove_copy(segment);
        }
    }

    /// A segment ended: what waits behind it goes on, also what this node was still ending itself.
    pub(crate) fn sealed_elsewhere(&mut self, segment: SegmentId) {
        let id = segment.range;
        if !self.recorded_after_all(id, segment) {
            self.ancestor_ended(id);
            self.wake_past(id);
        }
    }

    /// The tables have an active segment of this node that it never opened in this process: it is ended like any other
    /// that an earlier process left.
    pub(crate) fn take_up_leftover(&mut self, id: RangeId) {
        let active = self.core.meta.of(id.topic).active_segment(id);
        let own = active.filter(|(_, listed)| listed.replicas.first() == Some(&self.core.config.node));
        let Some((segment, base)) = own.map(|(segment, listed)| (segment, listed.start)) else { return };
        self.know_range(id);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if matches!(range.state, State::Idle) && self.serves() {
            if let Some(range) = self.ranges.get_mut(&id) {
                range.state = State::Stale { segment, base };
            }
            self.stale.insert(id);
            self.end_more_stale();
        }
    }
}
