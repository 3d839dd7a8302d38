//! Carrying out changes of the ring, by whoever holds the lease.
//!
//! Owns when a change is begun, what is proposed to which vnode next, and when a change turns round. What the next step
//! is says `metadata::ring_change`, which change comes next `placement::reshard`. Which number of vnodes is wanted is
//! not recorded: an administrator asks until the ring has it, and a change that was begun is ended by whoever holds the
//! lease by then, asked or not.
//!
//! Invariants:
//! - a fence serves one change, in one direction: before the next, or before turning round, the lease is given back and
//!   taken anew. So does a process with what the one before it had: what that sent may still arrive;
//! - the steps are worked out from tables as they are here, which may lag behind. Both vnodes are made to record the
//!   fence first: tables that have it have everything that was done under earlier ones, nothing more can come of those,
//!   and what is done under this one is done by this process, which waits for the outcome of each step;
//! - a topic that cannot be moved, because it is too large or its vnode would be full, turns the change round.
//!
//! Where the ring was cut into several vnodes at once, each is told its arc before any node serves.

use std::collections::VecDeque;

use metadata::cluster::{self as tables, ChangeRing, Reply, RingAct, Topology};
use metadata::ring_change::{self, Direction, Next};
use metadata::vnode::{Command, Migration, Refusal, SetArc, Share};
use placement::rank::{self, Item};
use placement::reshard;
use types::{FenceToken, NodeId, VnodeId};
use wire::Reason;

use super::{LOOK_EVERY, Step};
use crate::cluster;
use crate::meta::CLUSTER;
use crate::node::Node;
use crate::planted::Bug;

/// Steps that are proposed at a time. They do not depend on each other.
const ABREAST_MAX: usize = 64;

/// What was proposed about the ring itself, and under which fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    fence: FenceToken,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Begin,
    Advance,
    Clear,
}

/// What this node does about the ring while it holds the lease.
#[derive(Debug, Default)]
pub(super) struct RingWork {
    /// How many vnodes the ring shall have, as an administrator asked this node.
    target: Option<usize>,
    /// No change is worked at under this fence or an earlier one; unknown until the cluster's tables are complete.
    spent: Option<FenceToken>,
    /// The change that is being undone, by when it was begun, and why.
    back: Option<(u64, Reason)>,
    /// Why the last change was undone, until somebody asks.
    undone: Option<Reason>,
    /// Steps to propose next, of one kind, worked out under this fence.
    queue: VecDeque<(VnodeId, Command)>,
    queued_under: FenceToken,
    /// Steps without an outcome.
    on_their_way: usize,
    /// A proposal about the ring itself has none.
    proposing: bool,
}

impl RingWork {
    fn is_busy(&self) -> bool {
        self.proposing || self.on_their_way > 0
    }

    fn spend(&mut self, fence: FenceToken) {
        self.spent = self.spent.max(Some(fence));
        self.queue.clear();
    }
}

impl Node {
    /// An administrator wants the ring to have so many vnodes. Refused once after a change that had to be undone.
    pub(super) fn aim_ring(&mut self, vnodes: usize) -> Result<(), Reason> {
        if let Some(reason) = self.control.ring.undone.take() {
            return Err(reason);
        }
        self.control.ring.target = Some(vnodes);
        self.control.look_at = Some(self.core.now);
        Ok(())
    }

    /// Whether this node, if it has the lease, has something to do about the ring.
    pub(super) fn has_ring_work(&self) -> bool {
        if !self.core.meta.leads(CLUSTER) {
            return false;
        }
        let Some(topology) = self.core.meta.cluster().topology() else { return false };
        let aims = self.control.ring.target.is_some_and(|target| target != topology.ring.len());
        topology.pending.is_some() || aims || self.unset_arcs(topology).next().is_some()
    }

    /// A node alone takes the lease only as long as there is something to do under it: keeping it costs a write every
    /// few seconds.
    pub(super) fn keep_lease_alone(&mut self) {
        if self.has_ring_work() {
            self.keep_lease();
            self.control.look_at = Some(self.core.now.plus(LOOK_EVERY));
        } else {
            self.give_lease_back();
        }
    }

    /// Takes the next step, if this node holds the lease and none is on its way.
    pub(super) fn drive_ring(&mut self) {
        if !self.has_ring_work() {
            // Whoever leads next is asked again.
            self.control.ring.target = None;
            return self.control.ring.queue.clear();
        }
        if self.control.ring.is_busy() {
            return;
        }
        let Some(fence) = self.ring_fence() else { return };
        if self.control.ring.queued_under != fence {
            self.control.ring.queue.clear();
        }
        if self.control.ring.queue.is_empty() {
            self.work_out_steps(fence);
        }
        self.propose_steps(fence);
    }

    /// The fence to work under; `None` while there is none that has served no other change.
    fn ring_fence(&mut self) -> Option<FenceToken> {
        let fence = self.control.lease.fence(self.core.now)?;
        if !self.core.meta.has_cluster() {
            return None;
        }
        // What an earlier process of this node held it may be given again.
        let latest = self.core.meta.cluster().lease().fence;
        let spent = *self.control.ring.spent.get_or_insert(latest);
        if fence > spent {
            return Some(fence);
        }
        self.give_lease_back();
        self.control.look_at = Some(self.core.now);
        None
    }

    fn work_out_steps(&mut self, fence: FenceToken) {
        let Some(topology) = self.core.meta.cluster().topology() else { return };
        let arcs: VecDeque<_> = self.unset_arcs(topology).map(|set| told(set, fence)).collect();
        if !arcs.is_empty() {
            return self.queue_steps(arcs, fence);
        }
        let Some(intent) = &topology.pending else { return self.begin_change(fence) };
        let is_back = self.control.ring.back.is_some_and(|(begun, _)| begun == intent.begun);
        let direction = if is_back { Direction::Back } else { Direction::Forward };
        // A vnode whose tables are not here, or whose group is about to be formed by its members, has the tables that
        // every vnode begins with.
        let tables = |vnode| Some(self.core.meta.tables_of(vnode));
        match ring_change::next(topology, fence, direction, tables) {
            Some(Next::Run { vnode, commands }) => {
                let steps = commands.into_iter().map(|command| self.plant_removal(vnode, command, fence));
                let steps = steps.collect();
                self.queue_steps(steps, fence);
            }
            Some(Next::End(change)) => {
                let kind = if is_back { Kind::Clear } else { Kind::Advance };
                self.propose_act(change, kind);
            }
            // Tables that lag behind may look so for a moment; if they do not, a person has to look.
            Some(Next::Stuck(_)) => {}
            Some(Next::Form { .. } | Next::Read(_)) | None => {}
        }
    }

    fn queue_steps(&mut self, steps: VecDeque<(VnodeId, Command)>, fence: FenceToken) {
        self.control.ring.queue = steps;
        self.control.ring.queued_under = fence;
    }

    /// Vnodes of a ring of several that were not told what is theirs, with their arcs.
    fn unset_arcs<'a>(&'a self, topology: &'a Topology) -> impl Iterator<Item = (VnodeId, Share)> + 'a {
        let several = topology.ring.len() > 1;
        let arcs = topology
            .ring
            .arcs()
            .filter(move |(vnode, _)| several && self.core.meta.tables_of(*vnode).arc() == Share::Whole);
        arcs.map(|(vnode, arc)| (vnode, Share::Arc(arc)))
    }

    fn begin_change(&mut self, fence: FenceToken) {
        let Some(topology) = self.core.meta.cluster().topology() else { return };
        let Some(target) = self.control.ring.target else { return };
        let plan = reshard::plan(&topology.ring, topology.next_vnode, target);
        let Some(step) = plan.ok().and_then(|plan| plan.first().copied()) else { return };
        let act = match step {
            reshard::Step::Split { vnode, token, .. } => {
                let nodes = self.founders(vnode);
                if nodes.is_empty() {
                    return;
                }
                RingAct::BeginSplit { token, nodes }
            }
            reshard::Step::Merge { vnode, .. } => RingAct::BeginMerge { vnode },
        };
        let change = ChangeRing { expected: topology.version, fence, act };
        self.propose_act(change, Kind::Begin);
    }

    /// The members of a vnode to come, the first to lead.
    fn founders(&self, vnode: VnodeId) -> Vec<NodeId> {
        rank::rank(Item::Vnode(vnode), &self.members_of(vnode, &[], &self.living()))
    }

    fn propose_act(&mut self, change: ChangeRing, kind: Kind) {
        self.control.ring.proposing = true;
        let act = Act { fence: change.fence, kind };
        let command = tables::Command::ChangeRing(change);
        self.core.propose_cluster(&command, cluster::Then::Control(Step::Ring(act)));
    }

    /// What was proposed about the ring itself has its outcome.
    pub(super) fn ring_decided(&mut self, act: Act, result: &Result<Reply, cluster::Error>) {
        let ring = &mut self.control.ring;
        ring.proposing = false;
        match (result, act.kind) {
            (Ok(_), Kind::Begin) => {}
            (Ok(_), Kind::Advance) => ring.spend(act.fence),
            (Ok(_), Kind::Clear) => {
                ring.spend(act.fence);
                ring.undone = ring.back.take().map(|(_, reason)| reason);
            }
            // Another one holds the lease, or held it.
            (Err(cluster::Error::Refused(tables::Refusal::StaleFence)), _) => ring.spend(act.fence),
            // The ring is another one than it was worked out from, or nobody knows: it is looked at again.
            (Err(_), _) => {}
        }
    }

    fn propose_steps(&mut self, fence: FenceToken) {
        let ring = &mut self.control.ring;
        let count = ring.queue.len().min(ABREAST_MAX);
        let steps: Vec<(VnodeId, Command)> = ring.queue.drain(..count).collect();
        ring.on_their_way += count;
        for (vnode, command) in steps {
            self.core.propose_ring(vnode, &command, fence);
        }
    }

    /// A step was taken or refused; nobody knows when it is `None`.
    pub(crate) fn ring_stepped(&mut self, fence: FenceToken, result: Result<(), Option<Refusal>>) {
        let begun = self.pending_since();
        let ring = &mut self.control.ring;
        ring.on_their_way = ring.on_their_way.saturating_sub(1);
        let wait = match result {
            Ok(()) => false,
            Err(refusal) => {
                ring.queue.clear();
                let reason = match refusal {
                    Some(Refusal::TopicTooLarge) => Some(Reason::TopicTooLarge),
                    Some(Refusal::TooManyTopics) => Some(Reason::TooManyTopics),
                    _other => None,
                };
                if let (Some(reason), Some(begun)) = (reason, begun)
                    && ring.back.is_none_or(|(back, _)| back != begun)
                {
                    ring.back = Some((begun, reason));
                    ring.target = None;
                    ring.spend(fence);
                }
                if refusal == Some(Refusal::StaleFence) {
                    ring.spend(fence);
                }
                true
            }
        };
        if !ring.is_busy() {
            let at = if wait { self.core.now.plus(LOOK_EVERY) } else { self.core.now };
            self.control.look_at = Some(self.control.look_at.map_or(at, |look| look.min(at)));
        }
    }

    fn pending_since(&self) -> Option<u64> {
        let topology = self.core.meta.cluster().topology()?;
        topology.pending.as_ref().map(|intent| intent.begun)
    }

    /// The step as it is, or, with a bug, the removal of what it would have copied.
    fn plant_removal(&self, vnode: VnodeId, command: Command, lease: FenceToken) -> (VnodeId, Command) {
        if self.core.config.has_bug(Bug::RemoveUncopied)
            && let Command::InsertTopic { export, .. } = &command
            && let Some(id) = export.migration()
            && let (topic, _) = export.topic()
            && let Some(gives) = self.core.meta.home(topic)
        {
            return (gives, Command::ExtractTopic(Migration { topic, id, lease }));
        }
        (vnode, command)
    }
}

/// The first arc of a vnode, as a step.
fn told((vnode, arc): (VnodeId, Share), lease: FenceToken) -> (VnodeId, Command) {
    (vnode, Command::SetArc(SetArc { ring_version: 0, expected: Share::Whole, arc, lease }))
}
