//! Every setting there is. Names, parsing, `config show`, the nearest name of a typing mistake and
//! `docs/configuration.md` all follow from this list.
//!
//! Owns what a setting is called, what it accepts and what counts without it. Does not know what becomes of a
//! value: see `assemble`.

use types::limits;

use super::setting::{Class, Effect, Setting};

use Class::{Bool, Dir, Lenient, List, Off, OffInProduction, On, Port, Strict, Text};
use Class::{Words, WordsAnyCase, WordsOrDefault};

/// What every name in the environment starts with.
pub(crate) const PREFIX: &str = "MALACHI_";

/// Names of the client and the command line: a shell that has them set may start a server too.
pub(crate) const OF_THE_CLIENT: &[&str] = &["HOST", "PORT", "TOPIC", "USER", "PASS", "NODE"];

/// Settings that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) settings: &'static [Setting],
}

/// All of them, in the order they are shown.
pub(crate) const SECTIONS: &[Section] = &[
    Section { title: "General and network", settings: GENERAL },
    Section { title: "TLS", settings: TLS },
    Section { title: "Users, passwords, sessions", settings: USERS },
    Section { title: "Rate limits", settings: RATES },
    Section { title: "Dashboard", settings: DASHBOARD },
    Section { title: "Audit", settings: AUDIT },
    Section { title: "Storage", settings: STORAGE },
    Section { title: "Retention", settings: RETENTION },
    Section { title: "Cluster", settings: CLUSTER },
    Section { title: "Of another implementation", settings: FOREIGN },
];

/// Every setting, in order.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

/// A year, so that a deadline never overflows a clock.
const MILLIS_MAX: u64 = 365 * 24 * 3600 * 1000;
/// Counts that fit every machine.
const COUNT_MAX: u64 = u32::MAX as u64;
const ANY: Class = Lenient(0, u64::MAX);
const FROM_1: Class = Lenient(1, u64::MAX);
const COUNT: Class = Lenient(1, COUNT_MAX);
const MILLIS: Class = Lenient(0, MILLIS_MAX);
const MILLIS_FROM_1: Class = Lenient(1, MILLIS_MAX);
const STRICT_FROM_1: Class = Strict(1, u64::MAX);
const STRICT_MILLIS: Class = Strict(1, MILLIS_MAX);
const FRAME: Class = Lenient(limits::FRAME_BYTES_MIN as u64, limits::FRAME_BYTES_MAX as u64);

#[rustfmt::skip]
const GENERAL: &[Setting] = &[
    is("CONFIG_ENV", WordsOrDefault(&["prod", "dev", "test"]), "", "where the broker runs; without it `prod` in a release build, `dev` in a debug build"),
    is("CONFIG_FILE", Text, "", "file to read settings from; without it `malachi.toml` in the working directory, if there is one. Environment only"),
    is("LOG_FORMAT", Words(&["text", "json"]), "text", "how log lines are written"),
    later("LOCALE", WordsOrDefault(&["en_US", "pt_BR"]), "en_US", "language of log messages; English is the only one"),
    is("TCP_PORT", Port, "4040", "port of the client protocol, on every address"),
    is("DASHBOARD_PORT", Port, "4041", "port of health and metrics; must differ"),
    later("CONSOLE_ENABLED", Off, "true", "console listener"),
    later("CONSOLE_PORT", Port, "4042", "port of the console"),
    later("CONSOLE_DIR", Dir, "", "console files"),
    is("AUTH_TIMEOUT_MS", STRICT_MILLIS, "10000", "ms from accept to a complete first frame"),
    is("TCP_RECV_TIMEOUT", STRICT_MILLIS, "30000", "ms after which an idle connection is closed; an open stream never is"),
    is("TCP_SEND_TIMEOUT", STRICT_MILLIS, "30000", "ms after which a write that does not get on closes the connection"),
    is("MAX_FRAME_SIZE", FRAME, "16777216", "largest request body, bytes; answers stay below it too"),
    is("MAX_CONN_PER_IP", COUNT, "100", "client connections from one address"),
    is("MAX_TOTAL_CONN", COUNT, "10000", "client connections in total"),
    is("CONNECTION_LIMIT_ENABLED", Bool, "true", "`false` lifts the two above"),
    is("SHUTDOWN_GRACE_MS", MILLIS, "5000", "ms for work in flight after the listener stops"),
];

#[rustfmt::skip]
const TLS: &[Setting] = &[
    is("REQUIRE_TLS", OffInProduction, "", "in production on unless `false`; elsewhere it turns nothing on by itself"),
    is("ENABLE_TLS", On, "false", "turns TLS on outside production; ignored in production"),
    is("TLS_CERTFILE", Text, "", "certificate chain, PEM"),
    is("TLS_KEYFILE", Text, "", "private key, PEM"),
    is("TLS_CACERTFILE", Text, "", "authorities that client certificates are checked against, PEM"),
    is("TLS_VERSIONS", List, "tlsv1.3,tlsv1.2", "versions spoken"),
    is("TLS_VERIFY", Words(&["verify_none", "verify_peer"]), "verify_none", "whether client certificates are asked for and checked"),
    is("TLS_FAIL_IF_NO_PEER_CERT", On, "false", "with `verify_peer`, refuses clients without a certificate"),
    is("DIST_TLS", On, "false", "mutual TLS between nodes, with the three files below"),
    is("PEER_TLS_CERTFILE", Text, "", "this node's certificate chain for it, PEM; it needs the names and numbers the node is dialled by"),
    is("PEER_TLS_KEYFILE", Text, "", "its private key, PEM"),
    is("PEER_TLS_CACERTFILE", Text, "", "authorities whose certificates are nodes of this cluster, PEM"),
    never("DIST_TLS_OPTFILE", Text, "", "settings file of another runtime; the three above take its place"),
];

#[rustfmt::skip]
const USERS: &[Setting] = &[
    is("ADMIN_PASS", Text, "", "password of the standard user `admin`; without it production makes one up and shows it once").secret(),
    is("PRODUCER_PASS", Text, "", "password of the standard user `producer`").secret(),
    is("CONSUMER_PASS", Text, "", "password of the standard user `consumer`").secret(),
    is("APP_PASS", Text, "", "password of the standard user `app`").secret(),
    is("DEFAULT_USERS", Text, "", "replaces the standard users: `name:password:admin,produce,consume;...`").secret(),
    is("DISABLE_DEFAULT_USERS", On, "false", "makes no users at a start"),
    is("PASSWORD_HASH", Words(&["full", "light"]), "", "cost of hashing a new password: `full` (64 MiB) or `light` (8 MiB; refused in production); without it `full` in production, `light` elsewhere"),
    is("REQUIRE_STRONG_PASSWORDS", On, "false", "refuses short and well-known passwords, at a start and later"),
    is("MIN_PASSWORD_LEN", Lenient(0, 1024), "12", "characters, when strong passwords are required"),
    is("MAX_AUTH_ATTEMPTS", COUNT, "5", "failed logins of a user from one address before the first lock"),
    is("LOCKOUT_DURATION_MS", MILLIS_FROM_1, "300000", "ms of the first lock"),
    is("PROGRESSIVE_LOCKOUT", Off, "true", "whether later locks are longer"),
    is("SESSION_TIMEOUT_SEC", Lenient(1, MILLIS_MAX / 1000), "3600", "seconds a session token is good for"),
    is("SESSION_IP_BINDING", Off, "true", "whether a token is good only from the address it was given to"),
    is("SESSION_UA_BINDING", On, "false", "whether a token is good only with the User-Agent it was given to"),
    is("TRUSTED_PROXY_RANGES", List, "", "networks whose sessions are not bound to an address, as CIDR"),
    is("MTLS_AUTH", On, "false", "login by client certificate; refused in this build"),
    later("MTLS_POLICY", WordsAnyCase(&["cn", "san:uri", "san:dns", "san:email"]), "cn", "where a certificate names the user"),
    is("OIDC_AUTH", On, "false", "login by token; refused in this build"),
    later("OIDC_PUBLIC_KEY_FILE", Text, "", "issuer's public key, PEM"),
    later("OIDC_ISSUER", Text, "", "issuer a token must name"),
    later("OIDC_AUDIENCE", Text, "", "audience a token must name"),
    later("OIDC_ALGORITHM", Text, "RS256", "the one signature algorithm accepted"),
    later("OIDC_IDENTITY_CLAIM", Text, "sub", "claim that names the user"),
    is("ACL_STRICT", On, "false", "only grants count on topics, not global produce and consume"),
];

#[rustfmt::skip]
const RATES: &[Setting] = &[
    is("RATE_LIMIT_ENABLED", Bool, "true", "`false` lifts all limits below"),
    is("AUTH_RATE_LIMIT", COUNT, "10", "logins from one address in one window; 1000 in development unless it is set"),
    is("AUTH_RATE_WINDOW_MS", MILLIS_FROM_1, "60000", "its window, ms"),
    is("DASHBOARD_AUTH_RATE_LIMIT", COUNT, "10", "failed HTTP logins from one address in one window"),
    is("DASHBOARD_AUTH_RATE_WINDOW_MS", MILLIS_FROM_1, "60000", "its window, ms"),
    is("PUBLISH_RATE_LIMIT", Lenient(0, COUNT_MAX), "0", "produce requests of one user on this node in one window; 0 is no limit"),
    is("PUBLISH_RATE_WINDOW_MS", MILLIS_FROM_1, "1000", "its window, ms"),
    later("SUBSCRIBE_RATE_LIMIT", ANY, "100", "shown only"),
    later("SUBSCRIBE_RATE_WINDOW_MS", ANY, "60000", "shown only"),
    is("RATE_LIMIT_CLEANUP_INTERVAL", MILLIS_FROM_1, "300000", "ms between sweeps of addresses not heard of for an hour"),
];

#[rustfmt::skip]
const DASHBOARD: &[Setting] = &[
    is("DASHBOARD_AUTH_ENABLED", Bool, "true", "`false` opens `/metrics` without a login"),
    never("DASHBOARD_REQUIRE_ADMIN", Bool, "true", "superseded by roles"),
    later("DASHBOARD_CORS_ENABLED", On, "false", "CORS on `/metrics` and `/stream`"),
    later("DASHBOARD_CORS_ORIGINS", List, "*", "allowed origins"),
    later("DASHBOARD_CSP", Text, "", "Content-Security-Policy"),
    later("HSTS_ENABLED", Bool, "true", "HSTS, when the client port runs TLS"),
    later("HSTS_MAX_AGE", ANY, "31536000", "seconds"),
    later("HSTS_INCLUDE_SUBDOMAINS", Off, "true", "whether it covers subdomains"),
    is("DASHBOARD_MAX_HEADER_COUNT", Lenient(1, 10_000), "100", "headers of an HTTP request"),
    is("DASHBOARD_MAX_HEADER_BYTES", Lenient(1, 16 * 1024 * 1024), "16384", "bytes of its head, at least 8192"),
    never("DASHBOARD_USER", Text, "", "never read: the dashboard has no users of its own"),
    never("DASHBOARD_PASS", Text, "", "never read").secret(),
];

#[rustfmt::skip]
const AUDIT: &[Setting] = &[
    later("AUDIT_LOG_OUTPUT", WordsOrDefault(&["both", "file", "stdout", "ets_only"]), "both", "where audit records go"),
    later("AUDIT_LOG_FILE", Text, "", "their file"),
    later("AUDIT_LOG_MAX_SIZE_MB", COUNT, "1", "MiB at which it is rotated"),
];

#[rustfmt::skip]
const STORAGE: &[Setting] = &[
    is("LOG_DATA_DIR", Dir, "data/log", "segment copies; absolute in production"),
    is("RA_DATA_DIR", Dir, "data/raft", "the Raft log: topics, users, positions of groups. Neither directory may contain the other"),
    is("SEGMENT_MAX_BYTES", STRICT_FROM_1, "67108864", "size at which an active segment is sealed, bytes"),
    is("SEGMENT_MAX_AGE_MS", Strict(60_000, u64::MAX), "604800000", "age at which an active segment is sealed, ms"),
    never("LOG_ROLL_MAX_BYTES", FROM_1, "1073741824", "a copy is one log file here"),
    never("GROUP_COMMIT", On, "false", "appends always share their syncs here"),
    later("GROUP_COMMIT_INTERVAL_MS", FROM_1, "5", "a delay that gathers more appends"),
    later("GROUP_COMMIT_FLUSH_MAX_RECORDS", FROM_1, "8000", "records that end it early"),
    later("GROUP_COMMIT_MAX_INFLIGHT", FROM_1, "200000", "records waiting for their sync beyond which produce is refused"),
    never("REPLICATION_GROUP_COMMIT", On, "false", "appends always share their syncs here"),
    later("REPLICATION_GROUP_COMMIT_INTERVAL_MS", FROM_1, "10", "a delay that gathers more appends on replicas"),
    is("SCRUB_ENABLED", Off, "true", "verifies sealed segments in the background; without it only those that a read failed on"),
    is("SCRUB_INTERVAL_MS", FROM_1, "60000", "ms between passes"),
    is("SCRUB_SEGMENTS_PER_TICK", FROM_1, "1", "segments in one pass"),
    is("SCRUB_BYTES_PER_SECOND", STRICT_FROM_1, "33554432", "bytes it reads in a second, over time"),
    is("AUTO_SPLIT", Off, "true", "splits ranges that take or hold too much and merges such halves again once they are quiet; without it only people do"),
    is("AUTO_SPLIT_RECORDS_PER_SECOND", STRICT_FROM_1, "50000", "records in a second above which a range is split; two that take less than a quarter of it together are merged"),
    is("AUTO_SPLIT_BYTES_PER_SECOND", STRICT_FROM_1, "33554432", "the same in bytes of records"),
    is("AUTO_SPLIT_RANGE_BYTES", STRICT_FROM_1, "68719476736", "stored bytes of a range's slice above which it is split, if it takes records"),
    is("AUTO_SPLIT_AFTER_MS", STRICT_FROM_1, "60000", "ms for which a range must be above one of them"),
    is("AUTO_MERGE_AFTER_MS", STRICT_FROM_1, "900000", "ms for which two halves must be quiet"),
    is("AUTO_SPLIT_TOPIC_RANGES_MAX", STRICT_FROM_1, "64", "ranges of a topic that take records, beyond which none is split by itself"),
    is("AUTO_SPLIT_CLUSTER_RANGES_MAX", STRICT_FROM_1, "10000", "the same over all topics"),
    never("DATA_SHARDS", FROM_1, "1", "a measurement mode that keeps nothing: there is none here"),
    later("ADOPT_ORPHANED_LOG_DIR", On, "false", "starts over segment directories that the metadata does not know"),
];

#[rustfmt::skip]
const RETENTION: &[Setting] = &[
    is("RETENTION_MAX_AGE_MS", Strict(0, u64::MAX), "", "age after their end at which sealed segments expire; without it they do not; 0 is at once. A topic's policy comes first"),
    is("RETENTION_MAX_BYTES", Strict(0, u64::MAX), "", "sealed bytes kept per range, the oldest segments go first; without it all; 0 is none. A topic's policy comes first"),
    is("RETENTION_INTERVAL_MS", FROM_1, "60000", "ms between sweeps"),
    is("RETENTION_UNRESOLVED_POLICY_MAX_AGE_MS", Strict(0, u64::MAX), "", "age limit of topics whose policy nothing defines; without it they keep everything"),
    never("RETENTION_METRICS_MAX_GROUPS", ANY, "1000", "no metric carries the name of a group here: the log does"),
    is("RETENTION_SKIP_LEDGER_MAX", FROM_1, "10000", "moves of readers over expired records that are remembered, so that each counts once"),
    is("RETENTION_SKIP_LOG_WINDOW_MS", ANY, "600000", "ms with one line about one reader"),
    is("RETENTION_ORPHAN_SWEEP", Words(&["delete", "report", "off"]), "report", "what becomes of segment copies that no topic lists"),
    is("RETENTION_ORPHAN_SWEEP_INTERVAL_MS", FROM_1, "300000", "ms between looks for them"),
    is("RETENTION_ORPHAN_MIN_AGE_MS", ANY, "600000", "ms for which this process must have known one before it goes"),
    is("RETENTION_ORPHAN_SIGHTINGS", FROM_1, "2", "looks in a row that must have found it so before it goes"),
    is("RETENTION_ORPHAN_MAX_PER_PASS", FROM_1, "50", "removed in one pass"),
    is("RETENTION_ORPHAN_MAX_TRACKED", FROM_1, "10000", "candidates looked at in one pass"),
];

#[rustfmt::skip]
const CLUSTER: &[Setting] = &[
    is("LOG_CLUSTER", Text, "", "name of the cluster, for people; like a secret or a list of nodes it says that this node is one of several and opens the peer port"),
    is("LOG_NODES", List, "", "where a first start looks for the cluster, as `name@host` or `name@host:port`. The first of these names forms it, all others join; a node that is not in the list joins. Later the cluster itself knows its nodes"),
    is("NODE_NAME", Text, "", "name of this node, unique in the cluster: an entry of the list above, or one of its halves; without it the host's name"),
    is("PEER_PORT", Port, "4043", "port of the nodes among themselves, TCP and UDP, on every address; must differ from the other ports. Open only in a cluster"),
    is("PEER_ADDRESS", Text, "", "where the other nodes reach this one, as `host` or `host:port`; a name is looked up at every attempt"),
    is("CLUSTER_SECRET", Text, "", "what all nodes of a cluster know and prove to each other, at least 16 bytes; production starts no cluster with neither this nor MALACHI_DIST_TLS").secret(),
    is("LOG_REPLICATION_FACTOR", STRICT_FROM_1, "3", "copies of a segment, at most one per node; a record is acknowledged once more than half of them have synced it"),
    is("LOG_REPLICATE_TIMEOUT_MS", MILLIS_FROM_1, "15000", "ms within which so many copies have to have a record; then its producer is told `no_quorum`, and its segment ends"),
    is("LOG_FOLLOWER_LAG_MS", MILLIS_FROM_1, "10000", "ms for which a copy of a segment may be away or behind, before the segment ends and the next one is placed without it; only when that makes more copies that keep up"),
    is("LOG_FOLLOWER_LAG_BYTES", STRICT_FROM_1, "67108864", "bytes that a copy of a segment may lack before the same"),
    is("LOG_MEND_BYTES_PER_SECOND", STRICT_FROM_1, "67108864", "bytes a node reads in a second, over time, to make copies whole elsewhere and to move them"),
    is("LOG_VNODES", STRICT_FROM_1, "1", "shards of the metadata of a cluster that is formed here"),
    is("LOG_VNODE_REPLICATION_FACTOR", STRICT_FROM_1, "3", "members of a shard, at most one per node"),
    is("LOG_REPLACE_AFTER_MS", MILLIS_FROM_1, "300000", "ms a node has to be dead before others take what it holds; longer than a restart takes"),
    is("LOG_ATTRIBUTES", List, "", "this node's placement attributes as `key=value`"),
    is("LOG_SPREAD_BY", Text, "", "attribute over which members of groups and copies of segments are spread: as many different values as there can be; a policy of a topic may name another. The same on every node, like the next four"),
    is("LOG_MIN_DOMAINS", FROM_1, "", "distinct values of it that the copies of a segment must have; without one, nodes"),
    is("LOG_PLACEMENT_POLICY", WordsOrDefault(&["hard", "soft"]), "soft", "`hard` refuses a new segment that would have fewer: its producers are told `insufficient_domains`. Copies made anew are never refused for it"),
    is("LOG_TOPOLOGY", List, "", "that attribute of each node as `node=value`, for members of groups: goes over what the nodes say"),
    is("LOG_MAX_SKEW", FROM_1, "", "how far above its share of the shards, rounded up, a node may go less one; holds where shards get members and when they are rebalanced"),
    later("LOG_RING_BOOT_TIMEOUT_MS", FROM_1, "30000", "ms to wait for the recorded membership at a start"),
    later("RA_MACHINE_VERSION", Strict(0, u64::MAX), "", "holds the version of the control plane during an upgrade"),
    is("LEASE_DURATION_MS", FROM_1, "15000", "how long the lease lasts under which shards are placed and moved, ms"),
    is("LEASE_RENEW_DEADLINE_MS", FROM_1, "10000", "ms within which it must be renewed; shorter than the lease"),
    is("LEASE_RETRY_PERIOD_MS", FROM_1, "2000", "ms between attempts; shorter than the deadline"),
    later("LEASE_RECONCILE_INTERVAL_MS", FROM_1, "30000", "ms between rejoin checks"),
    is("AUTO_REBALANCE", On, "false", "whether shards move by themselves to the nodes that should have them, when nodes come and go; `malachi rebalance` does it once"),
    is("AUTO_REBALANCE_INTERVAL_MS", FROM_1, "30000", "ms between looks"),
    is("AUTO_REBALANCE_STABILIZATION", FROM_1, "3", "equal plans in a row before it is acted on"),
    later("CLUSTER_STRATEGY", Words(&["gossip", "kubernetes", "epmd", ""]), "", "how nodes find each other"),
    later("CLUSTER_GOSSIP_PORT", Lenient(1, 65_535), "45892", "for `gossip`"),
    later("CLUSTER_GOSSIP_SECRET", Text, "", "for `gossip`").secret(),
    later("CLUSTER_GOSSIP_MULTICAST_ADDR", Text, "", "for `gossip`"),
    later("CLUSTER_KUBERNETES_SELECTOR", Text, "", "for `kubernetes`"),
    later("CLUSTER_KUBERNETES_NODE_BASENAME", Text, "", "for `kubernetes`"),
    later("CLUSTER_KUBERNETES_NAMESPACE", Text, "", "for `kubernetes`"),
    later("CLUSTER_KUBERNETES_MODE", Words(&["hostname", "ip", "dns"]), "hostname", "for `kubernetes`"),
];

#[rustfmt::skip]
const FOREIGN: &[Setting] = &[
    never("ATOM_CHECK_INTERVAL", ANY, "60000", "monitor of a runtime's symbol table"),
    never("ATOM_WARNING_THRESHOLD", Text, "0.7", "the same"),
    never("ATOM_CRITICAL_THRESHOLD", Text, "0.9", "the same"),
    never("MEMORY_CHECK_INTERVAL", ANY, "30000", "monitor of a garbage collector"),
    never("GC_THRESHOLD_MB", ANY, "500", "the same"),
    never("AUTO_GC", Text, "true", "the same"),
    never("REPLICATION_MIN_HEAP_WORDS", ANY, "256000", "size of a process heap"),
];

/// A setting that does what it says. An empty default is none.
const fn is(name: &'static str, class: Class, default: &'static str, doc: &'static str) -> Setting {
    let default = if default.is_empty() { None } else { Some(default) };
    Setting { name, class, default, doc, secret: false, effect: Effect::Acts }
}

/// One that is checked and not acted on yet.
const fn later(name: &'static str, class: Class, default: &'static str, doc: &'static str) -> Setting {
    Setting { effect: Effect::NotYet, ..is(name, class, default, doc) }
}

/// One that means nothing here.
const fn never(name: &'static str, class: Class, default: &'static str, doc: &'static str) -> Setting {
    Setting { effect: Effect::Never, ..is(name, class, default, doc) }
}

impl Setting {
    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Its name in the environment.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_defaults_are_of_their_class() {
        let mut names = BTreeSet::new();
        for setting in all() {
            assert!(names.insert(setting.name), "{} is there twice", setting.name);
            assert!(!OF_THE_CLIENT.contains(&setting.name), "{} is the client's", setting.name);
            if let Some(default) = setting.default {
                let parsed = setting.class.parse(default, None, false);
                assert!(parsed.is_ok_and(|parsed| parsed.taken_as.is_none()), "{}: {default}", setting.name);
            }
        }
        assert!(names.len() > 130, "{} settings", names.len());
    }
}
