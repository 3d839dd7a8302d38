//! Calls in both directions: who asked what, until when, and on which stream the answer goes.
//!
//! Every call has a deadline. An answer that comes later, or after a cancel, is dropped; an answer to a call that
//! was never made, or of another kind than was asked for, is a reason to give the peer up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{Instant, limits};

use crate::message::{Kind, kind};
use crate::stream::StreamId;

/// One call of one connection, in one direction. Numbers wrap after four thousand million calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

#[derive(Clone, Copy, Debug)]
struct Made {
    kind: Kind,
    deadline: Instant,
    since: Instant,
}

/// Calls this side made.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    last: u32,
    made: BTreeMap<u32, Made>,
    deadlines: BTreeSet<(Instant, u32)>,
}

impl Outgoing {
    /// A number for a new call; `None` when there are too many.
    pub(super) fn make(&mut self, kind: Kind, now: Instant, deadline: Instant) -> Option<CallId> {
        if self.made.len() >= limits::PEER_CALLS_MAX {
            return None;
        }
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.made.contains_key(&self.last) {
                break;
            }
        }
        self.made.insert(self.last, Made { kind, deadline, since: now });
        self.deadlines.insert((deadline, self.last));
        Some(CallId(self.last))
    }

    /// Forgets a call; whether there was one.
    pub(super) fn forget(&mut self, call: CallId) -> bool {
        let made = self.made.remove(&call.0);
        if let Some(made) = made {
            self.deadlines.remove(&(made.deadline, call.0));
        }
        made.is_some()
    }

    /// An answer arrived: whether anybody still waits for it. The error is an answer of another kind.
    pub(super) fn answered(&mut self, call: u32, kind: u16) -> Result<bool, &'static str> {
        match self.made.get(&call) {
            Some(made) if kind::answer_to(made.kind.number()) != kind => {
                Err("an answer to something else than was asked")
            }
            Some(_) | None => Ok(self.forget(CallId(call))),
        }
    }

    /// The next call whose time is over, and when it was made.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<(CallId, Instant)> {
        let (deadline, call) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        let since = self.made.get(&call).expect("a deadline is of a call that was made").since;
        self.forget(CallId(call));
        Some((CallId(call), since))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Every call without an answer, in order of their numbers.
    pub(super) fn abandon(&mut self) -> Vec<CallId> {
        self.deadlines.clear();
        std::mem::take(&mut self.made).into_keys().map(CallId).collect()
    }
}

/// Calls the peer made.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    open: BTreeMap<u32, (u16, StreamId)>,
    /// Asked in a way that is not known here, to be told so.
    unknown: VecDeque<(u16, u32)>,
}

impl Incoming {
    pub(super) fn open(&mut self, call: u32, kind: u16, stream: StreamId) -> Result<CallId, &'static str> {
        if self.open.len() >= limits::PEER_CALLS_MAX {
            return Err("too many calls");
        }
        if self.open.insert(call, (kind, stream)).is_some() {
            return Err("two calls of one number");
        }
        Ok(CallId(call))
    }

    /// The call is over: what it asked and where its answer goes; `None` when the peer no longer wants it.
    pub(super) fn close(&mut self, call: CallId) -> Option<(u16, StreamId)> {
        self.open.remove(&call.0)
    }

    /// Something of an unknown kind arrived; `call` is 0 when it asked nothing.
    pub(super) fn not_understood(&mut self, kind: u16, call: u32) -> Result<(), &'static str> {
        // What asked nothing is worth one line there, not one for each.
        if call == 0 && self.unknown.contains(&(kind, 0)) {
            return Ok(());
        }
        if self.unknown.len() >= limits::PEER_CALLS_MAX {
            return Err("too many calls");
        }
        self.unknown.push_back((kind, call));
        Ok(())
    }

    pub(super) fn next_unknown(&mut self) -> Option<(u16, u32)> {
        self.unknown.pop_front()
    }
}
