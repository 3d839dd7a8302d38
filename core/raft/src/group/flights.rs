//! Changes on their way to storage, in order, with what must wait for each.

use std::collections::VecDeque;

use crate::event::{Action, Entry, HardState, Persist, PersistId, Snapshot};

/// See the module.
#[derive(Debug)]
pub(super) struct Flights {
    next: u64,
    waiting: VecDeque<Flight>,
    /// What binds the member as far as it is durable.
    durable: HardState,
}

/// One change.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: PersistId,
    hard_state: HardState,
    /// The engine's number for it, or of a later one that changes nothing more in storage; 0 for none.
    pub(super) number: u64,
    /// Whether a snapshot is in it.
    pub(super) is_snapshot: bool,
    /// Messages that tell of it.
    pub(super) sends: Vec<Action>,
}

impl Flights {
    pub(super) fn new(durable: HardState) -> Self {
        Self { next: 0, waiting: VecDeque::new(), durable }
    }

    pub(super) fn durable(&self) -> HardState {
        self.durable
    }

    /// What binds the member once everything on its way is durable.
    pub(super) fn asked(&self) -> HardState {
        self.waiting.back().map_or(self.durable, |last| last.hard_state)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Hands a change to storage.
    pub(super) fn depart(
        &mut self,
        hard_state: HardState,
        snapshot: Option<Snapshot>,
        entries: Vec<Entry>,
        number: u64,
        out: &mut Vec<Action>,
    ) {
        let id = PersistId(self.next);
        self.next += 1;
        let is_snapshot = snapshot.is_some();
        self.waiting.push_back(Flight { id, hard_state, number, is_snapshot, sends: Vec::new() });
        out.push(Action::Persist(Persist { id, hard_state, snapshot, entries }));
    }

    /// Something of the engine's that changes nothing in storage is done once everything before it is; `true` when
    /// that is now.
    pub(super) fn ride(&mut self, number: u64) -> bool {
        match self.waiting.back_mut() {
            None => true,
            Some(last) => {
                last.number = number;
                false
            }
        }
    }

    /// Sends once everything on its way is durable.
    pub(super) fn send_after(&mut self, send: Action, out: &mut Vec<Action>) {
        match self.waiting.back_mut() {
            None => out.push(send),
            Some(last) => last.sends.push(send),
        }
    }

    /// The oldest change is durable.
    pub(super) fn land(&mut self, id: PersistId) -> Flight {
        let flight = self.waiting.pop_front().expect("only what was asked for is reported");
        assert_eq!(id, flight.id, "changes become durable in the order they were asked for");
        self.durable = flight.hard_state;
        flight
    }

    /// Nothing will be durable any more.
    pub(super) fn ground(&mut self) {
        self.waiting.clear();
    }
}
