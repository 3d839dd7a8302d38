//! The ring changes while topics live: they are spread over its vnodes, move between them with everything of theirs,
//! and nobody loses anything by it.

use types::{TopicName, VnodeId};

use super::operator::{as_resharding, reshard};
use super::*;

const TOPICS: [&str; 16] =
    ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15"];

impl Bench {
    /// How many topics each vnode of the ring has; each topic is on the vnode the ring says, and on no other.
    #[track_caller]
    fn spread(&self) -> Vec<usize> {
        self.spread_if_settled().unwrap_or_else(|misplaced| panic!("{misplaced}"))
    }

    /// What is where it does not belong, as far as this node's tables have come, otherwise.
    fn spread_if_settled(&self) -> Result<Vec<usize>, String> {
        let meta = &self.node.core.meta;
        let ring = &meta.cluster().topology().unwrap().ring;
        let mut spread = Vec::new();
        for (vnode, arc) in ring.arcs() {
            let tables = meta.tables_of(vnode);
            for (_, topic) in tables.topics() {
                let hash = types::keyspace::KeyHash::Xxh32.of(topic.name.as_str().as_bytes());
                if !arc.covers(hash) || (ring.len() > 1 && !tables.owns(&topic.name)) {
                    return Err(format!("{} is on {vnode}", topic.name.as_str()));
                }
            }
            spread.push(tables.topic_count());
        }
        Ok(spread)
    }

    fn vnodes(&self) -> usize {
        self.node.core.meta.cluster().topology().map_or(0, |topology| topology.ring.len())
    }

    fn is_quiet(&self) -> bool {
        self.node.core.meta.cluster().topology().is_some_and(|topology| topology.pending.is_none())
    }
}

impl Cluster {
    /// Asks whoever leads until the ring has so many vnodes, as the command does.
    fn reshard(&mut self, to: u32) {
        for _ in 0..300 {
            let Some(leader) = self.leader(CLUSTER) else {
                self.pass(Duration::from_millis(100));
                continue;
            };
            let bench = &self.nodes[leader];
            if bench.is_quiet() && bench.vnodes() == to as usize {
                return self.until("everybody has heard", |cluster| {
                    let there = |node: &Bench| node.is_quiet() && node.vnodes() == to as usize;
                    cluster.nodes.iter().all(there)
                });
            }
            self.ask(leader, reshard(to, false));
            self.pass(Duration::from_millis(200));
        }
        panic!("the ring never has {to} vnodes");
    }

    #[track_caller]
    fn all_spread(&mut self, over: usize) {
        // The tables of the cluster may be ahead of a vnode's on a node that was away.
        let has_all = |node: &Bench| {
            node.spread_if_settled().is_ok_and(|spread| spread.into_iter().sum::<usize>() == TOPICS.len())
        };
        self.until("every node knows every topic", |cluster| cluster.nodes.iter().all(has_all));
        for node in &self.nodes {
            let spread = node.spread();
            assert_eq!(spread.len(), over);
            assert!(over > 8 || spread.iter().all(|topics| *topics > 0), "{spread:?}");
        }
    }
}

fn alone(vnodes: u32) -> Bench {
    let mut bench = Bench::begun(|config| config.formation = Formation::Forms { vnodes });
    for _ in 0..100 {
        if bench.ready {
            break;
        }
        bench.pass(Duration::from_millis(100));
    }
    assert!(bench.ready, "{:?}", bench.stop);
    bench
}

fn page_of(fetched: Reply) -> Page {
    let Reply::Fetched(fetched) = fetched else { panic!("{fetched:?}") };
    Page::of(fetched)
}

#[test]
fn a_fresh_node_spreads_topics_over_its_vnodes() {
    let mut bench = alone(8);
    for topic in TOPICS {
        assert_eq!(bench.ask(create(topic)), Reply::Created);
        assert_eq!(bench.ask(create(topic)), Reply::Failed(Reason::AlreadyExists));
        assert_eq!(bench.ask(produce(topic, &[topic])), Reply::Stored(1));
    }
    let spread = bench.spread();
    assert!(spread.iter().sum::<usize>() == 16 && spread.iter().all(|topics| *topics < 8), "{spread:?}");
    bench.restart();
    for topic in TOPICS {
        assert_eq!(page_of(bench.ask(Request::Fetch(fetch(topic)))).values, [topic]);
    }
    assert_eq!(bench.spread(), spread);
    // Nothing is left to do under the lease.
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.node.core.meta.cluster().lease().holder, None);
}

#[test]
fn three_nodes_spread_topics_over_the_vnodes() {
    let mut cluster = Cluster::new_with(|config| config.formation = Formation::Forms { vnodes: 8 });
    cluster.join();
    cluster.join();
    cluster.until("every node serves", |cluster| cluster.nodes.iter().all(|node| node.ready));
    for (at, topic) in TOPICS.into_iter().enumerate() {
        assert_eq!(cluster.ask(at % 3, create(topic)), Reply::Created);
    }
    cluster.until("the vnodes have grown", |cluster| (0..8).all(|vnode| cluster.voters(VnodeId(vnode)) == 3));
    cluster.until("all is known", |cluster| {
        cluster.nodes.iter().all(|node| {
            node.spread_if_settled().is_ok_and(|spread| spread.iter().sum::<usize>() == TOPICS.len())
        })
    });
    let spread = cluster.nodes[0].spread();
    assert!(spread.iter().filter(|topics| **topics > 0).count() >= 6, "{spread:?}");
    assert!(cluster.nodes.iter().all(|node| node.spread() == spread));
}

#[test]
fn a_node_alone_gets_more_vnodes_and_fewer() {
    let mut bench = alone(1);
    for topic in TOPICS {
        assert_eq!(bench.ask(create(topic)), Reply::Created);
        assert_eq!(bench.ask(produce(topic, &["a", "b"])), Reply::Stored(2));
    }
    let first = page_of(bench.ask(Request::Fetch(Fetch { max: 1, ..fetch("t3") })));
    assert_eq!(bench.ask(commit("t3", "g", &first.cursor)), Reply::Committed);
    for to in [5_u32, 2, 8, 1] {
        let told = as_resharding(bench.ask(reshard(to, false)));
        assert_eq!((told.to, told.refusal), (to, None));
        for _ in 0..200 {
            if bench.is_quiet() && bench.vnodes() == to as usize {
                break;
            }
            bench.pass(Duration::from_millis(100));
        }
        assert_eq!((bench.vnodes(), bench.is_quiet()), (to as usize, true));
        let spread = bench.spread();
        assert_eq!((spread.len(), spread.iter().sum::<usize>()), (to as usize, TOPICS.len()));
        // Groups of vnodes that left are gone.
        let groups = bench.node.gauges().cluster.groups;
        assert_eq!(groups, to as usize + 1);
        for topic in TOPICS {
            assert_eq!(bench.ask(produce(topic, &["c"])), Reply::Stored(1));
        }
        let own = Fetch { group: name("g"), max: 1, ..fetch("t3") };
        assert_eq!(page_of(bench.ask(Request::Fetch(own))).values, ["b"]);
        bench.restart();
        bench.pass(Duration::from_millis(500));
        assert!(bench.ready);
        assert_eq!(bench.spread(), spread);
    }
    let page = page_of(bench.ask(Request::Fetch(Fetch { max: 10, ..fetch("t7") })));
    assert_eq!(page.values, ["a", "b", "c", "c", "c", "c"]);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.node.core.meta.cluster().lease().holder, None);
}

#[test]
fn three_nodes_get_more_vnodes_and_fewer_while_they_are_asked() {
    let mut cluster = Cluster::of(3);
    for (at, topic) in TOPICS.into_iter().enumerate() {
        assert_eq!(cluster.ask(at % 3, create(topic)), Reply::Created);
        assert_eq!(cluster.ask(at % 3, produce(topic, &["a"])), Reply::Stored(1));
    }
    for to in [4_u32, 3, 1, 2] {
        cluster.reshard(to);
        cluster.all_spread(to as usize);
        for (at, topic) in TOPICS.into_iter().enumerate() {
            assert_eq!(cluster.ask(at % 3, produce(topic, &["b"])), Reply::Stored(1));
        }
        cluster.until("groups that left are gone, and the others whole", |cluster| {
            let topology = cluster.nodes[0].node.core.meta.cluster().topology().unwrap();
            let whole = topology.placements.keys().all(|vnode| cluster.voters(*vnode) == 3);
            let groups = |node: &Bench| node.node.gauges().cluster.groups;
            whole && cluster.nodes.iter().all(|node| groups(node) == to as usize + 1)
        });
    }
    for (node, topic) in TOPICS.into_iter().enumerate().take(3) {
        cluster.restart(node);
        cluster.until("it serves again", |cluster| cluster.nodes[node].ready);
        assert_eq!(
            page_of(cluster.ask(node, Request::Fetch(fetch(topic)))).values,
            ["a", "b", "b", "b", "b"]
        );
    }
}

/// Whoever holds the lease is cut off or restarted at every moment of a change; whoever comes after goes on.
#[test]
fn a_change_is_ended_whoever_began_it() {
    for moment in 0..12_u64 {
        let mut cluster = Cluster::of(3);
        for (at, topic) in TOPICS.into_iter().enumerate() {
            assert_eq!(cluster.ask(at % 3, create(topic)), Reply::Created);
        }
        let leader = cluster.leader(CLUSTER).unwrap();
        cluster.ask(leader, reshard(2, false));
        cluster.pass(Duration::from_millis(20 * moment));
        if moment % 2 == 0 {
            cluster.restart(leader);
        } else {
            cluster.cut_off(leader);
            cluster.pass(Duration::from_secs(20));
            cluster.connect_again(leader);
        }
        cluster.reshard(2);
        cluster.all_spread(2);
        cluster.reshard(1);
        cluster.all_spread(1);
    }
}

/// A node that starts hears from the others that it is to begin the group of a vnode before it has read what it is a
/// member of.
#[test]
fn a_node_that_starts_during_a_change_reads_its_log_first() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader(CLUSTER).unwrap();
    let late = (leader + 1) % 3;
    let comes = |cluster: &Cluster, node: usize| {
        let topology = cluster.nodes[node].node.core.meta.cluster().topology();
        let coming = topology.and_then(|topology| topology.coming());
        coming.is_some_and(|(_, nodes)| nodes.contains(&id(late)))
    };
    // Nothing of what it hears of the change becomes durable.
    cluster.stuck = Some(late);
    cluster.ask(leader, reshard(2, false));
    for _ in 0..200 {
        if comes(&cluster, leader) {
            break;
        }
        cluster.pass(Duration::from_millis(20));
    }
    assert!(comes(&cluster, leader), "it is one of those that begin the group");
    cluster.restart_unread(late);
    cluster.pump();
    assert!(comes(&cluster, late), "it is told");
    assert!(!cluster.nodes[late].node.core.meta.has(CLUSTER), "it has read nothing");
    cluster.stuck = None;
    cluster.until("it serves", |cluster| cluster.nodes[late].ready);
    cluster.reshard(2);
    let stopped =
        |node: &Bench| node.notices.iter().any(|notice| matches!(notice, Notice::MetadataStopped { .. }));
    assert!(!cluster.nodes.iter().any(stopped));
    cluster.until("the groups are whole", |cluster| {
        let groups = |node: &Bench| node.node.gauges().cluster.groups;
        (0..2).all(|vnode| cluster.voters(VnodeId(vnode)) == 3)
            && cluster.nodes.iter().all(|node| groups(node) == 3)
    });
}

#[test]
fn a_topic_by_its_name_is_where_the_ring_says() {
    let bench = alone(4);
    let meta = &bench.node.core.meta;
    let ring = &meta.cluster().topology().unwrap().ring;
    for topic in TOPICS {
        let name = TopicName::new(topic.as_bytes()).unwrap();
        let covering: Vec<VnodeId> =
            ring.iter().map(|(vnode, _)| vnode).filter(|vnode| meta.tables_of(*vnode).owns(&name)).collect();
        let hash = types::keyspace::KeyHash::Xxh32.of(topic.as_bytes());
        assert_eq!(covering, [ring.route(hash).unwrap()], "{topic}");
    }
}

/// Whatever is asked while topics move is done: it waits for the topic to arrive.
#[test]
fn nobody_is_refused_while_topics_move() {
    let mut cluster = Cluster::of(3);
    for topic in TOPICS {
        assert_eq!(cluster.ask(0, create(topic)), Reply::Created);
    }
    cluster.all_spread(1);
    let leader = cluster.leader(CLUSTER).unwrap();
    for to in [4, 1] {
        let mut asked = Vec::new();
        for round in 0..200_usize {
            if round % 10 == 0 {
                cluster.nodes[leader].send(reshard(to, false));
            }
            let (at, topic) = (round % 3, TOPICS[round % TOPICS.len()]);
            let cursor = types::cursor::Cursor::unborn().encode();
            let request = match round % 4 {
                0 => Request::Admin(Admin::DescribeTopic { topic: name(topic), from_range: 0, max: 1 }),
                1 => Request::Admin(Admin::SplitRange { topic: name(topic), range: 0 }),
                2 => commit(topic, "g", &cursor),
                _ => Request::Admin(Admin::SeekTime { topic: name(topic), at_ms: 0 }),
            };
            asked.push((at, topic, cluster.nodes[at].send(request)));
            cluster.pass(Duration::from_millis(20));
        }
        cluster.reshard(to);
        cluster.pass(Duration::from_secs(12));
        for (at, topic, id) in asked {
            let reply = cluster.nodes[at].reply(id);
            // A range is split once, and is replaced from then on.
            let fine = !matches!(&reply, None | Some(Reply::Failed(_)))
                || matches!(&reply, Some(Reply::Failed(Reason::Sealed)));
            assert!(fine, "{topic} on {at}: {reply:?}");
        }
        let here = cluster.nodes.iter().all(|node| node.node.core.meta.covers_ring());
        assert!(here, "the ring is covered again");
    }
}
