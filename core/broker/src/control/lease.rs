//! The lease, and what its holder does: it says which nodes each vnode's members are.
//!
//! A vnode keeps the members it has as long as they belong to the cluster, gets more as long as it has fewer than it
//! shall have, and loses those that are on their way out. Nothing else moves by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use metadata::cluster::{self as tables, AcquireLease, ChangeRing, Command, Renewal, Reply, RingAct};
use placement::holder::{Action, Answer, Attempt, Holder, Timing};
use placement::rank::Item;
use types::{FenceToken, Instant, NodeId, VnodeId};

use super::{Living, Step, members};
use crate::cluster;
use crate::node::Node;
use crate::planted::Bug;

/// This node's view of the lease.
#[derive(Debug)]
pub(super) struct Lease {
    timing: Timing,
    /// Made once in a process: it knows which fence was given back and which answers are late.
    holder: Option<Holder>,
    /// This node led the cluster's group when it looked last.
    leads: bool,
    /// The renewal that the tables here say was the last, and since when by this node's own clock.
    watched: Option<(Renewal, Instant)>,
}

impl Lease {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, holder: None, leads: false, watched: None }
    }

    fn holder(&mut self, now: Instant) -> &mut Holder {
        self.holder.get_or_insert_with(|| Holder::new(self.timing, now))
    }

    /// Looks at the lease as the tables here have it.
    fn watch(&mut self, lease: &tables::Lease, now: Instant) {
        let renewal = lease.renewal();
        if self.watched.is_none_or(|(watched, _)| watched != renewal) {
            self.watched = Some((renewal, now));
        }
    }

    /// The last renewal, when it has been the last for as long as the lease lasts. Its holder stopped believing in it
    /// before that, since both clocks run equally fast; and if it was renewed without this node having heard of it yet,
    /// the tables will know.
    fn over(&self, lease: &tables::Lease, now: Instant) -> Option<Renewal> {
        let lasts = Duration::from_millis(lease.duration_ms).max(self.timing.duration());
        self.watched.filter(|(_, since)| now.since(*since) >= lasts).map(|(renewal, _)| renewal)
    }

    pub(super) fn fence(&self, now: Instant) -> Option<FenceToken> {
        self.holder.as_ref()?.fence(now)
    }
}

impl Node {
    /// Watches the lease, and tries to get it, or to keep it. Only a node that leads the cluster group tries to get it:
    /// it is the one whose steps are recorded soonest.
    pub(super) fn keep_lease(&mut self) {
        let now = self.core.now;
        let mut actions = Vec::new();
        self.control.lease.watch(self.core.meta.cluster().lease(), now);
        let leads = self.core.meta.leads(crate::meta::CLUSTER);
        let led = std::mem::replace(&mut self.control.lease.leads, leads);
        let holder = self.control.lease.holder(now);
        match (led, leads) {
            (false, false) => return,
            (true, false) => holder.release(now, &mut actions),
            (false, true) => {
                holder.hurry(now);
                holder.tick(now, &mut actions);
            }
            (true, true) => holder.tick(now, &mut actions),
        }
        self.lease_actions(actions);
    }

    pub(super) fn lease_answered(&mut self, attempt: Attempt, result: Result<Reply, cluster::Error>) {
        let answer = match result {
            Ok(Reply::LeaseGranted(fence)) => Answer::Granted(fence),
            Ok(Reply::LeaseHeld { .. }) => Answer::Held,
            Ok(_) | Err(_) => Answer::Unreachable,
        };
        let mut actions = Vec::new();
        if let Some(holder) = &mut self.control.lease.holder {
            holder.answered(self.core.now, attempt, answer, &mut actions);
        }
        self.lease_actions(actions);
    }

    fn lease_actions(&mut self, actions: Vec<Action>) {
        let candidate = self.core.config.node;
        for action in actions {
            match action {
                Action::Acquire(attempt) => {
                    let duration_ms =
                        u64::try_from(self.core.config.lease.duration().as_millis()).unwrap_or(u64::MAX);
                    let lease = self.core.meta.cluster().lease();
                    let over = match self.core.config.has_bug(Bug::TakeLease) {
                        true => Some(lease.renewal()),
                        false => self.control.lease.over(lease, self.core.now),
                    };
                    let acquire = AcquireLease { candidate, duration_ms, at: self.core.wall, over };
                    let then = cluster::Then::Control(Step::Lease(attempt));
                    self.core.propose_cluster(&Command::AcquireLease(acquire), then);
                }
                Action::Release(fence) => {
                    let then = cluster::Then::Control(Step::Release);
                    self.core.propose_cluster(&Command::ReleaseLease { candidate, fence }, then);
                }
                // What there is to do is seen in the tables.
                Action::Gained(_) | Action::Lost(_) => {}
            }
        }
    }

    /// Gives the lease back. Whoever asks for it next, this node at its next look too, is given another fence.
    pub(super) fn give_lease_back(&mut self) {
        let Some(holder) = &mut self.control.lease.holder else { return };
        let mut actions = Vec::new();
        holder.turn(self.core.now, &mut actions);
        self.lease_actions(actions);
    }

    /// While the lease is held: the next vnode whose members shall be others than the table says.
    pub(super) fn place_vnodes(&mut self) {
        let held = self.control.lease.fence(self.core.now);
        self.forget_rebalance(held);
        let Some(fence) = held.filter(|_| !self.control.placing) else { return };
        // What is missing comes before what might be better.
        let Some((vnode, nodes)) = self.next_placement().or_else(|| self.next_rebalanced()) else { return };
        let expected = self.core.meta.cluster().topology().map_or(0, |topology| topology.version);
        let act = RingAct::SetPlacement { vnode, nodes };
        self.control.placing = true;
        let change = Command::ChangeRing(ChangeRing { expected, fence, act });
        self.core.propose_cluster(&change, cluster::Then::Control(Step::Place));
    }

    fn next_placement(&self) -> Option<(VnodeId, Vec<NodeId>)> {
        let living = self.living();
        let topology = self.core.meta.cluster().topology()?;
        topology.placements.iter().find_map(|(vnode, placed)| {
            let healed = self.members_of(*vnode, placed, &living);
            let wanted = self.leaders_spread(*vnode, placed, healed);
            (!wanted.is_empty() && wanted != *placed).then_some((*vnode, wanted))
        })
    }

    /// The members of a vnode that has those, or none yet. Where nodes have a share of vnodes, those come that are below
    /// it, as long as there are enough of them.
    pub(super) fn members_of(&self, vnode: VnodeId, placed: &[NodeId], living: &Living) -> Vec<NodeId> {
        let rf = self.core.config.vnode_replicas.max(1);
        let (item, domains) = (Item::Vnode(vnode), self.core.group_domains());
        let healed = |living: &Living| members::healed(item, placed, living, rf, domains.as_ref());
        let all = healed(living);
        let Some(max_skew) = self.core.config.placement.max_skew else { return all };
        let Some(topology) = self.core.meta.cluster().topology() else { return all };
        let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
        let others = topology.placements.iter().filter(|(other, _)| **other != vnode);
        others.flat_map(|(_, nodes)| nodes).for_each(|node| *loads.entry(*node).or_default() += 1);
        let vnodes = topology.placements.len().max(1);
        let cap = placement::place::cap(vnodes, rf, living.able.len(), max_skew);
        let has_room =
            |node: &NodeId| placed.contains(node) || loads.get(node).is_none_or(|load| *load < cap);
        let able = living.able.iter().copied().filter(has_room).collect();
        let below = healed(&Living { able, ..living.clone() });
        if below.len() < all.len() { all } else { below }
    }

    /// The first member is the one to lead: when members come or go, the one the vnode is drawn to most.
    fn leaders_spread(&self, vnode: VnodeId, placed: &[NodeId], healed: Vec<NodeId>) -> Vec<NodeId> {
        if healed == placed {
            return healed;
        }
        placement::rank::rank(Item::Vnode(vnode), &healed)
    }
}
