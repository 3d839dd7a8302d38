//! Which cluster this node is meant for: its name, where it is reached, the nodes it looks for at its first start, and
//! what it says about itself.
//!
//! The list of nodes is where a first start looks. Who belongs afterwards is recorded by the cluster itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::{MinDomains, Placement, PlacementPolicy as Policy, Rebalance, Timing};
use types::limits;

use super::Values;
use super::peer::Peer;

/// This node and the ones it looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Of this node; unique in the cluster.
    pub(crate) name: Arc<str>,
    /// Where other nodes reach it, as `host:port`.
    pub(crate) peer: Arc<str>,
    /// Where clients do.
    pub(crate) client: Arc<str>,
    /// What a first start does.
    pub(crate) role: Role,
    /// The other nodes of the list.
    pub(crate) others: Vec<Seed>,
    /// Whether this node meets others at all: only then it listens to them.
    pub(crate) meets: bool,
    /// Vnodes of a ring that is formed here.
    pub(crate) vnodes: u32,
    /// Copies of a segment.
    pub(crate) segment_replicas: usize,
    /// How long a producer waits for a quorum of them.
    pub(crate) replicate_within: Duration,
    /// How long one of them may be away or behind.
    pub(crate) behind_max: Duration,
    pub(crate) behind_bytes_max: u64,
    pub(crate) mend_bytes_per_second: u64,
    /// Members of a vnode.
    pub(crate) vnode_replicas: usize,
    /// How long a node has to be dead before others take what it holds.
    pub(crate) replace_after: Duration,
    /// What it says about where and what it is.
    pub(crate) attributes: BTreeMap<Arc<str>, Arc<str>>,
    /// What placing members and copies respects.
    pub(crate) placement: Placement,
    /// How long the lease of the cluster lasts, and how it is kept.
    pub(crate) lease: Timing,
    /// When vnodes move by themselves to where they should be; `None` never.
    pub(crate) rebalance: Option<Rebalance>,
}

/// What a first start does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The list names nobody else: it forms a cluster of its own.
    Alone,
    /// It is the first of the list in the order of names: it forms one once most of the list is there, unless one of
    /// them belongs to a cluster already.
    First,
    /// It joins whatever cluster it finds.
    Joins,
}

/// A node to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    /// As the list has it, without a port.
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) address: String,
}

impl Seed {
    /// `name@host`, `name@host:port`, or the same without a name.
    fn parse(item: &str, port: u16) -> Option<Self> {
        let host = item.split_once('@').map_or(item, |(_, host)| host);
        let prefix = &item[..item.len() - host.len()];
        let (bare, address) = match host.rsplit_once(':') {
            // An IPv6 number has colons of its own, so it needs its brackets.
            Some((bare, _)) if !host.ends_with(']') && (bare.ends_with(']') || !bare.contains(':')) => {
                (bare, host.to_owned())
            }
            Some(_) if !host.ends_with(']') => return None,
            Some(_) | None => (host, format!("{host}:{port}")),
        };
        let name = format!("{prefix}{}", bare.trim_matches(['[', ']']));
        let is_good = prefix != "@" && !bare.is_empty() && is_name(&name) && is_address(&address);
        is_good.then_some(Self { name, address })
    }

    /// Whether a node of that name means this entry: by all of it, or by either half.
    fn is(&self, name: &str) -> bool {
        let halves = self.name.split_once('@');
        self.name == name || halves.is_some_and(|(short, host)| name == short || name == host)
    }
}

pub(super) fn cluster(values: &mut Values, peer: &Peer, client_port: u16) -> Cluster {
    let listed = listed(values, peer.port);
    let given = text(values, "NODE_NAME");
    let wanted = given.clone().unwrap_or_else(host_name);
    if !is_name(&wanted) {
        values.refuse("NODE_NAME", "is no name of a node: 1 to 255 of A-Z a-z 0-9 . _ - @ :");
    }
    let own: Vec<usize> = (0..listed.len()).filter(|at| listed[*at].is(&wanted)).collect();
    if own.len() > 1 {
        let problem =
            format!("names several nodes as {wanted}; MALACHI_NODE_NAME says which of them this is");
        values.refuse("LOG_NODES", &problem);
    }
    let own = own.first().map(|at| listed[*at].clone());
    let others: Vec<Seed> = listed.iter().filter(|seed| Some(*seed) != own.as_ref()).cloned().collect();
    let role = match &own {
        _ if others.is_empty() => Role::Alone,
        Some(own) if others.iter().all(|other| own.name < other.name) => Role::First,
        Some(_) | None => Role::Joins,
    };
    let listed_at = own.as_ref().map(|own| own.address.clone());
    let at = peer.address.clone().or(listed_at).unwrap_or_else(|| format!("{}:{}", host_name(), peer.port));
    let host = at.rsplit_once(':').map_or(at.as_str(), |(host, _)| host);
    Cluster {
        name: own.map_or(wanted, |own| own.name).into(),
        client: format!("{host}:{client_port}").into(),
        peer: at.as_str().into(),
        role,
        meets: meets(values) || !others.is_empty(),
        others,
        vnodes: vnodes(values),
        segment_replicas: values.count("LOG_REPLICATION_FACTOR").min(limits::SEGMENT_REPLICAS_MAX),
        replicate_within: values.millis("LOG_REPLICATE_TIMEOUT_MS"),
        behind_max: values.millis("LOG_FOLLOWER_LAG_MS"),
        behind_bytes_max: values.number("LOG_FOLLOWER_LAG_BYTES"),
        mend_bytes_per_second: values.number("LOG_MEND_BYTES_PER_SECOND"),
        vnode_replicas: values.count("LOG_VNODE_REPLICATION_FACTOR").min(limits::RAFT_MEMBERS_MAX),
        replace_after: values.millis("LOG_REPLACE_AFTER_MS"),
        attributes: attributes(values),
        placement: placement(values),
        lease: lease(values),
        rebalance: rebalance(values),
    }
}

/// Whether anything says that this node is one of several.
pub(super) fn meets(values: &Values) -> bool {
    let names = ["LOG_CLUSTER", "CLUSTER_SECRET", "CLUSTER_STRATEGY", "PEER_ADDRESS"];
    let is_set = |name: &str| values.is_set(name) && text(values, name).is_some();
    names.into_iter().any(is_set) || values.flag("DIST_TLS") || values.list("LOG_NODES").len() > 1
}

fn text(values: &Values, name: &str) -> Option<String> {
    values.text(name).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn listed(values: &mut Values, port: u16) -> Vec<Seed> {
    let mut listed: Vec<Seed> = Vec::new();
    for item in values.list("LOG_NODES").to_vec() {
        let problem = match Seed::parse(&item, port) {
            None => format!("has {item:?}, which is no name@host or name@host:port"),
            Some(seed) if listed.iter().any(|other| other.name == seed.name) => {
                format!("names {} twice; nodes of one host need names of their own", seed.name)
            }
            Some(seed) => {
                listed.push(seed);
                continue;
            }
        };
        values.refuse("LOG_NODES", &problem);
    }
    listed
}

fn vnodes(values: &mut Values) -> u32 {
    let vnodes = values.number("LOG_VNODES");
    if vnodes > limits::VNODES_MAX as u64 {
        values.refuse("LOG_VNODES", &format!("is above {}", limits::VNODES_MAX));
    }
    u32::try_from(vnodes).unwrap_or(1)
}

/// What placing respects. A policy that is not `hard` is `soft`.
fn placement(values: &Values) -> Placement {
    let boxed = |text: &str| Box::<str>::from(text.trim());
    let pairs = values.list("LOG_TOPOLOGY").iter().filter_map(|item| item.split_once('='));
    let topology = pairs.map(|(node, value)| (boxed(node), boxed(value))).collect();
    let count = |name: &str| values.bound(name).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let policy = match values.text("LOG_PLACEMENT_POLICY") {
        Some("hard") => Policy::Hard,
        Some(_) | None => Policy::Soft,
    };
    Placement {
        spread_by: text(values, "LOG_SPREAD_BY").map(Box::from),
        min_domains: count("LOG_MIN_DOMAINS").map(|count| MinDomains { count, policy }),
        topology,
        max_skew: count("LOG_MAX_SKEW"),
    }
}

/// Three times in order; a list that is not was refused with what would be.
fn lease(values: &Values) -> Timing {
    let [duration, deadline, retry] =
        ["LEASE_DURATION_MS", "LEASE_RENEW_DEADLINE_MS", "LEASE_RETRY_PERIOD_MS"]
            .map(|name| values.millis(name));
    Timing::new(duration, deadline, retry).unwrap_or_default()
}

fn rebalance(values: &Values) -> Option<Rebalance> {
    let stabilization = u32::try_from(values.number("AUTO_REBALANCE_STABILIZATION")).unwrap_or(u32::MAX);
    let every = values.millis("AUTO_REBALANCE_INTERVAL_MS");
    values.flag("AUTO_REBALANCE").then_some(Rebalance { every, stabilization })
}

/// Items without `=` say nothing, as they always have.
fn attributes(values: &mut Values) -> BTreeMap<Arc<str>, Arc<str>> {
    let pairs = values.list("LOG_ATTRIBUTES").iter().filter_map(|item| item.split_once('='));
    let pairs = pairs.map(|(key, value)| (Arc::from(key.trim()), Arc::from(value.trim())));
    let attributes: BTreeMap<Arc<str>, Arc<str>> = pairs.collect();
    let is_short = |text: &str| (1..=limits::NODE_ATTRIBUTE_BYTES_MAX).contains(&text.len());
    let fit = attributes.iter().all(|(key, value)| is_short(key) && is_short(value));
    if !fit || attributes.len() > limits::NODE_ATTRIBUTES_MAX {
        let most = limits::NODE_ATTRIBUTES_MAX;
        let problem = format!("has more than {most} attributes, or one that is empty or too long");
        values.refuse("LOG_ATTRIBUTES", &problem);
    }
    attributes
}

fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@' | b':');
    (1..=limits::NODE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_address(address: &str) -> bool {
    let allowed =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'[' | b']' | b'%');
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    address.len() <= limits::NODE_ADDRESS_BYTES_MAX
        && address.bytes().all(allowed)
        && port.is_some_and(|port| port > 0)
}

/// What this machine calls itself.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_str().unwrap_or_default();
    if is_name(name) && !name.contains([':', '@']) { name.to_owned() } else { "localhost".to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::load_from;
    use super::super::sources::Sources;
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Cluster, Vec<String>> {
        let plain = [("CONFIG_ENV", "dev")];
        let pairs = plain.iter().chain(pairs);
        let pairs = pairs.map(|(name, text)| (format!("MALACHI_{name}"), (*text).to_owned()));
        let loaded = load_from(Sources::read(pairs, None));
        let lines = |problems: Vec<super::super::Invalid>| problems.iter().map(ToString::to_string).collect();
        loaded.map(|loaded| loaded.config.cluster).map_err(lines)
    }

    #[test]
    fn nothing_set_is_a_node_that_meets_nobody() {
        let cluster = load(&[]).unwrap();
        assert_eq!((cluster.role, cluster.meets, cluster.vnodes), (Role::Alone, false, 1));
        assert!(cluster.others.is_empty() && cluster.peer.ends_with(":4043"));
        assert!(cluster.client.ends_with(":4040") && cluster.attributes.is_empty());
        for one in [("LOG_CLUSTER", "c"), ("CLUSTER_SECRET", "0123456789abcdef"), ("PEER_ADDRESS", "h")] {
            let cluster = load(&[one]).unwrap();
            assert_eq!((cluster.role, cluster.meets), (Role::Alone, true), "{one:?}");
        }
        assert!(!load(&[("LOG_CLUSTER", " ")]).unwrap().meets);
    }

    #[test]
    fn the_first_of_the_list_forms_and_the_others_join() {
        let nodes = ("LOG_NODES", "b@h2,a@h1:5000,c@h3");
        let role = |name| load(&[nodes, ("NODE_NAME", name)]).map(|cluster| (cluster.name, cluster.role));
        for (name, whole, role_of_it) in [
            ("a@h1", "a@h1", Role::First),
            ("a", "a@h1", Role::First),
            ("h1", "a@h1", Role::First),
            ("b@h2", "b@h2", Role::Joins),
            ("x@h9", "x@h9", Role::Joins),
        ] {
            assert_eq!(role(name), Ok((whole.into(), role_of_it)));
        }
        let cluster = load(&[nodes, ("NODE_NAME", "a")]).unwrap();
        let addresses: Vec<&str> = cluster.others.iter().map(|seed| seed.address.as_str()).collect();
        assert_eq!((addresses, &*cluster.peer), (vec!["h2:4043", "h3:4043"], "h1:5000"));
        let alone = load(&[("LOG_NODES", "a@h1"), ("NODE_NAME", "a@h1")]).unwrap();
        assert_eq!((alone.role, alone.meets), (Role::Alone, false));
        // One that is not itself is a place to look.
        let joins = load(&[("LOG_NODES", "a@h1"), ("NODE_NAME", "b@h2")]).unwrap();
        assert_eq!((joins.role, joins.meets), (Role::Joins, true));
    }

    #[test]
    fn entries_are_names_and_places() {
        for (item, name, address) in [
            ("a@h", "a@h", "h:7"),
            ("a@h:9", "a@h", "h:9"),
            ("h:9", "h", "h:9"),
            ("a@[::1]:9", "a@::1", "[::1]:9"),
            ("[::1]", "::1", "[::1]:7"),
        ] {
            let seed = Seed { name: name.to_owned(), address: address.to_owned() };
            assert_eq!(Seed::parse(item, 7), Some(seed), "{item}");
        }
        for bad in ["", "@h", "a@", "a@::1", "a@h:0", "a@h:x", "a b@h", "a@h:99999"] {
            assert_eq!(Seed::parse(bad, 7), None, "{bad}");
        }
    }

    #[test]
    fn how_things_are_placed_is_set_in_parts_that_combine() {
        let placement = |pairs: &[(&str, &str)]| load(pairs).unwrap().placement;
        assert_eq!(placement(&[]), Placement::default());
        let all = placement(&[
            ("LOG_SPREAD_BY", " rack "),
            ("LOG_MIN_DOMAINS", "2"),
            ("LOG_PLACEMENT_POLICY", "hard"),
            ("LOG_TOPOLOGY", "a@h1 = r1, odd, b@h2=r=2"),
            ("LOG_MAX_SKEW", "3"),
        ]);
        let topology = [("a@h1", "r1"), ("b@h2", "r=2")].map(|(node, value)| (node.into(), value.into()));
        assert_eq!(
            all,
            Placement {
                spread_by: Some("rack".into()),
                min_domains: Some(MinDomains { count: 2, policy: Policy::Hard }),
                topology: topology.into(),
                max_skew: Some(3),
            }
        );
        let soft = placement(&[("LOG_MIN_DOMAINS", "2"), ("LOG_PLACEMENT_POLICY", "harder")]);
        assert_eq!(soft.min_domains, Some(MinDomains { count: 2, policy: Policy::Soft }));
    }

    #[test]
    fn vnodes_move_by_themselves_only_where_that_is_said() {
        let rebalance = |pairs: &[(&str, &str)]| load(pairs).unwrap().rebalance;
        assert_eq!(rebalance(&[]), None);
        let every = Duration::from_secs(30);
        let on = ("AUTO_REBALANCE", "true");
        assert_eq!(rebalance(&[on]), Some(Rebalance { every, stabilization: 3 }));
        let set = [on, ("AUTO_REBALANCE_INTERVAL_MS", "500"), ("AUTO_REBALANCE_STABILIZATION", "2")];
        let every = Duration::from_millis(500);
        assert_eq!(rebalance(&set), Some(Rebalance { every, stabilization: 2 }));
        let lease =
            load(&[("LEASE_DURATION_MS", "9000"), ("LEASE_RENEW_DEADLINE_MS", "6000")]).unwrap().lease;
        assert_eq!(lease.duration(), Duration::from_secs(9));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        for (pairs, part) in [
            (&[("LOG_NODES", "a@h,a@h:9")][..], "twice"),
            (&[("LOG_NODES", "m@h1,m@h2"), ("NODE_NAME", "m")], "several nodes"),
            (&[("LOG_NODES", "::1,a@h")], "no name@host"),
            (&[("NODE_NAME", "a b")], "no name of a node"),
            (&[("LOG_VNODES", "5000")], "above 4096"),
            (&[("LOG_ATTRIBUTES", "zone=")], "empty"),
        ] {
            let lines = load(pairs).unwrap_err();
            assert!(lines.len() == 1 && lines[0].contains(part), "{lines:?}");
        }
    }

    #[test]
    fn attributes_are_pairs_and_the_rest_says_nothing() {
        let attributes = load(&[("LOG_ATTRIBUTES", "zone=a, rack = r=1 ,odd")]).unwrap().attributes;
        let pairs: Vec<(&str, &str)> = attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(pairs, [("rack", "r=1"), ("zone", "a")]);
    }
}
