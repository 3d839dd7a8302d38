//! The order in which nodes are asked to hold an item: rendezvous hashing.
//!
//! Owns the score and its canonical bytes. An item's order of two nodes depends on these two nodes alone, so a
//! node that goes or comes moves nothing between the others.
//!
//! ```text
//! score = xxHash64 of  version:u8  kind:u8  item  node:u128     big-endian, seed 0
//! ```
//!
//! The bytes and the hash are frozen under their version. Another version places everything anew, so it is a
//! change of the rules the groups agree on, never of one build.

use types::{NodeId, SegmentId, VnodeId};
use xxhash_rust::xxh64::xxh64;

const VERSION: u8 = 1;

/// What is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// Copies of a segment.
    Segment(SegmentId),
    /// Members of a vnode's group.
    Vnode(VnodeId),
    /// Voters of the cluster group.
    Cluster,
}

impl Item {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Segment(segment) => [&[VERSION, 1][..], &segment.to_bytes()].concat(),
            Self::Vnode(vnode) => [&[VERSION, 2][..], &vnode.0.to_be_bytes()].concat(),
            Self::Cluster => vec![VERSION, 3],
        }
    }
}

/// How much an item is drawn to a node; more is better.
#[must_use]
pub fn score(item: Item, node: NodeId) -> u64 {
    let mut bytes = item.bytes();
    bytes.extend_from_slice(&node.0.to_be_bytes());
    xxh64(&bytes, 0)
}

/// The candidates, each once, the best first; among equal scores the larger id.
#[must_use]
pub fn rank(item: Item, candidates: &[NodeId]) -> Vec<NodeId> {
    let mut scored: Vec<(u64, NodeId)> = candidates.iter().map(|node| (score(item, *node), *node)).collect();
    scored.sort_unstable_by(|a, b| b.cmp(a));
    scored.dedup();
    scored.into_iter().map(|(_, node)| node).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::{RangeId, RangeSeq, SegmentSeq, TopicId};

    /// Two builds that disagree here place the same things on other nodes.
    #[test]
    fn the_score_is_frozen() {
        let range = RangeId { topic: TopicId(0xab), seq: RangeSeq(3) };
        let segment = Item::Segment(SegmentId { range, seq: SegmentSeq(12) });
        let scores = [segment, Item::Vnode(VnodeId(7)), Item::Cluster].map(|item| score(item, NodeId(5)));
        assert_eq!(
            scores,
            [17_376_402_600_249_660_563, 11_655_371_997_566_120_973, 7_832_779_801_292_583_266]
        );
    }

    proptest! {
        #[test]
        fn the_order_is_of_the_set_and_survives_a_loss(
            mut nodes in prop::collection::vec(0..20_u128, 1..12),
            vnode in any::<u64>(),
            lost in any::<prop::sample::Index>(),
        ) {
            let item = Item::Vnode(VnodeId(vnode));
            let of = |nodes: &[u128]| rank(item, &nodes.iter().map(|id| NodeId(*id)).collect::<Vec<_>>());
            let ranked = of(&nodes);
            let mut ids: Vec<u128> = ranked.iter().map(|node| node.0).collect();
            ids.sort_unstable();
            nodes.reverse();
            prop_assert_eq!(of(&nodes), ranked.clone());
            let lost = nodes[lost.index(nodes.len())];
            nodes.sort_unstable();
            nodes.dedup();
            prop_assert_eq!(ids, nodes.clone(), "each once");
            nodes.retain(|id| *id != lost);
            let rest: Vec<NodeId> = ranked.into_iter().filter(|node| node.0 != lost).collect();
            prop_assert_eq!(of(&nodes), rest);
        }
    }
}
