//! What a primary knows of one follower, and what is on its way to it.
//!
//! Owns the follower's place: what it is asked next, what was sent and not answered, whether it can be counted on. Does
//! not hold batches and does not know the other copies.
//!
//! ```text
//! Making ──▶ Following ◀──▶ Away (no answer, no connection, overloaded)
//!   ▲  │        │  ▲          │
//!   │  └▶ Asking┘──┘◀─────────┘
//!   └─ gone     any ──▶ Out
//! ```
//!
//! Invariants:
//! - what was sent begins where the one before ended, and never passes the window;
//! - what is on its way was sent by one lane only: two lanes may overtake each other;
//! - an answer to an earlier round changes nothing.

use std::collections::VecDeque;

use types::{Instant, Offset};

/// The way something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// With what waits for an answer.
    Live,
    /// Behind everything that is urgent.
    Bulk,
}

/// Why a follower is not counted on any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Its copy failed, is damaged, or is not what it was.
    Failed,
    /// It acts under a later epoch, or its copy is sealed: somebody else ends the segment.
    Superseded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Its copy is being made.
    Making,
    /// It was asked where it stands.
    Asking,
    Following,
    /// Nothing is asked of it before this, or before it can be reached again.
    Away {
        retry_at: Instant,
    },
    Out(Out),
}

/// How much may be on its way to a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Batches.
    pub batches: usize,
    /// Bytes; a single batch may be larger.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    end: Offset,
    bytes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Follower {
    pub(crate) stand: Stand,
    /// Grows with everything that makes answers on their way meaningless.
    pub(crate) round: u32,
    /// Where the next batch for it begins.
    pub(crate) next: Offset,
    /// Exclusive durable end of its copy, whether that counts or not.
    pub(crate) held: Offset,
    sent: VecDeque<Sent>,
    sent_bytes: u64,
    /// How what is on its way was sent.
    lane: Lane,
    /// What it lacks is being read.
    pub(crate) reading: bool,
    /// Its copy was there once.
    pub(crate) made: bool,
    /// Its copy was made in the place of another, and does not count.
    pub(crate) rebuilding: bool,
    /// It was told that its copy is whole.
    pub(crate) telling: bool,
    /// It was asked how far it is, while it follows.
    pub(crate) probing: bool,
    /// Times it was out of step without a batch in between.
    pub(crate) missteps: u32,
    /// Since when it does not follow.
    absent_since: Option<Instant>,
    /// What was committed then; it had all of that later than that.
    mark: (Offset, Instant),
}

impl Follower {
    pub(crate) fn new(base: Offset, now: Instant) -> Self {
        Self {
            stand: Stand::Making,
            round: 0,
            next: base,
            held: base,
            sent: VecDeque::new(),
            sent_bytes: 0,
            lane: Lane::Live,
            reading: false,
            made: false,
            rebuilding: false,
            telling: false,
            probing: false,
            missteps: 0,
            absent_since: Some(now),
            mark: (base, now),
        }
    }

    /// Whether so many bytes may be sent by this lane now.
    pub(crate) fn has_room(&self, window: Window, lane: Lane, bytes: u64) -> bool {
        if self.sent.is_empty() {
            return true;
        }
        self.lane == lane
            && self.sent.len() < window.batches
            && self.sent_bytes.saturating_add(bytes) <= window.bytes
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.sent.is_empty()
    }

    /// Bytes that may still be sent, whatever the lane.
    pub(crate) fn bytes_left(&self, window: Window) -> u64 {
        if self.sent.len() >= window.batches { 0 } else { window.bytes.saturating_sub(self.sent_bytes) }
    }

    /// How what is on its way was sent; `None` when nothing is.
    pub(crate) fn lane(&self) -> Option<Lane> {
        (!self.sent.is_empty()).then_some(self.lane)
    }

    pub(crate) fn sends(&mut self, lane: Lane, end: Offset, bytes: u64) {
        assert!(self.sent.is_empty() || self.lane == lane, "lanes overtake each other");
        assert!(end > self.next, "a batch has records");
        self.lane = lane;
        self.next = end;
        self.sent.push_back(Sent { end, bytes });
        self.sent_bytes += bytes;
    }

    /// It holds everything below `end`.
    pub(crate) fn holds(&mut self, end: Offset) {
        self.held = self.held.max(end);
        self.missteps = 0;
        while let Some(sent) = self.sent.front().copied()
            && sent.end <= end
        {
            self.sent.pop_front();
            self.sent_bytes -= sent.bytes;
        }
    }

    /// Whatever is on its way means nothing any more; it goes on from `next`.
    pub(crate) fn begin_round(&mut self, next: Offset) {
        self.round = self.round.wrapping_add(1);
        self.sent.clear();
        self.sent_bytes = 0;
        (self.reading, self.telling, self.probing) = (false, false, false);
        self.next = next;
    }

    pub(crate) fn stands(&mut self, stand: Stand, now: Instant) {
        self.stand = stand;
        if stand != Stand::Following {
            self.absent_since.get_or_insert(now);
        } else if self.absent_since.take().is_some() {
            self.mark.1 = now;
        }
    }

    /// Whether it answers, as far as is known.
    pub(crate) fn is_there(&self) -> bool {
        match self.stand {
            Stand::Making | Stand::Asking | Stand::Following => true,
            Stand::Away { .. } | Stand::Out(_) => false,
        }
    }

    /// Takes note of what is committed now. Not yet having what was committed a while ago is being behind.
    pub(crate) fn note_committed(&mut self, committed: Offset, now: Instant) {
        if self.held >= self.mark.0 {
            self.mark = (committed, now);
        }
    }

    /// Since when it lacks something, at least.
    pub(crate) fn behind_since(&self, committed: Offset) -> Option<Instant> {
        let lags = self.rebuilding || self.held < self.mark.0.min(committed);
        self.absent_since.or(lags.then_some(self.mark.1))
    }
}
