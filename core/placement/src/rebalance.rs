//! How the members of the vnodes' groups follow the nodes that are there.
//!
//! Owns the difference between the members there are and those there should be, and the order in which it is
//! made up. Each step is worked out from what the group says at that moment, so a run that stops is simply run
//! again. Tokens, and the number of vnodes, are not its business.
//!
//! Invariants:
//! - a member enters as a learner and votes once it has caught up;
//! - a voter that can be read leaves only when every member wanted votes and can be read, so the group never has
//!   fewer voters to rely on than it had or is wanted to have;
//! - the last copy that can be read is never taken out.

use std::collections::{BTreeMap, BTreeSet};

use types::{NodeId, VnodeId};

/// A node as far as placing is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which.
    pub id: NodeId,
    /// Whether it is known to be there.
    pub is_alive: bool,
    /// Whether it takes anything new: it is a full member and not on its way out.
    pub takes_new: bool,
}

/// The nodes something new may be placed on, in the order of ids.
#[must_use]
pub fn candidates(nodes: &[Node]) -> Vec<NodeId> {
    let able = nodes.iter().filter(|node| node.is_alive && node.takes_new);
    able.map(|node| node.id).collect::<BTreeSet<_>>().into_iter().collect()
}

/// What becomes of one vnode's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub vnode: VnodeId,
    /// Members to come, the best first.
    pub add: Vec<NodeId>,
    /// Members to go, in the order in which the group lists them.
    pub remove: Vec<NodeId>,
}

/// The changes from the members there are to those wanted, in the order of `wanted`. A vnode whose members are
/// not known, or are those wanted, is left out.
#[must_use]
pub fn plan(current: &BTreeMap<VnodeId, Vec<NodeId>>, wanted: &[(VnodeId, Vec<NodeId>)]) -> Vec<Change> {
    let without = |these: &[NodeId], those: &[NodeId]| {
        these.iter().copied().filter(|node| !those.contains(node)).collect::<Vec<_>>()
    };
    let change = |(vnode, wanted): &(VnodeId, Vec<NodeId>)| {
        let members = current.get(vnode)?;
        let (add, remove) = (without(wanted, members), without(members, wanted));
        (!add.is_empty() || !remove.is_empty()).then_some(Change { vnode: *vnode, add, remove })
    };
    wanted.iter().filter_map(change).collect()
}

/// A group as its leader describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Members that vote.
    pub voters: BTreeSet<NodeId>,
    /// Members that only follow.
    pub learners: BTreeSet<NodeId>,
    /// Members, of either kind, that can be read: they are there and have caught up.
    pub readable: BTreeSet<NodeId>,
}

/// The next thing to do about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Let it follow.
    Add(NodeId),
    /// Let it vote.
    Promote(NodeId),
    /// Take it out.
    Remove(NodeId),
    /// Nothing until this member can be read.
    Wait(NodeId),
    /// Nothing: no member is wanted, and a group without members has lost what it knows.
    Blocked,
    /// Nothing: the members are those wanted, and all vote.
    Done,
}

/// The next step towards the members wanted, which are given best first. Learners that are not wanted go before
/// anything comes: they hold no vote, and a group has room for few.
#[must_use]
pub fn next(group: &Group, wanted: &[NodeId]) -> Step {
    if let Some(stray) = group.learners.iter().find(|node| !wanted.contains(node)) {
        return Step::Remove(*stray);
    }
    let member = |node: &NodeId| group.voters.contains(node) || group.learners.contains(node);
    if let Some(missing) = wanted.iter().find(|node| !member(node)) {
        return Step::Add(*missing);
    }
    let waiting: Vec<NodeId> = wanted.iter().copied().filter(|node| !group.voters.contains(node)).collect();
    if let Some(ready) = waiting.iter().find(|node| group.readable.contains(node)) {
        return Step::Promote(*ready);
    }
    if let Some(behind) = waiting.first() {
        return Step::Wait(*behind);
    }
    // Those that cannot be read first: each of them weighs on the quorum and holds nothing.
    let leaving = group.voters.iter().filter(|node| !wanted.contains(node));
    let unreadable = wanted.iter().find(|node| !group.readable.contains(node));
    match leaving.min_by_key(|node| (group.readable.contains(node), **node)) {
        None => Step::Done,
        Some(_) if wanted.is_empty() => Step::Blocked,
        Some(node) if !group.readable.contains(node) => Step::Remove(*node),
        Some(node) => unreadable.map_or(Step::Remove(*node), |node| Step::Wait(*node)),
    }
}

/// When a plan that nobody asked for is carried out: once it has come up unchanged several times in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stabilization {
    plan: Vec<Change>,
    seen: u32,
}

impl Stabilization {
    /// Takes the plan of this tick, or `None` where the lease is not held, and says whether to carry it out. After
    /// yes the count begins anew, whatever comes of it. `needed` below 1 counts as 1.
    pub fn tick(&mut self, plan: Option<&[Change]>, needed: u32) -> bool {
        let plan = plan.unwrap_or(&[]);
        if plan.is_empty() {
            *self = Self::default();
            return false;
        }
        if self.plan != plan {
            *self = Self { plan: plan.to_vec(), seen: 0 };
        }
        self.seen += 1;
        let is_stable = self.seen >= needed.max(1);
        if is_stable {
            *self = Self::default();
        }
        is_stable
    }
}

#[cfg(test)]
mod tests;
