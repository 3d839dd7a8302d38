//! What this node tells others of how far readers may go in the segments it is primary of.
//!
//! Owns who waits to be told. What may be read is said by `segments`.
//!
//! - Nobody is told of more than a quorum has synced, and everybody who waits is told once.
//! - So many may wait, of all nodes together; one more is told that there is too much to do.

use std::collections::BTreeMap;
use std::time::Duration;

use peer::Message;
use peer::message::part::{Watch, WatchReply};
use types::{Instant, NodeId, Offset, RangeId, SegmentId, limits};

use crate::action::Action;
use crate::event::CallId;
use crate::node::Node;
use crate::segments::Range;

/// Longest wait.
const WAIT_MS_MAX: u32 = 30_000;

/// Other nodes that wait to be told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    parked: BTreeMap<RangeId, Vec<Parked>>,
    count: usize,
    /// Nobody has waited long enough before.
    due_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    node: NodeId,
    call: CallId,
    segment: SegmentId,
    known: Offset,
    until: Instant,
}

impl Told {
    fn park(&mut self, parked: Parked) -> bool {
        if self.count >= limits::WATCHERS_MAX {
            return false;
        }
        self.count += 1;
        self.due_at = Some(self.due_at.map_or(parked.until, |at| at.min(parked.until)));
        self.parked.entry(parked.segment.range).or_default().push(parked);
        true
    }

    fn take(&mut self, range: Option<RangeId>, wanted: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let mut taken = Vec::new();
        let ranges: Vec<RangeId> = match range {
            Some(range) => vec![range],
            None => self.parked.keys().copied().collect(),
        };
        for range in ranges {
            let Some(parked) = self.parked.get_mut(&range) else { continue };
            taken.extend(parked.extract_if(.., |parked| wanted(parked)));
            if parked.is_empty() {
                self.parked.remove(&range);
            }
        }
        self.count -= taken.len();
        taken
    }

    /// A node is gone: nobody there waits any more.
    pub(crate) fn parted(&mut self, node: NodeId) {
        self.take(None, |parked| parked.node == node);
    }

    /// When somebody has waited long enough.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due_at
    }

    fn take_due(&mut self, now: Instant) -> Vec<Parked> {
        if self.due_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let due = self.take(None, |parked| parked.until <= now);
        self.due_at = self.parked.values().flatten().map(|parked| parked.until).min();
        due
    }
}

impl Node {
    /// Another node asks how far readers may go.
    pub(crate) fn watch_for(&mut self, node: NodeId, call: CallId, watch: Watch) {
        let Watch { segment, known, wait_ms } = watch;
        let reply = match self.how_far(segment) {
            WatchReply::Committed { end } if end <= known && wait_ms > 0 => {
                let until = self.core.now.plus(Duration::from_millis(u64::from(wait_ms.min(WAIT_MS_MAX))));
                let parked = self.told.park(Parked { node, call, segment, known, until });
                (!parked).then_some(WatchReply::Overloaded)
            }
            reply @ (WatchReply::Committed { .. }
            | WatchReply::Ended
            | WatchReply::NotPrimary { .. }
            | WatchReply::Overloaded) => Some(reply),
        };
        if let Some(reply) = reply {
            self.tell_watcher(node, call, reply);
        }
    }

    fn how_far(&self, segment: SegmentId) -> WatchReply {
        let unknown = WatchReply::NotPrimary { hint: None };
        if !self.serves() {
            return unknown;
        }
        let vnode = self.core.meta.of(segment.range.topic);
        let Some(listed) = vnode.segment(segment) else { return unknown };
        if !listed.is_active() {
            return WatchReply::Ended;
        }
        let hint = listed.replicas.first().copied();
        if hint != Some(self.core.config.node) {
            return WatchReply::NotPrimary { hint };
        }
        match self.ranges.get(&segment.range).and_then(Range::committed_end) {
            Some(end) => WatchReply::Committed { end },
            // An earlier process left it: where it ends is being found out.
            None => WatchReply::Ended,
        }
    }

    /// Something happened in a range: those who wait to be told are, if there is something to tell.
    pub(crate) fn tell_watchers(&mut self, range: RangeId) {
        let Some(segment) = self.told.parked.get(&range).and_then(|parked| Some(parked.first()?.segment))
        else {
            return;
        };
        let reply = self.how_far(segment);
        let has_news = |parked: &Parked| match reply {
            WatchReply::Committed { end } => parked.segment != segment || end > parked.known,
            WatchReply::Ended | WatchReply::NotPrimary { .. } | WatchReply::Overloaded => true,
        };
        for Parked { node, call, segment, .. } in self.told.take(Some(range), has_news) {
            let reply = self.how_far(segment);
            self.tell_watcher(node, call, reply);
        }
    }

    /// Those who have waited for as long as they would are told what they know already.
    pub(super) fn answer_due_watchers(&mut self) {
        let now = self.core.now;
        for Parked { node, call, segment, .. } in self.told.take_due(now) {
            let reply = self.how_far(segment);
            self.tell_watcher(node, call, reply);
        }
    }

    fn tell_watcher(&mut self, to: NodeId, call: CallId, reply: WatchReply) {
        self.core.out.push(Action::Answer { to, call, message: Message::WatchReply(reply) });
    }
}
