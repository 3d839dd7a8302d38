//! Where copies of segments and members of vnodes lie, by what the nodes say of themselves; and switches of the cluster.

use std::sync::Arc;

use crate::config::{MinDomains, Policy, Rebalance};
use types::VnodeId;
use wire::response::{FlagEnabled, Flags, Rebalancing};

use super::operator::change;
use super::*;
use crate::event::OfCluster;

/// A cluster of nodes in these racks.
struct Racked {
    cluster: Cluster,
    racks: Vec<&'static str>,
    set: fn(&mut Config),
}

impl Racked {
    fn new(racks: &[&'static str], set: fn(&mut Config)) -> Self {
        let first = Cluster::new_with(|config| said(config, racks[0], set));
        let mut racked = Self { cluster: first, racks: vec![racks[0]], set };
        for rack in &racks[1..] {
            racked.join(rack);
        }
        racked.settle();
        racked
    }

    fn join(&mut self, rack: &'static str) -> usize {
        let (at, set) = (self.racks.len(), self.set);
        self.cluster.nodes.push(Bench::begun(|config| {
            describe(config, at);
            config.formation = Formation::Joins;
            said(config, rack, set);
        }));
        (0..at).for_each(|other| self.cluster.connect(other, at));
        self.racks.push(rack);
        at
    }

    fn settle(&mut self) {
        let count = self.racks.len();
        self.cluster.until("every node serves", |cluster| cluster.nodes.iter().all(|node| node.ready));
        self.cluster.until("everybody knows everybody", |cluster| {
            let active = |node: &Bench| node.node.core.able_nodes().len() == count;
            cluster.nodes.iter().all(active)
        });
    }

    /// The racks the copies of a topic's segments are in.
    fn racks_of(&self, topic: &'static str) -> Vec<BTreeSet<&'static str>> {
        let segments = self.cluster.segments(0, topic);
        let racks = |nodes: &[NodeId]| nodes.iter().map(|node| self.racks[at(*node)]).collect();
        segments.iter().map(|(_, segment)| racks(&segment.replicas)).collect()
    }

    fn rebalance(&mut self, dry_run: bool) -> Rebalancing {
        let leader = self.cluster.leader(CLUSTER).unwrap();
        let request = Request::Cluster(OfCluster::Rebalance { dry_run });
        let Reply::Rebalancing(plan) = self.cluster.ask(leader, request) else { panic!("it leads") };
        plan
    }

    /// The voters of each vnode, as their leaders have them; none while any of them is not settled.
    fn voters(&self) -> Option<BTreeMap<VnodeId, BTreeSet<NodeId>>> {
        let leader = self.cluster.leader(CLUSTER)?;
        let meta = &self.cluster.nodes[leader].node.core.meta;
        let placements = &meta.cluster().topology()?.placements;
        let of = |(vnode, placed): (&VnodeId, &Vec<NodeId>)| {
            let leader = self.cluster.leader(*vnode)?;
            let group = self.cluster.nodes[leader].node.core.meta.group(*vnode)?;
            let voters: BTreeSet<NodeId> = group.members().voters().map(|member| member.node).collect();
            let is_settled =
                group.members().iter().count() == voters.len() && voters == placed.iter().copied().collect();
            is_settled.then_some((*vnode, voters))
        };
        placements.iter().map(of).collect()
    }

    /// How many vnodes the node with most of them and the one with fewest have.
    fn loads(&self) -> Option<(usize, usize)> {
        let voters = self.voters()?;
        let load = |node: usize| voters.values().filter(|nodes| nodes.contains(&id(node))).count();
        let loads: Vec<usize> = (0..self.racks.len()).map(load).collect();
        Some((*loads.iter().max()?, *loads.iter().min()?))
    }
}

fn said(config: &mut Config, rack: &'static str, set: fn(&mut Config)) {
    config.own.attributes = [(Arc::from("rack"), Arc::from(rack))].into();
    config.placement.spread_by = Some("rack".into());
    config.segment_replicas = 2;
    set(config);
}

fn at(node: NodeId) -> usize {
    usize::try_from(node.0 - 1).unwrap()
}

fn seal(topic: &'static str) -> Request {
    Request::Admin(Admin::SealTopic { topic: name(topic) })
}

const TOPICS: [&str; 6] = ["t0", "t1", "t2", "t3", "t4", "t5"];

#[test]
fn copies_lie_in_different_racks_as_far_as_there_are_some() {
    let mut racked = Racked::new(&["a", "a", "a", "b"], |_| {});
    for topic in TOPICS {
        assert_eq!(racked.cluster.ask(0, create(topic)), Reply::Created);
        assert_eq!(racked.cluster.ask(0, produce(topic, &["x"])), Reply::Stored(1));
        assert_eq!(racked.racks_of(topic), [BTreeSet::from(["a", "b"])], "{topic}");
    }
}

#[test]
fn where_more_racks_are_insisted_on_than_there_are_nothing_is_stored() {
    let mut racked = Racked::new(&["a", "a"], |config| {
        config.placement.min_domains = Some(MinDomains { count: 2, policy: Policy::Hard });
    });
    for topic in TOPICS {
        assert_eq!(racked.cluster.ask(0, create(topic)), Reply::Created);
        for node in 0..2 {
            let reply = racked.cluster.ask(node, produce(topic, &["x"]));
            assert_eq!(reply, Reply::Failed(Reason::InsufficientDomains), "{topic} at {node}");
        }
        assert!(racked.racks_of(topic).is_empty(), "nothing is registered");
    }
    racked.join("b");
    racked.settle();
    for topic in TOPICS {
        assert_eq!(racked.cluster.ask(1, produce(topic, &["x"])), Reply::Stored(1));
        assert_eq!(racked.racks_of(topic), [BTreeSet::from(["a", "b"])]);
    }
}

#[test]
fn a_policy_of_a_topic_names_another_attribute_or_none() {
    use metadata::cluster::{Command, Policy, Setting};
    let mut racked = Racked::new(&["a", "b"], |config| {
        let hall = Arc::from("one");
        config.own.attributes.insert(Arc::from("hall"), hall);
        config.placement.min_domains = Some(MinDomains { count: 2, policy: self::Policy::Hard });
    });
    for (topic, spread_by) in [("t0", Setting::Value(Bytes::from_static(b"hall"))), ("t1", Setting::Off)] {
        let policy = Policy { spread_by, ..Policy::default() };
        let define = Command::DefinePolicy { name: Bytes::from(topic), policy };
        let leader = racked.cluster.leader(CLUSTER).unwrap();
        let bench = &mut racked.cluster.nodes[leader];
        bench.node.core.propose_cluster(&define, crate::cluster::Then::Forget);
        let actions = std::mem::take(&mut bench.node.core.out);
        bench.perform(actions);
        assert_eq!(racked.cluster.ask(0, create(topic)), Reply::Created);
        let leader = racked.cluster.leader(VNODE).unwrap();
        let bench = &mut racked.cluster.nodes[leader];
        let id = bench.node.core.meta.topic_by_name(&TopicName::new(topic.as_bytes()).unwrap()).unwrap().0;
        bench.decide(&metadata::vnode::Command::BindTopicPolicy { topic: id, policy: Some(topic.into()) });
        racked.cluster.pass(Duration::from_secs(1));
    }
    // All nodes are in one hall; without an attribute each is a domain of its own.
    let reply = racked.cluster.ask(0, produce("t0", &["x"]));
    assert_eq!(reply, Reply::Failed(Reason::InsufficientDomains));
    assert_eq!(racked.cluster.ask(0, produce("t1", &["x"])), Reply::Stored(1));
}

#[test]
fn copies_that_lie_too_close_move_apart_once_they_can() {
    let mut racked = Racked::new(&["a", "a"], |_| {});
    for topic in TOPICS {
        assert_eq!(racked.cluster.ask(0, create(topic)), Reply::Created);
        assert_eq!(racked.cluster.ask(0, produce(topic, &["x", "y"])), Reply::Stored(2));
        assert_eq!(racked.cluster.ask(0, seal(topic)), Reply::Done);
        racked.cluster.until("it is whole", |cluster| cluster.is_healed(0, topic, 2));
        assert_eq!(racked.racks_of(topic), [BTreeSet::from(["a"])]);
    }
    racked.join("b");
    racked.settle();
    for topic in TOPICS {
        for _ in 0..1200 {
            if racked.racks_of(topic) == [BTreeSet::from(["a", "b"])] {
                break;
            }
            racked.cluster.pass(Duration::from_millis(100));
        }
        assert_eq!(racked.racks_of(topic), [BTreeSet::from(["a", "b"])], "{topic}");
        assert!(racked.cluster.is_healed(0, topic, 2), "{topic}");
        assert_eq!(racked.cluster.read_all(2, topic), ["x", "y"]);
    }
}

fn of_four_vnodes(config: &mut Config) {
    config.placement.max_skew = Some(1);
    if let Formation::Forms { vnodes } = &mut config.formation {
        *vnodes = 4;
    }
}

#[test]
fn vnodes_move_to_where_they_would_be_placed_when_they_are_asked_to() {
    let mut racked = Racked::new(&["a", "a", "a"], of_four_vnodes);
    racked.cluster.until("four vnodes of three members", |cluster| {
        let meta = &cluster.nodes[0].node.core.meta;
        let placements = meta.cluster().topology().map(|topology| topology.placements.clone());
        placements.is_some_and(|all| all.len() == 4 && all.values().all(|nodes| nodes.len() == 3))
    });
    racked.join("b");
    racked.join("b");
    racked.settle();
    let other = (racked.cluster.leader(CLUSTER).unwrap() + 1) % 5;
    let refused = racked.cluster.ask(other, Request::Cluster(OfCluster::Rebalance { dry_run: false }));
    assert_eq!(refused, Reply::Failed(Reason::NotLeaseHolder));
    racked.cluster.pass(Duration::from_secs(20));
    let plan = racked.rebalance(true);
    assert!(plan.move_count > 0 && plan.refusal.is_none(), "{plan:?}");
    assert_eq!(plan.moves.len(), plan.move_count as usize);
    let before = racked.voters().unwrap();
    for moved in &plan.moves {
        let members = &before[&moved.vnode];
        assert!(moved.remove.iter().all(|node| members.contains(node)), "{moved:?} of {members:?}");
        assert!(!moved.add.iter().any(|node| members.contains(node)), "{moved:?} of {members:?}");
    }
    assert_eq!(racked.rebalance(false).move_count, plan.move_count, "one code path");
    for _ in 0..1200 {
        if racked.loads().is_some_and(|(most, _)| most <= 3) && racked.rebalance(true).move_count == 0 {
            break;
        }
        racked.cluster.pass(Duration::from_millis(100));
    }
    // Twelve members at five nodes; in each vnode both racks.
    assert_eq!((racked.loads().map(|(most, _)| most), racked.rebalance(true).move_count), (Some(3), 0));
    for (vnode, nodes) in racked.voters().unwrap() {
        let racks: BTreeSet<_> = nodes.iter().map(|node| racked.racks[at(*node)]).collect();
        assert_eq!((nodes.len(), racks.len()), (3, 2), "{vnode} at {nodes:?}");
    }
}

#[test]
fn vnodes_move_by_themselves_only_after_the_plan_has_been_the_same_for_a_while() {
    let mut racked = Racked::new(&["a", "a", "a"], |config| {
        of_four_vnodes(config);
        config.rebalance = Some(Rebalance { every: Duration::from_secs(20), stabilization: 2 });
    });
    racked.cluster.pass(Duration::from_secs(10));
    racked.join("b");
    racked.settle();
    racked.cluster.pass(Duration::from_secs(15));
    let before = racked.voters().unwrap();
    let plan = racked.rebalance(true);
    assert!(plan.move_count > 0, "a node of another rack came");
    for _ in 0..1200 {
        if racked.voters().is_some_and(|now| now != before) && racked.rebalance(true).move_count == 0 {
            return;
        }
        racked.cluster.pass(Duration::from_millis(100));
    }
    panic!("nothing moves: {:?}", racked.rebalance(true));
}

#[test]
fn a_member_that_is_drained_stays_until_another_has_come() {
    let mut racked = Racked::new(&["a", "a", "a", "a"], |_| {});
    racked.cluster.pass(Duration::from_secs(20));
    let before = racked.voters().unwrap()[&VNODE].clone();
    let goes = before.iter().copied().find(|node| Some(at(*node)) != racked.cluster.leader(CLUSTER)).unwrap();
    let spare = (0..4).find(|node| !before.contains(&id(*node))).unwrap();
    // The only node that could come in its place is away.
    racked.cluster.cut_off(spare);
    racked.cluster.pass(Duration::from_secs(2));
    let leader = racked.cluster.leader(CLUSTER).unwrap();
    let drain = change(at(goes), wire::request::NodeChange::Drain, false);
    assert!(matches!(racked.cluster.ask(leader, drain), Reply::NodeChanged(_)));
    racked.cluster.pass(Duration::from_secs(20));
    assert_eq!(racked.voters().unwrap()[&VNODE], before);
    racked.cluster.connect_again(spare);
    racked.cluster.until("it has", |cluster| {
        let leader = cluster.leader(VNODE);
        let group = leader.and_then(|leader| cluster.nodes[leader].node.core.meta.group(VNODE));
        group.is_some_and(|group| {
            let voters: BTreeSet<NodeId> = group.members().voters().map(|member| member.node).collect();
            voters.contains(&id(spare)) && !voters.contains(&goes) && voters.len() == 3
        })
    });
}

fn flags(reply: Reply) -> Flags {
    let Reply::Flags(flags) = reply else { panic!("{reply:?}") };
    flags
}

#[test]
fn a_switch_goes_on_when_every_node_can_honour_it_and_ends_whoever_cannot() {
    let list = || Request::Cluster(OfCluster::ListFlags);
    let enable = |dry_run| Request::Cluster(OfCluster::EnableFlag { flag: name("wide"), dry_run });
    let mut cluster = Cluster::of(3);
    let knows = |cluster: &mut Cluster, node: usize, knows: bool| {
        let known = knows.then(|| Arc::from("wide"));
        cluster.nodes[node].config.own.flags = known.into_iter().collect();
        cluster.restart(node);
        cluster.until("it serves", |cluster| cluster.nodes[node].ready);
        cluster.pass(Duration::from_secs(5));
    };
    knows(&mut cluster, 0, true);
    knows(&mut cluster, 1, true);
    let shown = flags(cluster.ask(0, list())).flags;
    assert_eq!((shown.len(), shown[0].known, shown[0].enabled), (1, true, false));
    assert_eq!(shown[0].lacking, ["n2"]);
    assert!(flags(cluster.ask(2, list())).flags.is_empty(), "its build knows of none");
    let Reply::FlagEnabled(FlagEnabled { refusal, lacking }) = cluster.ask(0, enable(true)) else { panic!() };
    assert_eq!((refusal, lacking), (name("flag_unsupported"), vec![Bytes::from_static(b"n2")]));
    assert_eq!(cluster.ask(1, enable(false)), Reply::Failed(Reason::FlagUnsupported));
    let odd = Request::Cluster(OfCluster::EnableFlag { flag: name("Wide!"), dry_run: true });
    assert_eq!(cluster.ask(0, odd), Reply::Failed(Reason::InvalidFlag));
    knows(&mut cluster, 2, true);
    let done = Reply::FlagEnabled(FlagEnabled { refusal: None, lacking: Vec::new() });
    assert_eq!(cluster.ask(2, enable(true)), done);
    assert!(!flags(cluster.ask(2, list())).flags[0].enabled, "it was only asked");
    assert_eq!(cluster.ask(2, enable(false)), done);
    assert_eq!(cluster.ask(1, enable(false)), done, "it is on");
    cluster.until("everybody knows", |cluster| {
        cluster.nodes.iter().all(|node| node.node.core.meta.cluster().is_enabled("wide"))
    });
    assert!(cluster.nodes.iter().all(|node| node.stop.is_none()));
    cluster.nodes[1].config.own.flags.clear();
    cluster.restart(1);
    cluster.until("it ends", |cluster| cluster.nodes[1].stop.is_some());
    let Some(crate::Stop::UnknownFlag { flag, .. }) = &cluster.nodes[1].stop else {
        panic!("{:?}", cluster.nodes[1].stop)
    };
    assert_eq!(flag, "wide");
}
