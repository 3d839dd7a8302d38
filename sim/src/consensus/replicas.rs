//! Who may be which replica.
//!
//! A replica's number is one node's for ever, and lives once: as long as it lives it is found again with everything it
//! ever told anybody, and once another followed it, or it was forgotten, it never comes back.

use std::collections::BTreeMap;

use raft::{Body, Members, Message, ReplicaId};
use storage::raft_log::GroupView;
use types::{NodeId, RaftIndex, Term, VnodeId};

use crate::invariants::{Violation, ensure};

/// What a replica has told others.
#[derive(Clone, Debug)]
struct Told {
    node: NodeId,
    term: Term,
    vote: Option<(Term, ReplicaId)>,
    /// How far it holds the log of a term's leader.
    appended: (Term, RaftIndex),
    is_over: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    told: BTreeMap<(VnodeId, ReplicaId), Told>,
}

impl Replicas {
    /// A message leaves. Pre-votes bind nobody, and the answer to a part of a snapshot carries the leader's term.
    pub(super) fn told(&mut self, group: VnodeId, message: &Message) {
        let Message { from, to, term, body } = message;
        let Some(told) = self.told.get_mut(&(group, from.replica)) else { return };
        match body {
            Body::Vote { pre: true, .. } | Body::VoteReply { pre: true, .. } | Body::PartReply { .. } => {
                return;
            }
            Body::Vote { pre: false, .. } => told.vote = Some((*term, from.replica)),
            Body::VoteReply { pre: false, granted: true, .. } => told.vote = Some((*term, *to)),
            Body::Appended { index, .. } if *term > told.appended.0 => told.appended = (*term, *index),
            Body::Appended { index, .. } if *term == told.appended.0 => {
                told.appended.1 = told.appended.1.max(*index);
            }
            Body::VoteReply { .. }
            | Body::Appended { .. }
            | Body::Append { .. }
            | Body::Rejected { .. }
            | Body::Heartbeat { .. }
            | Body::HeartbeatReply { .. }
            | Body::Part { .. }
            | Body::TakeOver => {}
        }
        told.term = told.term.max(*term);
    }

    /// A node says that it is a replica, with this in its log.
    pub(super) fn found(
        &mut self,
        node: NodeId,
        group: VnodeId,
        replica: ReplicaId,
        view: Option<GroupView>,
    ) -> Result<(), Violation> {
        for ((_, number), told) in self.of_group(group).filter(|(_, told)| told.node == node) {
            ensure(*number <= replica, "REPLICA", || {
                format!("node {node} is replica {} of {group} again, and was {}", replica.0, number.0)
            })?;
            told.is_over |= *number < replica;
        }
        let begins = Told {
            node,
            term: Term::ZERO,
            vote: None,
            appended: (Term::ZERO, RaftIndex::ZERO),
            is_over: false,
        };
        let told = self.told.entry((group, replica)).or_insert(begins);
        ensure(told.node == node && !told.is_over, "REPLICA", || {
            format!("replica {} of {group} lives on node {node}, and was {told:?}", replica.0)
        })?;
        let hard = view.map(|view| view.hard_state).unwrap_or_default();
        let last = view.map_or(RaftIndex::ZERO, |view| view.last.index);
        let keeps_vote = |(term, whom): (Term, ReplicaId)| {
            hard.term > term || hard.voted_for == Some(NodeId(u128::from(whom.0)))
        };
        let keeps = hard.term >= told.term
            && told.vote.is_none_or(keeps_vote)
            && (hard.term > told.appended.0 || last >= told.appended.1);
        ensure(keeps, "DISCLOSURE", || {
            format!("replica {} of {group} is found with {hard:?} up to {last}, and told {told:?}", replica.0)
        })
    }

    /// A node has forgotten the replica it was.
    pub(super) fn left(
        &mut self,
        node: NodeId,
        group: VnodeId,
        members: Option<&Members>,
    ) -> Result<(), Violation> {
        let of_node = self.of_group(group).filter(|(_, told)| told.node == node && !told.is_over);
        for ((_, replica), told) in of_node {
            told.is_over = true;
            let is_member = members.is_none_or(|members| members.of_replica(*replica).is_some());
            ensure(!is_member, "REPLICA", || {
                format!("node {node} forgets replica {} of {group}, which is a member", replica.0)
            })?;
        }
        Ok(())
    }

    fn of_group(&mut self, group: VnodeId) -> impl Iterator<Item = (&(VnodeId, ReplicaId), &mut Told)> {
        self.told.range_mut((group, ReplicaId(0))..=(group, ReplicaId(u64::MAX)))
    }
}
