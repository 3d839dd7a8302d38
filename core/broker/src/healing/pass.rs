//! Looking through the tables for what has to be done.
//!
//! Owns which segments are ended or looked at, and why. Takes time in proportion to the segments of the vnodes that are
//! led here, a few times a minute.

use std::ops::Bound;

use metadata::vnode::Segment;
use storage::store;
use types::{Instant, NodeId, RangeId, SegmentId, VnodeId};

use super::{AWAY_AFTER, MENDS_WAITING_MAX, NEVER_SEEN_AFTER, What};
use crate::action::Cause;
use crate::copies::CopyAnswer;
use crate::node::Node;
use crate::segments::{Range, State};

/// Segments that were whole and are looked at again, and copies taken out of service, in one pass.
const AGAIN_MAX: usize = 256;

impl Node {
    /// Whether the leader of the segment's vnode is this node, and knows everything about it.
    pub(super) fn leads_segment(&self, segment: SegmentId) -> bool {
        let meta = &self.core.meta;
        meta.home(segment.range.topic).and_then(|vnode| meta.group(vnode)).is_some_and(raft::Group::is_ready)
    }

    /// The segments of the vnodes that are led here.
    fn led_segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let meta = &self.core.meta;
        let led: Vec<VnodeId> = meta.led_groups().collect();
        let of = move |vnode: VnodeId| (vnode, meta.tables_of(vnode));
        let all = led
            .into_iter()
            .map(of)
            .flat_map(|(vnode, tables)| tables.segments().map(move |(id, segment)| (vnode, id, segment)));
        // While a topic moves it may be in two.
        let home = move |topic| meta.home(topic);
        all.filter(move |(vnode, id, _)| home(id.range.topic) == Some(*vnode))
            .map(|(_, id, segment)| (id, segment))
    }

    /// Ends the segments whose primary is gone.
    pub(super) fn end_lost(&mut self) {
        let is_lost = |(_, segment): &(SegmentId, &Segment)| {
            segment.is_active() && segment.replicas.first().is_some_and(|primary| self.is_lost(*primary))
        };
        let lost: Vec<SegmentId> = self.led_segments().filter(is_lost).map(|(id, _)| id).collect();
        for segment in lost {
            self.seal_segment(segment, Cause::Lost);
        }
    }

    /// Whether a primary on that node can be counted on no more.
    fn is_lost(&self, node: NodeId) -> bool {
        if self.core.liveness.is_up(node) {
            return false;
        }
        let now = self.core.now;
        let long = |since: Option<Instant>, pause| since.is_some_and(|since| now.since(since) >= pause);
        let healing = &self.healing;
        match healing.parted.get(&node) {
            Some(since) => long(Some(*since), AWAY_AFTER),
            None => long(healing.began, NEVER_SEEN_AFTER),
        }
    }

    /// One pass.
    pub(super) fn heal(&mut self) {
        if !self.has_others() {
            return;
        }
        self.end_lost();
        self.drain_leaving();
        self.latch_damaged();
        let meta = &self.core.meta;
        let led = |segment: &SegmentId| {
            meta.home(segment.range.topic)
                .and_then(|vnode| meta.group(vnode))
                .is_some_and(raft::Group::is_ready)
        };
        self.healing.settled.retain(led);
        let meta = &self.core.meta;
        self.healing.failing.retain(|(segment, _), _| meta.lists(*segment));
        self.look_again();
        let living = self.living();
        let rf = self.core.config.segment_replicas.max(1).min(living.able.len());
        let needs = |(id, segment): &(SegmentId, &Segment)| {
            let stays = |node: &&NodeId| living.belonging.contains(node) && !living.lost.contains(node);
            let staying = segment.replicas.iter().filter(stays).count();
            let is_short = staying < segment.replicas.len() || staying < rf;
            !segment.is_active() && (is_short || !self.healing.settled.contains(id))
        };
        if self.healing.to_mend.is_empty() {
            let mut found: Vec<SegmentId> = self.led_segments().filter(needs).map(|(id, _)| id).collect();
            // Those that the last pass had no room for come first.
            let reached = self.healing.reached;
            found.sort_unstable_by_key(|id| (Some(*id) <= reached, *id));
            found.truncate(MENDS_WAITING_MAX);
            self.healing.reached = found.last().copied();
            self.healing.to_mend.extend(found);
        }
        self.mend_more();
    }

    /// Some of the segments that were whole are looked at again, so that each is before long.
    fn look_again(&mut self) {
        let healing = &mut self.healing;
        let from = healing.looked.map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<SegmentId> =
            healing.settled.range((from, Bound::Unbounded)).take(AGAIN_MAX).copied().collect();
        healing.looked = next.last().copied().filter(|_| next.len() == AGAIN_MAX);
        healing.settled.retain(|segment| next.binary_search(segment).is_err());
    }

    /// Copies here whose damage was found while they were read through go out of service, so that whoever looks after
    /// their segments sees it. Where nobody else has one, what is left of it stays as it is.
    fn latch_damaged(&mut self) {
        let has_others = |segment: &SegmentId| {
            let listed = self.core.meta.of(segment.range.topic).segment(*segment);
            listed.is_some_and(|listed| !listed.is_active() && listed.replicas.len() > 1)
        };
        let damaged = self.scrub.damaged().map(|(segment, _)| segment).filter(has_others);
        for segment in damaged.take(AGAIN_MAX).collect::<Vec<_>>() {
            let (own, reason) = (self.core.config.node, store::FailReason::Other);
            self.heal_ask(own, What::Latch { segment }, true, store::Request::Latch { segment, reason });
        }
    }

    /// That it is damaged is known to the copy from now on.
    pub(super) fn damage_latched(&mut self, segment: SegmentId, answer: &CopyAnswer) {
        if matches!(answer, CopyAnswer::Store(store::Reply::Latched)) {
            self.scrub.forget(segment);
        }
    }

    fn roll(&mut self, id: RangeId, cause: Cause) {
        if let Some(Range { state: State::Open(_), .. }) = self.ranges.get(&id) {
            self.drain(id, cause);
            self.drained(id);
        }
    }

    /// Ends the segments whose primary is here when one of their nodes is to be emptied: the next one lies elsewhere.
    fn drain_leaving(&mut self) {
        let own = self.core.config.node;
        let living = self.living();
        // Whoever is not listed yet does not leave.
        if !self.core.meta.cluster().nodes().any(|(id, _)| id == own) {
            return;
        }
        let leaves = |segment: &Segment| {
            segment.is_active()
                && segment.replicas.first() == Some(&own)
                && segment.replicas.iter().any(|node| !living.belonging.contains(node))
        };
        let active =
            self.ranges.keys().filter_map(|range| self.core.meta.of(range.topic).active_segment(*range));
        let leaving: Vec<SegmentId> = active.filter(|(_, listed)| leaves(listed)).map(|(id, _)| id).collect();
        for segment in leaving {
            self.roll(segment.range, Cause::Moved);
        }
    }
}
