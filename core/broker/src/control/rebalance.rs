//! Members of vnodes brought to where they would be placed now: when an administrator asks for it, or by itself.
//!
//! Owns the plan and when it is carried out. A plan is a function of the tables and of who can be reached; it is made
//! anew before each change, so nothing has to be remembered to go on with it: whoever is asked again goes on from where
//! things are. How a group gets the members that the tables say is `members`' business, and keeps as many voters as
//! there were.
//!
//! - one vnode's members are changed at a time, under the lease;
//! - by itself nothing moves before the same plan has come up several times in a row: a node that flaps moves nothing;
//! - a change of the ring that is under way is finished first.

use std::collections::BTreeMap;

use placement::place::{self, Options};
use placement::rank::Item;
use placement::rebalance::{self, Change, Stabilization};
use types::{FenceToken, Instant, NodeId, VnodeId};
use wire::Reason;
use wire::response::{Rebalancing, VnodeMove};

use crate::action::Reply;
use crate::config;
use crate::meta::CLUSTER;
use crate::node::Node;

/// Bytes of an answer beside its moves, with the longest reason.
const ANSWER_BYTES: usize = 128;

/// What this node does about it while it leads the cluster's group.
#[derive(Debug, Default)]
pub(super) struct Rebalance {
    /// An administrator asked this node, or a plan that came up by itself was the same for long enough.
    is_wanted: bool,
    stabilization: Stabilization,
    /// When a plan is made next by itself.
    tick_at: Option<Instant>,
}

impl Node {
    /// The changes from the members there are to those that would be placed now. None while nobody can be placed.
    fn rebalance_plan(&self) -> Vec<(Change, Vec<NodeId>)> {
        let Some(topology) = self.core.meta.cluster().topology() else { return Vec::new() };
        let able: Vec<NodeId> = self.living().able.into_iter().collect();
        let rf = self.core.config.vnode_replicas.max(1);
        let items: Vec<Item> = topology.ring.iter().map(|(vnode, _)| Item::Vnode(vnode)).collect();
        let domains = self.core.group_domains();
        let options = Options { spread: domains.as_ref(), min_domains: None };
        let skew = self.core.config.placement.max_skew;
        let Ok(placed) = place::place_all(&items, &able, rf, options, skew) else { return Vec::new() };
        let wanted: Vec<(VnodeId, Vec<NodeId>)> = topology
            .ring
            .iter()
            .map(|(vnode, _)| vnode)
            .zip(placed.into_iter().map(|(_, nodes)| nodes))
            .collect();
        let current: &BTreeMap<VnodeId, Vec<NodeId>> = &topology.placements;
        let plan = rebalance::plan(current, &wanted);
        let with_nodes = |change: Change| {
            let (_, nodes) = wanted.iter().find(|(vnode, _)| *vnode == change.vnode)?;
            Some((change, nodes.clone()))
        };
        plan.into_iter().filter_map(with_nodes).collect()
    }

    /// An administrator asks for it, or what it would come to.
    pub(super) fn rebalance(&mut self, dry_run: bool) -> Result<Reply, Reason> {
        if self.core.meta.cluster().topology().is_none() {
            return Err(Reason::NoRing);
        }
        let refused = (!self.core.meta.leads(CLUSTER)).then_some(Reason::NotLeaseHolder);
        if let (Some(reason), false) = (refused, dry_run) {
            return Err(reason);
        }
        let plan = self.rebalance_plan();
        if !dry_run && !plan.is_empty() {
            self.control.rebalance.is_wanted = true;
            self.control.look_at = Some(self.core.now);
        }
        let moved = |(Change { vnode, add, remove }, _): &(Change, Vec<NodeId>)| VnodeMove {
            vnode: *vnode,
            add: add.clone(),
            remove: remove.clone(),
        };
        let mut room = self.core.config.frame_bytes_max.saturating_sub(ANSWER_BYTES);
        let fits = |moved: &VnodeMove| {
            let left = room.checked_sub(moved.encoded_len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        Ok(Reply::Rebalancing(Rebalancing {
            move_count: u32::try_from(plan.len()).unwrap_or(u32::MAX),
            moves: plan.iter().map(moved).take_while(fits).collect(),
            refusal: refused.map(|reason| bytes::Bytes::from_static(reason.as_str().as_bytes())),
        }))
    }

    /// While the lease is held: the next vnode whose members shall be others because of that.
    pub(super) fn next_rebalanced(&mut self) -> Option<(VnodeId, Vec<NodeId>)> {
        self.rebalance_by_itself();
        if !self.control.rebalance.is_wanted || self.core.meta.cluster().topology()?.pending.is_some() {
            return None;
        }
        let next = self.rebalance_plan().into_iter().next();
        self.control.rebalance.is_wanted = next.is_some();
        next.map(|(change, nodes)| (change.vnode, nodes))
    }

    fn rebalance_by_itself(&mut self) {
        let Some(config::Rebalance { every, stabilization }) = self.core.config.rebalance else { return };
        let now = self.core.now;
        let tick_at = *self.control.rebalance.tick_at.get_or_insert(now.plus(every));
        if now < tick_at {
            return;
        }
        self.control.rebalance.tick_at = Some(now.plus(every));
        let plan: Vec<Change> = self.rebalance_plan().into_iter().map(|(change, _)| change).collect();
        if self.control.rebalance.stabilization.tick(Some(&plan), stabilization) {
            self.control.rebalance.is_wanted = true;
        }
    }

    /// The lease is not held here: what was counted counts no more, and whoever holds it is asked again.
    pub(super) fn forget_rebalance(&mut self, held: Option<FenceToken>) {
        if held.is_none() && !self.core.meta.leads(CLUSTER) {
            self.control.rebalance = Rebalance::default();
        }
    }
}
