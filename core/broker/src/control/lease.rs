//! The lease, and what its holder does: it says which nodes each vnode's members are.
//!
//! A vnode keeps the members it has as long as they belong to the cluster, gets more as long as it has fewer than it
//! shall have, and loses those that are on their way out. Nothing else moves by itself.

use std::time::Duration;

use metadata::cluster::{AcquireLease, ChangeRing, Command, Reply, RingAct};
use placement::holder::{Action, Answer, Attempt, Holder, Timing};
use placement::rank::Item;
use types::{FenceToken, Instant, NodeId, VnodeId};

use super::{Step, members};
use crate::cluster;
use crate::node::Node;

const DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// This node's view of the lease.
#[derive(Debug)]
pub(super) struct Lease {
    holder: Option<Holder>,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self { holder: None }
    }

    pub(super) fn fence(&self, now: Instant) -> Option<FenceToken> {
        self.holder.as_ref()?.fence(now)
    }
}

impl Node {
    /// Tries to get the lease, or to keep it. Only a node that leads the cluster group tries to get it: it is the
    /// one whose steps are recorded soonest.
    pub(super) fn keep_lease(&mut self) {
        let now = self.core.now;
        let mut actions = Vec::new();
        if self.control.lease.holder.is_none() {
            if !self.core.meta.leads(crate::meta::CLUSTER) {
                return;
            }
            let timing = Timing::new(DURATION, RENEW_DEADLINE, RETRY_PERIOD).expect("they are in order");
            self.control.lease.holder = Some(Holder::new(timing, now));
        }
        let leads = self.core.meta.leads(crate::meta::CLUSTER);
        if let Some(holder) = &mut self.control.lease.holder {
            if leads {
                holder.tick(now, &mut actions);
            } else {
                holder.release(now, &mut actions);
            }
        }
        if !leads {
            self.control.lease.holder = None;
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
                    let duration_ms = u64::try_from(DURATION.as_millis()).expect("a few seconds");
                    let acquire = AcquireLease { candidate, duration_ms, at: self.core.wall };
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

    /// While the lease is held: the next vnode whose members shall be others than the table says.
    pub(super) fn place_vnodes(&mut self) {
        let Some(fence) = self.control.lease.fence(self.core.now).filter(|_| !self.control.placing) else {
            return;
        };
        let Some((vnode, nodes)) = self.next_placement() else { return };
        let expected = self.core.meta.cluster().topology().map_or(0, |topology| topology.version);
        let act = RingAct::SetPlacement { vnode, nodes };
        self.control.placing = true;
        let change = Command::ChangeRing(ChangeRing { expected, fence, act });
        self.core.propose_cluster(&change, cluster::Then::Control(Step::Place));
    }

    fn next_placement(&self) -> Option<(VnodeId, Vec<NodeId>)> {
        let (belonging, able) = (self.belonging(), self.able());
        let rf = self.core.config.vnode_replicas.max(1);
        let topology = self.core.meta.cluster().topology()?;
        topology.placements.iter().find_map(|(vnode, placed)| {
            let healed = members::healed(Item::Vnode(*vnode), placed, &belonging, &able, rf);
            let wanted = self.leaders_spread(*vnode, placed, healed);
            (!wanted.is_empty() && wanted != *placed).then_some((*vnode, wanted))
        })
    }

    /// The first member is the one to lead: when members come or go, the one the vnode is drawn to most.
    fn leaders_spread(&self, vnode: VnodeId, placed: &[NodeId], healed: Vec<NodeId>) -> Vec<NodeId> {
        if healed == placed {
            return healed;
        }
        placement::rank::rank(Item::Vnode(vnode), &healed)
    }
}
