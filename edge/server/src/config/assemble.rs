//! The values put together into the one struct, and what they have to do with each other.
//!
//! Owns every check that needs more than one value or the world around it. A part that is refused still gives a
//! value, so that all problems are found in one go; nobody uses it then.

use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use broker::Sweep;

use super::{Config, Connections, Environment, Identity, Lockout, LogFormat, Ports, Storage, Values};
use super::{cluster, peer, tls, upkeep};
use crate::http::HeadLimits;
use crate::identity::{self, Rate};

/// No age of a segment counts beyond this, so that a deadline never overflows a clock.
const SEGMENT_AGE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Logins from one address in one window, in development unless it is set.
const ATTEMPTS_IN_DEVELOPMENT: u32 = 1000;

/// The configuration the values stand for; worth nothing when they have problems afterwards.
pub(super) fn config(values: &mut Values, environment: Environment) -> Config {
    refuse_unsupported(values);
    refuse_contradictions(values);
    let (ports, peer) = (ports(values), peer::peer(values, environment));
    Config {
        log_format: if values.text("LOG_FORMAT") == Some("json") { LogFormat::Json } else { LogFormat::Text },
        cluster: cluster::cluster(values, &peer, ports.tcp),
        ports,
        connections: connections(values),
        tls: tls::tls(values, environment),
        peer,
        storage: storage(values, environment),
        identity: identity(values, environment),
        shutdown_grace: values.millis("SHUTDOWN_GRACE_MS"),
    }
}

/// What would be less secure or less durable than its operator believes.
fn refuse_unsupported(values: &mut Values) {
    for (name, problem) in [
        ("MTLS_AUTH", "cannot be had: this build has no login by certificate"),
        ("OIDC_AUTH", "cannot be had: this build has no login by token"),
    ] {
        if values.flag(name) {
            values.refuse(name, problem);
        }
    }
}

fn refuse_contradictions(values: &mut Values) {
    let [lease, deadline, retry] = ["LEASE_DURATION_MS", "LEASE_RENEW_DEADLINE_MS", "LEASE_RETRY_PERIOD_MS"]
        .map(|name| values.number(name));
    if lease <= deadline {
        values.refuse("LEASE_DURATION_MS", "is not above MALACHI_LEASE_RENEW_DEADLINE_MS");
    }
    if deadline <= retry {
        values.refuse("LEASE_RENEW_DEADLINE_MS", "is not above MALACHI_LEASE_RETRY_PERIOD_MS");
    }
    let missing = |values: &Values, name| values.text(name).is_none_or(str::is_empty);
    match values.text("CLUSTER_STRATEGY") {
        Some("kubernetes") => {
            for name in ["CLUSTER_KUBERNETES_SELECTOR", "CLUSTER_KUBERNETES_NODE_BASENAME"] {
                if missing(values, name) {
                    values.refuse(name, "is needed by MALACHI_CLUSTER_STRATEGY=kubernetes");
                }
            }
        }
        Some("epmd") if values.list("LOG_NODES").is_empty() => {
            values.refuse("LOG_NODES", "is needed by MALACHI_CLUSTER_STRATEGY=epmd");
        }
        Some(_) | None => {}
    }
}

fn ports(values: &mut Values) -> Ports {
    let port = |name| u16::try_from(values.number(name)).expect("a port has 16 bits");
    let ports = Ports { tcp: port("TCP_PORT"), dashboard: port("DASHBOARD_PORT") };
    if ports.tcp == ports.dashboard {
        let name = if values.is_set("DASHBOARD_PORT") { "DASHBOARD_PORT" } else { "TCP_PORT" };
        values.refuse(name, "is the port of both the clients and the dashboard");
    }
    ports
}

fn connections(values: &Values) -> Connections {
    let limited = values.flag("CONNECTION_LIMIT_ENABLED");
    let count = |name| limited.then(|| values.count(name));
    Connections {
        auth_timeout: values.millis("AUTH_TIMEOUT_MS"),
        recv_timeout: values.millis("TCP_RECV_TIMEOUT"),
        send_timeout: values.millis("TCP_SEND_TIMEOUT"),
        frame_bytes_max: values.count("MAX_FRAME_SIZE"),
        per_address_max: count("MAX_CONN_PER_IP"),
        total_max: count("MAX_TOTAL_CONN"),
        publish: rate(values, "PUBLISH"),
    }
}

fn rate(values: &Values, action: &str) -> Option<Rate> {
    let limit = u32::try_from(values.number(&format!("{action}_RATE_LIMIT"))).unwrap_or(u32::MAX);
    let window = values.millis(&format!("{action}_RATE_WINDOW_MS"));
    (values.flag("RATE_LIMIT_ENABLED") && limit > 0).then_some(Rate { limit, window })
}

fn identity(values: &mut Values, environment: Environment) -> Identity {
    Identity {
        passwords: identity::passwords(values, environment),
        defaults: identity::defaults(values, environment),
        lockout: Lockout {
            attempts_max: attempts(values.number("MAX_AUTH_ATTEMPTS")),
            base: values.millis("LOCKOUT_DURATION_MS"),
            progressive: values.flag("PROGRESSIVE_LOCKOUT"),
        },
        sessions: identity::session_rules(values),
        attempts: attempts_rate(values, environment),
        http_attempts: rate(values, "DASHBOARD_AUTH"),
        sweep_every: values.millis("RATE_LIMIT_CLEANUP_INTERVAL"),
        http_login: http_login(values, environment),
        head_limits: HeadLimits {
            headers_max: values.count("DASHBOARD_MAX_HEADER_COUNT"),
            bytes_max: values.count("DASHBOARD_MAX_HEADER_BYTES"),
        },
        acl_strict: values.flag("ACL_STRICT"),
    }
}

fn attempts(number: u64) -> NonZeroU32 {
    u32::try_from(number).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}

/// A load generator on a laptop logs in as often as it has connections.
fn attempts_rate(values: &Values, environment: Environment) -> Option<Rate> {
    let rate = rate(values, "AUTH");
    if environment == Environment::Development && !values.is_set("AUTH_RATE_LIMIT") {
        return rate.map(|rate| Rate { limit: ATTEMPTS_IN_DEVELOPMENT, ..rate });
    }
    rate
}

fn http_login(values: &mut Values, environment: Environment) -> bool {
    let needed = values.flag("DASHBOARD_AUTH_ENABLED");
    if !needed && environment == Environment::Production {
        values.warnings.push("MALACHI_DASHBOARD_AUTH_ENABLED: /metrics is open to everybody".to_owned());
    }
    needed
}

fn storage(values: &mut Values, environment: Environment) -> Storage {
    let log_dir = directory(values, environment, "LOG_DATA_DIR");
    let raft_dir = directory(values, environment, "RA_DATA_DIR");
    if log_dir.starts_with(&raft_dir) || raft_dir.starts_with(&log_dir) {
        let name = if values.is_set("RA_DATA_DIR") { "RA_DATA_DIR" } else { "LOG_DATA_DIR" };
        values.refuse(name, "is wrong: the two data directories contain one another");
    }
    Storage {
        log_dir,
        raft_dir,
        segment_bytes: values.number("SEGMENT_MAX_BYTES"),
        segment_age: values.millis("SEGMENT_MAX_AGE_MS").min(SEGMENT_AGE_MAX),
        orphans: match values.text("RETENTION_ORPHAN_SWEEP") {
            Some("report") => Sweep::Report,
            Some("off") => Sweep::Off,
            Some(_) | None => Sweep::Delete,
        },
        upkeep: upkeep::upkeep(values),
    }
}

fn directory(values: &mut Values, environment: Environment, name: &str) -> PathBuf {
    let dir = PathBuf::from(values.text(name).expect("directories have defaults"));
    if environment == Environment::Production {
        if !values.is_set(name) {
            let warning = format!("MALACHI_{name} is not set: data goes to {}", dir.display());
            values.warnings.push(warning);
        } else if dir.is_relative() {
            values.refuse(name, "is a relative path; production needs an absolute one");
        }
    }
    absolute(&dir).unwrap_or_else(|error| {
        values.refuse(name, &format!("cannot be made absolute: {error}"));
        dir
    })
}

/// Absolute, without `.` and `..` where they can be resolved by their text, so that nesting can be seen.
fn absolute(dir: &Path) -> std::io::Result<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in std::path::absolute(dir)?.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => resolved.push(part),
        }
    }
    Ok(resolved)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::sources::Sources;
    use super::super::{Invalid, Loaded, load_from};
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Loaded, Vec<Invalid>> {
        let pairs = pairs.iter().map(|(name, text)| (format!("MALACHI_{name}"), (*text).to_owned()));
        let dev = [("MALACHI_CONFIG_ENV".to_owned(), "dev".to_owned())];
        load_from(Sources::read(dev.into_iter().chain(pairs), None))
    }

    /// The one line that refuses.
    fn refused(pairs: &[(&str, &str)]) -> String {
        let problems = load(pairs).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].to_string()
    }

    #[test]
    fn nothing_set_gives_the_documented_defaults() {
        let Loaded { config, warnings } = load(&[]).unwrap();
        assert_eq!(config.ports, Ports { tcp: 4040, dashboard: 4041 });
        assert_eq!(config.connections.auth_timeout, Duration::from_secs(10));
        assert_eq!(
            (config.connections.per_address_max, config.connections.total_max),
            (Some(100), Some(10_000))
        );
        assert_eq!(
            (config.connections.frame_bytes_max, config.connections.publish),
            (16 * 1024 * 1024, None)
        );
        assert_eq!(config.storage.segment_bytes, 64 * 1024 * 1024);
        assert!(config.storage.log_dir.is_absolute() && config.storage.log_dir.ends_with("data/log"));
        assert_eq!(config.identity.attempts, Some(Rate { limit: 1000, window: Duration::from_secs(60) }));
        assert!(config.identity.http_login && !config.identity.acl_strict);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn a_value_outside_its_class_is_one_line_with_name_value_and_what_is_accepted() {
        for (name, text, accepted) in [
            ("TCP_PORT", "99999", "a port from 1 to 65535"),
            ("AUTH_TIMEOUT_MS", "10s", "an integer from 1"),
            ("MAX_FRAME_SIZE", "1023", "from 1024 to 2147483647"),
            ("CONNECTION_LIMIT_ENABLED", "yes", "true or false"),
            ("SEGMENT_MAX_BYTES", "0", "an integer from 1"),
            ("RA_MACHINE_VERSION", "x", "an integer from 0"),
            ("RETENTION_ORPHAN_SWEEP", "remove", "one of delete, report, off"),
            ("CLUSTER_STRATEGY", "dns", "one of gossip, kubernetes, epmd, empty"),
            ("TLS_VERIFY", "yes", "verify_peer"),
        ] {
            let line = refused(&[(name, text)]);
            let parts = [&format!("MALACHI_{name}: {text:?} from the environment is not "), accepted];
            assert!(parts.iter().all(|part| line.contains(*part)), "{line}");
        }
    }

    #[test]
    fn every_problem_is_found_and_no_secret_is_shown() {
        let problems =
            load(&[("TCP_PORT", "x"), ("LOG_NODES", "a@h,a@h"), ("DEFAULT_USERS", "alice:s3cret")]);
        let lines: Vec<String> = problems.unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("s3cret")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("MALACHI_DEFAULT_USERS: ***")), "{lines:?}");
    }

    #[test]
    fn what_does_nothing_is_told_once_and_what_would_deceive_is_refused() {
        let warnings = load(&[("LOCALE", "pt_BR"), ("GROUP_COMMIT", "true"), ("USER", "me")]);
        let warnings = warnings.unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("MALACHI_LOCALE, MALACHI_GROUP_COMMIT"), "{warnings:?}");
        assert!(refused(&[("OIDC_AUTH", "true")]).contains("token"));
        assert!(refused(&[("MTLS_AUTH", "true")]).contains("certificate"));
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        assert!(refused(&[("DASHBOARD_PORT", "4040")]).contains("both"));
        assert!(refused(&[("LEASE_RENEW_DEADLINE_MS", "15000")]).contains("LEASE_DURATION_MS"));
        assert!(refused(&[("LEASE_RETRY_PERIOD_MS", "12000")]).contains("LEASE_RENEW_DEADLINE_MS"));
        assert!(refused(&[("CLUSTER_STRATEGY", "epmd")]).contains("LOG_NODES"));
        let both = load(&[("CLUSTER_STRATEGY", "kubernetes")]).unwrap_err();
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn directories_may_not_contain_one_another_however_they_are_spelled() {
        for (log, raft) in
            [("/d/log", "/d/log"), ("/d", "/d/raft"), ("/d/log/x/..", "/d/log/raft"), ("/a/./b", "/a")]
        {
            let line = refused(&[("LOG_DATA_DIR", log), ("RA_DATA_DIR", raft)]);
            assert!(line.contains("contain one another"), "{line}");
        }
        assert!(load(&[("LOG_DATA_DIR", "/d/log"), ("RA_DATA_DIR", "/d/log2")]).is_ok());
    }

    #[test]
    fn production_takes_no_relative_path_and_no_plaintext_by_accident() {
        let production = |pairs: &[(&str, &str)]| {
            let mut all = vec![("CONFIG_ENV", "prod")];
            all.extend(pairs);
            load(&all)
        };
        let problems = production(&[]).unwrap_err();
        assert!(problems.iter().any(|problem| problem.to_string().contains("MALACHI_TLS_CERTFILE")));
        assert!(problems.iter().all(|problem| problem.to_string().contains("MALACHI_REQUIRE_TLS=false")));
        let plain = ("REQUIRE_TLS", "false");
        let problems = production(&[plain, ("LOG_DATA_DIR", "data")]).unwrap_err();
        assert!(problems[0].to_string().contains("relative"), "{problems:?}");
        let loaded = production(&[plain, ("RA_DATA_DIR", "/d/r")]).unwrap();
        assert!(loaded.warnings.iter().any(|line| line.contains("MALACHI_LOG_DATA_DIR is not set")));
        assert!(loaded.config.identity.defaults.generate_admin);
    }

    #[test]
    fn tls_is_checked_whole_before_anything_starts() {
        let on = ("ENABLE_TLS", "true");
        let lines = |pairs: &[(&str, &str)]| -> Vec<String> {
            load(pairs).unwrap_err().iter().map(ToString::to_string).collect()
        };
        assert_eq!(lines(&[on]).len(), 2, "certificate and key");
        let files = [on, ("TLS_CERTFILE", "none.pem"), ("TLS_KEYFILE", "none.pem")];
        assert!(refused(&files).contains("none.pem"));
        let with = |pair| [files[0], files[1], files[2], pair];
        assert!(refused(&with(("TLS_VERSIONS", "tlsv1.4"))).contains("tlsv1.4"));
        assert!(refused(&with(("TLS_VERSIONS", "tlsv1.1"))).contains("leaves no version"));
        assert!(refused(&with(("TLS_VERIFY", "verify_peer"))).contains("TLS_CACERTFILE"));
        let warnings = load(&[("REQUIRE_TLS", "true")]).unwrap().warnings;
        assert!(warnings[0].contains("plaintext"), "outside production it turns nothing on: {warnings:?}");
    }

    #[test]
    fn a_rate_of_nothing_or_with_all_limits_lifted_is_no_limit() {
        let publish = |pairs: &[(&str, &str)]| load(pairs).unwrap().config.connections.publish;
        assert_eq!(publish(&[("PUBLISH_RATE_LIMIT", "0")]), None);
        let limit = ("PUBLISH_RATE_LIMIT", "50");
        assert_eq!(publish(&[limit]), Some(Rate { limit: 50, window: Duration::from_secs(1) }));
        assert_eq!(publish(&[limit, ("RATE_LIMIT_ENABLED", "false")]), None);
    }
}
