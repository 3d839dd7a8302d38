//! Keeping groups at the members they shall have.
//!
//! Each group's leader takes the next step (`placement::rebalance`), one at a time: members come as learners, vote once
//! they have caught up, and leave when those that stay can do without them. A leader that is to leave hands over first.

use std::collections::BTreeSet;

use placement::domains::Domains;
use placement::rank::Item;
use placement::rebalance::{self, Step as Next};
use placement::repair;
use raft::{Change, Group, Part};
use types::{NodeId, VnodeId};

use crate::liveness::Health;
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
        let living = self.living();
        let rf = match living.belonging.len() {
            few @ 0..=2 => few,
            3 | 4 => 3,
            _ => 5,
        };
        healed(Item::Cluster, &current, &living, rf, self.core.group_domains().as_ref())
    }

    fn next_member(&mut self, id: VnodeId, wanted: &[NodeId]) {
        let own = self.core.config.node;
        let Some(group) = self.core.meta.group(id) else { return };
        let mut parts = self.parts_of(group);
        // One that is to go and lost its connection a moment ago is not gone: it stays until those wanted are there.
        let goes =
            |node: &&NodeId| !wanted.contains(node) && self.core.liveness.health(**node) == Health::Alive;
        let still_there: Vec<NodeId> = parts.voters.iter().filter(goes).copied().collect();
        parts.readable.extend(still_there);
        let next = self.plant_shrinking(&parts, wanted).unwrap_or_else(|| rebalance::next(&parts, wanted));
        let change = match next {
            Next::Add(node) => Change::AddLearner(node),
            Next::Promote(node) => Change::Promote(node),
            Next::Remove(node) if node == own => {
                let may_lead = |node: &NodeId| *node != own && self.may_lead(group, *node);
                let heir = wanted.iter().copied().find(may_lead);
                return self.core.transfer(id, heir);
            }
            Next::Remove(node) => Change::Remove(node),
            Next::Wait(_) | Next::Blocked => return,
            Next::Done => {
                // The first of them leads, so that leaders are spread as members are.
                let first = wanted.first().copied();
                let first = first.filter(|first| *first != own && self.may_lead(group, *first));
                return self.core.transfer(id, first.filter(|_| id != CLUSTER));
            }
        };
        self.core.change_members(id, change);
    }
}

impl Node {
    /// Whether a group may be handed to that member: it has everything, and nobody doubts that it is there.
    pub(super) fn may_lead(&self, group: &Group, node: NodeId) -> bool {
        let is_it = |peer: &raft::PeerView| peer.member.node == node && peer.part == Part::Voter;
        let can = |peer: &raft::PeerView| peer.is_active && peer.matched >= group.commit();
        self.core.liveness.usable(node) && group.peers().any(|peer| is_it(&peer) && can(&peer))
    }

    /// With a bug, whoever is to go goes at once.
    fn plant_shrinking(&self, parts: &rebalance::Group, wanted: &[NodeId]) -> Option<Next> {
        let own = self.core.config.node;
        let goes = parts.voters.iter().find(|node| **node != own && !wanted.contains(node));
        goes.filter(|_| self.core.config.has_bug(Bug::ShrinkFirst)).map(|node| Next::Remove(*node))
    }

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

/// The nodes of the cluster, as far as groups are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Living {
    /// May keep what they hold, whether or not they are there at the moment.
    pub(crate) belonging: BTreeSet<NodeId>,
    /// May be given something.
    pub(crate) able: BTreeSet<NodeId>,
    /// Have been dead for so long that others take what they hold.
    pub(crate) lost: BTreeSet<NodeId>,
    /// Are on their way out: they keep what they hold until others have it.
    pub(crate) leaving: BTreeSet<NodeId>,
    /// Full members that are not on their way out, there or not.
    pub(crate) active: usize,
}

/// Those that belong stay, and those that are able fill up. Whoever is lost goes as far as another is there to come: a
/// member that may still return is worth more than none. Whoever is leaving goes as far as a full member is there in its
/// place, or none will be.
pub(super) fn healed(
    item: Item,
    current: &[NodeId],
    living: &Living,
    rf: usize,
    domains: Option<&Domains>,
) -> Vec<NodeId> {
    let Living { belonging, able, lost, leaving, active } = living;
    let staying: Vec<NodeId> = current.iter().filter(|node| belonging.contains(node)).copied().collect();
    let (gone, there): (Vec<NodeId>, Vec<NodeId>) = staying.iter().partition(|node| lost.contains(node));
    let spare = able.iter().filter(|node| !staying.contains(node)).count();
    let kept = rf.saturating_sub(there.len() + spare).min(gone.len());
    let staying = there.iter().chain(&gone[..kept]).copied();
    let alive: BTreeSet<NodeId> = staying.chain(able.iter().copied()).collect();
    let mut healed = repair::healed(item, current, &alive, rf, domains);
    healed.truncate(rf.max(1));
    let goes = current.iter().filter(|node| leaving.contains(node) && !healed.contains(node)).copied();
    let kept: Vec<NodeId> = goes.take(rf.min(*active).saturating_sub(healed.len())).collect();
    healed.extend(kept);
    healed
}

fn is_near(group: &Group, peer: &raft::PeerView) -> bool {
    peer.is_active && peer.matched.0 + BEHIND_MAX >= group.commit().0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u128]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    /// Members of three after one pass, sorted.
    fn after(current: &[u128], able: &[u128], lost: &[u128]) -> Vec<NodeId> {
        let set = |ids: &[u128]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let belonging = set(&[1, 2, 3, 4, 5, 6]);
        let living = Living { belonging, able: set(able), lost: set(lost), leaving: set(&[7, 8]), active: 6 };
        let mut healed = healed(Item::Cluster, &nodes(current), &living, 3, None);
        healed.sort_unstable();
        healed
    }

    #[test]
    fn whoever_is_away_keeps_its_place_and_whoever_is_lost_gives_it_to_another() {
        assert_eq!(after(&[1, 2, 3], &[1, 2, 4], &[]), nodes(&[1, 2, 3]));
        assert_eq!(after(&[1, 2, 3], &[1, 2, 4], &[3]), nodes(&[1, 2, 4]));
    }

    #[test]
    fn whoever_leaves_stays_until_another_has_come() {
        assert_eq!(after(&[1, 2, 7], &[1, 2, 4], &[]), nodes(&[1, 2, 4]));
        assert_eq!(after(&[1, 2, 7], &[1, 2], &[]), nodes(&[1, 2, 7]));
        assert_eq!(after(&[1, 7, 8], &[1, 2], &[]), nodes(&[1, 2, 7]));
        // Where there are no others, nobody is waited for.
        let set = |ids: &[u128]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let (belonging, able, leaving) = (set(&[1, 2]), set(&[1, 2]), set(&[7]));
        let living = Living { belonging, able, leaving, active: 2, ..Living::default() };
        assert_eq!(healed(Item::Cluster, &nodes(&[1, 2, 7]), &living, 3, None), nodes(&[1, 2]));
    }

    #[test]
    fn nobody_is_given_up_while_nobody_can_come() {
        assert_eq!(after(&[1, 2, 3], &[1, 2], &[3]), nodes(&[1, 2, 3]));
        assert_eq!(after(&[1, 2, 3], &[1, 4], &[2, 3]), nodes(&[1, 2, 4]));
        // What is missing anyway is filled first.
        assert_eq!(after(&[1, 2], &[1, 4], &[2]), nodes(&[1, 2, 4]));
        assert_eq!(after(&[1, 2], &[1, 4, 5], &[2]), nodes(&[1, 4, 5]));
    }
}
