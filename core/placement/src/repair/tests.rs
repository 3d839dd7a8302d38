//! One pass of healing, and what shows that it is needed.

use bytes::Bytes;
use proptest::prelude::*;
use types::{RangeId, RangeSeq, SegmentSeq, TopicId, VnodeId};

use super::*;

fn segment(seq: u64) -> SegmentId {
    SegmentId { range: RangeId { topic: TopicId(1), seq: RangeSeq(0) }, seq: SegmentSeq(seq) }
}

#[test]
fn who_lacks_replicas_is_counted_among_the_living() {
    let [a, b, c] = [1, 2, 3].map(NodeId);
    let sets: [(SegmentId, &[NodeId]); 4] =
        [(segment(4), &[a, c]), (segment(1), &[a, a]), (segment(2), &[a, b]), (segment(3), &[])];
    let lack = |alive: &[NodeId], rf| under_replicated(sets, &alive.iter().copied().collect(), rf);
    assert_eq!(lack(&[a, b], 2), [1, 3, 4].map(segment));
    assert_eq!(lack(&[a], 2), [segment(3)], "one node can hold one");
    assert_eq!(lack(&[], 2), []);
    let racks = Domains::new([(a, Bytes::from_static(b"x")), (b, Bytes::from_static(b"x"))]);
    assert_eq!(domain_violations(sets, &racks, 2), [1, 2, 3].map(segment));
    assert_eq!(domain_violations(sets, &racks, 1), [segment(3)]);
}

fn racks(of: &[(u128, &'static str)]) -> Domains {
    Domains::new(of.iter().map(|(id, rack)| (NodeId(*id), Bytes::from_static(rack.as_bytes()))))
}

#[test]
fn one_of_the_crowded_goes_where_nobody_is() {
    let domains = racks(&[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c"), (6, "a")]);
    let out = |current: &[u128], alive: &[u128]| {
        let current: Vec<NodeId> = current.iter().copied().map(NodeId).collect();
        let alive = alive.iter().copied().map(NodeId).collect();
        spread_out(Item::Segment(segment(0)), &current, &alive, &domains)
    };
    let set = out(&[1, 2, 4], &[1, 2, 3, 4, 5, 6]).expect("one of two in a goes to c");
    assert!(set.contains(&NodeId(4)) && set.last() == Some(&NodeId(5)) && set.len() == 3, "{set:?}");
    assert_eq!(out(&[1, 4, 5], &[1, 2, 3, 4, 5, 6]), None, "each is in a domain of its own");
    assert_eq!(out(&[1, 2, 4], &[1, 2, 3, 4, 6]), None, "there is no third domain");
    assert_eq!(out(&[1], &[1, 4]), None);
    assert_eq!(out(&[], &[1, 4]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn spreading_ends_with_as_many_domains_as_there_can_be(
        current in prop::collection::btree_set(0..10_u128, 0..6),
        alive in prop::collection::btree_set(0..10_u128, 0..10),
        racks in prop::collection::btree_map(0..10_u128, 0..4_u8, 0..10),
        number in 0..9_u64,
    ) {
        let item = Item::Segment(segment(number));
        let mut set: Vec<NodeId> = current.into_iter().map(NodeId).collect();
        let alive: BTreeSet<NodeId> = alive.into_iter().map(NodeId).collect();
        let domains =
            Domains::new(racks.into_iter().map(|(id, rack)| (NodeId(id), Bytes::from(vec![rack]))));
        let all: Vec<NodeId> = alive.iter().chain(&set).copied().collect();
        let most = domains.count(&all).min(set.len());
        let count = set.len();
        while let Some(next) = spread_out(item, &set, &alive, &domains) {
            prop_assert_eq!(domains.count(&next), domains.count(&set) + 1);
            prop_assert_eq!(next.iter().collect::<BTreeSet<_>>().len(), count);
            prop_assert_eq!(next.iter().filter(|node| !set.contains(node)).count(), 1, "one comes at a time");
            set = next;
        }
        prop_assert_eq!(domains.count(&set), most);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn one_pass_keeps_the_living_and_is_enough(
        current in prop::collection::vec(0..10_u128, 0..6),
        alive in prop::collection::btree_set(0..10_u128, 0..10),
        rf in 1..6_usize,
        racks in prop::option::of(prop::collection::btree_map(0..10_u128, 0..3_u8, 0..10)),
        vnode in any::<u64>(),
    ) {
        let item = Item::Vnode(VnodeId(vnode));
        let current: Vec<NodeId> = current.into_iter().map(NodeId).collect();
        let alive: BTreeSet<NodeId> = alive.into_iter().map(NodeId).collect();
        let domains = racks.map(|racks| {
            Domains::new(racks.into_iter().map(|(id, rack)| (NodeId(id), Bytes::from(vec![rack]))))
        });
        let set = healed(item, &current, &alive, rf, domains.as_ref());
        prop_assert_eq!(&healed(item, &set, &alive, rf, domains.as_ref()), &set, "a fixpoint");
        let mut kept: Vec<NodeId> = Vec::new();
        for node in current {
            if alive.contains(&node) && !kept.contains(&node) {
                kept.push(node);
            }
        }
        prop_assert_eq!(&set[..kept.len()], &kept[..]);
        prop_assert_eq!(set.len(), kept.len().max(rf.min(alive.len())));
        prop_assert!(set.iter().all(|node| alive.contains(node)));
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>().len(), set.len());
        prop_assert_eq!(under_replicated([(segment(0), &set[..])], &alive, rf), []);
        // Each that came in was the best ranked of those in the domains with the fewest.
        for i in kept.len()..set.len() {
            let crowding = |node: &NodeId| match &domains {
                None => 0,
                Some(domains) => set[..i].iter().filter(|m| domains.of(**m) == domains.of(*node)).count(),
            };
            for other in alive.iter().filter(|node| !set[..=i].contains(node)) {
                let (ours, theirs) = (crowding(&set[i]), crowding(other));
                let better = crate::rank::score(item, set[i]) > crate::rank::score(item, *other);
                prop_assert!(ours < theirs || (ours == theirs && better));
            }
        }
    }
}
