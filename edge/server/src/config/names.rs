//! Which names exist, and which of them this build must not ignore in silence.

use super::parse::Vars;
use super::{Environment, Invalid};

/// Documented names that this build takes note of and does not act on.
const WITHOUT_EFFECT: &[&str] = &[
    "ACL_STRICT",
    "ADOPT_ORPHANED_LOG_DIR",
    "ATOM_CHECK_INTERVAL",
    "ATOM_CRITICAL_THRESHOLD",
    "ATOM_WARNING_THRESHOLD",
    "AUDIT_LOG_FILE",
    "AUDIT_LOG_MAX_SIZE_MB",
    "AUDIT_LOG_OUTPUT",
    "AUTH_RATE_LIMIT",
    "AUTH_RATE_WINDOW_MS",
    "AUTO_GC",
    "AUTO_REBALANCE",
    "AUTO_REBALANCE_INTERVAL_MS",
    "AUTO_REBALANCE_STABILIZATION",
    "CLUSTER_GOSSIP_MULTICAST_ADDR",
    "CLUSTER_GOSSIP_PORT",
    "CLUSTER_GOSSIP_SECRET",
    "CLUSTER_KUBERNETES_MODE",
    "CLUSTER_KUBERNETES_NAMESPACE",
    "CLUSTER_KUBERNETES_NODE_BASENAME",
    "CLUSTER_KUBERNETES_SELECTOR",
    "CLUSTER_STRATEGY",
    "CONSOLE_DIR",
    "CONSOLE_ENABLED",
    "CONSOLE_PORT",
    "DASHBOARD_AUTH_ENABLED",
    "DASHBOARD_AUTH_RATE_LIMIT",
    "DASHBOARD_AUTH_RATE_WINDOW_MS",
    "DASHBOARD_CORS_ENABLED",
    "DASHBOARD_CORS_ORIGINS",
    "DASHBOARD_CSP",
    "DASHBOARD_MAX_HEADER_BYTES",
    "DASHBOARD_MAX_HEADER_COUNT",
    "DASHBOARD_PASS",
    "DASHBOARD_REQUIRE_ADMIN",
    "DASHBOARD_USER",
    "DATA_SHARDS",
    "DIST_TLS",
    "DIST_TLS_OPTFILE",
    "GC_THRESHOLD_MB",
    "GROUP_COMMIT",
    "GROUP_COMMIT_FLUSH_MAX_RECORDS",
    "GROUP_COMMIT_INTERVAL_MS",
    "GROUP_COMMIT_MAX_INFLIGHT",
    "HSTS_ENABLED",
    "HSTS_INCLUDE_SUBDOMAINS",
    "HSTS_MAX_AGE",
    "LEASE_DURATION_MS",
    "LEASE_RECONCILE_INTERVAL_MS",
    "LEASE_RENEW_DEADLINE_MS",
    "LEASE_RETRY_PERIOD_MS",
    "LOCALE",
    "LOCKOUT_DURATION_MS",
    "LOG_ATTRIBUTES",
    "LOG_CLUSTER",
    "LOG_MAX_SKEW",
    "LOG_MIN_DOMAINS",
    "LOG_PLACEMENT_POLICY",
    "LOG_REPLICATION_FACTOR",
    "LOG_RING_BOOT_TIMEOUT_MS",
    "LOG_ROLL_MAX_BYTES",
    "LOG_SPREAD_BY",
    "LOG_TOPOLOGY",
    "LOG_VNODES",
    "LOG_VNODE_REPLICATION_FACTOR",
    "MAX_AUTH_ATTEMPTS",
    "MEMORY_CHECK_INTERVAL",
    "MIN_PASSWORD_LEN",
    "MTLS_POLICY",
    "OIDC_ALGORITHM",
    "OIDC_AUDIENCE",
    "OIDC_IDENTITY_CLAIM",
    "OIDC_ISSUER",
    "OIDC_PUBLIC_KEY_FILE",
    "PROGRESSIVE_LOCKOUT",
    "PUBLISH_RATE_LIMIT",
    "PUBLISH_RATE_WINDOW_MS",
    "RATE_LIMIT_CLEANUP_INTERVAL",
    "RATE_LIMIT_ENABLED",
    "RA_MACHINE_VERSION",
    "REPLICATION_GROUP_COMMIT",
    "REPLICATION_GROUP_COMMIT_INTERVAL_MS",
    "REPLICATION_MIN_HEAP_WORDS",
    "REQUIRE_STRONG_PASSWORDS",
    "RETENTION_INTERVAL_MS",
    "RETENTION_MAX_AGE_MS",
    "RETENTION_MAX_BYTES",
    "RETENTION_METRICS_MAX_GROUPS",
    "RETENTION_ORPHAN_MAX_PER_PASS",
    "RETENTION_ORPHAN_MAX_TRACKED",
    "RETENTION_ORPHAN_MIN_AGE_MS",
    "RETENTION_ORPHAN_SIGHTINGS",
    "RETENTION_ORPHAN_SWEEP",
    "RETENTION_ORPHAN_SWEEP_INTERVAL_MS",
    "RETENTION_SKIP_LEDGER_MAX",
    "RETENTION_SKIP_LOG_WINDOW_MS",
    "RETENTION_UNRESOLVED_POLICY_MAX_AGE_MS",
    "SCRUB_ENABLED",
    "SCRUB_INTERVAL_MS",
    "SCRUB_SEGMENTS_PER_TICK",
    "SEGMENT_MAX_AGE_MS",
    "SESSION_IP_BINDING",
    "SESSION_TIMEOUT_SEC",
    "SESSION_UA_BINDING",
    "SUBSCRIBE_RATE_LIMIT",
    "SUBSCRIBE_RATE_WINDOW_MS",
    "TLS_CACERTFILE",
    "TLS_CERTFILE",
    "TLS_FAIL_IF_NO_PEER_CERT",
    "TLS_KEYFILE",
    "TLS_VERIFY",
    "TLS_VERSIONS",
    "TRUSTED_PROXY_RANGES",
];

/// Names of the client and the command line: a shell that has them set may start a server too.
const OF_THE_CLIENT: &[&str] = &["HOST", "PORT", "TOPIC", "USER", "PASS", "NODE"];

/// Refuses what would be less secure or less durable than its operator believes.
pub(super) fn refuse_unsupported(vars: &mut Vars, environment: Environment) -> Result<(), Invalid> {
    if environment == Environment::Production {
        if vars.off("MALACHI_REQUIRE_TLS") {
            let problem = "this build serves plaintext only: put a TLS proxy in front and set it to false";
            return Err(Invalid::new("MALACHI_REQUIRE_TLS", problem));
        }
    } else if vars.on("MALACHI_REQUIRE_TLS") {
        return Err(Invalid::new("MALACHI_REQUIRE_TLS", "this build serves plaintext only, without TLS"));
    }
    for (name, problem) in [
        ("MALACHI_ENABLE_TLS", "this build serves plaintext only, without TLS"),
        ("MALACHI_ACL_STRICT", "this build has no grants: global permissions would count"),
        ("MALACHI_MTLS_AUTH", "this build cannot authenticate by certificate"),
        ("MALACHI_OIDC_AUTH", "this build cannot authenticate by token"),
    ] {
        if vars.on(name) {
            return Err(Invalid::new(name, problem));
        }
    }
    let nodes = vars.text("MALACHI_LOG_NODES").unwrap_or_default();
    if nodes.split(',').filter(|node| !node.trim().is_empty()).count() > 1 {
        return Err(Invalid::new("MALACHI_LOG_NODES", "this build runs one node, not a cluster"));
    }
    Ok(())
}

/// Tells about every name that was set and not asked for.
pub(super) fn warn_unused(vars: &mut Vars) {
    for name in vars.unread() {
        let bare = name.strip_prefix("MALACHI_").unwrap_or(&name);
        if OF_THE_CLIENT.contains(&bare) {
            continue;
        }
        let warning = if WITHOUT_EFFECT.contains(&bare) {
            format!("{name} has no effect in this build")
        } else {
            format!("{name} is not a variable of this product")
        };
        vars.warnings.push(warning);
    }
}
