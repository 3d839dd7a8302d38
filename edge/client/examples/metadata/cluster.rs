//! The cluster under test: three processes with directories and ports of their own. Each example that has one uses
//! a part of it.

#![allow(dead_code)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Error};

/// How many there are.
pub(crate) const NODES: usize = 3;
/// Longest wait for a start.
const START_MAX: Duration = Duration::from_secs(120);
/// Clock ticks in a second, as the kernel counts processor time for people.
const TICKS_PER_SECOND: f64 = 100.0;

/// Of one node: for clients, for people, and for the other nodes.
#[derive(Clone, Copy)]
struct Ports([u16; 3]);

pub(crate) struct Cluster {
    program: String,
    vnodes: String,
    dir: PathBuf,
    ports: [Ports; NODES],
    children: Vec<Child>,
}

impl Cluster {
    pub(crate) fn new(program: &str, vnodes: &str) -> Self {
        // Held until all are known, so that they differ.
        let listeners =
            [(); NODES].map(|()| [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free")));
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let ports = listeners.each_ref().map(|listeners| Ports(listeners.each_ref().map(port)));
        let dir = std::env::temp_dir().join(format!("malachi-metadata-{}", std::process::id()));
        let (program, vnodes) = (program.to_owned(), vnodes.to_owned());
        Self { program, vnodes, dir, ports, children: Vec::new() }
    }

    /// Starts all on what is in their directories, and waits until each of them takes changes.
    pub(crate) async fn start(&mut self) {
        for node in 0..NODES {
            let child = self.spawn(node);
            self.children.push(child);
        }
        let began = Instant::now();
        while !self.is_whole().await {
            assert!(began.elapsed() < START_MAX, "the cluster is not whole");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn spawn(&self, node: usize) -> Child {
        let entry = |node: usize| format!("n{node}@127.0.0.1:{}", self.ports[node].0[2]);
        let list = [0, 1, 2].map(entry).join(",");
        let dir = self.dir.join(node.to_string());
        std::fs::create_dir_all(&dir).expect("the directory can be made");
        let log = std::fs::File::options().create(true).append(true).open(dir.join("output"));
        let Ports([client, people, peer]) = self.ports[node];
        let child = Command::new(&self.program)
            .arg("server")
            .env("MALACHI_CONFIG_ENV", "dev")
            .env("MALACHI_NODE_NAME", format!("n{node}"))
            .env("MALACHI_LOG_NODES", &list)
            .env("MALACHI_LOG_VNODES", &self.vnodes)
            .env("MALACHI_CLUSTER_SECRET", "of a cluster that is measured")
            .env("MALACHI_TCP_PORT", client.to_string())
            .env("MALACHI_DASHBOARD_PORT", people.to_string())
            .env("MALACHI_PEER_PORT", peer.to_string())
            .env("MALACHI_PEER_ADDRESS", format!("127.0.0.1:{peer}"))
            .env("MALACHI_LOG_DATA_DIR", dir.join("log"))
            .env("MALACHI_RA_DATA_DIR", dir.join("raft"))
            .env("MALACHI_AUTH_RATE_LIMIT", "100000")
            .env("MALACHI_MAX_CONN_PER_IP", "5000")
            .stdin(Stdio::null())
            .stderr(log.expect("the broker's output has a place"))
            .spawn();
        child.expect("the program can be started")
    }

    /// Whether every node knows a leader of every group, and the cluster's group has all its members.
    async fn is_whole(&self) -> bool {
        for node in 0..NODES {
            let Ok(client) = self.client(node).await else { return false };
            let Ok(status) = client.cluster().await else { return false };
            let Ok(ring) = client.ring().await else { return false };
            let voters = status.members.iter().filter(|member| member.votes).count();
            let has_members = ring.vnodes.iter().all(|vnode| vnode.members.len() == NODES);
            if status.leaderless > 0 || voters < NODES || ring.vnodes.is_empty() || !has_members {
                return false;
            }
        }
        true
    }

    /// The node that leads the first vnode's group.
    pub(crate) async fn leader(&self) -> usize {
        let began = Instant::now();
        loop {
            for node in 0..NODES {
                let Ok(client) = self.client(node).await else { continue };
                let (Ok(status), Ok(ring)) = (client.cluster().await, client.ring().await) else { continue };
                if ring.vnodes.first().and_then(|vnode| vnode.leader) == Some(status.asked) {
                    return node;
                }
            }
            assert!(began.elapsed() < START_MAX, "nobody leads");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn client(&self, node: usize) -> Result<Client, Error> {
        Client::connect(&format!("127.0.0.1:{}", self.ports[node].0[0]), "admin", "admin123").await
    }

    /// What each process has spent so far; 0 where that is not told.
    pub(crate) fn processor_seconds(&self) -> Vec<f64> {
        let of = |child: &Child| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            // The second field is the program's name, which may hold anything.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let ticks = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
            ticks.sum::<f64>() / TICKS_PER_SECOND
        };
        self.children.iter().map(of).collect()
    }

    /// One of them, without any warning.
    pub(crate) fn kill_one(&mut self, node: usize) {
        let child = &mut self.children[node];
        child.kill().and_then(|()| child.wait()).expect("it is ours and runs");
    }

    /// Starts one that was killed, without waiting for anything.
    pub(crate) fn start_one(&mut self, node: usize) {
        self.children[node] = self.spawn(node);
    }

    /// The same of all of them.
    pub(crate) fn start_all(&mut self) {
        self.children = (0..NODES).map(|node| self.spawn(node)).collect();
    }

    /// All at once, without any warning.
    pub(crate) fn kill(&mut self) {
        for child in &mut self.children {
            child.kill().expect("it is ours and runs");
        }
        for mut child in self.children.drain(..) {
            child.wait().expect("it is ours");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
