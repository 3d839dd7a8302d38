//! How far readers here may go in segments that take records on other nodes.
//!
//! Owns what the primaries have told, who waits to be told, and the ranges that cannot be read for now. What this node
//! tells others of its own segments is in `serve`. Reads no record.
//!
//! There are two questions: a *look* is answered at once, for a reader that does not wait and must be given everything
//! that was acknowledged before it came; a *poll* is answered when there is more, for those that wait.
//!
//! - What a primary has told of a segment never goes back.
//! - For each range there is one look and one poll on its way at most. A poll is made only for a reader that has come
//!   to the end, and woken readers that come to it again make the next: nobody reads, nobody polls.
//! - A range that cannot be read is looked at again before long by those who wait, and is never taken for read.

mod serve;

use std::collections::BTreeMap;
use std::time::Duration;

use peer::Message;
use peer::message::part::{Watch, WatchReply};
use types::{Instant, NodeId, Offset, RangeId, SegmentId, TopicId, limits};

use crate::action::Action;
use crate::event::{AskId, RequestId};
use crate::node::Node;
use crate::reading::Reading;

pub(crate) use serve::Told;

/// How long a look may take.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// How long a poll waits for more.
const POLL_WAIT_MS: u32 = 20_000;
/// How long its answer may take.
const POLL_WITHIN: Duration = Duration::from_secs(30);
/// Pause before a range that could not be read is looked at again.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Ranges of other nodes that somebody reads here.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    ranges: BTreeMap<RangeId, Watching>,
    asks: BTreeMap<AskId, Asked>,
    /// Ranges that could not be read, and when to look again.
    lost: BTreeMap<RangeId, Instant>,
    /// Number of the last reader that must be given everything there is.
    turn: u64,
}

/// One range.
#[derive(Debug)]
struct Watching {
    segment: SegmentId,
    /// Exclusive, with the turn when it was asked for.
    end: Option<(Offset, u64)>,
    look: Option<AskId>,
    poll: Option<AskId>,
    /// Whoever waits for the look.
    readers: Vec<RequestId>,
    seekers: Vec<RequestId>,
}

/// A question on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    to: NodeId,
    segment: SegmentId,
    turn: u64,
}

impl Watches {
    /// Whether another node was asked this about the end of a segment.
    pub(crate) fn has_asked(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask)
    }

    /// A number for a reader that must be given everything that was acknowledged before it came.
    pub(crate) fn turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Exclusive end of what may be read of an active segment of another node, as far as is known.
    pub(crate) fn end_of(&self, segment: SegmentId) -> Option<Offset> {
        let watching = self.ranges.get(&segment.range).filter(|watching| watching.segment == segment)?;
        watching.end.map(|(end, _)| end)
    }

    /// Whether that was asked for since a turn.
    pub(crate) fn is_known_since(&self, segment: SegmentId, turn: u64) -> bool {
        let watching = self.ranges.get(&segment.range).filter(|watching| watching.segment == segment);
        watching.and_then(|watching| watching.end).is_some_and(|(_, asked)| asked >= turn)
    }

    /// Ranges of a topic that could not be read when somebody last tried.
    pub(crate) fn unreadable(&self, topic: TopicId) -> impl Iterator<Item = RangeId> {
        self.lost.keys().copied().filter(move |range| range.topic == topic)
    }

    /// When something that could not be read is to be looked at again.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.lost.values().min().copied()
    }

    /// Something changed that may make readable what could not be read.
    pub(crate) fn retry_soon(&mut self, now: Instant) {
        self.lost.values_mut().for_each(|at| *at = now);
    }

    /// A topic is gone.
    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        self.ranges.retain(|range, _| range.topic != topic);
        self.lost.retain(|range, _| range.topic != topic);
    }

    fn of(&mut self, segment: SegmentId) -> &mut Watching {
        let new = || Watching {
            segment,
            end: None,
            look: None,
            poll: None,
            readers: Vec::new(),
            seekers: Vec::new(),
        };
        let watching = self.ranges.entry(segment.range).or_insert_with(new);
        if watching.segment != segment {
            // Whoever waits for the other one is given this: it looks where it stands either way.
            let (readers, seekers) =
                (std::mem::take(&mut watching.readers), std::mem::take(&mut watching.seekers));
            *watching = Watching { readers, seekers, ..new() };
        }
        watching
    }
}

impl Node {
    /// The active segment of a range, when another node is primary of it.
    pub(crate) fn active_elsewhere(&self, range: RangeId) -> Option<(SegmentId, NodeId)> {
        let (segment, listed) = self.core.meta.of(range.topic).active_segment(range)?;
        let primary = listed.replicas.first().copied()?;
        (primary != self.core.config.node).then_some((segment, primary))
    }

    /// Lets a reader wait until its node is told how far it may go; `None` when that is on its way, and the reader when
    /// it cannot be.
    pub(crate) fn look_first(&mut self, id: RequestId, range: RangeId, reading: Reading) -> Option<Reading> {
        let Some(segment) = self.look(range) else { return Some(reading) };
        self.watches.of(segment).readers.push(id);
        self.reads.wait(id, reading);
        None
    }

    /// The same for a search; `false` when nobody can tell.
    pub(crate) fn look_for_seek(&mut self, id: RequestId, range: RangeId) -> bool {
        let Some(segment) = self.look(range) else { return false };
        self.watches.of(segment).seekers.push(id);
        true
    }

    /// Asks how far readers of a range may go, unless that is on its way.
    pub(crate) fn look(&mut self, range: RangeId) -> Option<SegmentId> {
        let (segment, primary) = self.active_elsewhere(range)?;
        if !self.core.liveness.is_up(primary) {
            return None;
        }
        let watching = self.watches.of(segment);
        if watching.look.is_none() {
            let known = watching.end.map_or(Offset::ZERO, |(end, _)| end);
            let ask = self.ask_end(primary, Watch { segment, known, wait_ms: 0 }, LOOK_WITHIN);
            self.watches.of(segment).look = Some(ask);
        }
        Some(segment)
    }

    /// A reader that waits has come to the end of what is known of a range: more is asked for.
    pub(crate) fn poll(&mut self, range: RangeId) {
        let Some((segment, primary)) = self.active_elsewhere(range) else { return };
        let watching = self.watches.of(segment);
        let Some((known, _)) = watching.end.filter(|_| watching.poll.is_none()) else { return };
        if !self.core.liveness.is_up(primary) {
            return self.lost(range);
        }
        let ask = self.ask_end(primary, Watch { segment, known, wait_ms: POLL_WAIT_MS }, POLL_WITHIN);
        self.watches.of(segment).poll = Some(ask);
    }

    fn ask_end(&mut self, to: NodeId, watch: Watch, within: Duration) -> AskId {
        let ask = self.core.meta.ask_id();
        self.watches.asks.insert(ask, Asked { to, segment: watch.segment, turn: self.watches.turn });
        self.core.out.push(Action::Ask { to, ask, message: Message::Watch(watch), within });
        ask
    }

    /// A range cannot be read for now: those who wait look at it again before long.
    pub(crate) fn lost(&mut self, range: RangeId) {
        let at = self.core.now.plus(RETRY_AFTER);
        self.watches.lost.entry(range).or_insert(at);
    }

    /// A primary told how far readers may go, or will not.
    pub(crate) fn watch_answered(&mut self, ask: AskId, reply: Option<WatchReply>) {
        let Some(Asked { segment, turn, .. }) = self.watches.asks.remove(&ask) else { return };
        let range = segment.range;
        let watching = self.watches.ranges.get_mut(&range).filter(|watching| watching.segment == segment);
        let Some(watching) = watching else { return };
        let (is_look, is_poll) = (watching.look == Some(ask), watching.poll == Some(ask));
        if !is_look && !is_poll {
            return;
        }
        let end = match reply {
            Some(WatchReply::Committed { end }) => Some(end),
            Some(WatchReply::Ended | WatchReply::NotPrimary { .. } | WatchReply::Overloaded) | None => None,
        };
        let before = watching.end;
        if let Some(end) = end {
            let (furthest, asked) = before.unwrap_or((end, turn));
            watching.end = Some((furthest.max(end), asked.max(turn)));
        }
        let has_more = watching.end.map(|(end, _)| end) != before.map(|(end, _)| end);
        let (mut readers, mut seekers) = (Vec::new(), Vec::new());
        if is_look {
            watching.look = None;
            readers = std::mem::take(&mut watching.readers);
            seekers = std::mem::take(&mut watching.seekers);
        } else {
            watching.poll = None;
        }
        if end.is_none() {
            self.lost(range);
        }
        self.looked(range, end.is_some(), readers, seekers);
        if end.is_some() && (is_poll || has_more) {
            self.wake_range(range);
        }
    }

    /// Those who waited for a look go on; without an answer, past the range.
    fn looked(&mut self, range: RangeId, told: bool, readers: Vec<RequestId>, seekers: Vec<RequestId>) {
        for id in readers {
            let Some(mut reading) = self.reads.resume(id) else { continue };
            if !told {
                self.pass_lost(range, &mut reading);
            }
            self.read_on(id, reading);
        }
        for id in seekers {
            self.seek_looked(id, told);
        }
    }

    fn wake_range(&mut self, range: RangeId) {
        if let Some(name) = self.topic_name(range.topic) {
            self.wake(&name, Some(range));
        }
    }

    /// The active segment of a range may be another one, or none: what was known of the last is of no use any more.
    pub(crate) fn watch_changed(&mut self, range: RangeId) {
        let active = self.active_elsewhere(range).map(|(segment, _)| segment);
        let outdated = self.watches.ranges.get(&range).is_some_and(|w| active != Some(w.segment));
        let was_lost = self.watches.lost.remove(&range).is_some();
        if outdated && let Some(watching) = self.watches.ranges.remove(&range) {
            let Watching { readers, seekers, .. } = watching;
            self.looked(range, true, readers, seekers);
        }
        if outdated || was_lost || active.is_some() {
            self.wake_range(range);
        }
    }

    /// The same for every range of which something is known.
    pub(crate) fn watches_changed(&mut self) {
        let known = self.watches.ranges.keys().chain(self.watches.lost.keys());
        let known: std::collections::BTreeSet<RangeId> = known.copied().collect();
        known.into_iter().for_each(|range| self.watch_changed(range));
    }

    /// The connection to a node is another one, or none: nothing asked over the last one is answered.
    pub(crate) fn watches_parted(&mut self, node: NodeId) {
        let lost = self.watches.asks.iter().filter(|(_, asked)| asked.to == node);
        let lost: Vec<AskId> = lost.map(|(ask, _)| *ask).collect();
        for ask in lost {
            self.watch_answered(ask, None);
        }
        self.told.parted(node);
    }

    /// Looks again at what could not be read, and answers those who have waited for as long as they would.
    pub(crate) fn keep_watches(&mut self) {
        let now = self.core.now;
        let due = self.watches.lost.iter().filter(|(_, at)| **at <= now).take(limits::LOST_LOOKS_MAX);
        let due: Vec<RangeId> = due.map(|(range, _)| *range).collect();
        for range in due {
            self.watches.lost.remove(&range);
            self.wake_range(range);
        }
        self.answer_due_watchers();
    }
}
