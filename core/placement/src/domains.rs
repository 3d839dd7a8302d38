//! Failure domains: which nodes are likely to fail together.
//!
//! Owns one attribute of each node, seen as a partition of the nodes: a value names a domain, and all nodes
//! without a value are one domain of their own. Which attribute that is, is a matter of configuration.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::NodeId;

/// A node's value of the attribute; `None` for a node that has none.
pub type Domain = Option<Bytes>;

/// Values of one attribute by node; a node that is not listed has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    values: BTreeMap<NodeId, Bytes>,
}

impl Domains {
    /// With these values. The last of two for one node holds.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (NodeId, Bytes)>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// The domain a node is in.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Domain {
        self.values.get(&node).cloned()
    }

    /// How many domains some nodes are in.
    #[must_use]
    pub fn count(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().map(|node| self.of(*node)).collect::<BTreeSet<_>>().len()
    }

    /// Nodes in the order in which they are to be taken: the first of each domain, then the second of each, and
    /// so on; domains in the order of their first node, a domain's nodes in the order given.
    #[must_use]
    pub fn interleave(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut taken: BTreeMap<Domain, usize> = BTreeMap::new();
        let mut firsts: BTreeMap<Domain, usize> = BTreeMap::new();
        let mut order: Vec<(usize, usize, NodeId)> = Vec::with_capacity(nodes.len());
        for (place, node) in nodes.iter().enumerate() {
            let domain = self.of(*node);
            let first = *firsts.entry(domain.clone()).or_insert(place);
            let round = taken.entry(domain).or_insert(0);
            order.push((*round, first, *node));
            *round += 1;
        }
        order.sort_by_key(|(round, first, _)| (*round, *first));
        order.into_iter().map(|(_, _, node)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_domain_gives_one_before_any_gives_two() {
        let rack = |id, value: &'static str| (NodeId(id), Bytes::from_static(value.as_bytes()));
        let domains = Domains::new([rack(1, "a"), rack(2, "a"), rack(3, "b"), rack(5, "b")]);
        let ids = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| node.0).collect::<Vec<_>>();
        let nodes = [1, 2, 4, 6, 3, 5].map(NodeId);
        // 4 and 6 have no value: together they are the second domain.
        assert_eq!(ids(domains.interleave(&nodes)), [1, 4, 3, 2, 6, 5]);
        assert_eq!((domains.count(&nodes), domains.count(&nodes[2..4]), domains.count(&[])), (3, 1, 0));
        assert_eq!(ids(Domains::default().interleave(&nodes)), [1, 2, 4, 6, 3, 5]);
    }
}
