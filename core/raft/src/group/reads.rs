//! Linearizable reads.
//!
//! A read is answered once a quorum has confirmed, after it was asked for, that the leader still leads, and once
//! everything committed by then is applied. One round of heartbeats confirms all reads that waited for it; what
//! comes meanwhile goes with the next. No clock is relied on.

use std::collections::VecDeque;

use types::{RaftIndex, limits};

use super::Group;
use crate::engine::StateRole;
use crate::event::{Action, ReadId, Refusal};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Numbers rounds over the life of the member.
    rounds: u64,
    /// For the next round.
    waiting: Vec<ReadId>,
    /// In the round that is under way.
    asking: Vec<ReadId>,
    /// Confirmed, until everything up to the index is applied. Indexes do not decrease.
    confirmed: VecDeque<(RaftIndex, Vec<ReadId>)>,
    count: usize,
}

impl Reads {
    /// A quorum has confirmed a round.
    pub(super) fn confirmed(&mut self, context: &[u8], index: RaftIndex) {
        if context == self.rounds.to_be_bytes() && !self.asking.is_empty() {
            self.confirmed.push_back((index, std::mem::take(&mut self.asking)));
        }
    }

    /// Everything up to `applied` is.
    pub(super) fn answer(&mut self, applied: RaftIndex, out: &mut Vec<Action>) {
        while self.confirmed.front().is_some_and(|(index, _)| *index <= applied) {
            let (_, ids) = self.confirmed.pop_front().expect("it was looked at");
            self.count -= ids.len();
            out.extend(ids.into_iter().map(|id| Action::ReadReady { id }));
        }
    }

    /// Nobody here can answer them any more.
    pub(super) fn refuse(&mut self, reason: Refusal, out: &mut Vec<Action>) {
        let confirmed = std::mem::take(&mut self.confirmed).into_iter().flat_map(|(_, ids)| ids);
        let ids = confirmed.chain(self.asking.drain(..)).chain(self.waiting.drain(..));
        out.extend(ids.map(|id| Action::ReadRefused { id, reason }));
        self.count = 0;
    }
}

impl Group {
    pub(super) fn read(&mut self, id: ReadId, out: &mut Vec<Action>) {
        let refusal = match self.refusal() {
            None if self.reads.count >= limits::RAFT_READS_MAX => Some(Refusal::Busy),
            refusal => refusal,
        };
        if let Some(reason) = refusal {
            return out.push(Action::ReadRefused { id, reason });
        }
        self.reads.count += 1;
        self.reads.waiting.push(id);
        self.drive(out);
    }

    /// Begins a round when reads wait and none is under way; whether it did.
    ///
    /// A leader that has committed nothing in its term does not know what is committed: its reads wait.
    pub(super) fn ask_for_reads(&mut self) -> bool {
        let leads = self.engine.raft.state == StateRole::Leader && self.engine.raft.commit_to_current_term();
        let reads = &mut self.reads;
        if !leads || reads.waiting.is_empty() || !reads.asking.is_empty() {
            return false;
        }
        reads.rounds += 1;
        std::mem::swap(&mut reads.waiting, &mut reads.asking);
        let context = reads.rounds.to_be_bytes();
        #[cfg(feature = "planted")]
        if self.config.has_bug(crate::planted::Bug::ReadAlone) {
            let index = self.commit();
            self.reads.confirmed(&context, index);
            self.engine.raft.ping();
            return true;
        }
        self.engine.read_index(context.to_vec());
        true
    }
}
