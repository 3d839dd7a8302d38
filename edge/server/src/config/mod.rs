//! Everything an operator may set, read once at start and passed down in parts.
//!
//! Owns the list of settings (`list`), what each accepts (`setting`), where values come from (`sources`), and the
//! one struct they become (`assemble`). Nothing else in the process reads the environment, and nothing is opened or
//! bound before all of it was found valid.
//!
//! A setting that this build knows but does not act on yet is warned about, and refused when ignoring it would
//! weaken security or durability.

mod assemble;
pub(crate) mod cluster;
#[cfg(test)]
mod docs;
mod list;
pub(crate) mod peer;
mod report;
mod setting;
mod sources;
mod tls;
mod upkeep;
mod values;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use broker::Sweep;

use crate::http::HeadLimits;
use crate::identity::{Defaults, Passwords, Rate, SessionRules};

pub use report::{check, show};
use sources::Sources;
use upkeep::Upkeep;
pub(crate) use values::Values;

/// Why the configuration was refused; one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub(crate) struct Invalid {
    /// The setting or file at fault.
    name: String,
    /// What is wrong and what is accepted; secrets are not shown.
    problem: String,
}

impl Invalid {
    pub(crate) fn new(name: &str, problem: impl Into<String>) -> Self {
        Self { name: name.to_owned(), problem: problem.into() }
    }
}

/// Where the node runs: several defaults and refusals depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    /// Nothing is guessed and nothing well-known is accepted.
    Production,
    /// A laptop.
    Development,
    /// An automated test; like development.
    Test,
}

/// The configuration of one process.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) log_format: LogFormat,
    pub(crate) ports: Ports,
    pub(crate) connections: Connections,
    /// `None` serves clients in plaintext.
    pub(crate) tls: Option<crate::tls::Settings>,
    /// How this node meets the others.
    pub(crate) peer: peer::Peer,
    /// Who it is among them, and whom it looks for.
    pub(crate) cluster: cluster::Cluster,
    pub(crate) storage: Storage,
    pub(crate) identity: Identity,
    /// Time for work in flight after the listener stops.
    pub(crate) shutdown_grace: Duration,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the node listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Client protocol.
    pub(crate) tcp: u16,
    /// Health and metrics.
    pub(crate) dashboard: u16,
}

/// Limits and timers of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    /// From accept to a complete first frame.
    pub(crate) auth_timeout: Duration,
    /// An idle connection is closed after this.
    pub(crate) recv_timeout: Duration,
    /// A write that takes longer closes the connection.
    pub(crate) send_timeout: Duration,
    /// Largest inbound body; responses stay below it too.
    pub(crate) frame_bytes_max: usize,
    /// Connections per client address, `None` without a limit.
    pub(crate) per_address_max: Option<usize>,
    /// Connections in total, `None` without a limit.
    pub(crate) total_max: Option<usize>,
    /// Produce requests of one user, `None` without a limit.
    pub(crate) publish: Option<Rate>,
}

/// Data directories and segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// Segment copies.
    pub(crate) log_dir: PathBuf,
    /// The Raft log.
    pub(crate) raft_dir: PathBuf,
    /// Size at which an active segment is sealed, bytes.
    pub(crate) segment_bytes: u64,
    /// Age at which it is.
    pub(crate) segment_age: Duration,
    /// What becomes of copies nobody lists.
    pub(crate) orphans: Sweep,
    /// What is done without anybody asking.
    pub(crate) upkeep: Upkeep,
}

/// Users, passwords and sessions.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Made at a start unless they exist.
    pub(crate) defaults: Defaults,
    pub(crate) passwords: Passwords,
    pub(crate) lockout: Lockout,
    pub(crate) sessions: SessionRules,
    /// Logins from one address, `None` without a limit.
    pub(crate) attempts: Option<Rate>,
    /// The same over HTTP, failed ones only.
    pub(crate) http_attempts: Option<Rate>,
    /// Between sweeps of idle rate limits.
    pub(crate) sweep_every: Duration,
    /// Whether `/metrics` needs a login.
    pub(crate) http_login: bool,
    /// Of requests over HTTP.
    pub(crate) head_limits: HeadLimits,
    /// Whether only grants count on topics.
    pub(crate) acl_strict: bool,
}

/// When failed logins lock a user out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lockout {
    /// Failures before the first lock.
    pub(crate) attempts_max: NonZeroU32,
    /// Length of the first lock.
    pub(crate) base: Duration,
    /// Whether later ones are longer.
    pub(crate) progressive: bool,
}

/// A configuration, and what an operator should hear about it.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// One line each.
    pub(crate) warnings: Vec<String>,
}

/// Reads the configuration of this process: the variables of its environment, and a file under them.
pub(crate) fn load(file: Option<&Path>) -> Result<Loaded, Vec<Invalid>> {
    load_from(Sources::read(environment_variables(), file))
}

fn load_from(sources: Sources) -> Result<Loaded, Vec<Invalid>> {
    let (mut values, environment) = resolve(sources);
    let config = assemble::config(&mut values, environment);
    if values.problems.is_empty() {
        Ok(Loaded { config, warnings: values.warnings })
    } else {
        Err(values.problems)
    }
}

fn resolve(sources: Sources) -> (Values, Environment) {
    let environment = environment(&sources);
    (Values::resolve(sources, environment == Environment::Production), environment)
}

fn environment(sources: &Sources) -> Environment {
    let by_build = if cfg!(debug_assertions) { Environment::Development } else { Environment::Production };
    match sources.get("CONFIG_ENV") {
        Some(("prod", _)) => Environment::Production,
        Some(("dev", _)) => Environment::Development,
        Some(("test", _)) => Environment::Test,
        Some(_) | None => by_build,
    }
}

fn environment_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        // A value that is not text can only be wrong where text is expected, and is refused there.
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    })
}
