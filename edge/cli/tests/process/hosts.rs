//! Hosts of their own for the nodes of a test: network namespaces on one switch, whose links can be cut.
//!
//! Each host has an IPv4 and an IPv6 number on the switch, where nodes meet, and another network that leads to the
//! test alone: a host that is cut off from the others is still asked what it thinks of that. All there is ends with
//! the value, and what a test that was killed left behind is taken away by the next.
//!
//! A way is cut by making one host believe that the other has an address nobody has. Packets leave and arrive nowhere,
//! and nobody is told: unlike a route that refuses, that is what a broken switch looks like. Neighbours are all given
//! by hand, so that looking for one never needs the other way.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Place;
use super::node::{Node, SECRET};

/// All that is made on the machine is named so, with the process that made it.
const PREFIX: &str = "malachi";
/// The name of a host's end of its cable to the switch.
const CABLE: &str = "data";
/// Nobody has it.
const NOBODY: &str = "02:00:00:00:00:ff";

/// The hosts of one test.
pub(crate) struct Hosts {
    tag: String,
    names: Vec<&'static str>,
}

/// How nodes are told where others are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Ipv4,
    Ipv6,
    /// Looked up in the host's own file of names.
    Name,
}

impl Hosts {
    /// `None`, with a line that says so, unless they were asked for: they need permission, and a quiet machine.
    pub(crate) fn new(names: &[&'static str]) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if std::env::var_os("E2E_HOSTS").is_none() {
            drop(writeln!(std::io::stderr(), "skipped: hosts are not asked for, see `make e2e`"));
            return None;
        }
        sweep();
        let id = std::process::id();
        let hosts = Self {
            tag: format!("{PREFIX}-{id}-{}", MADE.fetch_add(1, Ordering::Relaxed)),
            names: names.to_vec(),
        };
        if let Err(why) = hosts.make() {
            panic!("hosts were asked for, and cannot be made here: {why}");
        }
        Some(hosts)
    }

    fn make(&self) -> Result<(), String> {
        let switch = self.space("switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add name switch type bridge mcast_snooping 0"))?;
        ip(&format!("-n {switch} link set switch up"))?;
        for (at, name) in self.names.iter().enumerate() {
            let space = self.space(name);
            ip(&format!("netns add {space}"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {switch} link add name port-{name} type veth peer name {CABLE} netns {space}"))?;
            ip(&format!("-n {switch} link set port-{name} master switch up"))?;
            ip(&format!("-n {space} link set {CABLE} address {} up", mac(at)))?;
            ip(&format!("-n {space} addr add {}/24 dev {CABLE}", v4(at)))?;
            ip(&format!("-n {space} addr add {}/64 dev {CABLE} nodad", v6(at)))?;
            // To the test: a name and a network that nobody else on this machine has.
            let (outside, inside) = self.to_test(at);
            let end = self.end(at);
            ip(&format!("link add name {end} type veth peer name test netns {space}"))?;
            ip(&format!("link set {end} up"))?;
            ip(&format!("addr add {outside}/64 dev {end} nodad"))?;
            ip(&format!("-n {space} link set test up"))?;
            ip(&format!("-n {space} addr add {inside}/64 dev test nodad"))?;
            self.write_names(at, &[])?;
        }
        for from in 0..self.names.len() {
            for to in (0..self.names.len()).filter(|to| *to != from) {
                self.point(from, to, &mac(to))?;
            }
        }
        Ok(())
    }

    /// A node on the host of that place, that tells others to reach it there.
    pub(crate) fn node(&self, at: usize, by: By) -> Node {
        let mut place = Place::new();
        (place.port, place.dashboard) = (4040, 4041);
        place.reached_at = self.to_test(at).1;
        place.within = ["ip", "netns", "exec", &self.space(self.names[at])].map(str::to_owned).to_vec();
        let host = match by {
            By::Ipv4 => v4(at),
            By::Ipv6 => format!("[{}]", v6(at)),
            By::Name => format!("{}.test", self.names[at]),
        };
        let place = place
            .with("MALACHI_NODE_NAME", self.names[at])
            .with("MALACHI_PEER_ADDRESS", &format!("{host}:4043"))
            .with("MALACHI_DASHBOARD_AUTH_ENABLED", "false")
            .with("MALACHI_CLUSTER_SECRET", SECRET);
        Node { place, name: self.names[at], host, peer: 4043 }
    }

    /// Nothing gets from the one to the other any more; the other way is as it was.
    pub(crate) fn cut_way(&self, from: usize, to: usize) {
        self.point(from, to, NOBODY).unwrap();
    }

    /// Nothing gets from either to the other.
    pub(crate) fn cut(&self, one: usize, other: usize) {
        self.cut_way(one, other);
        self.cut_way(other, one);
    }

    /// As it was at first, whatever was cut between the two.
    pub(crate) fn mend(&self, one: usize, other: usize) {
        self.point(one, other, &mac(other)).unwrap();
        self.point(other, one, &mac(one)).unwrap();
    }

    /// Pulls the host's cable, or puts it back.
    pub(crate) fn plug(&self, at: usize, is_in: bool) {
        let space = self.space(self.names[at]);
        ip(&format!("-n {space} link set {CABLE} {}", if is_in { "up" } else { "down" })).unwrap();
        if !is_in {
            return;
        }
        // What was set by hand went with it.
        ip(&format!("-n {space} addr replace {}/64 dev {CABLE} nodad", v6(at))).unwrap();
        for to in (0..self.names.len()).filter(|to| *to != at) {
            self.point(at, to, &mac(to)).unwrap();
        }
    }

    /// The host has another IPv4 number from now on, and everybody's file of names says so.
    pub(crate) fn move_house(&self, at: usize) {
        let space = self.space(self.names[at]);
        ip(&format!("-n {space} addr flush dev {CABLE}")).unwrap();
        ip(&format!("-n {space} addr add {}/24 dev {CABLE}", moved(at))).unwrap();
        for host in 0..self.names.len() {
            self.write_names(host, &[at]).unwrap();
            if host != at {
                self.point(at, host, &mac(host)).unwrap();
            }
        }
    }

    /// What one host takes for the other's address below IP.
    fn point(&self, from: usize, to: usize, mac: &str) -> Result<(), String> {
        for number in [v4(to), v6(to), moved(to)] {
            let space = self.space(self.names[from]);
            ip(&format!("-n {space} neigh replace {number} lladdr {mac} dev {CABLE} nud permanent"))?;
        }
        Ok(())
    }

    /// The host's own file of names, in place: a process that runs there sees what is written into it.
    fn write_names(&self, host: usize, moved_ones: &[usize]) -> Result<(), String> {
        let number = |at: usize| if moved_ones.contains(&at) { moved(at) } else { v4(at) };
        let line = |(at, name): (usize, &&str)| format!("{} {name}.test\n", number(at));
        let lines: String = self.names.iter().enumerate().map(line).collect();
        let dir = settings_of(&self.space(self.names[host]));
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        std::fs::write(dir.join("hosts"), lines).map_err(|error| error.to_string())
    }

    fn space(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    /// The name of the test's end of the network it shares with the host.
    fn end(&self, at: usize) -> String {
        format!("m{:x}-{}-{at}", std::process::id(), self.number())
    }

    fn number(&self) -> &str {
        self.tag.rsplit('-').next().unwrap()
    }

    /// The numbers of the test and of the host on the network between the two.
    fn to_test(&self, at: usize) -> (String, String) {
        let id = std::process::id();
        let net = format!("fd6d:{:x}:{:x}:{}{at:02x}", id >> 16, id & 0xffff, self.number());
        (format!("{net}::1"), format!("{net}::2"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (at, name) in self.names.iter().enumerate() {
            // A namespace lasts as long as a connection in it that nobody closed.
            drop(ip(&format!("link del {}", self.end(at))));
            remove(&self.space(name));
        }
        remove(&self.space("switch"));
    }
}

fn v4(at: usize) -> String {
    format!("10.77.0.{}", at + 1)
}

fn moved(at: usize) -> String {
    format!("10.77.0.{}", at + 101)
}

fn v6(at: usize) -> String {
    format!("fd77::{}", at + 1)
}

fn mac(at: usize) -> String {
    format!("02:00:00:00:00:{:02x}", at + 1)
}

fn settings_of(space: &str) -> PathBuf {
    PathBuf::from("/etc/netns").join(space)
}

/// Takes away a namespace with everything in it; its processes have ended.
fn remove(space: &str) {
    drop(ip(&format!("netns del {space}")));
    drop(std::fs::remove_dir_all(settings_of(space)));
}

/// Takes away what processes left behind that were killed.
fn sweep() {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else { return };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for space in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let id = space.strip_prefix(PREFIX).and_then(|rest| rest.split('-').nth(1)?.parse::<u32>().ok());
        if id.is_some_and(|id| !PathBuf::from(format!("/proc/{id}")).exists()) {
            remove(space);
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
