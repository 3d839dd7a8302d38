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
//! Idle ─▶ Registering ─▶ Creating ─▶ Open ─▶ Ending ─▶ Idle
//!                          ▲ │                  ▲ │
//!                   Unmade ┘ ◀┘   Stale ────────┘ └▶ Stopped
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use storage::format::batch::{Batch, Flags, Header, Producer, Seed};
use storage::store;
use types::{Epoch, Instant, Offset, RangeId, SegmentId, WallTime};

use crate::action::{Cause, Notice};
use crate::ending::{Ending, Step};
use crate::event::RequestId;
use crate::meta::{self, Registered};
use crate::node::{Node, Owner};
use crate::planted::Bug;
use crate::produce;

/// Epoch a registration gives.
pub(crate) const EPOCH_FIRST: Epoch = Epoch(1);
/// Pause before something that failed on a disk is tried again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What this node knows of a range beyond the metadata.
#[derive(Debug)]
pub(crate) struct Range {
    /// The topic's name, as its waiters are indexed.
    pub(crate) topic: Bytes,
    /// Where its active segment stands.
    pub(crate) state: State,
    /// Requests that wait for a segment, in arrival order. Counted in the node's load.
    pub(crate) waiting: VecDeque<Waiting>,
    /// Lower bound for the time of the next batch.
    pub(crate) appended_at: WallTime,
}

/// Where a range's active segment stands.
#[derive(Debug)]
pub(crate) enum State {
    /// There is none; the next produce opens one.
    Idle,
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
    /// Exclusive end of what may be read: synced on a quorum of one.
    pub(crate) committed_end: Offset,
    /// Bytes of the frames given out.
    pub(crate) bytes: u64,
    /// Appends the store has not answered, in order.
    pub(crate) in_flight: VecDeque<InFlight>,
}

/// One append on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) id: RequestId,
    pub(crate) count: u32,
    pub(crate) bytes: usize,
    /// Exclusive end of the batch.
    pub(crate) end: Offset,
}

/// One produce that has no segment yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) records: Bytes,
    pub(crate) count: u32,
    pub(crate) crc: u32,
}

impl Range {
    pub(crate) fn new(topic: Bytes, state: State, appended_at: WallTime) -> Self {
        Self { topic, state, waiting: VecDeque::new(), appended_at }
    }

    /// Exclusive end of what may be read of the segment that is active in metadata, if there is one and its
    /// end is known. `None` when only the copy knows.
    pub(crate) fn committed_end(&self) -> Option<Offset> {
        match &self.state {
            State::Open(open) => Some(open.committed_end),
            State::Ending(ending) => ending.committed_end,
            State::Creating { base, .. } | State::Unmade { base, .. } => Some(*base),
            State::Idle | State::Registering | State::Stale { .. } | State::Stopped => None,
        }
    }
}

impl Node {
    /// Takes a counted request for a range and appends it, or lets it wait for the segment that is on its way.
    pub(crate) fn append_to(&mut self, id: RangeId, request: Waiting) {
        let now = self.core.now;
        let Some(range) = self.ranges.get_mut(&id) else {
            return self.produced(request.id, request.records.len(), Err(produce::Error::NoSuchTopic));
        };
        match &mut range.state {
            State::Open(_) => self.append(id, request),
            State::Idle => {
                range.waiting.push_back(request);
                self.register(id);
            }
            State::Registering | State::Creating { .. } => range.waiting.push_back(request),
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
            State::Ending(_) | State::Unmade { .. } | State::Stopped => {
                self.produced(request.id, request.records.len(), Err(produce::Error::Storage));
            }
        }
    }

    /// Proposes the next segment of a range.
    pub(crate) fn register(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Registering;
        self.core.register_segment(id);
    }

    /// The registration was decided.
    pub(crate) fn registered(&mut self, id: RangeId, outcome: Result<Registered, meta::Error>) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        match outcome {
            Ok(Registered { segment, base }) => self.create(id, segment, base),
            Err(error) => {
                range.state = State::Idle;
                self.refuse_waiting(id, error.into());
            }
        }
    }

    fn create(&mut self, id: RangeId, segment: SegmentId, base: Offset) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Creating { segment, base };
        let expect_full = base > Offset::ZERO;
        let request = store::Request::Create { segment, base, epoch: EPOCH_FIRST, expect_full };
        self.core.ask(Owner::Create(id), request);
    }

    /// The copy was made, or not.
    pub(crate) fn created(&mut self, id: RangeId, result: Result<(), store::Error>) {
        let now = self.core.now;
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Creating { segment, base } = range.state else { return };
        match result {
            Ok(()) => {
                range.state = State::Open(Open {
                    segment,
                    seed: Seed::of(segment),
                    base,
                    appended_end: base,
                    committed_end: base,
                    bytes: 0,
                    in_flight: VecDeque::new(),
                });
                self.core.notice(Notice::SegmentOpened { segment, base });
                self.append_waiting(id);
            }
            // An earlier attempt got further than it could tell: what is there is ended like a leftover.
            Err(store::Error::Exists) => {
                self.end(id, Ending::new(segment, base, Cause::Failure, Step::Fencing))
            }
            Err(error) => {
                range.state = State::Unmade { segment, base, retry_at: now.plus(RETRY_AFTER) };
                self.core.notice(Notice::SegmentStuck { segment, detail: error.to_string() });
                self.refuse_waiting(id, produce::Error::Storage);
            }
        }
    }

    fn append_answered(&mut self, id: RangeId, append: &InFlight, result: Result<u32, produce::Error>) {
        if self.core.config.has_bug(Bug::AckEarly) {
            return;
        }
        self.produced(append.id, append.bytes, result);
        self.plant_after_answer(id, append, result);
    }

    pub(crate) fn append_waiting(&mut self, id: RangeId) {
        while let Some(range) = self.ranges.get_mut(&id)
            && let State::Open(_) = range.state
            && let Some(next) = range.waiting.pop_front()
        {
            self.append(id, next);
        }
    }

    /// Gives the records their offsets and hands them to the store.
    fn append(&mut self, id: RangeId, request: Waiting) {
        let wall = self.core.wall;
        let roll_at = self.core.config.segment_bytes;
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let State::Open(open) = &mut range.state else { return };
        range.appended_at = range.appended_at.max(wall);
        let len = request.records.len();
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(len)
                .expect("a request's records fit in a frame, which is below 2 GiB"),
            record_count: request.count,
            base_offset: open.appended_end,
            append_time: range.appended_at,
            epoch: EPOCH_FIRST,
            producer: Producer::default(),
            payload_crc: open.seed.combine(request.crc, len as u64),
        };
        open.appended_end = header.end_offset();
        open.bytes += header.frame_len();
        open.in_flight.push_back(InFlight {
            id: request.id,
            count: request.count,
            bytes: len,
            end: open.appended_end,
        });
        let (segment, end, full) = (open.segment, open.appended_end, open.bytes >= roll_at);
        let batch = Batch { header, payload: request.records };
        self.plant_before_append(id, &batch);
        let owner = Owner::Append { range: id, end };
        self.core.ask(owner, store::Request::Append { segment, epoch: EPOCH_FIRST, batch });
        if full {
            self.drain(id, Cause::Size);
        }
    }

    /// The store answered the append of a range that ends at `end`. Those that succeed do so in order.
    pub(crate) fn appended(&mut self, id: RangeId, end: Offset, result: Result<(), store::Error>) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let short = self.core.config.has_bug(Bug::SealShort);
        let (in_flight, committed_end) = match &mut range.state {
            State::Open(open) => (&mut open.in_flight, Some(&mut open.committed_end)),
            State::Ending(ending) => {
                (&mut ending.in_flight, ending.committed_end.as_mut().filter(|_| !short))
            }
            State::Idle
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => return,
        };
        let oldest = self.core.config.has_bug(Bug::AnswerOldest);
        let Some(at) = in_flight.iter().position(|append| oldest || append.end == end) else { return };
        let Some(append) = in_flight.remove(at) else { return };
        match result {
            Ok(()) => {
                assert!(at == 0, "the store acknowledged an append before an earlier one");
                if let Some(committed_end) = committed_end {
                    *committed_end = append.end;
                }
                let topic = range.topic.clone();
                self.append_answered(id, &append, Ok(append.count));
                if !(self.core.config.has_bug(Bug::ForgetWake) && append.count == 2) {
                    self.wake(&topic);
                }
            }
            Err(error) => {
                self.append_answered(id, &append, Err(append_error(&error)));
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
            self.produced(request.id, request.records.len(), Err(error));
        }
    }

    /// Opens the next segment if somebody waits for one.
    pub(crate) fn reopen(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Idle;
        if !range.waiting.is_empty() {
            self.register(id);
        }
    }
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
