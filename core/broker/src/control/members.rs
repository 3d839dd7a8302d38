//! Keeping groups at the members they shall have.
//!
//! Each group's leader takes the next step (`placement::rebalance`), one at a time: members come as learners, vote once
//! they have caught up, and leave when those that stay can do without them. A leader that is to leave hands over first.

use std::collections::BTreeSet;

use placement::rank::Item;
use placement::rebalance::{self, Step as Next};
use placement::repair;
use raft::{Change, Group, Part};
use types::{NodeId, VnodeId};

use crate::meta::CLUSTER;
use crate::node::Node;
use crate::planted::Bug;

/// A member that is this many entries behind holds nothing anybody could read.
const BEHIND_MAX: u64 = 1_000;

impl Node {
    /// Takes the next step of every group this node leads.
    pub(super) fn keep_members(&mut self) {
        let led: Vec<VnodeId> = self.core.meta.led_groups().collect();
        for id in led {
            let wanted = self.wanted_members(id);
            if !wanted.is_empty() {
                self.next_member(id, &wanted);
            }
        }
    }

    fn wanted_members(&self, id: VnodeId) -> Vec<NodeId> {
        if id == CLUSTER {
            return self.cluster_members();
        }
        let topology = self.core.meta.cluster().topology();
        topology.and_then(|topology| topology.placements.get(&id)).cloned().unwrap_or_default()
    }

    /// Few enough to agree quickly, and an odd number of them, so that none is there for nothing.
    fn cluster_members(&self) -> Vec<NodeId> {
        let Some(group) = self.core.meta.group(CLUSTER) else { return Vec::new() };
        let current: Vec<NodeId> = group.members().iter().map(|(member, _)| member.node).collect();
        let (belonging, able) = (self.belonging(), self.able());
        let rf = match belonging.len() {
            0..=2 => belonging.len(),
            3 | 4 => 3,
            _ => 5,
        };
        healed(Item::Cluster, &current, &belonging, &able, rf)
    }

    fn next_member(&mut self, id: VnodeId, wanted: &[NodeId]) {
        let own = self.core.config.node;
        let Some(group) = self.core.meta.group(id) else { return };
        let change = match rebalance::next(&self.parts_of(group), wanted) {
            Next::Add(node) => Change::AddLearner(node),
            Next::Promote(node) => Change::Promote(node),
            Next::Remove(node) if node == own => {
                let heir = wanted.iter().copied().find(|node| *node != own && can_lead(group, *node));
                return self.core.transfer(id, heir);
            }
            Next::Remove(node) => Change::Remove(node),
            Next::Wait(_) | Next::Blocked => return,
            Next::Done => {
                // The first of them leads, so that leaders are spread as members are.
                let first = wanted.first().copied().filter(|first| *first != own && can_lead(group, *first));
                return self.core.transfer(id, first.filter(|_| id != CLUSTER));
            }
        };
        self.core.change_members(id, change);
    }
}

impl Node {
    fn parts_of(&self, group: &Group) -> rebalance::Group {
        let mut parts = rebalance::Group::default();
        for (member, part) in group.members().iter() {
            match part {
                Part::Learner if !self.core.config.has_bug(Bug::CountLearner) => {
                    parts.learners.insert(member.node)
                }
                Part::Voter | Part::Learner => parts.voters.insert(member.node),
            };
        }
        parts.readable =
            group.peers().filter(|peer| is_near(group, peer)).map(|peer| peer.member.node).collect();
        parts.readable.insert(self.core.config.node);
        parts
    }
}

/// Those that belong stay, and those that are able fill up.
pub(super) fn healed(
    item: Item,
    current: &[NodeId],
    belonging: &BTreeSet<NodeId>,
    able: &BTreeSet<NodeId>,
    rf: usize,
) -> Vec<NodeId> {
    let staying = current.iter().filter(|node| belonging.contains(node)).copied();
    let alive: BTreeSet<NodeId> = staying.chain(able.iter().copied()).collect();
    let mut healed = repair::healed(item, current, &alive, rf, None);
    healed.truncate(rf.max(1));
    healed
}

fn is_near(group: &Group, peer: &raft::PeerView) -> bool {
    peer.is_active && peer.matched.0 + BEHIND_MAX >= group.commit().0
}

pub(super) fn can_lead(group: &Group, node: NodeId) -> bool {
    let is_it = |peer: &raft::PeerView| peer.member.node == node && peer.part == Part::Voter;
    group.peers().any(|peer| is_it(&peer) && peer.is_active && peer.matched >= group.commit())
}
