//! Everything an operator may set, read once at start and passed down in parts.
//!
//! Owns the environment's names, defaults and checks. Nothing else in the process reads the environment, and
//! nothing is opened or bound before all of it was found valid.
//!
//! A variable of the product that this build does not know is warned about. One that it knows but does not
//! act on yet is warned about too, and refused when ignoring it would weaken security or durability.

mod names;
mod parse;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use types::limits;

use crate::identity::{self, User};
pub(crate) use parse::Vars;

/// Why the configuration was refused; one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct Invalid {
    /// The variable at fault.
    pub variable: String,
    /// What is wrong and what is accepted; secrets are not shown.
    pub problem: String,
}

impl Invalid {
    pub(crate) fn new(variable: &str, problem: impl Into<String>) -> Self {
        Self { variable: variable.to_owned(), problem: problem.into() }
    }
}

/// Where the node runs: several defaults and refusals depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Nothing is guessed and nothing well-known is accepted.
    Production,
    /// A laptop.
    Development,
    /// An automated test; like development.
    Test,
}

/// The configuration of one process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the node runs.
    pub environment: Environment,
    /// Client protocol, dashboard.
    pub ports: Ports,
    /// Client connections.
    pub connections: Connections,
    /// Data directories and segments.
    pub storage: Storage,
    /// Users until there is a user store.
    pub users: Vec<User>,
    /// Time for work in flight after the listener stops.
    pub shutdown_grace: Duration,
}

/// Where the node listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Client protocol.
    pub tcp: u16,
    /// Health and readiness.
    pub dashboard: u16,
}

/// Limits and timers of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// From accept to a complete first frame.
    pub auth_timeout: Duration,
    /// An idle connection is closed after this.
    pub recv_timeout: Duration,
    /// A write that takes longer closes the connection.
    pub send_timeout: Duration,
    /// Largest inbound body; responses stay below it too.
    pub frame_bytes_max: usize,
    /// Connections per client address, `None` without a limit.
    pub per_address_max: Option<usize>,
    /// Connections in total, `None` without a limit.
    pub total_max: Option<usize>,
}

/// Data directories and segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Segment copies.
    pub log_dir: PathBuf,
    /// The Raft log.
    pub raft_dir: PathBuf,
    /// Size at which an active segment is sealed, bytes.
    pub segment_bytes: u64,
}

/// A configuration, and what an operator should hear about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Valid.
    pub config: Config,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Reads the configuration from the variables of the environment.
pub fn load(variables: impl Iterator<Item = (String, String)>) -> Result<Loaded, Invalid> {
    let mine = variables.filter(|(name, _)| name.starts_with("MALACHI_"));
    let mut vars = Vars::new(mine.collect::<BTreeMap<_, _>>());
    let environment = environment(&mut vars);
    names::refuse_unsupported(&mut vars, environment)?;
    let config = Config {
        environment,
        ports: ports(&mut vars)?,
        connections: connections(&mut vars)?,
        storage: storage(&mut vars, environment)?,
        users: identity::configured(&mut vars, environment)?,
        shutdown_grace: vars.millis_lenient("MALACHI_SHUTDOWN_GRACE_MS", 5000, 0)?,
    };
    names::warn_unused(&mut vars);
    Ok(Loaded { config, warnings: vars.warnings })
}

fn environment(vars: &mut Vars) -> Environment {
    let by_build = if cfg!(debug_assertions) { Environment::Development } else { Environment::Production };
    match vars.text("MALACHI_CONFIG_ENV").as_deref() {
        Some("prod") => Environment::Production,
        Some("dev") => Environment::Development,
        Some("test") => Environment::Test,
        Some(_) | None => by_build,
    }
}

fn ports(vars: &mut Vars) -> Result<Ports, Invalid> {
    let ports = Ports {
        tcp: vars.port("MALACHI_TCP_PORT", 4040)?,
        dashboard: vars.port("MALACHI_DASHBOARD_PORT", 4041)?,
    };
    if ports.tcp == ports.dashboard {
        return Err(Invalid::new("MALACHI_DASHBOARD_PORT", "must differ from MALACHI_TCP_PORT"));
    }
    Ok(ports)
}

fn connections(vars: &mut Vars) -> Result<Connections, Invalid> {
    let frame = (limits::FRAME_BYTES_MIN as u64, limits::FRAME_BYTES_MAX as u64);
    let frame_bytes_max = vars.int("MALACHI_MAX_FRAME_SIZE", limits::FRAME_BYTES_DEFAULT as u64, frame)?;
    let per_address = vars.int("MALACHI_MAX_CONN_PER_IP", 100, (1, u64::from(u32::MAX)))?;
    let total = vars.int("MALACHI_MAX_TOTAL_CONN", 10_000, (1, u64::from(u32::MAX)))?;
    let limited = vars.bool("MALACHI_CONNECTION_LIMIT_ENABLED", true)?;
    let count =
        |n: u64| limited.then(|| usize::try_from(n).expect("at most 2^32, and a pointer has 64 bits"));
    Ok(Connections {
        auth_timeout: vars.millis("MALACHI_AUTH_TIMEOUT_MS", 10_000, 1)?,
        recv_timeout: vars.millis("MALACHI_TCP_RECV_TIMEOUT", 30_000, 1)?,
        send_timeout: vars.millis("MALACHI_TCP_SEND_TIMEOUT", 30_000, 1)?,
        frame_bytes_max: usize::try_from(frame_bytes_max).expect("at most 2^31"),
        per_address_max: count(per_address),
        total_max: count(total),
    })
}

fn storage(vars: &mut Vars, environment: Environment) -> Result<Storage, Invalid> {
    let log_dir = directory(vars, environment, "MALACHI_LOG_DATA_DIR", "log")?;
    let raft_dir = directory(vars, environment, "MALACHI_RA_DATA_DIR", "raft")?;
    if log_dir.starts_with(&raft_dir) || raft_dir.starts_with(&log_dir) {
        let problem =
            format!("{} and the log directory {} contain one another", raft_dir.display(), log_dir.display());
        return Err(Invalid::new("MALACHI_RA_DATA_DIR", problem));
    }
    let segment_bytes =
        vars.int_strict("MALACHI_SEGMENT_MAX_BYTES", limits::SEGMENT_BYTES_DEFAULT, (1, u64::MAX))?;
    Ok(Storage { log_dir, raft_dir, segment_bytes })
}

/// Absolute, without `.` and `..` where they can be resolved by their text, so that nesting can be seen.
fn directory(
    vars: &mut Vars,
    environment: Environment,
    name: &str,
    default: &str,
) -> Result<PathBuf, Invalid> {
    let given = vars.text(name).map(|dir| dir.trim().to_owned()).filter(|dir| !dir.is_empty());
    let production = environment == Environment::Production;
    let dir = match given {
        Some(dir) => PathBuf::from(dir),
        None => {
            if production {
                vars.warnings.push(format!("{name} is not set: data goes to ./data/{default}"));
            }
            return absolute(&Path::new("data").join(default), name);
        }
    };
    if production && dir.is_relative() {
        return Err(Invalid::new(
            name,
            format!("{} is relative; production needs an absolute path", dir.display()),
        ));
    }
    absolute(&dir, name)
}

fn absolute(dir: &Path, name: &str) -> Result<PathBuf, Invalid> {
    let full = std::path::absolute(dir).map_err(|error| Invalid::new(name, error.to_string()))?;
    let mut resolved = PathBuf::new();
    for part in full.components() {
        match part {
            std::path::Component::ParentDir => {
                resolved.pop();
            }
            std::path::Component::CurDir => {}
            std::path::Component::Prefix(_)
            | std::path::Component::RootDir
            | std::path::Component::Normal(_) => {
                resolved.push(part);
            }
        }
    }
    Ok(resolved)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn load_from(pairs: &[(&str, &str)]) -> Result<Loaded, Invalid> {
        let dev = [("MALACHI_CONFIG_ENV".to_owned(), "dev".to_owned())];
        load(
            dev.into_iter()
                .chain(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))),
        )
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        load_from(pairs).unwrap_err().to_string()
    }

    #[test]
    fn nothing_set_gives_the_documented_defaults() {
        let Loaded { config, warnings } = load_from(&[]).unwrap();
        assert_eq!(config.ports, Ports { tcp: 4040, dashboard: 4041 });
        assert_eq!(config.connections.auth_timeout, Duration::from_secs(10));
        assert_eq!(
            (config.connections.per_address_max, config.connections.total_max),
            (Some(100), Some(10_000))
        );
        assert_eq!(config.connections.frame_bytes_max, 16 * 1024 * 1024);
        assert_eq!(config.storage.segment_bytes, 64 * 1024 * 1024);
        assert!(config.storage.log_dir.is_absolute() && config.storage.log_dir.ends_with("data/log"));
        assert_eq!(config.users.len(), 4);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn a_value_outside_its_class_stops_the_boot_and_is_named() {
        for (name, value) in [
            ("MALACHI_TCP_PORT", "0"),
            ("MALACHI_TCP_PORT", "65536"),
            ("MALACHI_TCP_PORT", ""),
            ("MALACHI_TCP_PORT", "40 40"),
            ("MALACHI_AUTH_TIMEOUT_MS", "0"),
            ("MALACHI_AUTH_TIMEOUT_MS", "10s"),
            ("MALACHI_MAX_FRAME_SIZE", "1023"),
            ("MALACHI_MAX_FRAME_SIZE", "2147483648"),
            ("MALACHI_CONNECTION_LIMIT_ENABLED", "yes"),
            ("MALACHI_SEGMENT_MAX_BYTES", "0"),
            ("MALACHI_SEGMENT_MAX_BYTES", "64MB"),
        ] {
            let line = refused(&[(name, value)]);
            assert!(line.starts_with(name) && line.contains(&format!("{value:?}")), "{line}");
        }
    }

    #[test]
    fn a_lenient_number_keeps_its_digits_or_its_default_and_says_so() {
        let Loaded { config, warnings } =
            load_from(&[("MALACHI_MAX_CONN_PER_IP", "7x"), ("MALACHI_MAX_TOTAL_CONN", "x")]).unwrap();
        assert_eq!(
            (config.connections.per_address_max, config.connections.total_max),
            (Some(7), Some(10_000))
        );
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }

    #[test]
    fn directories_may_not_contain_one_another_however_they_are_spelled() {
        for (log, raft) in
            [("/d/log", "/d/log"), ("/d", "/d/raft"), ("/d/log/x/..", "/d/log/raft"), ("/a/./b", "/a")]
        {
            let line = refused(&[("MALACHI_LOG_DATA_DIR", log), ("MALACHI_RA_DATA_DIR", raft)]);
            assert!(line.contains("contain one another"), "{line}");
        }
        assert!(load_from(&[("MALACHI_LOG_DATA_DIR", "/d/log"), ("MALACHI_RA_DATA_DIR", "/d/log2")]).is_ok());
    }

    #[test]
    fn production_takes_no_relative_path_and_no_plaintext_by_accident() {
        let prod = |pairs: &[(&str, &str)]| {
            let mut all = vec![("MALACHI_CONFIG_ENV", "prod"), ("MALACHI_ADMIN_PASS", "a-long-passphrase")];
            all.extend(pairs);
            load(all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())))
        };
        assert!(prod(&[]).unwrap_err().to_string().contains("MALACHI_REQUIRE_TLS"));
        let plain = ("MALACHI_REQUIRE_TLS", "false");
        assert!(
            prod(&[plain, ("MALACHI_LOG_DATA_DIR", "data")]).unwrap_err().to_string().contains("relative")
        );
        assert!(prod(&[plain, ("MALACHI_LOG_DATA_DIR", "/d/l"), ("MALACHI_RA_DATA_DIR", "/d/r")]).is_ok());
    }

    #[test]
    fn unknown_and_unsupported_names_are_told_apart() {
        let warnings =
            load_from(&[("MALACHI_TCP_PROT", "1"), ("MALACHI_RETENTION_MAX_BYTES", "1")]).unwrap().warnings;
        assert!(
            warnings.iter().any(|w| w.contains("MALACHI_TCP_PROT") && w.contains("not a variable")),
            "{warnings:?}"
        );
        assert!(
            warnings.iter().any(|w| w.contains("MALACHI_RETENTION_MAX_BYTES") && w.contains("no effect"))
        );
        assert!(refused(&[("MALACHI_ENABLE_TLS", "true")]).contains("TLS"));
        assert!(refused(&[("MALACHI_LOG_NODES", "a@h1,b@h2")]).contains("one node"));
    }
}
