//! The cluster of a drill: three brokers on three hosts, what is done to them, and whether all is well again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::Options;
use tokio::runtime::Runtime;

use super::copies::{self, Totals};
use super::load::{Addresses, Load, Outcome, Unread, read_to_end};
use super::record::Happened;
use super::{Asked, say, settled_within};
use crate::process::hosts::{By, Hosts};
use crate::process::node::{Node, create, runtime, sees, settled};
use crate::process::{Broker, wait_for};

/// After anything that is done to it, a cluster is well again within this.
pub(crate) const RECOVERY: Duration = Duration::from_secs(120);
/// Small, so that many segments end within a drill.
const SEGMENT_BYTES: &str = "1048576";
const TOPICS: usize = 3;

/// What all nodes are told besides the usual; what a document says of a drill.
pub(crate) const SETTINGS: [(&str, &str); 4] = [
    ("MALACHI_SEGMENT_MAX_BYTES", SEGMENT_BYTES),
    ("MALACHI_SCRUB_INTERVAL_MS", "500"),
    ("MALACHI_SCRUB_SEGMENTS_PER_TICK", "20"),
    ("MALACHI_LOG_FOLLOWER_LAG_MS", "3000"),
];

pub(crate) struct Rig {
    // Processes end before their hosts, and volumes are free before their directories go.
    brokers: [Option<Broker>; 3],
    _volumes: Vec<Volume>,
    pub(crate) nodes: [Node; 3],
    pub(crate) runtime: Runtime,
    pub(crate) hosts: Hosts,
    pub(crate) topics: Vec<String>,
    /// Lines of these kinds are what a drill leads to.
    expected: Vec<&'static str>,
    began: Instant,
    happened: Vec<Happened>,
}

impl Rig {
    /// Starts the cluster; `expected` are parts of lines that are no failure. With a `small` one, that node's log lies
    /// on a volume of so many MiB.
    pub(crate) fn start(expected: &[&'static str], small: Option<(usize, u32)>) -> Self {
        let hosts = Hosts::new(&["a", "b", "c"]).expect("a drill needs network namespaces");
        let with_settings = |mut node: Node| {
            node.place.env.extend(SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())));
            node
        };
        let a = with_settings(hosts.node(0, By::Ipv4));
        let list = a.entry();
        let others = [1, 2].map(|at| with_settings(hosts.node(at, By::Ipv4)).seeded(&list));
        let [b, c] = others;
        let nodes = [a, b, c];
        let volumes = small.map(|(at, mib)| Volume::new(&nodes[at].place.log_dir(), mib));
        let expected = [&[" WARN "], expected].concat();
        let mut rig = Self {
            brokers: [None, None, None],
            _volumes: volumes.into_iter().collect(),
            nodes,
            runtime: runtime(),
            hosts,
            topics: (0..TOPICS).map(|at| format!("drill-{at}")).collect(),
            expected,
            began: Instant::now(),
            happened: Vec::new(),
        };
        rig.start_nodes(&[0, 1, 2]);
        settled(&[&rig.nodes[0], &rig.nodes[1], &rig.nodes[2]]);
        for topic in rig.topics.clone() {
            create(&rig.nodes[0], &topic, &rig.runtime);
            rig.nodes.iter().for_each(|node| sees(node, &topic, &rig.runtime));
        }
        rig
    }

    pub(crate) fn load(&self) -> Load {
        let addresses: Addresses = [0, 1, 2].map(|at| self.nodes[at].place.address());
        let load = Load::start(addresses, &self.topics);
        wait_for("every client to be at work", || load.stands_since(&[0; TOPICS * 3]).is_none());
        load
    }

    pub(crate) fn start_node(&mut self, at: usize) {
        self.start_nodes(&[at]);
    }

    /// Starts some, and waits for them: none of them may be able to serve without the others.
    pub(crate) fn start_nodes(&mut self, nodes: &[usize]) {
        for at in nodes {
            let mut broker = self.nodes[*at].spawn();
            self.expected.iter().for_each(|part| broker.expect(part));
            self.brokers[*at] = Some(broker);
        }
        for at in nodes {
            wait_for(&format!("{} to be ready", self.nodes[*at].name), || self.nodes[*at].is_ready());
        }
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.brokers[at].take().expect("it runs").kill();
    }

    /// Asks it to stop; it has to do so in order.
    pub(crate) fn stop(&mut self, at: usize) {
        let status = self.brokers[at].take().expect("it runs").stop();
        assert!(status.success(), "{} ended with {status}", self.nodes[at].name);
    }

    pub(crate) fn freeze(&self, at: usize) {
        self.brokers[at].as_ref().expect("it runs").signal("-STOP");
    }

    pub(crate) fn thaw(&self, at: usize) {
        self.brokers[at].as_ref().expect("it runs").signal("-CONT");
    }

    /// Who leads the group that has all topics; the first node when nobody says so.
    pub(crate) fn leader(&self) -> usize {
        self.nodes.iter().position(|node| node.leads_vnode(&self.runtime)).unwrap_or(0)
    }

    /// Who is the primary of most segments that take records.
    pub(crate) fn busiest(&self) -> usize {
        let count = |at: &usize| self.nodes[*at].series("malachi_open_segments").unwrap_or(0);
        (0..3).max_by_key(count).expect("there are three")
    }

    pub(crate) fn log_dirs(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(|node| node.place.log_dir()).collect()
    }

    /// A number of a node with labels, summed up.
    pub(crate) fn sum(&self, at: usize, name: &str) -> Option<u64> {
        let text = self.nodes[at].place.http("/metrics")?;
        let of_name = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        of_name.map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// What keeps the cluster from being well.
    fn problem(&self) -> Option<String> {
        for node in &self.nodes {
            if !node.is_ready() {
                return Some(format!("{} is not ready", node.name));
            }
            let wanted = [
                ("malachi_peers_up", 2),
                ("malachi_raft_groups_leaderless", 0),
                ("malachi_segments_unavailable", 0),
                ("malachi_stopped_ranges", 0),
            ];
            for (name, value) in wanted {
                let told = node.series(name);
                if told != Some(value) {
                    return Some(format!("{}: {name} is {told:?}", node.name));
                }
            }
        }
        None
    }

    /// Waits until all is well and every writer was told of something new, and remembers how long that took; some of
    /// that has been waited for already.
    #[track_caller]
    pub(crate) fn recovered(&mut self, load: &Load, what: String, lasted: Duration, mended: Duration) {
        let before = load.confirmed();
        let took = settled_within(RECOVERY, || {
            load.assert_right();
            self.problem().or_else(|| load.stands_since(&before).map(|name| format!("{name} writes nothing")))
        });
        let took = took.unwrap_or_else(|problem| panic!("after {what}: {problem}"));
        self.remember(load, what, lasted, mended + took);
    }

    fn remember(&mut self, load: &Load, what: String, lasted: Duration, recovered: Duration) {
        let at = self.began.elapsed();
        let pause = load.longest_pause();
        say(&format!(
            "{:6.1} s: {what}, for {lasted:.1?}; pause {pause:.2?}, well after {recovered:.2?}",
            at.as_secs_f64()
        ));
        self.happened.push(Happened { at, what, lasted, pause, recovered });
    }

    /// Ends the load and looks at everything: clients, records on every node, copies on every disk.
    pub(crate) fn close(mut self, load: Load, name: &str, asked: Asked) {
        let outcome = load.stop();
        let dirs = self.log_dirs();
        let took = settled_within(RECOVERY, || self.problem().or_else(|| copies::whole(&dirs).err()));
        let took = took.unwrap_or_else(|problem| panic!("the cluster does not become whole: {problem}"));
        say(&format!("whole after {took:.1?}; refusals: {:?}", outcome.told));
        let (records, again) = self.read_back(&outcome);
        for at in 0..3 {
            self.stop(at);
        }
        let totals = copies::whole(&dirs).unwrap_or_else(|problem| panic!("once all are stopped: {problem}"));
        let confirmed: u64 = outcome.writers.iter().map(|writer| writer.confirmed()).sum();
        say(&format!(
            "{confirmed} records acknowledged, {records} stored, {again} of them again; {totals:?}"
        ));
        if asked.is_recorded {
            let totals: Totals = totals;
            let closing = super::record::Closing { outcome, took, records, again, totals };
            super::record::write(name, asked, &self.happened, &closing);
        }
    }

    /// Everything acknowledged is there, on whichever node one asks; gives records stored, and stored again.
    fn read_back(&self, outcome: &Outcome) -> (u64, u64) {
        let mut told = (0, 0);
        for node in &self.nodes {
            told = (0, 0);
            for topic in &self.topics {
                let options = Options::new(node.place.address(), "admin", "admin123");
                let seen = match self.runtime.block_on(read_to_end(options, topic, || false)) {
                    Ok(seen) => seen.expect("nobody stops it"),
                    Err(Unread::Refused(error)) => panic!("{topic} on {}: {error}", node.name),
                    Err(Unread::Wrong(what)) => panic!("{topic} on {}: {what}", node.name),
                };
                for writer in outcome.writers.iter().filter(|writer| writer.topic == *topic) {
                    let (lacks, confirmed) = (seen.lacks(&writer.name), writer.confirmed());
                    assert!(
                        lacks >= confirmed,
                        "{} has no number {lacks} of {}, acknowledged up to {confirmed}",
                        node.name,
                        writer.name
                    );
                }
                told = (told.0 + seen.records, told.1 + seen.again);
            }
        }
        told
    }
}

/// A small file system of its own over a directory.
struct Volume {
    at: PathBuf,
}

impl Volume {
    /// All that is made on the machine is named so, with the process that made it.
    const PREFIX: &str = "malachi-volume-";

    fn new(at: &Path, mib: u32) -> Self {
        Self::sweep();
        std::fs::create_dir_all(at).unwrap();
        let (name, size) = (format!("{}{}", Self::PREFIX, std::process::id()), format!("size={mib}m"));
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, &name]).arg(at).status().unwrap();
        assert!(mount.success(), "a drill of volumes has to be permitted to make one");
        Self { at: at.to_owned() }
    }

    /// Takes away what processes left behind that were killed.
    fn sweep() {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        for line in mounts.lines() {
            let mut words = line.split(' ');
            let id = words.next().and_then(|name| name.strip_prefix(Self::PREFIX)?.parse::<u32>().ok());
            if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
                drop(words.next().map(|at| Command::new("umount").args(["-l", at]).status()));
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.at).status());
    }
}
