//! What only the leader of a vnode decides is done only while it leads (C-13).

use metadata::vnode::{Command, CreateTopic, SetSegmentReplicas};
use types::{RangeId, RangeSeq, SegmentId, SegmentSeq, Term, TopicId};

use super::*;
use crate::meta::{Decided, Error};

impl Cluster {
    /// A node of another leads a vnode from now on; in which term whoever led it did so.
    fn hand_over(&mut self, group: types::VnodeId) -> Term {
        let leader = self.leader(group).unwrap();
        let term = self.term(leader, group);
        let heir = id((leader + 1) % self.nodes.len());
        self.make(leader, |core| core.transfer(group, Some(heir)));
        self.until("another leads", |cluster| {
            cluster.leader(group).is_some_and(|other| other != leader && cluster.term(other, group) > term)
        });
        term
    }

    /// Makes a node do something that no event leads to.
    fn make(&mut self, node: usize, what: impl FnOnce(&mut crate::node::Core)) {
        let bench = &mut self.nodes[node];
        what(&mut bench.node.core);
        let actions = std::mem::take(&mut bench.node.core.out);
        bench.perform(actions);
    }

    fn term(&self, node: usize, group: types::VnodeId) -> Term {
        self.nodes[node].node.core.meta.group(group).unwrap().term()
    }
}

fn create_under(number: u128, name: &'static str) -> Command {
    Command::CreateTopic(CreateTopic {
        name: name.into(),
        id: TopicId(number),
        keyspace_bits: 4,
        key_hash: types::keyspace::KeyHash::Xxh32.id(),
    })
}

#[test]
fn what_is_decided_in_a_term_that_is_over_changes_nothing_anywhere() {
    // The vnode has three members: the fourth and fifth node only follow.
    let mut cluster = Cluster::of(5);
    let over = cluster.hand_over(VNODE);
    let leader = cluster.leader(VNODE).unwrap();
    let follower = (0..5).find(|node| !cluster.nodes[*node].node.core.meta.has(VNODE)).unwrap();
    for (via, (number, name)) in [(leader, (1, "late")), (follower, (2, "later"))] {
        let command = create_under(number, name).encode();
        cluster.make(via, |core| core.propose_as(VNODE, over, &command));
    }
    for number in 3..9 {
        // Whoever is handing over takes nothing; what is there is not created again.
        let leader = cluster.leader(VNODE).unwrap();
        let (now, command) = (cluster.term(leader, VNODE), create_under(number, "timely").encode());
        cluster.make(leader, |core| core.propose_as(VNODE, now, &command));
        cluster.pass(Duration::from_secs(2));
    }
    cluster.until("what is decided by whoever leads is done", |cluster| {
        (0..5).all(|node| cluster.knows(node, "timely"))
    });
    cluster.pass(Duration::from_secs(12));
    assert!((0..5).all(|node| !cluster.knows(node, "late") && !cluster.knows(node, "later")));
    let hash = |node: usize| cluster.nodes[node].node.core.meta.tables_of(VNODE).state_hash();
    assert!((1..5).all(|node| hash(node) == hash(0)), "members and followers judge the same");
}

#[test]
fn whoever_does_not_lead_decides_nothing() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    let leader = cluster.leader(VNODE).unwrap();
    let other = &mut cluster.nodes[(leader + 1) % 3].node.core;
    let topic = other.meta.topic_by_name(&TopicName::new(b"t").unwrap()).unwrap().0;
    let segment = SegmentId { range: RangeId { topic, seq: RangeSeq(0) }, seq: SegmentSeq(0) };
    other.set_replicas(SetSegmentReplicas { segment, expected: vec![id(0)], replicas: vec![id(1)] });
    let decided = other.meta.take_decided();
    assert!(
        matches!(&decided[..], [Decided::ReplicasSet { segment: of, result: Err(Error::Unavailable) }] if *of == segment),
        "{decided:?}"
    );
}
