//! Placements against the text of the rules, written down a second time in the slowest way.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use types::VnodeId;

use super::*;
use crate::rank::score;

fn item(i: u64) -> Item {
    Item::Vnode(VnodeId(i))
}

fn nodes(ids: &[u128]) -> Vec<NodeId> {
    ids.iter().map(|id| NodeId(*id)).collect()
}

fn some_nodes() -> impl Strategy<Value = Vec<u128>> {
    prop::collection::vec(0..16_u128, 1..12)
}

/// Up to three racks, and nodes without one.
fn some_domains() -> impl Strategy<Value = Domains> {
    prop::collection::btree_map(0..16_u128, 0..3_u8, 0..16).prop_map(|racks| {
        Domains::new(racks.into_iter().map(|(id, rack)| (NodeId(id), Bytes::from(vec![rack]))))
    })
}

/// The best of some nodes: compared one by one.
fn best(item: Item, nodes: &[NodeId]) -> NodeId {
    let mut best = nodes[0];
    for &node in nodes {
        let (ours, theirs) = (score(item, node), score(item, best));
        if ours > theirs || (ours == theirs && node > best) {
            best = node;
        }
    }
    best
}

/// Round by round: of the domains with the fewest chosen so far, and something left, the one whose best node of
/// all is best gives its best that is left.
fn slow(item: Item, nodes: &[NodeId], rf: usize, spread: Option<&Domains>) -> Vec<NodeId> {
    let domain = |node: NodeId| spread.map_or_else(|| (None, node.0), |spread| (spread.of(node), 0));
    let all: Vec<NodeId> = nodes.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let (mut left, mut chosen) = (all.clone(), Vec::new());
    while chosen.len() < rf && !left.is_empty() {
        let of = |nodes: &[NodeId], which| {
            nodes.iter().copied().filter(|n| domain(*n) == which).collect::<Vec<_>>()
        };
        let count = |node: NodeId| of(&chosen, domain(node)).len();
        let fewest = left.iter().map(|node| count(*node)).min().unwrap();
        let heads: Vec<NodeId> = left
            .iter()
            .filter(|node| count(**node) == fewest)
            .map(|node| best(item, &of(&all, domain(*node))))
            .collect();
        let winner = domain(best(item, &heads));
        let next = best(item, &of(&left, winner));
        chosen.push(next);
        left.retain(|node| *node != next);
    }
    chosen
}

#[test]
fn what_cannot_be_placed_has_a_name() {
    let options = Options::default();
    assert_eq!(place(item(1), &[], 0, options), Err(Error::InvalidReplicationFactor));
    assert_eq!(place(item(1), &[], 1, options), Err(Error::NoBrokers));
    assert_eq!(place_all(&[item(1)], &[], 1, options, Some(1)), Err(Error::NoBrokers));
    assert_eq!(place_all(&[], &[], 1, options, Some(1)), Ok(vec![]));
}

#[test]
fn a_hard_minimum_refuses_and_a_soft_one_does_not() {
    let rack = |id, rack: &'static str| (NodeId(id), Bytes::from_static(rack.as_bytes()));
    let domains = Domains::new([rack(1, "a"), rack(2, "a")]);
    let place = |ids: &[u128], count, policy, spread| {
        let min_domains = Some(MinDomains { count, policy });
        place(item(1), &nodes(ids), 3, Options { spread, min_domains }).map(|chosen| chosen.len())
    };
    let short = |covered, wanted| Err(Error::InsufficientDomains { covered, wanted });
    assert_eq!(place(&[1, 2], 2, Policy::Hard, Some(&domains)), short(1, 2));
    assert_eq!(place(&[1, 2], 2, Policy::Soft, Some(&domains)), Ok(2));
    // All nodes without a value are one more.
    assert_eq!(place(&[1, 2, 3, 4], 2, Policy::Hard, Some(&domains)), Ok(3));
    assert_eq!(place(&[1, 2, 3, 4], 3, Policy::Hard, Some(&domains)), short(2, 3));
    // Without a spread each node is a domain of its own.
    assert_eq!(place(&[1, 2, 3], 3, Policy::Hard, None), Ok(3));
    assert_eq!(place(&[1, 2], 3, Policy::Hard, None), short(2, 3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_placement_is_what_the_rules_say(
        mut ids in some_nodes(),
        vnode in any::<u64>(),
        rf in 1..6_usize,
        domains in prop::option::of(some_domains()),
    ) {
        let item = item(vnode);
        let options = Options { spread: domains.as_ref(), min_domains: None };
        let chosen = place(item, &nodes(&ids), rf, options).unwrap();
        prop_assert_eq!(&chosen, &slow(item, &nodes(&ids), rf, domains.as_ref()));
        let distinct: BTreeSet<NodeId> = chosen.iter().copied().collect();
        let all: BTreeSet<NodeId> = nodes(&ids).into_iter().collect();
        prop_assert_eq!(distinct.len(), chosen.len());
        prop_assert_eq!(chosen.len(), rf.min(all.len()));
        prop_assert!(distinct.is_subset(&all));
        if let Some(domains) = &domains {
            let there = domains.count(&nodes(&ids));
            prop_assert_eq!(domains.count(&chosen), there.min(chosen.len()), "as many domains as can be");
        }
        ids.reverse();
        prop_assert_eq!(place(item, &nodes(&ids), rf, options).unwrap(), chosen);
    }

    /// With a spread the loss of one node can change which domain gives two; without one it changes one place.
    #[test]
    fn losing_a_node_moves_nothing_else(ids in some_nodes(), vnode in any::<u64>(), rf in 1..6_usize) {
        let item = item(vnode);
        let chosen = place(item, &nodes(&ids), rf, Options::default()).unwrap();
        for lost in &chosen {
            let rest: Vec<NodeId> = nodes(&ids).into_iter().filter(|node| node != lost).collect();
            let Ok(again) = place(item, &rest, rf, Options::default()) else { continue };
            let kept: Vec<NodeId> = chosen.iter().copied().filter(|node| node != lost).collect();
            prop_assert_eq!(&again[..kept.len()], &kept[..]);
        }
    }

    #[test]
    fn a_set_is_balanced_and_never_smaller(
        ids in some_nodes(),
        count in 1..30_u64,
        rf in 1..5_usize,
        skew in 0..4_usize,
        domains in prop::option::of(some_domains()),
    ) {
        let items: Vec<Item> = (0..count).map(item).collect();
        let all: BTreeSet<NodeId> = nodes(&ids).into_iter().collect();
        let options = Options { spread: domains.as_ref(), min_domains: None };
        let placed = place_all(&items, &nodes(&ids), rf, options, Some(skew)).unwrap();
        prop_assert_eq!(placed.iter().map(|(item, _)| *item).collect::<Vec<_>>(), items.clone());
        let load = |upto: usize, node: NodeId| {
            placed[..upto].iter().filter(|(_, chosen)| chosen.contains(&node)).count()
        };
        let cap = (items.len() * rf.min(all.len())).div_ceil(all.len()) + skew.max(1) - 1;
        for (i, (item, chosen)) in placed.iter().enumerate() {
            prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), rf.min(all.len()));
            // Within the cap it is a placement like any other; a node above it comes only when all below are in.
            let below: Vec<NodeId> = all.iter().copied().filter(|node| load(i, *node) < cap).collect();
            let within = below.len().min(rf);
            if within > 0 {
                prop_assert_eq!(&chosen[..within], &slow(*item, &below, rf, domains.as_ref())[..]);
            }
            for node in &chosen[within..] {
                let passed = all.iter().filter(|other| !chosen.contains(other));
                prop_assert!(passed.into_iter().all(|other| load(i, *other) >= load(i, *node)));
            }
        }
        if rf == 1 {
            prop_assert!(all.iter().all(|node| load(items.len(), *node) <= cap));
        }
        // Where the cap is never met, and where there is none, it is the plain placement.
        let plain = place_all(&items, &nodes(&ids), rf, options, None).unwrap();
        let wide = place_all(&items, &nodes(&ids), rf, options, Some(1000)).unwrap();
        prop_assert_eq!(wide, plain);
    }
}
