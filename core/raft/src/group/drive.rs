//! Carries what the engine wants to storage, to the other members and to the machine, in the order that its
//! contract demands.

use types::{NodeId, RaftIndex, Term};

use super::{Group, Phase};
use crate::engine::{NOBODY, SnapshotStatus, StateRole, entry_from_engine, eraftpb, message_from_engine};
use crate::event::{Action, EntryId, HardState, PersistId};
use crate::members::ReplicaId;

impl Group {
    /// Works until the engine wants nothing more.
    pub(super) fn drive(&mut self, out: &mut Vec<Action>) {
        loop {
            while self.engine.has_ready() && self.phase == Phase::Running {
                self.take_ready(out);
            }
            self.tell_role(out);
            if self.phase != Phase::Running || !self.ask_for_reads() {
                return;
            }
        }
    }

    fn take_ready(&mut self, out: &mut Vec<Action>) {
        if self.engine.raft.state == StateRole::Leader && self.opened.term != self.term() {
            // A leader begins its term with an entry, and nothing else was appended since.
            let opened = RaftIndex(self.engine.raft.raft_log.last_index());
            self.opened = EntryId { index: opened, term: self.term() };
        }
        self.tell_role(out);
        let mut ready = self.engine.ready();
        let number = ready.number();
        let snapshot = if ready.snapshot().is_empty() { None } else { Some(self.install()) };
        let entries = ready.take_entries();
        self.engine.mut_store().append(&entries);
        let departs = ready.must_sync() || self.commits_members(ready.committed_entries());
        if departs {
            let founding = self.founding.take();
            let entries = founding.into_iter().chain(entries.iter().map(entry_from_engine)).collect();
            let hard_state = self.hard_state();
            self.flights.depart(hard_state, snapshot, entries, number, out);
        }
        for message in ready.take_messages() {
            // A leader need not wait for its own copy; but its term has to be durable, which it is not yet when it
            // won by its own vote alone.
            let waits = self.flights.durable().term < Term(message.term);
            #[cfg(feature = "planted")]
            let waits = waits && !self.config.has_bug(crate::planted::Bug::LeadEarly);
            self.send(message, waits, out);
        }
        for message in ready.take_persisted_messages() {
            self.send(message, true, out);
        }
        for state in ready.take_read_states() {
            self.reads.confirmed(&state.request_ctx, RaftIndex(state.index));
        }
        let committed = ready.take_committed_entries();
        self.engine.advance_append_async(ready);
        let is_done = !departs && self.flights.ride(number);
        #[cfg(feature = "planted")]
        let is_done = is_done || self.config.has_bug(crate::planted::Bug::CountUnstored);
        if is_done {
            self.engine.on_persist_ready(number);
        }
        self.apply(&committed, out);
    }

    /// Whether entries about the members are committed, and storage will not know it by itself: who starts again
    /// has to know among whom, since those that left may have forgotten the group.
    fn commits_members(&self, committed: &[eraftpb::Entry]) -> bool {
        let mut about_members =
            committed.iter().filter(|entry| entry.entry_type != eraftpb::EntryType::EntryNormal);
        about_members.any(|entry| RaftIndex(entry.index) > self.flights.asked().commit)
    }

    /// What binds the member, as it is now.
    pub(super) fn hard_state(&self) -> HardState {
        let hard = self.engine.raft.hard_state();
        #[cfg(feature = "planted")]
        let hard = self.plant_hard_state(hard);
        let voted_for = (hard.vote != NOBODY).then(|| NodeId(hard.vote.into()));
        HardState { term: Term(hard.term), voted_for, commit: RaftIndex(hard.commit) }
    }

    fn send(&mut self, message: eraftpb::Message, waits: bool, out: &mut Vec<Action>) {
        let to = ReplicaId(message.to);
        if message.msg_type == eraftpb::MessageType::MsgSnapshot {
            return self.send_snapshot(to, out);
        }
        let Some(node) = self.node_of(to) else { return };
        let Some(message) = message_from_engine(&message, self.me) else { return };
        let send = Action::Send { to: node, message };
        #[cfg(feature = "planted")]
        let waits = waits && !self.config.has_bug(crate::planted::Bug::SendEarly);
        if waits {
            self.flights.send_after(send, out);
        } else {
            out.push(send);
        }
    }

    pub(super) fn persisted(&mut self, id: PersistId, out: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        let flight = self.flights.land(id);
        if flight.number > 0 {
            self.engine.on_persist_ready(flight.number);
        }
        out.extend(flight.sends);
        if flight.is_snapshot {
            self.installed(out);
        }
        self.drive(out);
    }

    /// Tells the engine how a snapshot's way to a member ended.
    pub(super) fn report_snapshot(&mut self, to: ReplicaId, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.engine.report_snapshot(to.0, status);
    }
}
