//! When the tables here hold everything that was decided before this process began.
//!
//! Tables that were stored, or that come from another node, may lack what was acknowledged last. A leader that has
//! applied everything of earlier terms knows that it lacks nothing; any other node asks one how far it must have
//! applied, once, and waits for that. Later than that the tables only lag behind.

use std::collections::{BTreeMap, BTreeSet};

use peer::Message;
use peer::message::ReadIndexReply;
use raft::Group;
use types::{NodeId, RaftIndex, VnodeId};

use super::{CLUSTER, Decided, Meta, VNODE, remote};
use crate::action::{Action, Actions};
use crate::event::AskId;
use crate::planted::Bug;

/// How far the tables of each group have to be.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    asks: BTreeMap<AskId, (VnodeId, NodeId)>,
    wanted: BTreeMap<VnodeId, RaftIndex>,
    done: BTreeSet<VnodeId>,
}

impl Fresh {
    fn is_asked(&self, group: VnodeId) -> bool {
        self.asks.values().any(|(asked, _)| *asked == group)
    }

    /// What was asked of a node that is gone is not answered.
    pub(super) fn down(&mut self, node: NodeId) {
        self.asks.retain(|_, (_, asked)| *asked != node);
    }
}

impl Meta {
    /// Tells once when the tables are complete: the cluster's, then all vnodes'. What no vnode covers as its tables are
    /// here may hold topics that are on their way, or that nobody was told to hold: the tables lack them then.
    pub(super) fn tell_ready(&mut self) {
        if self.ready == (true, true) {
            return;
        }
        for group in self.looked_at() {
            let leads = self.host.group(group).is_some_and(Group::is_ready);
            let reached = self.fresh.wanted.get(&group).is_some_and(|index| self.applied_of(group) >= *index);
            let planted = self.planted.has(Bug::FreshUnasked) && self.applied_of(group) > RaftIndex::ZERO;
            if leads || reached || planted {
                self.fresh.done.insert(group);
            }
        }
        if !self.ready.0 && self.fresh.done.contains(&CLUSTER) {
            self.ready.0 = true;
            self.cluster_changed = true;
            self.decided.push(Decided::ClusterRecovered);
        }
        // Which vnodes there are is in the cluster's tables.
        let is_done = |group: VnodeId| self.fresh.done.contains(&group);
        let complete = self.ready.0 && self.needed().into_iter().all(is_done);
        let uncovered = self.planted.has(Bug::ReadyUncovered);
        if complete && (uncovered || self.is_covered(is_done)) {
            self.ready.1 = true;
            self.decided.push(Decided::Recovered);
        }
    }

    /// Whether the cluster's tables hold everything that was decided before this process began.
    pub(crate) fn has_cluster(&self) -> bool {
        self.ready.0
    }

    /// Groups whose tables have to be complete. Before there is a ring there is the vnode it begins with.
    fn needed(&self) -> Vec<VnodeId> {
        let ring = self.ring_vnodes();
        let first = ring.is_empty().then_some(VNODE);
        std::iter::once(CLUSTER).chain(first).chain(ring).collect()
    }

    /// The same, and the vnode that is on its way onto the ring: it may have what another gave away.
    fn looked_at(&self) -> Vec<VnodeId> {
        let coming = self.cluster().topology().and_then(|topology| topology.coming()).map(|(vnode, _)| vnode);
        self.needed().into_iter().chain(coming).collect()
    }

    /// Asks leaders how far the tables have to be.
    pub(super) fn ask_how_far(&mut self, out: &mut Actions) {
        if self.ready == (true, true) {
            return;
        }
        for group in self.looked_at() {
            let known = self.fresh.wanted.contains_key(&group) || self.fresh.is_asked(group);
            if known || self.fresh.done.contains(&group) || self.leads(group) {
                continue;
            }
            // Whoever does not lead says who does.
            let any = || self.candidates(group).first().copied();
            let Some(to) = self.leader(group).filter(|leader| self.is_up(*leader)).or_else(any) else {
                continue;
            };
            let ask = self.ask_id();
            self.fresh.asks.insert(ask, (group, to));
            let message = Message::ReadIndex { vnode: group };
            out.push(Action::Ask { to, ask, message, within: remote::ANSWER_WITHIN });
        }
    }

    /// The answer, `None` when there is none: then it is asked again.
    pub(super) fn told_how_far(&mut self, ask: AskId, reply: Option<&ReadIndexReply>) {
        let Some((group, asked)) = self.fresh.asks.remove(&ask) else {
            return self.confirm_answered(ask, reply);
        };
        match reply {
            Some(ReadIndexReply::Ready(index)) => {
                self.fresh.wanted.insert(group, *index);
                self.remote.set_hint(group, Some(asked));
            }
            Some(ReadIndexReply::NotLeader { hint }) => {
                self.remote.set_hint(group, hint.filter(|hint| *hint != asked));
            }
            Some(ReadIndexReply::Overloaded) | None => {}
        }
    }
}
