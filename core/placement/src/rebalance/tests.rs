//! Plans carried out on a group that obeys, is slow, or loses members.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn set(ids: &[u128]) -> BTreeSet<NodeId> {
    ids.iter().map(|id| NodeId(*id)).collect()
}

fn list(ids: &[u128]) -> Vec<NodeId> {
    ids.iter().map(|id| NodeId(*id)).collect()
}

fn group(voters: &[u128], learners: &[u128], readable: &[u128]) -> Group {
    Group { voters: set(voters), learners: set(learners), readable: set(readable) }
}

#[test]
fn nodes_that_are_away_or_on_their_way_out_get_nothing_new() {
    let node = |id, is_alive, takes_new| Node { id: NodeId(id), is_alive, takes_new };
    let nodes = [node(4, true, true), node(1, true, false), node(2, false, true), node(3, true, true)];
    assert_eq!(candidates(&nodes), list(&[3, 4]));
}

#[test]
fn what_is_unknown_or_as_wanted_is_left_out() {
    let current = BTreeMap::from([
        (VnodeId(0), list(&[1, 2])),
        (VnodeId(1), list(&[2, 1])),
        (VnodeId(3), list(&[1, 2, 3])),
        (VnodeId(9), list(&[1])),
    ]);
    let wanted: Vec<_> = [3, 2, 1, 0].map(|vnode| (VnodeId(vnode), list(&[4, 1]))).into();
    let change = |vnode, add: &[u128], remove: &[u128]| Change {
        vnode: VnodeId(vnode),
        add: list(add),
        remove: list(remove),
    };
    assert_eq!(
        plan(&current, &wanted),
        [change(3, &[4], &[2, 3]), change(1, &[4], &[2]), change(0, &[4], &[2])]
    );
    let same: Vec<_> = current.into_iter().collect();
    assert_eq!(plan(&same.iter().cloned().collect(), &same), []);
}

#[test]
fn a_member_follows_then_votes_and_only_then_another_goes() {
    let wanted = list(&[1, 4]);
    for (group, step) in [
        (group(&[1, 2], &[], &[1, 2]), Step::Add(NodeId(4))),
        (group(&[1, 2], &[4], &[1, 2]), Step::Wait(NodeId(4))),
        (group(&[1, 2], &[4], &[1, 2, 4]), Step::Promote(NodeId(4))),
        (group(&[1, 2, 4], &[], &[1, 2]), Step::Wait(NodeId(4))),
        (group(&[1, 2, 4], &[], &[1, 2, 4]), Step::Remove(NodeId(2))),
        // Whoever cannot be read goes without waiting.
        (group(&[1, 2, 4], &[], &[1]), Step::Remove(NodeId(2))),
        (group(&[1, 4], &[], &[]), Step::Done),
        (group(&[1, 4], &[3], &[1, 4]), Step::Remove(NodeId(3))),
    ] {
        assert_eq!(next(&group, &wanted), step, "{group:?}");
    }
    assert_eq!(next(&group(&[1], &[], &[1]), &[]), Step::Blocked);
}

#[test]
fn only_a_plan_that_stays_is_carried_out() {
    let change = |vnode| [Change { vnode: VnodeId(vnode), add: list(&[1]), remove: vec![] }];
    let mut stable = Stabilization::default();
    let mut tick = |plan: Option<u64>| stable.tick(plan.map(change).as_ref().map(|plan| &plan[..]), 3);
    let ticks =
        [Some(1), Some(1), Some(2), Some(2), None, Some(2), Some(2), Some(2), Some(2), Some(2), Some(2)];
    let carried: Vec<bool> = ticks.into_iter().map(&mut tick).collect();
    assert_eq!(carried, [false, false, false, false, false, false, false, true, false, false, true]);
    assert!(!stable.tick(Some(&[]), 0));
    assert!(stable.tick(Some(&change(1)), 0), "less than once is once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Members catch up, fail and come back between steps; a change that is stopped is begun again by itself,
    /// because nothing but the group is looked at.
    #[test]
    fn a_change_ends_where_it_should_and_the_quorum_holds(
        voters in prop::collection::btree_set(0..8_u128, 1..5),
        learners in prop::collection::btree_set(0..8_u128, 0..3),
        wanted in prop::collection::btree_set(0..8_u128, 1..5),
        failing in prop::collection::vec(prop::option::of(0..8_u128), 0..30),
    ) {
        let voters: BTreeSet<NodeId> = voters.into_iter().map(NodeId).collect();
        let learners: BTreeSet<NodeId> =
            learners.into_iter().map(NodeId).filter(|node| !voters.contains(node)).collect();
        let wanted: Vec<NodeId> = wanted.into_iter().map(NodeId).collect();
        let mut group = Group { readable: voters.clone(), voters, learners };
        let floor = group.voters.len().min(wanted.len());
        let mut failing = failing.into_iter();
        let mut steps = 0;
        loop {
            let calm = failing.len() == 0;
            // Everybody catches up except whoever fails just now.
            let failed = failing.next().flatten().map(NodeId);
            group.readable = group.voters.union(&group.learners).copied().collect();
            let stays = |node: &NodeId| Some(*node) != failed;
            group.readable.retain(stays);
            let before = group.voters.intersection(&group.readable).count();
            match next(&group, &wanted) {
                Step::Add(node) => prop_assert!(group.learners.insert(node) && !group.voters.contains(&node)),
                Step::Promote(node) => {
                    prop_assert!(group.readable.contains(&node));
                    prop_assert!(group.learners.remove(&node) && group.voters.insert(node));
                }
                Step::Remove(node) => {
                    prop_assert!(!wanted.contains(&node));
                    prop_assert!(group.voters.remove(&node) || group.learners.remove(&node));
                    let after = group.voters.intersection(&group.readable).count();
                    prop_assert!(after == before || after >= wanted.len(), "{:?}", group);
                }
                Step::Wait(node) => prop_assert_eq!(Some(node), failed, "nobody waits without a reason"),
                Step::Blocked => prop_assert!(false, "somebody is wanted"),
                Step::Done if calm => break,
                Step::Done => {}
            }
            prop_assert!(group.voters.len() >= floor.min(1));
            steps += 1;
            prop_assert!(steps < 100, "it ends");
        }
        prop_assert_eq!(group.voters.into_iter().collect::<Vec<_>>(), wanted);
        prop_assert!(group.learners.is_empty());
    }
}
