//! The life of a range's active segment: opened on demand, appended to, handed to `ending`.
//!
//! Owns, for each range this node is primary of, which segment takes appends, what is in flight to it and
//! which produce requests wait for one. Does not route, answer reads or decide where replicas lie.
//!
//! Invariants:
//! - A copy is created only after its registration has committed in metadata.
//! - Offsets are given out here and nowhere else, and only to a segment opened in this process lifetime.
//! - A produce is answered `Stored` only after the store said that everything up to its end is durable.
//! - `appended_at` never decreases within a range.
//!
//! ```text
//! Idle ─▶ (Blocked ─▶) Registering ─▶ Creating ─▶ Open ─▶ Ending ─▶ Idle
//!                                       ▲ │                  ▲ │
//!                                Unmade ┘ ◀┘   Stale ────────┘ └▶ Stopped
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use metadata::vnode::RangeState;
use storage::format::batch::{Batch, Flags, Header, Producer, Seed};
use storage::store;
use types::{Epoch, Instant, Offset, RangeId, SegmentId, Stamp, WallTime};

use crate::action::{Cause, Notice};
use crate::ending::{Ending, Step};
use crate::followers::Crew;
use crate::meta::{self, Registered};
use crate::node::{Node, Owner};
use crate::place::Records;
use crate::planted::Bug;
use crate::produce::{self, Asker};
use crate::producers::{Judged, Producers};
use crate::resize::Meter;

/// Epoch a registration gives.
pub(crate) const EPOCH_FIRST: Epoch = Epoch(1);
/// How often old segments are looked for.
const AGE_TICK: Duration = Duration::from_secs(5);
/// Pause before something that failed on a disk is tried again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What this node knows of a range beyond the metadata.
#[derive(Debug)]
pub(crate) struct Range {
    /// The topic's name, as its waiters are indexed.
    pub(crate) topic: Bytes,
    /// Where its active segment stands.
    pub(crate) state: State,
    /// The copies of that segment on other nodes, when there are any.
    pub(crate) crew: Option<Box<Crew>>,
    /// Requests that wait for a segment, in arrival order. Counted in the node's load.
    pub(crate) waiting: VecDeque<Waiting>,
    /// Lower bound for the time of the next batch.
    pub(crate) appended_at: WallTime,
    /// Since when requests wait for the range's parents to end.
    pub(crate) paused_at: Option<Instant>,
    /// What is remembered of producers that repeat themselves.
    pub(crate) producers: Box<Producers>,
    /// What it takes.
    pub(crate) meter: Meter,
}

/// Where a range's active segment stands.
#[derive(Debug)]
pub(crate) enum State {
    /// There is none; the next produce opens one.
    Idle,
    /// A parent's segment is on its way to being sealed, and somebody waits.
    Blocked,
    /// Its registration is on its way through metadata.
    Registering,
    /// Registered; its copy could not be made. Tried again by the first produce after this instant.
    Unmade { segment: SegmentId, base: Offset, retry_at: Instant },
    /// Registered; its copy is being made.
    Creating { segment: SegmentId, base: Offset },
    /// Takes appends.
    Open(Open),
    /// Active since an earlier process lifetime: must be ended before anything is appended.
    Stale { segment: SegmentId, base: Offset },
    /// On its way to being sealed.
    Ending(Ending),
    /// Its only copy is out of service. Nothing is appended until a person has looked.
    Stopped,
}

/// A segment that takes appends.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) segment: SegmentId,
    pub(crate) seed: Seed,
    pub(crate) base: Offset,
    /// Exclusive end of what was given out.
    pub(crate) appended_end: Offset,
    /// Exclusive end of what may be read: synced on a quorum, and here.
    pub(crate) committed_end: Offset,
    /// Bytes of the frames given out.
    pub(crate) bytes: u64,
    /// When it began to take appends.
    pub(crate) opened_at: Instant,
    /// Appends the store has not answered, in order.
    pub(crate) in_flight: VecDeque<InFlight>,
}

/// One append on its way.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) asker: Asker,
    pub(crate) count: u32,
    pub(crate) bytes: usize,
    /// Exclusive end of the batch.
    pub(crate) end: Offset,
    /// When it was given that.
    pub(crate) at: Instant,
    /// What it brings, where it may turn out that it was not stored.
    pub(crate) records: Option<Records>,
    /// Who has asked for the same again.
    pub(crate) echoes: Vec<Waiting>,
}

/// One produce that has no segment yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) asker: Asker,
    pub(crate) records: Records,
}

impl Waiting {
    pub(crate) fn bytes(&self) -> usize {
        self.records.records.len()
    }
}

impl Range {
    pub(crate) fn new(topic: Bytes, state: State, appended_at: WallTime) -> Self {
        let (waiting, producers, meter) = (VecDeque::new(), Box::default(), Meter::default());
        Self { topic, state, crew: None, waiting, appended_at, paused_at: None, producers, meter }
    }

    /// Whether this node is at something that its records go to, or wait for.
    pub(crate) fn is_at_work(&self) -> bool {
        match &self.state {
            State::Open(_) | State::Registering | State::Creating { .. } => true,
            State::Idle
            | State::Blocked
            | State::Unmade { .. }
            | State::Stale { .. }
            | State::Ending(_)
            | State::Stopped => !self.waiting.is_empty(),
        }
    }

    /// The segment that this node has to do with, if there is one.
    pub(crate) fn segment(&self) -> Option<SegmentId> {
        match &self.state {
            State::Unmade { segment, .. }
            | State::Creating { segment, .. }
            | State::Stale { segment, .. } => Some(*segment),
            State::Open(open) => Some(open.segment),
            State::Ending(ending) => Some(ending.segment),
            State::Idle | State::Blocked | State::Registering | State::Stopped => None,
        }
    }

    /// First offset of that segment.
    pub(crate) fn segment_base(&self) -> Option<Offset> {
        match &self.state {
            State::Unmade { base, .. } | State::Creating { base, .. } | State::Stale { base, .. } => {
                Some(*base)
            }
            State::Open(open) => Some(open.base),
            State::Ending(ending) => Some(ending.base),
            State::Idle | State::Blocked | State::Registering | State::Stopped => None,
        }
    }

    /// Whether its segment ends, which this node does not do by itself: nothing is taken before that.
    pub(crate) fn is_others_to_end(&self) -> bool {
        match &self.state {
            State::Ending(ending) => ending.is_stuck() && ending.is_others_to_end(),
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Open(_)
            | State::Stale { .. }
            | State::Stopped => false,
        }
    }

    /// Exclusive end of what may be read while a segment takes appends.
    pub(crate) fn open_end(&self) -> Option<Offset> {
        match &self.state {
            State::Open(open) => Some(open.committed_end),
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Ending(_)
            | State::Stopped => None,
        }
    }

    /// The appends the store has not answered.
    pub(crate) fn into_in_flight(self) -> VecDeque<InFlight> {
        match self.state {
            State::Open(open) => open.in_flight,
            State::Ending(ending) => ending.in_flight,
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => VecDeque::new(),
        }
    }

    /// Exclusive end of what may be read of the segment that is active in metadata, if there is one and its
    /// end is known. `None` when only the copy knows.
    pub(crate) fn committed_end(&self) -> Option<Offset> {
        match &self.state {
            State::Open(open) => Some(open.committed_end),
            State::Ending(ending) => ending.committed_end,
            State::Creating { base, .. } | State::Unmade { base, .. } => Some(*base),
            State::Idle | State::Blocked | State::Registering | State::Stale { .. } | State::Stopped => None,
        }
    }
}

impl Node {
    /// Takes a counted request for a range and appends it, or lets it wait for the segment that is on its way.
    pub(crate) fn append_to(&mut self, id: RangeId, request: Waiting) {
        let now = self.core.now;
        let Some(range) = self.ranges.get_mut(&id) else {
            return self.produced(request.asker, request.bytes(), Err(produce::Error::NoSuchTopic));
        };
        match &mut range.state {
            State::Open(_) => self.append(id, request),
            State::Idle => {
                range.waiting.push_back(request);
                self.open_next(id);
            }
            State::Blocked | State::Registering | State::Creating { .. } => range.waiting.push_back(request),
            State::Unmade { segment, base, retry_at } if *retry_at <= now => {
                let (segment, base) = (*segment, *base);
                range.waiting.push_back(request);
                self.create(id, segment, base);
            }
            State::Stale { .. } => {
                range.waiting.push_back(request);
                self.end_stale(id);
            }
            State::Ending(ending) if !ending.is_stuck() => range.waiting.push_back(request),
            State::Ending(ending) if ending.is_others_to_end() => {
                self.produced(request.asker, request.bytes(), Err(produce::Error::Unavailable));
            }
            State::Ending(_) | State::Unmade { .. } | State::Stopped => {
                self.produced(request.asker, request.bytes(), Err(produce::Error::Storage));
            }
        }
    }

    /// Proposes the next segment of a range, once none of its ancestors has an active one any more.
    pub(crate) fn open_next(&mut self, id: RangeId) {
        let open = self.core.meta.of(id.topic).open_ancestors_of(id);
        let (now, time_before) = (self.core.now, self.time_before(id).max(self.last_time(id)));
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if open.is_empty() {
            self.blocked.remove(&id);
            if !self.core.config.has_bug(Bug::TimeGoesBack) {
                range.appended_at = range.appended_at.max(time_before);
            }
            range.state = State::Registering;
            return self.core.register_segment(id);
        }
        range.state = State::Blocked;
        range.paused_at.get_or_insert(now);
        self.blocked.insert(id);
        for ancestor in &open {
            self.end_replaced(*ancestor);
        }
        let is_own = |ancestor: &RangeId| !self.is_elsewhere(*ancestor);
        if open.iter().any(|ancestor| is_own(ancestor) && self.cannot_end(*ancestor)) {
            self.unblock(id, produce::Error::Storage);
        } else if open.iter().any(|ancestor| self.is_elsewhere(*ancestor)) {
            // Its node ends it, sooner or later; nobody waits for that here.
            self.unblock(id, produce::Error::Unavailable);
        }
    }

    /// The registration was decided.
    pub(crate) fn registered(&mut self, id: RangeId, outcome: Result<Registered, meta::Error>) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        match outcome {
            Ok(Registered { segment, base }) => self.create(id, segment, base),
            Err(error) => {
                range.state = State::Idle;
                if self.is_elsewhere(id) {
                    self.place_waiting_again(id);
                } else {
                    self.refuse_waiting(id, error.into());
                }
                // One that an earlier process asked for may have been in the way.
                self.take_up_leftover(id);
            }
        }
    }

    fn create(&mut self, id: RangeId, segment: SegmentId, base: Offset) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Creating { segment, base };
        self.muster(id, segment, base);
        let expect_full = base > Offset::ZERO;
        let request =
            store::Request::Create { segment, base, epoch: EPOCH_FIRST, expect_full, rebuilding: false };
        self.core.ask(Owner::Create(segment), request);
    }

    /// The copy was made, or not.
    pub(crate) fn created(&mut self, made: SegmentId, result: Result<(), store::Error>) {
        let (now, id) = (self.core.now, made.range);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Creating { segment, base } = range.state else { return };
        if segment != made {
            return;
        }
        match result {
            Ok(()) => {
                if let Some(crew) = &mut range.crew {
                    crew.primary.own_created();
                }
                self.open_when_there(id);
            }
            // An earlier attempt got further than it could tell: what is there is ended like a leftover.
            Err(store::Error::Exists) => {
                self.end(id, Ending::new(segment, base, Cause::Failure, Step::Fencing))
            }
            Err(error) if range.crew.is_some() => {
                self.core.notice(Notice::SegmentStuck { segment, detail: error.to_string() });
                self.own_copy_failed(&error);
                self.abandon(id);
            }
            Err(error) => {
                range.state = State::Unmade { segment, base, retry_at: now.plus(RETRY_AFTER) };
                self.core.notice(Notice::SegmentStuck { segment, detail: error.to_string() });
                self.refuse_waiting(id, produce::Error::Storage);
                // If it was split meanwhile, its children wait for the end of what could not be made.
                self.end_replaced(id);
            }
        }
    }

    /// Takes appends from now on, if every copy is there that is needed for it.
    pub(crate) fn open_when_there(&mut self, id: RangeId) {
        let now = self.core.now;
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Creating { segment, base } = range.state else { return };
        if range.crew.as_ref().is_some_and(|crew| !crew.is_there()) {
            return;
        }
        range.state = State::Open(Open {
            segment,
            seed: Seed::of(segment),
            base,
            appended_end: base,
            committed_end: base,
            bytes: 0,
            opened_at: now,
            in_flight: VecDeque::new(),
        });
        let paused = range.paused_at.take().map(|since| now.since(since));
        self.resume_producers(id, segment, base);
        self.core.notice(Notice::SegmentOpened { segment, base, paused });
        self.append_waiting(id);
        // It may have been split while its segment was being made.
        self.end_replaced(id);
    }

    pub(crate) fn append_answered(
        &mut self,
        id: RangeId,
        append: &InFlight,
        result: Result<u32, produce::Error>,
    ) {
        if self.core.config.has_bug(Bug::AckEarly) {
            return;
        }
        self.produced(append.asker, append.bytes, result);
        for echo in &append.echoes {
            self.produced(echo.asker, echo.bytes(), result.map(|_| echo.records.count));
        }
        self.plant_after_answer(id, append, result);
    }

    /// Appends what waits. What goes on waiting, for what is not known of its producer yet, keeps its place.
    pub(crate) fn append_waiting(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let mut kept = VecDeque::new();
        let mut left = range.waiting.len();
        while left > 0
            && let Some(range) = self.ranges.get_mut(&id)
            && let State::Open(_) = range.state
            && let Some(next) = range.waiting.pop_front()
        {
            left -= 1;
            let before = range.waiting.len();
            self.append(id, next);
            if let Some(range) = self.ranges.get_mut(&id)
                && range.waiting.len() > before
            {
                kept.extend(range.waiting.pop_back());
            }
        }
        if let Some(range) = self.ranges.get_mut(&id) {
            kept.append(&mut range.waiting);
            range.waiting = kept;
        }
    }

    /// Ends segments that have reached their age, now and then. An empty one stays: it holds nothing to expire.
    pub(crate) fn roll_old(&mut self) {
        let now = self.core.now;
        let Some(age) = self.core.config.segment_age.filter(|_| self.age_tick_at <= now) else { return };
        self.age_tick_at = now.plus(AGE_TICK);
        let old = |range: &Range| match &range.state {
            State::Open(open) => open.bytes > 0 && now.since(open.opened_at) >= age,
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Ending(_)
            | State::Stopped => false,
        };
        let ids: Vec<RangeId> =
            self.ranges.iter().filter(|(_, range)| old(range)).map(|(id, _)| *id).collect();
        for id in ids {
            self.drain(id, Cause::Age);
            self.drained(id);
        }
    }

    /// Gives the records their offsets and hands them to the store.
    fn append(&mut self, id: RangeId, request: Waiting) {
        let (wall, now) = (self.core.wall, self.core.now);
        let roll_at = self.core.config.segment_bytes;
        let stamp = request.records.stamp;
        let judged = match stamp {
            Some(stamp) => self.judge_producer(id, stamp, request),
            None => Judged::Append(request, None),
        };
        let Judged::Append(request, rest) = judged else { return };
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Open(open) = &mut range.state else { return };
        let crew = range.crew.as_deref_mut();
        if let Some(error) = crew.as_deref().and_then(|crew| crew.refuses(request.bytes())) {
            return self.produced(request.asker, request.bytes(), Err(error));
        }
        let born = stamp.map(|stamp| stamp.born).unwrap_or_default();
        range.appended_at = range.appended_at.max(wall).max(born);
        let kept = crew.is_some().then(|| request.records.clone());
        let (asked, asked_bytes) = (request.records.count, request.bytes());
        let Records { records, count, crc, .. } = rest.unwrap_or(request.records);
        let len = records.len();
        range.meter.took(count, len);
        let looked = range.meter.turn(now, count).map(|turn| (turn, records.clone()));
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(len)
                .expect("a request's records fit in a frame, which is below 2 GiB"),
            record_count: count,
            base_offset: open.appended_end,
            append_time: range.appended_at,
            epoch: EPOCH_FIRST,
            producer: stamp.map(written).unwrap_or_default(),
            payload_crc: open.seed.combine(crc, len as u64),
        };
        open.appended_end = header.end_offset();
        open.bytes += header.frame_len();
        let end = open.appended_end;
        open.in_flight.push_back(InFlight {
            asker: request.asker,
            count: asked,
            bytes: asked_bytes,
            end,
            at: now,
            records: kept,
            echoes: Vec::new(),
        });
        if let Some(stamp) = &stamp {
            range.producers.took(stamp, open.segment, end, range.appended_at);
        }
        let (segment, full) = (open.segment, open.bytes >= roll_at);
        let batch = Batch { header, payload: records };
        // The own disk is asked last: it answers whatever it takes to reach the others.
        if let Some(crew) = crew {
            let wishes = crew.takes(&batch);
            self.perform(id, wishes);
        }
        self.plant_before_append(id, &batch);
        let owner = Owner::Append { segment, from: header.base_offset, end };
        self.core.append_to_copy(self.core.config.node, owner, segment, batch);
        if let Some((turn, records)) = looked {
            self.look_at_key(id, turn, &records);
        }
        if full {
            self.drain(id, Cause::Size);
        }
    }

    /// The store answered the appends to a segment from one offset to another. Those that succeed do so in order.
    pub(crate) fn appended(
        &mut self,
        segment: SegmentId,
        offsets: std::ops::Range<Offset>,
        result: Result<(), store::Error>,
    ) {
        let (id, end) = (segment.range, offsets.end);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if range.segment() != Some(segment) {
            return;
        }
        if range.crew.is_some() {
            return match result {
                Ok(()) => self.own_copy_synced(id, end),
                Err(error) => {
                    self.own_copy_failed(&error);
                    self.abandon(id);
                }
            };
        }
        let short = self.core.config.has_bug(Bug::SealShort);
        let (in_flight, committed_end) = match &mut range.state {
            State::Open(open) => (&mut open.in_flight, Some(&mut open.committed_end)),
            State::Ending(ending) => {
                (&mut ending.in_flight, ending.committed_end.as_mut().filter(|_| !short))
            }
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => return,
        };
        let oldest = self.core.config.has_bug(Bug::AnswerOldest);
        let Some(at) = in_flight.iter().position(|append| oldest || append.end > offsets.start) else {
            return;
        };
        let these = in_flight.iter().skip_while(|append| append.end <= offsets.start);
        let count = these.take_while(|append| append.end <= end).count().max(usize::from(oldest));
        let answered: Vec<InFlight> = in_flight.drain(at..at + count).collect();
        let Some(last) = answered.last() else { return };
        match result {
            Ok(()) => {
                assert!(at == 0, "the store acknowledged an append before an earlier one");
                if let Some(committed_end) = committed_end {
                    *committed_end = last.end;
                }
                let topic = range.topic.clone();
                for append in &answered {
                    self.append_answered(id, append, Ok(append.count));
                }
                if !(self.core.config.has_bug(Bug::ForgetWake) && last.count == 2) {
                    self.wake(&topic, Some(id));
                }
            }
            Err(error) => {
                for append in &answered {
                    self.append_answered(id, append, Err(append_error(&error)));
                }
                if !self.core.config.has_bug(Bug::IgnoreFailure) {
                    self.append_failed(id);
                }
            }
        }
        self.drained(id);
    }

    /// Answers every request that waits for a segment of this range.
    pub(crate) fn refuse_waiting(&mut self, id: RangeId, error: produce::Error) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        for request in std::mem::take(&mut range.waiting) {
            self.produced(request.asker, request.bytes(), Err(error));
        }
    }

    /// A segment ended: answers what it has of the appends on their way, and lets the others be the first that the
    /// next one takes. Without a quorum (`Err`) nobody can say what is behind those that it has.
    pub(crate) fn settle_in_flight(
        &mut self,
        id: RangeId,
        in_flight: VecDeque<InFlight>,
        stored: Result<Offset, Offset>,
    ) {
        let end = stored.unwrap_or_else(|end| end);
        let listed = self.core.meta.of(id.topic).range(id);
        let goes_on = listed.is_some_and(|range| range.state == RangeState::Active);
        let mut again = VecDeque::new();
        for mut append in in_flight {
            if append.end <= end {
                let result = stored.map(|_| append.count).map_err(|_| produce::Error::NoQuorum);
                self.append_answered(id, &append, result);
                continue;
            }
            match append.records.take() {
                None => self.append_answered(id, &append, Err(produce::Error::Storage)),
                Some(records) if goes_on => {
                    again.push_back(Waiting { asker: append.asker, records });
                    again.extend(append.echoes);
                }
                // Others may have been placed in the ranges that follow before it.
                Some(_) => self.append_answered(id, &append, Err(produce::Error::Unavailable)),
            }
        }
        if let Some(range) = self.ranges.get_mut(&id) {
            again.append(&mut range.waiting);
            range.waiting = again;
        }
    }

    /// Opens the next segment if somebody waits for one; where this node takes no segments, another does.
    pub(crate) fn reopen(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Idle;
        if range.waiting.is_empty() {
            return;
        }
        if self.core.gives_way() { self.place_waiting_again(id) } else { self.open_next(id) }
    }

    /// A copy failed here, of a segment that others hold too: the next ones are better begun by them.
    fn own_copy_failed(&mut self, error: &store::Error) {
        let is_storage = match error {
            store::Error::Damaged(_) | store::Error::Latched(_) | store::Error::Storage(_) => true,
            store::Error::Overloaded
            | store::Error::NoSuchSegment
            | store::Error::Exists
            | store::Error::Sealed { .. }
            | store::Error::Fenced { .. }
            | store::Error::OutOfSync { .. }
            | store::Error::OutOfRange { .. }
            | store::Error::EndOfData { .. }
            | store::Error::CannotSeal { .. } => false,
        };
        if is_storage {
            self.core.avoid(self.core.config.node);
        }
    }
}

/// What a frame says of its producer.
fn written(stamp: Stamp) -> Producer {
    Producer { id: stamp.producer.0, epoch: stamp.epoch.0, first_sequence: stamp.first }
}

/// What a producer is told. Only an append that was refused before it was looked at left nothing behind.
fn append_error(error: &store::Error) -> produce::Error {
    match error {
        store::Error::Overloaded => produce::Error::Overloaded,
        store::Error::NoSuchSegment
        | store::Error::Exists
        | store::Error::Sealed { .. }
        | store::Error::Fenced { .. }
        | store::Error::OutOfSync { .. }
        | store::Error::OutOfRange { .. }
        | store::Error::EndOfData { .. }
        | store::Error::CannotSeal { .. }
        | store::Error::Damaged(_)
        | store::Error::Latched(_)
        | store::Error::Storage(_) => produce::Error::Storage,
    }
}
