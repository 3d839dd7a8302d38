//! A link between two nodes is cut, and both reach the third.

use types::{Offset, RangeId, RangeSeq};

use super::*;

/// An answer may take so long while a link is cut.
const SOON: Duration = Duration::from_secs(5);
const TOPICS: [&str; 12] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11"];

/// Where the first segment of a topic ended, and the primary of the one that takes records, as a node has it.
fn ended(cluster: &Cluster, node: usize, topic: &str) -> (Option<Offset>, Option<NodeId>) {
    let meta = &cluster.nodes[node].node.core.meta;
    let (id, _) = meta.topic_by_name(&TopicName::new(topic.as_bytes()).unwrap()).unwrap();
    let range = RangeId { topic: id, seq: RangeSeq(0) };
    let end = meta.of(id).segments_of(range).next().and_then(|(_, segment)| segment.end());
    let active = meta.of(id).active_segment(range);
    (end, active.and_then(|(_, listed)| listed.replicas.first().copied()))
}

/// Whoever leads, somebody else who is a primary, and the topics that one takes records of.
fn apart(cluster: &mut Cluster) -> (usize, usize, Vec<&'static str>) {
    // Until whoever is to lead does.
    cluster.pass(Duration::from_secs(5));
    let leader = cluster.leader(VNODE).unwrap();
    let mut of = BTreeMap::<usize, Vec<&'static str>>::new();
    for topic in TOPICS {
        assert_eq!(cluster.ask(0, create(topic)), Reply::Created);
        assert_eq!(cluster.ask(0, produce(topic, &["a"])), Reply::Stored(1));
        of.entry(records::primary(cluster, topic)).or_default().push(topic);
    }
    let (primary, topics) =
        of.into_iter().filter(|(node, _)| *node != leader).max_by_key(|(_, topics)| topics.len()).unwrap();
    (leader, primary, topics)
}

#[test]
fn a_primary_that_does_not_reach_the_leader_hears_of_its_end_from_another() {
    let mut cluster = Cluster::of(3);
    let (leader, primary, topics) = apart(&mut cluster);
    let third = 3 - primary - leader;
    cluster.cut(primary, leader);
    // Whoever leads ends them, and others go on.
    cluster.pass(Duration::from_millis(100));
    for topic in &topics {
        assert_eq!(cluster.ask(leader, produce(topic, &["b"])), Reply::Stored(1));
    }
    // What only the leader takes is refused before long: another front may reach it.
    let by_leader = topics.iter().copied().find(|topic| ended(&cluster, third, topic).1 == Some(id(leader)));
    let by_third = |cluster: &Cluster, topic: &str| ended(cluster, third, topic).1 == Some(id(third));
    let topics: Vec<_> = topics.into_iter().filter(|topic| by_third(&cluster, topic)).collect();
    assert!(!topics.is_empty() && ended(&cluster, primary, topics[0]).0.is_none());
    for topic in topics {
        let begun = cluster.nodes[primary].now;
        // Its copy takes what that of the third one refuses.
        assert_eq!(cluster.ask(primary, produce(topic, &["c"])), Reply::Stored(1));
        assert!(cluster.nodes[primary].now.since(begun) < SOON, "{topic}");
        assert_eq!(cluster.ask(third, produce(topic, &["d"])), Reply::Stored(1));
        assert_eq!(ended(&cluster, primary, topic), ended(&cluster, third, topic));
        let Reply::Fetched(fetched) = cluster.ask(third, Request::Fetch(fetch(topic))) else { panic!() };
        assert_eq!(Page::of(fetched).values, ["a", "b", "c", "d"]);
    }
    assert!(cluster.nodes[primary].node.core.meta.is_apart());
    let begun = cluster.nodes[primary].now;
    let by_leader = by_leader.expect("of several topics");
    assert_eq!(cluster.ask(primary, produce(by_leader, &["c"])), Reply::Failed(Reason::Unavailable));
    assert!(cluster.nodes[primary].now.since(begun) < SOON);
    cluster.connect(primary, leader);
    cluster.until("its replica hears the leader again", |cluster| {
        let meta = &cluster.nodes[primary].node.core.meta;
        !meta.is_apart() && meta.group(VNODE).unwrap().leader() == Some(id(leader))
    });
    assert_eq!(cluster.ask(primary, create("after")), Reply::Created);
    cluster.until("all know it", |cluster| (0..3).all(|node| cluster.knows(node, "after")));
    for topic in TOPICS {
        assert_eq!(cluster.ask(primary, produce(topic, &["e"])), Reply::Stored(1));
    }
}

#[test]
fn records_go_on_soon_after_whoever_leads_and_takes_them_is_gone() {
    let mut cluster = Cluster::of(3);
    cluster.pass(Duration::from_secs(5));
    let gone = cluster.leader(VNODE).unwrap();
    let mut taken = Vec::new();
    for topic in TOPICS {
        assert_eq!(cluster.ask(gone, create(topic)), Reply::Created);
        assert_eq!(cluster.ask(gone, produce(topic, &["a"])), Reply::Stored(1));
        taken.extend((records::primary(&mut cluster, topic) == gone).then_some(topic));
    }
    assert!(!taken.is_empty());
    let term = cluster.nodes[gone].node.core.meta.group(VNODE).unwrap().term();
    cluster.cut_off(gone);
    cluster.pump();
    let begun = cluster.nodes[(gone + 1) % 3].now;
    for (at, topic) in taken.into_iter().enumerate() {
        let front = (gone + 1 + at % 2) % 3;
        assert_eq!(cluster.ask(front, produce(topic, &["b"])), Reply::Stored(1));
    }
    let front = (gone + 1) % 3;
    // An election, 200 ms, the end of the segments and the first of the next.
    assert!(cluster.nodes[front].now.since(begun) < Duration::from_millis(800));
    let leads = cluster.leader(VNODE).filter(|leader| *leader != gone);
    let others = cluster.nodes.iter().enumerate().filter(|(node, _)| *node != gone);
    let terms: BTreeSet<_> =
        others.map(|(_, node)| node.node.core.meta.group(VNODE).unwrap().term()).collect();
    assert!(leads.is_some() || terms.into_iter().all(|now| now.0 == term.0 + 1));
}
