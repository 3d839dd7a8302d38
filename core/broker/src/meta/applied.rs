//! Entries as they are applied: by this node's replicas, or as another node's replica had them.
//!
//! Owns what an applied entry leads to: whoever proposed it here is answered, whoever proposed it elsewhere and asked
//! this node is told, and what nobody here waited for is looked at (`crate::elsewhere`).

use bytes::Bytes;
use metadata::machine::Version;
use metadata::vnode::{Command, Reply};
use peer::message::{ProposeRefusal, ProposeReply};
use raft::{Entry, ProposalId};
use types::{Term, VnodeId};

use super::detour::Proposed;
use super::origin::Origin;
use super::tables::Applied;
use super::{CLUSTER, Decided, Fate, Meta, Outcome, Then};
use crate::cluster;
use crate::planted::Bug;

impl Meta {
    /// The replica of this node applies an entry.
    pub(super) fn apply(&mut self, group: VnodeId, entry: Entry, proposal: Option<ProposalId>) {
        let (index, (origin, command)) = (entry.index, split(&entry.data));
        let is_late = self.is_late(origin, entry.term);
        if group == CLUSTER {
            let applied = self.cluster.apply(index, Some(&command));
            self.cluster_applied(origin, applied);
        } else if let Some(shard) = self.shards.get_mut(&group) {
            let applied = shard.tables.apply(index, (!is_late).then_some(&command));
            self.led.note((group, &entry), origin, &applied.reply);
            self.vnode_applied(group, origin, &command, applied);
        }
        if let Some(id) = proposal {
            self.tell_proposer(id, ProposeReply::Applied { index, reply: Bytes::new() });
        }
        self.news.insert(group);
    }

    /// Another node's replica has applied an entry, which may carry no command.
    pub(super) fn apply_followed(&mut self, group: VnodeId, entry: Entry) {
        if entry.data.is_empty() {
            return;
        }
        let (index, (origin, command)) = (entry.index, split(&entry.data));
        let is_late = self.is_late(origin, entry.term);
        if group == CLUSTER {
            if let Some(applied) = self.cluster.apply_followed(index, Some(&command)) {
                self.cluster_applied(origin, applied);
            }
        } else {
            let tables = &mut self.shards.entry(group).or_default().tables;
            if let Some(applied) = tables.apply_followed(index, (!is_late).then_some(&command)) {
                self.vnode_applied(group, origin, &command, applied);
            }
        }
    }

    /// Whether whoever proposed an entry as the leader of its vnode did not lead any more when it was recorded. What is
    /// done about the cluster carries the fence of the lease instead.
    fn is_late(&self, origin: Option<Origin>, recorded: Term) -> bool {
        origin.is_some_and(|origin| origin.is_late(recorded)) && !self.planted.has(Bug::AnyTerm)
    }

    fn cluster_applied(&mut self, origin: Option<Origin>, applied: Applied<metadata::cluster::Reply>) {
        let Applied { reply, left_behind } = applied;
        let origin = self.plant_own(origin);
        let then = origin.and_then(|origin| self.asked_cluster.heard(origin));
        self.release(CLUSTER, origin);
        use metadata::cluster::Reply as R;
        self.cluster_changed |= matches!(reply, R::NodesChanged(_) | R::RingChanged { .. } | R::FlagEnabled);
        self.decided.extend(cluster::decided(Outcome::Applied { reply, then }));
        self.tell_left_behind(CLUSTER, left_behind);
    }

    fn vnode_applied(
        &mut self,
        group: VnodeId,
        origin: Option<Origin>,
        command: &Bytes,
        applied: Applied<Reply>,
    ) {
        let Applied { reply, left_behind } = applied;
        self.note_topics(group, command, &reply);
        self.release(group, origin);
        if let Some(proposed) = origin.and_then(|origin| self.asked.heard(origin)) {
            if origin.is_some_and(|origin| origin.led.is_some()) {
                // Whoever leads the vnode that has the topic now decides anew.
                self.decide(proposed.then, reply);
            } else {
                self.answer(group, proposed, command, reply);
            }
        } else if self.ready.1 {
            self.tell_elsewhere(command, reply);
        }
        self.tell_left_behind(group, left_behind);
    }

    /// Whoever proposed a command here hears of it, unless it has to be proposed again.
    pub(super) fn answer(&mut self, group: VnodeId, proposed: Proposed, command: &Bytes, reply: Reply) {
        match (proposed.then, reply) {
            (Then::Commit { ids, .. }, Reply::PositionsCommitted(results)) => {
                self.commits_applied(group, ids, command, results);
            }
            (Then::Ring { fence }, reply) => self.decide(Then::Ring { fence }, reply),
            (then, Reply::Refused(refusal)) => match self.misled(group, command, refusal) {
                Some(command) => self.detour(Proposed { then, until: proposed.until }, command),
                None => self.decide(then, Reply::Refused(refusal)),
            },
            (then, reply) => self.decide(then, reply),
        }
    }

    /// Nobody here waits for it. Before the tables are complete nothing hangs on them.
    fn tell_elsewhere(&mut self, command: &Bytes, reply: Reply) {
        let removed = match reply {
            Reply::Refused(_) | Reply::PositionsCommitted(_) => return,
            Reply::TopicDeleted { segments } => segments,
            Reply::TopicCreated { .. }
            | Reply::TopicSealed
            | Reply::RangeSplit { .. }
            | Reply::RangesMerged { .. }
            | Reply::SegmentRegistered
            | Reply::SegmentSealed
            | Reply::SegmentDeleted(_)
            | Reply::ReplicasSet
            | Reply::PolicyBound
            | Reply::GroupExpired
            | Reply::MigrationBegun
            | Reply::MigrationEnded
            | Reply::TopicExtracted(_)
            | Reply::TopicInserted
            | Reply::ArcSet
            | Reply::Upgraded(_) => Vec::new(),
        };
        let command = Command::read(command).map(Box::new);
        self.decided.extend(command.map(|command| Decided::Elsewhere { command, removed }));
    }

    fn release(&mut self, group: VnodeId, origin: Option<Origin>) {
        if let Some(origin) = origin.filter(|origin| self.asked.is_own(*origin)) {
            self.remote.release((group, origin.number));
        }
    }

    pub(super) fn refused(&mut self, group: VnodeId, id: ProposalId, reason: raft::Refusal) {
        let reply = match reason {
            raft::Refusal::NotLeader { leader } => ProposeReply::NotLeader { hint: leader },
            raft::Refusal::TooLarge => ProposeReply::Refused(ProposeRefusal::TooLarge),
            raft::Refusal::Stopped | raft::Refusal::Busy | raft::Refusal::Unchangeable(_) => {
                ProposeReply::Refused(ProposeRefusal::Overloaded)
            }
        };
        if !self.tell_proposer(id, reply) {
            self.lost(group, id, Fate::NotRecorded);
        }
    }

    fn tell_left_behind(&mut self, group: VnodeId, version: Option<Version>) {
        self.decided.extend(version.map(|version| Decided::LeftBehind { group, version }));
    }
}

/// Who proposed an entry, and what. Of bytes that no node of ours wrote nobody waits, and the machine says of them what
/// every member says.
fn split(entry: &Bytes) -> (Option<Origin>, Bytes) {
    Origin::split(entry).map_or((None, Bytes::new()), |(origin, command)| (Some(origin), command))
}
