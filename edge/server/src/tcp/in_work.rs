//! The requests of one connection that the core has, and what is to become of their answers.
//!
//! Invariants: produce requests overlap with one another and with nothing else; a number is given once.

use std::collections::VecDeque;

use broker::{Form, Request};
use tokio::time::Instant;
use wire::{ApiKey, Reason};

use super::translate::NewPassword;
use crate::audit::Change;
use bytes::Bytes;

/// Produce requests of one connection that may wait for their sync.
pub(super) const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of produce requests of one connection that may wait for their sync; one may exceed it alone.
const IN_FLIGHT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A request in work.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) correlation_id: u32,
    pub(super) operation: ApiKey,
    /// When its frame had arrived.
    pub(super) arrived: Instant,
    /// Of records it carries.
    pub(super) bytes: usize,
    pub(super) then: Then,
    /// What it would change, for the auditor.
    pub(super) change: Option<Box<Change>>,
}

/// What to do with the core's reply.
#[derive(Debug)]
pub(super) enum Then {
    /// Pass it on, records in this form.
    Answer(Form),
    /// Pass it on; accepted, it opens the stream.
    Stream,
    /// It says whether the session may administer: if so, answer this.
    Refuse(Reason),
    /// It says whether the session may administer: if so, hash the password.
    Hash(NewPassword, Bytes),
    /// The password is being hashed; ask the core for the change then.
    Change(NewPassword),
}

/// Oldest first.
#[derive(Debug, Default)]
pub(super) struct InWork {
    /// `None` once answered out of order.
    slots: VecDeque<Option<Slot>>,
    /// Number of the first slot.
    first: u64,
    open: usize,
    bytes: usize,
    /// Whether the one request in work is not a produce request.
    alone: bool,
    /// Whether it is one that may wait for something to happen.
    polling: bool,
    /// Whether it is one that may open a stream.
    opening: bool,
}

impl InWork {
    /// Nothing in work, numbers from here on.
    pub(super) fn starting_at(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open == 0
    }

    pub(super) fn is_polling(&self) -> bool {
        self.polling
    }

    /// Whether the next frame cannot be understood yet: under a stream it means something else.
    pub(super) fn is_opening(&self) -> bool {
        self.opening
    }

    /// Whether this request may start now.
    pub(super) fn admits(&self, request: &Request) -> bool {
        let overlaps = request.may_overlap() && !self.alone;
        let room = self.open < IN_FLIGHT_MAX
            && self.slots.len() < 2 * IN_FLIGHT_MAX
            && self.bytes < IN_FLIGHT_BYTES_MAX;
        self.open == 0 || (overlaps && room)
    }

    /// Gives a request its number.
    pub(super) fn start(&mut self, slot: Slot, request: &Request) -> u64 {
        self.polling = matches!(request, Request::Fetch(_));
        self.opening = matches!(request, Request::Subscribe(_));
        self.push(slot, request.may_overlap())
    }

    /// The same for work that is not the core's; nothing overlaps with it.
    pub(super) fn start_alone(&mut self, slot: Slot) -> u64 {
        self.polling = false;
        self.push(slot, false)
    }

    fn push(&mut self, slot: Slot, overlaps: bool) -> u64 {
        let number = self.first + self.slots.len() as u64;
        self.open += 1;
        self.bytes += slot.bytes;
        self.alone = !overlaps;
        self.slots.push_back(Some(slot));
        number
    }

    /// Takes a request out; `None` when it is not in work.
    pub(super) fn end(&mut self, number: u64) -> Option<Slot> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?.take()?;
        self.open -= 1;
        self.bytes -= slot.bytes;
        self.alone = false;
        self.polling = false;
        self.opening = false;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(slot)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use broker::{Fetch, Produce};

    use super::*;

    fn produce() -> Request {
        Request::Produce(Produce { topic: None, records: Bytes::new(), count: 0, crc: 0, stamp: None })
    }

    fn fetch() -> Request {
        let form = Form::Records;
        Request::Fetch(Fetch {
            topic: None,
            cursor: None,
            group: None,
            member: None,
            max: 0,
            wait_ms: 0,
            form,
        })
    }

    fn slot(correlation_id: u32) -> Slot {
        sized(correlation_id, 1)
    }

    fn sized(correlation_id: u32, bytes: usize) -> Slot {
        let then = Then::Answer(Form::Records);
        Slot {
            correlation_id,
            operation: ApiKey::Produce,
            arrived: Instant::now(),
            bytes,
            then,
            change: None,
        }
    }

    #[test]
    fn produce_requests_overlap_and_nothing_else_does() {
        let mut in_work = InWork::starting_at(7);
        assert!(in_work.admits(&fetch()));
        let (one, two) = (in_work.start(slot(1), &produce()), in_work.start(slot(2), &produce()));
        assert_eq!((one, two), (7, 8));
        assert!(in_work.admits(&produce()) && !in_work.admits(&fetch()));
        assert_eq!(in_work.end(two).unwrap().correlation_id, 2);
        assert_eq!(in_work.end(one).unwrap().correlation_id, 1);
        assert!(in_work.end(one).is_none(), "it was answered");
        let poll = in_work.start(slot(3), &fetch());
        assert_eq!(poll, 9);
        assert!(in_work.is_polling() && !in_work.admits(&produce()));
        in_work.end(poll).unwrap();
        assert!(in_work.is_empty() && !in_work.is_polling());
        in_work.start_alone(slot(4));
        assert!(!in_work.admits(&produce()));
    }

    #[test]
    fn bytes_and_number_are_bounded_but_one_may_be_larger() {
        let mut in_work = InWork::default();
        in_work.start(sized(1, IN_FLIGHT_BYTES_MAX + 1), &produce());
        assert!(!in_work.admits(&produce()));
        in_work.end(0).unwrap();
        for id in 0..u32::try_from(IN_FLIGHT_MAX).unwrap() {
            assert!(in_work.admits(&produce()));
            in_work.start(slot(id), &produce());
        }
        assert!(!in_work.admits(&produce()));
    }
}
