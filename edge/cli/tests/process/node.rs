//! A node of a cluster, as a process, and what the tests want to know of one.

use std::time::Duration;

use client::{Client, ClusterStatus, Options};
use tokio::runtime::Runtime;

use super::{Broker, Place, ports, wait_for, wait_until};

/// Of every cluster of the tests.
pub(crate) const SECRET: &str = "what all nodes of this cluster know";
/// Said of a node that was killed or is not there yet.
const NOT_REACHED: &str = "node not reached";

/// A node of a cluster; `host` and `peer` are where others reach it.
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) name: &'static str,
    pub(crate) host: String,
    pub(crate) peer: u16,
}

impl Node {
    pub(crate) fn new(name: &'static str) -> Self {
        let [peer] = ports::free();
        let place = Place::new()
            .with("MALACHI_NODE_NAME", name)
            .with("MALACHI_PEER_PORT", &peer.to_string())
            .with("MALACHI_PEER_ADDRESS", &format!("127.0.0.1:{peer}"))
            .with("MALACHI_DASHBOARD_AUTH_ENABLED", "false")
            .with("MALACHI_CLUSTER_SECRET", SECRET);
        Self { place, name, host: "127.0.0.1".to_owned(), peer }
    }

    /// It looks for these.
    pub(crate) fn seeded(self, list: &str) -> Self {
        Self { place: self.place.with("MALACHI_LOG_NODES", list), ..self }
    }

    pub(crate) fn entry(&self) -> String {
        format!("{}@{}:{}", self.name, self.host, self.peer)
    }

    /// Starts it, without waiting for anything.
    pub(crate) fn spawn(&self) -> Broker {
        let mut broker = self.place.spawn();
        broker.expect(NOT_REACHED);
        broker
    }

    pub(crate) fn start(&self) -> Broker {
        let mut broker = self.place.start();
        broker.expect(NOT_REACHED);
        broker
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.place.http("/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The line of its Raft directory that says which cluster it is of.
    pub(crate) fn cluster(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.place.raft_dir().join("malachi.cluster")).ok()?;
        text.lines().nth(1).map(str::to_owned)
    }

    pub(crate) async fn admin(&self) -> Client {
        Client::connect(&self.place.address(), "admin", "admin123").await.unwrap()
    }

    /// The same, of a node that may not be able to let anybody in, with a bound of its own for each request.
    pub(crate) async fn admin_within(&self, patience: Duration) -> Option<Client> {
        let mut options = Options::new(self.place.address(), "admin", "admin123");
        (options.connect_timeout, options.request_timeout) = (patience, patience);
        Client::connect_with(options).await.ok()
    }

    /// What it knows of its cluster.
    pub(crate) fn status(&self, runtime: &Runtime) -> ClusterStatus {
        runtime.block_on(async { self.admin().await.cluster().await.unwrap() })
    }

    /// Whether it leads the first vnode's group, as it says itself.
    pub(crate) fn leads_vnode(&self, runtime: &Runtime) -> bool {
        let (status, ring) = runtime.block_on(async {
            let admin = self.admin().await;
            (admin.cluster().await.unwrap(), admin.ring().await.unwrap())
        });
        ring.vnodes.first().is_some_and(|vnode| vnode.leader == Some(status.asked))
    }

    /// A series without labels.
    pub(crate) fn series(&self, name: &str) -> Option<u64> {
        let text = self.place.http("/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
    }

    pub(crate) fn topics(&self, runtime: &Runtime) -> Vec<String> {
        let topics = runtime.block_on(async { self.admin().await.topics("").await.unwrap() });
        topics.into_iter().map(|topic| String::from_utf8(topic.name.to_vec()).unwrap()).collect()
    }
}

/// Three nodes of one cluster to be; two of them look for the first.
pub(crate) fn three() -> [Node; 3] {
    let a = Node::new("a");
    let list = a.entry();
    [a, Node::new("b").seeded(&list), Node::new("c").seeded(&list)]
}

/// All of them running and settled, each in a place of its own so that it can be killed.
pub(crate) fn started(nodes: &[Node; 3]) -> [Option<Broker>; 3] {
    let brokers = nodes.each_ref().map(|node| Some(node.start()));
    settled(&nodes.each_ref());
    brokers
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn ready(nodes: &[&Node]) {
    for node in nodes {
        wait_for(&format!("{} to be ready", node.name), || node.is_ready());
    }
}

/// Both groups have all their members, a vote each, and one leader.
#[track_caller]
pub(crate) fn settled(nodes: &[&Node]) {
    const SERIES: [&str; 4] = [
        "malachi_raft_groups",
        "malachi_raft_groups_led",
        "malachi_raft_learners",
        "malachi_raft_groups_leaderless",
    ];
    let count = nodes.len() as u64;
    let mut told = Vec::new();
    let is_so = wait_until(|| {
        told = nodes.iter().map(|node| SERIES.map(|name| node.series(name))).collect();
        let sum = |at: usize| told.iter().map(|of_node| of_node[at]).sum::<Option<u64>>();
        let all_members = told.iter().all(|of_node| of_node[0] == Some(2));
        all_members && [0, 1, 2, 3].map(sum) == [Some(2 * count), Some(2), Some(0), Some(0)]
    });
    assert!(is_so, "every group has all its members: {SERIES:?} are {told:?}");
}

pub(crate) fn create(node: &Node, topic: &str, runtime: &Runtime) {
    wait_for(&format!("{topic} to be made on {}", node.name), || {
        runtime.block_on(async {
            // A node without a quorum may keep who asks waiting.
            let Some(admin) = node.admin_within(Duration::from_secs(3)).await else { return false };
            // An attempt without an answer may have been one with success.
            admin.create_topic(topic, 0).await.is_ok()
                || admin.topics(topic).await.is_ok_and(|topics| !topics.is_empty())
        })
    });
}

pub(crate) fn sees(node: &Node, topic: &str, runtime: &Runtime) {
    wait_for(&format!("{topic} to be seen on {}", node.name), || {
        node.topics(runtime).iter().any(|name| name == topic)
    });
}
