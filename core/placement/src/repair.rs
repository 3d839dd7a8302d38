//! What is to be done about replicas that exist: who lacks some, who should fill in, which sets stand too close.
//!
//! Owns the questions; who is alive, and for how long somebody must be gone before it counts, is decided by whoever
//! asks. A replica that lives is kept, whatever the ranking says: moving it would cost a copy and gain nothing.

use std::collections::BTreeSet;

use types::{NodeId, SegmentId};

use crate::domains::Domains;
use crate::rank::{Item, rank};

/// The replicas of an item after one pass of healing: those of `current` that are alive, in their order, and as
/// many of the best-ranked others as are missing to `min(rf, alive)`, from the domains the set has the fewest
/// in. More replicas than that are kept too. Never refused for the sake of domains.
#[must_use]
pub fn healed(
    item: Item,
    current: &[NodeId],
    alive: &BTreeSet<NodeId>,
    rf: usize,
    spread: Option<&Domains>,
) -> Vec<NodeId> {
    let mut set: Vec<NodeId> = Vec::new();
    for node in current {
        if alive.contains(node) && !set.contains(node) {
            set.push(*node);
        }
    }
    let mut spares: Vec<NodeId> = alive.iter().copied().filter(|node| !set.contains(node)).collect();
    spares = rank(item, &spares);
    while set.len() < rf.min(alive.len()) {
        let crowding = |node: &NodeId| {
            spread.map_or(0, |domains| {
                set.iter().filter(|member| domains.of(**member) == domains.of(*node)).count()
            })
        };
        // The first of the least crowded, so the best ranked of them.
        let Some(at) = (0..spares.len()).min_by_key(|at| crowding(&spares[*at])) else { break };
        set.push(spares.remove(at));
    }
    set
}

/// The same set with one of its replicas elsewhere, when it then covers a domain more: of the domain that has most of
/// them the worst-ranked goes, and the best-ranked of those in domains without any comes, at the end. Whoever comes is
/// one of `alive`. `None` when nothing is gained.
///
/// Doing this again and again comes to an end with a set that covers as many domains as it can.
#[must_use]
pub fn spread_out(
    item: Item,
    current: &[NodeId],
    alive: &BTreeSet<NodeId>,
    domains: &Domains,
) -> Option<Vec<NodeId>> {
    let crowd =
        |node: &NodeId| current.iter().filter(|other| domains.of(**other) == domains.of(*node)).count();
    let most = current.iter().map(crowd).max().filter(|most| *most > 1)?;
    let crowded: Vec<NodeId> = current.iter().copied().filter(|node| crowd(node) == most).collect();
    let fresh: Vec<NodeId> = alive.iter().copied().filter(|node| crowd(node) == 0).collect();
    let comes = *rank(item, &fresh).first()?;
    let goes = *rank(item, &crowded).last()?;
    let stay = current.iter().copied().filter(|node| *node != goes);
    Some(stay.chain([comes]).collect())
}

/// The segments with fewer distinct living replicas than `min(rf, alive)`, in the order of their ids.
#[must_use]
pub fn under_replicated<'a>(
    segments: impl IntoIterator<Item = (SegmentId, &'a [NodeId])>,
    alive: &BTreeSet<NodeId>,
    rf: usize,
) -> Vec<SegmentId> {
    let target = rf.min(alive.len());
    let living = |replicas: &[NodeId]| alive.iter().filter(|node| replicas.contains(node)).count();
    let lacks = segments.into_iter().filter(|(_, replicas)| living(replicas) < target);
    let mut found: Vec<SegmentId> = lacks.map(|(id, _)| id).collect();
    found.sort_unstable();
    found
}

/// The segments whose replicas, alive or not, cover fewer than `min_domains` domains, in the order of their ids.
#[must_use]
pub fn domain_violations<'a>(
    segments: impl IntoIterator<Item = (SegmentId, &'a [NodeId])>,
    domains: &Domains,
    min_domains: usize,
) -> Vec<SegmentId> {
    let close = segments.into_iter().filter(|(_, replicas)| domains.count(replicas) < min_domains);
    let mut found: Vec<SegmentId> = close.map(|(id, _)| id).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
