//! Messages from other members, checked before the engine sees them.
//!
//! The engine trusts what it is given: a commit index past its log, or an impossible index in a reply, makes it
//! panic or believe nonsense. What cannot be true of a peer's own doing is dropped; what cannot be true unless this
//! member lost something that was durable stops it.

use types::{RaftIndex, Term};

use super::Group;
use crate::engine::{NOBODY, StateRole, message_to_engine};
use crate::event::{Action, Contradiction, Entry, EntryId};
use crate::members::Member;
use crate::message::{Body, Message};

/// A term further ahead than this is nobody's: terms are counted up one by one.
const TERM_JUMP_MAX: u64 = 1 << 32;
/// Replicas remembered that are no members yet as far as this one knows.
const STRANGERS_MAX: usize = 32;

/// What a message's check led to.
enum Verdict {
    Good,
    /// Not for this member, from nobody it may hear, or impossible.
    Drop,
    Contradiction(Contradiction),
}

impl Group {
    pub(super) fn receive(&mut self, message: Message, out: &mut Vec<Action>) {
        if !self.is_running() {
            return;
        }
        match self.check(&message) {
            Verdict::Drop => return,
            Verdict::Contradiction(what) => {
                out.push(Action::Contradiction(what));
                return self.stop(out);
            }
            Verdict::Good => {}
        }
        self.remember(message.from);
        let Message { from, term, .. } = message;
        match message.body {
            Body::Part { mark, total, offset, bytes } => {
                let part = super::transfer::Part { mark, total, offset, bytes };
                self.receive_part(from, term, part, out);
            }
            Body::PartReply { mark, received } => self.part_received(from.replica, mark, received, out),
            Body::Vote { .. }
            | Body::VoteReply { .. }
            | Body::Append { .. }
            | Body::Appended { .. }
            | Body::Rejected { .. }
            | Body::Heartbeat { .. }
            | Body::HeartbeatReply { .. }
            | Body::TakeOver => {
                self.take_over_term(&message);
                if let Some(message) = message_to_engine(&message, self.me.replica, self.term()) {
                    // Refused for a reply from nobody the engine knows.
                    let _ = self.engine.step(message);
                }
            }
        }
        self.drive(out);
    }

    /// Takes over the term of a candidate that knows of more that is committed, when nobody leads.
    ///
    /// A pre-vote that is refused because the log here is longer changes nothing else. But what is committed may be
    /// the very change that gives this member its vote: without hearing of it, it would never stand for election
    /// itself, and with the longer log in such hands nobody could win.
    fn take_over_term(&mut self, message: &Message) {
        let Body::Vote { pre: true, commit, .. } = &message.body else { return };
        let raft = &mut self.engine.raft;
        let led = raft.leader_id != NOBODY && raft.election_elapsed < raft.election_timeout();
        let term = message.term.0.saturating_sub(1);
        if raft.state != StateRole::Leader
            && !led
            && commit.index.0 > raft.raft_log.committed
            && term > raft.term
        {
            raft.become_follower(term, NOBODY);
        }
    }

    fn check(&self, message: &Message) -> Verdict {
        let Message { from, to, term, body } = message;
        #[cfg(feature = "planted")]
        let to = if self.config.has_bug(crate::planted::Bug::AnyLife) { &self.me.replica } else { to };
        // An earlier life of this node may be meant.
        if *to != self.me.replica || from.replica == self.me.replica {
            return Verdict::Drop;
        }
        match self.members.of_replica(from.replica) {
            Some((node, _)) if node == from.node => {}
            Some(_) => return Verdict::Drop,
            // It left: whatever it says, the group has gone on without it.
            None if self.members.was_given(from.replica) => return Verdict::Drop,
            None => {}
        }
        if term.0 > self.term().0 + TERM_JUMP_MAX {
            return Verdict::Drop;
        }
        self.check_body(*from, *term, body)
    }

    fn check_body(&self, from: Member, term: Term, body: &Body) -> Verdict {
        let last = RaftIndex(self.engine.raft.raft_log.last_index());
        let from_leader = term >= self.term();
        match body {
            Body::Append { .. } | Body::Heartbeat { .. } | Body::Part { .. }
                if term == self.term() && self.engine.raft.state == StateRole::Leader =>
            {
                Verdict::Contradiction(Contradiction::TwoLeaders)
            }
            Body::Append { previous, entries, .. } if from_leader => self.check_entries(*previous, entries),
            Body::Heartbeat { commit, .. } if from_leader && *commit > last => {
                Verdict::Contradiction(Contradiction::Lacking)
            }
            Body::Appended { index, .. } if term == self.term() && *index > last => Verdict::Drop,
            // A vote is asked for once everything before it is durable, so nobody can have given one yet. The engine
            // would begin to lead with entries that are not.
            Body::VoteReply { pre: false, granted: true, .. } if !self.flights.is_empty() => Verdict::Drop,
            Body::TakeOver if !self.can_stand() => Verdict::Drop,
            Body::TakeOver if from.replica.0 != self.engine.raft.leader_id => Verdict::Drop,
            Body::Vote { .. }
            | Body::VoteReply { .. }
            | Body::Append { .. }
            | Body::Appended { .. }
            | Body::Rejected { .. }
            | Body::Heartbeat { .. }
            | Body::HeartbeatReply { .. }
            | Body::Part { .. }
            | Body::PartReply { .. }
            | Body::TakeOver => Verdict::Good,
        }
    }

    /// A leader's entries agree with what is committed here, or one of the two is wrong for good.
    fn check_entries(&self, previous: EntryId, entries: &[Entry]) -> Verdict {
        let ids = entries.iter().map(|entry| EntryId { index: entry.index, term: entry.term });
        for id in [previous].into_iter().chain(ids) {
            if id.index > self.commit() {
                break;
            }
            if self.term_at(id.index).is_some_and(|term| term != id.term) {
                return Verdict::Contradiction(Contradiction::Differs);
            }
        }
        Verdict::Good
    }

    /// Where to answer a replica that is no member as far as this one knows: it may have been told later.
    fn remember(&mut self, from: Member) {
        if self.members.of_replica(from.replica).is_some() {
            return;
        }
        if self.strangers.len() >= STRANGERS_MAX && !self.strangers.contains_key(&from.replica) {
            self.strangers.clear();
        }
        self.strangers.insert(from.replica, from.node);
    }
}
