//! Which nodes hold an item that is placed for the first time, alone or as one of a set.
//!
//! Owns the selection: the best-ranked nodes, apart from each other where asked, and no node with much more
//! than its share where asked. Number of replicas before balance, balance before spread: a set is never made
//! smaller for either. What becomes of replicas that exist is in `repair`.

use std::collections::BTreeMap;

use types::NodeId;

use crate::domains::Domains;
use crate::rank::{Item, rank};

/// What a placement has to respect besides the number of replicas; every part may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// Replicas should lie in different domains of these.
    pub spread: Option<&'a Domains>,
    /// How many domains a set must cover at least. Without a spread every node is a domain.
    pub min_domains: Option<MinDomains>,
}

/// See [`Options::min_domains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinDomains {
    /// This many.
    pub count: usize,
    /// What happens when it cannot be had.
    pub policy: Policy,
}

/// What a placement below the least number of domains is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Made, and shown as a violation.
    Soft,
    /// Refused.
    Hard,
}

/// Why nothing was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Less than one replica was asked for.
    #[error("invalid_replication_factor")]
    InvalidReplicationFactor,
    /// There is no node to place anything on.
    #[error("no_brokers")]
    NoBrokers,
    /// Too many of the nodes would fail together.
    #[error("insufficient_domains: {covered} of {wanted}")]
    InsufficientDomains {
        /// Domains of the best set.
        covered: usize,
        /// Domains it must cover.
        wanted: usize,
    },
}

/// The nodes to hold an item, the first of them to lead: `min(rf, candidates)` of the candidates, each once.
pub fn place(
    item: Item,
    candidates: &[NodeId],
    rf: usize,
    options: Options<'_>,
) -> Result<Vec<NodeId>, Error> {
    let ranked = ranked(item, candidates, rf)?;
    let mut chosen = apart(&ranked, options.spread);
    chosen.truncate(rf);
    check_domains(&chosen, options)?;
    Ok(chosen)
}

/// The nodes to hold each of some items, in the order given, so that no node holds much more than its share.
///
/// `max_skew` is how far above its share, rounded up, a node may go; at least 1 is taken. A node at this cap is
/// passed over while others remain. Where too few remain, the least loaded of the others fill the set; with one
/// replica that never happens.
pub fn place_all(
    items: &[Item],
    candidates: &[NodeId],
    rf: usize,
    options: Options<'_>,
    max_skew: Option<usize>,
) -> Result<Vec<(Item, Vec<NodeId>)>, Error> {
    let Some(max_skew) = max_skew else {
        return items.iter().map(|item| Ok((*item, place(*item, candidates, rf, options)?))).collect();
    };
    let mut loads: BTreeMap<NodeId, usize> = candidates.iter().map(|node| (*node, 0)).collect();
    let cap = cap(items.len(), rf, loads.len(), max_skew);
    let mut placed = Vec::with_capacity(items.len());
    for item in items {
        let ranked = ranked(*item, candidates, rf)?;
        let (below, mut full): (Vec<NodeId>, Vec<NodeId>) = ranked.into_iter().partition(|n| loads[n] < cap);
        let mut chosen = apart(&below, options.spread);
        // A stable order: among equals the better rank.
        full.sort_by_key(|node| loads[node]);
        chosen.extend(full);
        chosen.truncate(rf);
        check_domains(&chosen, options)?;
        for node in &chosen {
            *loads.entry(*node).or_default() += 1;
        }
        placed.push((*item, chosen));
    }
    Ok(placed)
}

/// Most items of a set one node takes while another could.
#[must_use]
pub fn cap(items: usize, rf: usize, candidates: usize, max_skew: usize) -> usize {
    let replicas = items.saturating_mul(rf.min(candidates));
    replicas.div_ceil(candidates.max(1)).saturating_add(max_skew.max(1) - 1)
}

fn ranked(item: Item, candidates: &[NodeId], rf: usize) -> Result<Vec<NodeId>, Error> {
    if rf < 1 {
        return Err(Error::InvalidReplicationFactor);
    }
    if candidates.is_empty() {
        return Err(Error::NoBrokers);
    }
    Ok(rank(item, candidates))
}

fn apart(ranked: &[NodeId], spread: Option<&Domains>) -> Vec<NodeId> {
    spread.map_or_else(|| ranked.to_vec(), |domains| domains.interleave(ranked))
}

fn check_domains(chosen: &[NodeId], options: Options<'_>) -> Result<(), Error> {
    let Some(MinDomains { count: wanted, policy: Policy::Hard }) = options.min_domains else {
        return Ok(());
    };
    let covered = options.spread.map_or(chosen.len(), |domains| domains.count(chosen));
    if covered >= wanted { Ok(()) } else { Err(Error::InsufficientDomains { covered, wanted }) }
}

#[cfg(test)]
mod tests;
