//! Hands committed entries to the machine, and takes those that are about the members.

use types::{RaftIndex, Term};

use super::Group;
use crate::engine::{NOBODY, amendment_to_engine, entry_from_engine, eraftpb};
use crate::entry::Payload;
use crate::event::{Action, Entry, EntryId};
use crate::members::{Amendment, Members};

impl Group {
    /// Entries in order, committed and durable here.
    pub(super) fn apply(&mut self, committed: &[eraftpb::Entry], out: &mut Vec<Action>) {
        for entry in committed {
            self.apply_one(entry_from_engine(entry), out);
        }
        if let Some(last) = committed.last() {
            self.engine.advance_apply_to(last.index);
            self.leave_if_removed();
            self.ask_for_snapshot(out);
        }
        self.reads.answer(self.applied.index, out);
    }

    fn apply_one(&mut self, entry: Entry, out: &mut Vec<Action>) {
        self.applied = EntryId { index: entry.index, term: entry.term };
        self.snapshots.applied(entry.data.len() as u64);
        let Entry { index, term, data } = entry;
        match Payload::decode(data).expect("entries are checked before they get into the log") {
            Payload::Opening => {}
            Payload::Command(data) => {
                let proposal = self.proposals.remove(&index);
                out.push(Action::Apply { entry: Entry { index, term, data }, proposal });
            }
            Payload::Founding(members) => self.found(members, index, out),
            Payload::Amendment(amendment) => self.amend(amendment, index, out),
        }
    }

    /// A member that was sent the log from its beginning learns who the others are.
    fn found(&mut self, members: Members, index: RaftIndex, out: &mut Vec<Action>) {
        for founder in members.voters() {
            // The engine adds members as learners or voters; a founder was never a learner.
            self.change_engine(Amendment::Promote(founder.replica));
        }
        self.members = members.clone();
        self.members_since = index;
        out.push(Action::MembersChanged { index, members, proposal: None });
    }

    fn amend(&mut self, amendment: Amendment, index: RaftIndex, out: &mut Vec<Action>) {
        let proposal = self.proposals.remove(&index);
        // Every member decides alike whether a change makes sense, so one that does not is passed over by all.
        if self.members.amend(amendment) {
            self.change_engine(amendment);
            self.members_since = index;
        }
        out.push(Action::MembersChanged { index, members: self.members.clone(), proposal });
    }

    fn change_engine(&mut self, amendment: Amendment) {
        let change = amendment_to_engine(amendment);
        self.engine
            .apply_conf_change(&change)
            .expect("a change that makes sense to the list does to the engine");
    }

    /// A leader that is no member any more stops leading. The engine would let it go on.
    fn leave_if_removed(&mut self) {
        let leads = self.engine.raft.leader_id == self.me.replica.0;
        if leads && self.members.of_replica(self.me.replica).is_none() {
            let term = self.engine.raft.term;
            self.engine.raft.become_follower(term, NOBODY);
        }
    }

    /// The entry's term, if the log holds the entry or remembers it as the last before its beginning.
    pub(super) fn term_at(&self, index: RaftIndex) -> Option<Term> {
        let log = &self.engine.raft.raft_log;
        let known = (log.first_index() - 1..=log.last_index()).contains(&index.0);
        known.then(|| log.term(index.0).ok().map(Term)).flatten()
    }
}
