//! Several nodes in memory: one forms a cluster, others join it, and what one decides all know.

mod apart;
mod explain;
mod healing;
mod led;
mod lost;
mod members;
mod operator;
mod placement;
mod positions;
mod records;
mod replicas;
mod ring;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{Incarnation, TopicName};

use super::*;
use crate::config::Formation;
use crate::event::{AskId, CallId, PeerEvent};
use crate::meta::{CLUSTER, VNODE};

/// Nodes and the connections between them.
struct Cluster {
    nodes: Vec<Bench>,
    /// Pairs with a connection, the lower first.
    links: BTreeSet<(usize, usize)>,
    mail: VecDeque<(usize, NodeId, PeerEvent)>,
    /// What was asked and answered between nodes.
    posted: Vec<peer::Message>,
    calls: BTreeMap<CallId, (usize, AskId)>,
    next_call: u64,
    /// A node whose disk does nothing for now.
    stuck: Option<usize>,
}

impl Cluster {
    /// A node that formed a cluster of its own.
    fn new() -> Self {
        Self::new_with(|_| {})
    }

    fn new_with(change: impl FnOnce(&mut Config)) -> Self {
        let first = Bench::begun(|config| {
            describe(config, 0);
            change(config);
        });
        let (links, mail, calls) = (BTreeSet::new(), VecDeque::new(), BTreeMap::new());
        Self { nodes: vec![first], links, mail, posted: Vec::new(), calls, next_call: 0, stuck: None }
    }

    /// So many nodes, all of which serve, all connected.
    fn of(count: usize) -> Self {
        let mut cluster = Self::new();
        for _ in 1..count {
            cluster.join();
        }
        cluster.until("every node serves", |cluster| cluster.nodes.iter().all(|node| node.ready));
        let voters = count.min(3);
        cluster.until("the groups have grown", |cluster| {
            [CLUSTER, VNODE].iter().all(|group| cluster.voters(*group) == voters)
        });
        cluster
    }

    /// One more, connected to all.
    fn join(&mut self) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Bench::begun(|config| {
            describe(config, at);
            config.formation = Formation::Joins;
        }));
        for other in 0..at {
            self.connect(other, at);
        }
        at
    }

    /// One more, which has heard of one node alone.
    fn join_by(&mut self, other: usize) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Bench::begun(|config| {
            describe(config, at);
            config.formation = Formation::Joins;
        }));
        self.connect(other, at);
        at
    }

    fn connect(&mut self, one: usize, other: usize) {
        if self.links.insert((one.min(other), one.max(other))) {
            self.mail.push_back((one, id(other), PeerEvent::Up));
            self.mail.push_back((other, id(one), PeerEvent::Up));
        }
    }

    fn cut(&mut self, one: usize, other: usize) {
        if self.links.remove(&(one.min(other), one.max(other))) {
            let between = |to: usize, from: NodeId| {
                (to == one && from == id(other)) || (to == other && from == id(one))
            };
            self.mail.retain(|(to, from, _)| !between(*to, *from));
            self.mail.push_back((one, id(other), PeerEvent::Down));
            self.mail.push_back((other, id(one), PeerEvent::Down));
        }
    }

    fn cut_off(&mut self, node: usize) {
        (0..self.nodes.len()).filter(|other| *other != node).for_each(|other| self.cut(node, other));
    }

    fn connect_again(&mut self, node: usize) {
        (0..self.nodes.len()).filter(|other| *other != node).for_each(|other| self.connect(node, other));
    }

    /// A process ends and another begins over the same directories.
    fn restart(&mut self, node: usize) {
        self.restart_unread(node);
        self.nodes[node].settle();
    }

    /// The same, and its disk has done nothing yet.
    fn restart_unread(&mut self, node: usize) {
        self.cut_off(node);
        self.nodes[node].outgoing.clear();
        let incarnation = &mut self.nodes[node].config.own.incarnation;
        *incarnation = Incarnation(incarnation.0 + 1);
        self.nodes[node].restart_for(0);
        self.connect_again(node);
    }

    /// Delivers everything, and what comes of it.
    fn pump(&mut self) {
        loop {
            for from in 0..self.nodes.len() {
                if self.stuck != Some(from) {
                    self.nodes[from].settle();
                }
                for action in std::mem::take(&mut self.nodes[from].outgoing) {
                    self.post(from, action);
                }
            }
            let Some((to, from, event)) = self.mail.pop_front() else { return };
            self.nodes[to].step(Event::Peer(from, event));
        }
    }

    fn post(&mut self, from: usize, action: Action) {
        let there = |to: NodeId| usize::try_from(to.0 - 1).unwrap();
        let linked = |links: &BTreeSet<_>, to: usize| links.contains(&(from.min(to), from.max(to)));
        if let Action::Ask { message, .. } | Action::Answer { message, .. } = &action {
            self.posted.push(message.clone());
        }
        match action {
            Action::Say { to, message } if linked(&self.links, there(to)) => {
                assert!(message.fits(), "{:?} is too large to be sent", message.kind());
                self.mail.push_back((there(to), id(from), PeerEvent::Said(message)));
            }
            Action::Ask { to, ask, message, .. } if linked(&self.links, there(to)) => {
                self.next_call += 1;
                let call = CallId(self.next_call);
                self.calls.insert(call, (from, ask));
                self.mail.push_back((there(to), id(from), PeerEvent::Asked { call, message }));
            }
            Action::Answer { to, call, message } if linked(&self.links, there(to)) => {
                let (asker, ask) = self.calls.remove(&call).expect("an answer to what was asked");
                assert_eq!(asker, there(to));
                self.mail.push_back((asker, id(from), PeerEvent::Answered { ask, message }));
            }
            _ => {}
        }
    }

    fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(20);
        for _ in 0..time.as_millis().div_ceil(step.as_millis()) {
            for node in &mut self.nodes {
                node.now = node.now.plus(step);
                node.wall = WallTime(node.wall.0 + 20);
                if node.wake_at.is_some_and(|at| at <= node.now) {
                    node.step(Event::Timer);
                }
            }
            self.pump();
        }
    }

    /// Lets time pass until something holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("not within a minute: {what}");
    }

    /// How many vote, as the leader knows.
    fn voters(&self, group: types::VnodeId) -> usize {
        let leader =
            self.nodes.iter().find_map(|node| node.node.core.meta.group(group).filter(|g| g.is_ready()));
        leader.map_or(0, |group| group.members().voters().count())
    }

    fn leader(&self, group: types::VnodeId) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.nodes[*node].node.core.meta.leads(group))
    }

    /// The answer of a node to a request, however long it takes.
    fn ask(&mut self, node: usize, request: Request) -> Reply {
        let asked = self.nodes[node].send(request);
        for _ in 0..600 {
            self.pump();
            if let Some(reply) = self.nodes[node].reply(asked) {
                return reply;
            }
            self.pass(Duration::from_millis(50));
        }
        panic!("no answer");
    }

    fn knows(&self, node: usize, topic: &str) -> bool {
        let name = TopicName::new(topic.as_bytes()).unwrap();
        self.nodes[node].node.core.meta.topic_by_name(&name).is_some()
    }
}

fn id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

fn describe(config: &mut Config, node: usize) {
    config.node = id(node);
    config.seed = 7 + 1000 * node as u128;
    config.own.name = format!("n{node}").into();
    config.own.peer = format!("n{node}:4043").into();
    // Whoever was away for a while is given tables, not entries.
    config.snapshot_entries = 10;
}

#[test]
fn nodes_join_and_the_groups_grow() {
    let mut cluster = Cluster::of(3);
    for (at, topic) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(cluster.ask(at, create(topic)), Reply::Created);
        assert!(cluster.knows(at, topic), "whoever asked finds it in its own tables");
    }
    cluster.until("everybody knows all", |cluster| {
        (0..3).all(|node| ["a", "b", "c"].iter().all(|topic| cluster.knows(node, topic)))
    });
    assert_eq!(cluster.ask(1, create("a")), Reply::Failed(Reason::AlreadyExists));
}

#[test]
fn two_of_three_go_on_and_the_third_catches_up() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader(VNODE).unwrap();
    cluster.cut_off(leader);
    let other = (leader + 1) % 3;
    cluster.until("others lead", |cluster| {
        let leads = |group| (0..3).any(|n| n != leader && cluster.nodes[n].node.core.meta.leads(group));
        leads(VNODE) && leads(CLUSTER)
    });
    assert_eq!(cluster.ask(other, create("t")), Reply::Created);
    assert!(!cluster.knows(leader, "t"));
    // Nobody is told that something is done which a minority wished for.
    assert!(matches!(cluster.ask(leader, create("u")), Reply::Failed(_)));
    cluster.connect_again(leader);
    cluster.until("it caught up", |cluster| cluster.knows(leader, "t"));
}

#[test]
fn a_node_beyond_the_voters_follows() {
    let mut cluster = Cluster::of(5);
    cluster.until("five", |cluster| cluster.voters(CLUSTER) == 5);
    let follower = (0..5).find(|node| cluster.nodes[*node].node.core.meta.group(VNODE).is_none()).unwrap();
    assert_eq!(cluster.ask(follower, create("t")), Reply::Created);
    assert!(cluster.knows(follower, "t"));
    assert_eq!(cluster.ask(0, create("u")), Reply::Created);
    cluster.until("the follower heard", |cluster| cluster.knows(follower, "u"));
    cluster.restart(follower);
    cluster.until("it serves again", |cluster| cluster.nodes[follower].ready);
    assert!(cluster.knows(follower, "t") && cluster.knows(follower, "u"));
}

/// As entries, since nothing was summed up yet: none of what is said about them may be too large to be sent.
#[test]
fn who_joins_late_gets_its_vote_and_who_follows_late_the_tables() {
    let mut cluster = Cluster::new_with(|config| config.snapshot_entries = 1_000_000);
    cluster.until("it serves", |cluster| cluster.nodes[0].ready);
    let hash = "$".repeat(types::limits::PASSWORD_HASH_BYTES_MAX);
    for n in 0..2 * types::limits::PEER_BULK_MESSAGE_BYTES_MAX / hash.len() {
        let (username, permissions) = (format!("u{n}").into(), Permissions::default());
        let user = crate::Users::Create { username, hash: hash.clone().into(), permissions };
        assert_eq!(cluster.ask(0, Request::Users(user)), Reply::Done);
    }
    for _ in 0..3 {
        cluster.join();
    }
    cluster.until("the groups have grown", |cluster| cluster.voters(CLUSTER) == 3);
    cluster.until("every node serves", |cluster| cluster.nodes.iter().all(|node| node.ready));
    let beyond = |cluster: &Cluster, node: usize| cluster.nodes[node].node.core.meta.group(CLUSTER).is_none();
    assert!((0..4).any(|node| beyond(&cluster, node)), "one of them only follows");
}

/// Whom it reaches may be one that only follows itself.
#[test]
fn whoever_joins_by_a_node_beyond_the_voters_learns_who_else_there_is() {
    let mut cluster = Cluster::of(4);
    let is_voter = |node: &usize| cluster.nodes[*node].node.core.meta.group(CLUSTER).is_some();
    let beyond = (0..4).find(|node| !is_voter(node)).unwrap();
    let late = cluster.join_by(beyond);
    cluster.until("it knows the others", |cluster| {
        cluster.nodes[late].node.core.meta.cluster().nodes().count() == 4
    });
    assert!(!cluster.nodes[late].ready, "how old that is nobody could tell");
    cluster.connect_again(late);
    cluster.until("it serves", |cluster| cluster.nodes[late].ready);
}

/// A node beyond the voters hears by whoever it follows, which may be the one that hears nothing.
#[test]
fn whoever_follows_one_that_is_cut_off_hears_of_what_it_asked_for() {
    let mut cluster = Cluster::of(4);
    let is_voter = |cluster: &Cluster, node: usize| cluster.nodes[node].node.core.meta.group(VNODE).is_some();
    let beyond = (0..4).find(|node| !is_voter(&cluster, *node)).unwrap();
    let leader = cluster.leader(VNODE).unwrap();
    let behind = (0..4).find(|node| ![beyond, leader].contains(node)).unwrap();
    let others = || (0..4).filter(move |node| ![beyond, behind].contains(node));
    others().for_each(|node| cluster.cut(beyond, node));
    assert_eq!(cluster.ask(leader, create("a")), Reply::Created);
    cluster.until("it follows the only one it can", |cluster| cluster.knows(beyond, "a"));
    others().for_each(|node| cluster.cut(behind, node));
    others().for_each(|node| cluster.connect(beyond, node));
    let begun = cluster.nodes[beyond].now;
    assert_eq!(cluster.ask(beyond, create("b")), Reply::Created);
    assert!(cluster.nodes[beyond].now.since(begun) < Duration::from_secs(2));
    assert!(cluster.knows(beyond, "b") && !cluster.knows(behind, "b"));
}

#[test]
fn every_node_may_restart_one_after_another() {
    let mut cluster = Cluster::of(3);
    for (node, topic) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(cluster.ask(node, create(topic)), Reply::Created);
        cluster.restart(node);
        cluster.until("it serves again", |cluster| cluster.nodes[node].ready);
        assert!(cluster.knows(node, topic));
    }
}

#[test]
fn a_range_ends_here_that_was_split_elsewhere() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    let split = Request::Admin(Admin::SplitRange { topic: name("t"), range: 0 });
    assert_eq!(cluster.ask(1, split), Reply::Split { left: 1, right: 2 });
    cluster.until("the parent's segment ended", |cluster| cluster.nodes[0].node.gauges().open_segments == 0);
    assert_eq!(cluster.ask(0, produce("t", &["b"])), Reply::Stored(1));
    let Reply::Fetched(fetched) = cluster.ask(0, Request::Fetch(fetch("t"))) else { panic!("it is there") };
    assert_eq!(Page::of(fetched).values, ["a", "b"]);
}

#[test]
fn a_topic_deleted_elsewhere_leaves_nothing_here() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    let waiting = Request::Fetch(Fetch { wait_ms: 60_000, max: 1, ..fetch("t") });
    assert!(matches!(cluster.ask(0, waiting), Reply::Fetched(_)));
    let delete = Request::Admin(Admin::DeleteTopic { topic: name("t") });
    assert_eq!(cluster.ask(2, delete), Reply::Done);
    cluster.until("its copy is gone", |cluster| cluster.nodes[0].node.core.copies().next().is_none());
    assert_eq!(cluster.nodes[0].node.gauges().open_segments, 0);
    assert_eq!(cluster.ask(0, produce("t", &["b"])), Reply::Failed(Reason::NoSuchTopic));
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["c"])), Reply::Stored(1));
}

/// What it missed it never sees entry by entry.
#[test]
fn a_node_that_is_given_tables_compares_what_it_holds_with_them() {
    let mut cluster = Cluster::of(3);
    cluster.nodes.iter_mut().for_each(|node| node.node.core.config.segment_replicas = 1);
    let topics = ["t0", "t1", "t2", "t3", "t4", "t5"];
    for topic in topics {
        assert_eq!(cluster.ask(0, create(topic)), Reply::Created);
        assert_eq!(cluster.ask(0, produce(topic, &["a"])), Reply::Stored(1));
    }
    // One node has taken the records of two of them at least.
    let of = |cluster: &mut Cluster, node: usize| {
        let own = topics.into_iter().filter(|topic| records::primary(cluster, topic) == node);
        own.collect::<Vec<_>>()
    };
    let away = (0..3).find(|node| of(&mut cluster, *node).len() >= 2).unwrap();
    let its = of(&mut cluster, away);
    let (gone, split, other) = (its[0], its[1], (away + 1) % 3);
    assert_eq!(cluster.nodes[away].node.gauges().open_segments, its.len());
    cluster.cut_off(away);
    cluster.until("others lead", |cluster| {
        (0..3).any(|node| node != away && cluster.nodes[node].node.core.meta.leads(VNODE))
    });
    let delete = Request::Admin(Admin::DeleteTopic { topic: name(gone) });
    assert_eq!(cluster.ask(other, delete), Reply::Done);
    let split_it = Request::Admin(Admin::SplitRange { topic: name(split), range: 0 });
    assert_eq!(cluster.ask(other, split_it), Reply::Split { left: 1, right: 2 });
    // Refusals are entries, too.
    for _ in 0..25 {
        assert_eq!(cluster.ask(other, create(split)), Reply::Failed(Reason::AlreadyExists));
    }
    cluster.connect_again(away);
    let left = its.len() - 2;
    let ended = |cluster: &Cluster| cluster.nodes[away].node.gauges().open_segments == left;
    cluster.until("both segments ended", ended);
    cluster
        .until("one copy is gone", |cluster| cluster.nodes[away].node.core.copies().count() == its.len() - 1);
}
