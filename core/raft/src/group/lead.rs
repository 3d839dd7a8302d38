//! What a leader is asked for: entries, other members, another leader.

use bytes::Bytes;
use types::{NodeId, RaftIndex, limits};

use super::Group;
use crate::engine::{ProgressState, amendment_to_engine};
use crate::entry::Payload;
use crate::event::{Action, ProposalId, Refusal, Role};
use crate::members::{Amendment, Change, Part, Unchangeable};

/// A learner this many entries behind what is committed gets its vote: the rest is on its way.
const CAUGHT_UP_ENTRIES: u64 = 128;

impl Group {
    pub(super) fn propose(&mut self, id: ProposalId, data: Bytes, out: &mut Vec<Action>) {
        let refusal = match self.refusal() {
            None if data.len() > limits::RAFT_COMMAND_BYTES_MAX => Some(Refusal::TooLarge),
            None if self.proposals.len() >= limits::RAFT_PROPOSALS_MAX => Some(Refusal::Busy),
            refusal => refusal,
        };
        if let Some(reason) = refusal {
            return out.push(Action::Refused { id, reason });
        }
        let data = Payload::Command(data).encode();
        // Refused when too much is uncommitted, and while the leader hands over.
        match self.engine.propose(Vec::new(), data.into()) {
            Ok(()) => self.await_entry(id),
            Err(_) => out.push(Action::Refused { id, reason: Refusal::Busy }),
        }
        self.drive(out);
    }

    fn await_entry(&mut self, id: ProposalId) {
        let index = RaftIndex(self.engine.raft.raft_log.last_index());
        self.proposals.insert(index, id);
    }

    pub(super) fn reconfigure(&mut self, id: ProposalId, change: Change, out: &mut Vec<Action>) {
        match self.check_change(change) {
            Err(reason) => out.push(Action::Refused { id, reason }),
            Ok(amendment) => {
                let stored = Payload::Amendment(amendment).encode();
                let change = amendment_to_engine(amendment);
                match self.engine.propose_conf_change(stored.into(), change) {
                    Ok(()) => self.await_entry(id),
                    Err(_) => out.push(Action::Refused { id, reason: Refusal::Busy }),
                }
                self.drive(out);
            }
        }
    }

    fn check_change(&self, change: Change) -> Result<Amendment, Refusal> {
        if let Some(reason) = self.refusal() {
            return Err(reason);
        }
        // A leader that has committed nothing in its term does not know whether a change is on its way; and two
        // changes at once could make quorums that do not meet.
        let raft = &self.engine.raft;
        if !self.is_ready() || raft.has_pending_conf() || raft.lead_transferee.is_some() {
            return Err(Refusal::Busy);
        }
        let amendment = self.members.resolve(change)?;
        match amendment {
            Amendment::Remove(replica) if replica == self.me.replica => Err(Unchangeable::IsLeader.into()),
            Amendment::Promote(replica) if !self.has_caught_up(replica.0) => {
                Err(Unchangeable::NotCaughtUp.into())
            }
            Amendment::Add(_) | Amendment::Promote(_) | Amendment::Remove(_) => Ok(amendment),
        }
    }

    /// Whether the rest is on its way, or there is none: a learner that came by a snapshot is not sent anything more,
    /// and not known to take it, as long as nothing is proposed.
    fn has_caught_up(&self, replica: u64) -> bool {
        let raft = &self.engine.raft;
        let committed = raft.raft_log.committed;
        raft.prs().get(replica).is_some_and(|progress| {
            progress.recent_active
                && match progress.state {
                    ProgressState::Replicate => progress.matched + CAUGHT_UP_ENTRIES >= committed,
                    ProgressState::Probe => progress.matched >= committed,
                    ProgressState::Snapshot => false,
                }
        })
    }

    pub(super) fn transfer(&mut self, to: NodeId, out: &mut Vec<Action>) {
        if let Some((replica, Part::Voter)) = self.members.of_node(to)
            && self.is_running()
            && self.role() == Role::Leader
        {
            self.engine.transfer_leader(replica.0);
            self.drive(out);
        }
    }
}
