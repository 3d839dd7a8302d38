//! Who may log in, and with what.
//!
//! Owns passwords (hashing and the rules for them), the users made at a start, session tokens, and the limits on
//! attempts. Which users there are and who is locked out is the core's to know: `login` asks it.
//!
//! Invariants:
//! - a password is hashed on threads of its own, a bounded number at a time, and never on the core's, the disks' or
//!   the connections';
//! - how long a login takes does not tell whether the user exists;
//! - every table is bounded.

mod defaults;
mod login;
mod network;
mod password;
mod pool;
mod rate;
mod session;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use defaults::{Defaults, Generated, Seeds, defaults};
pub(crate) use login::{Counted, Limit, Proof, log_in};
pub(crate) use password::{Passwords, passwords};
pub(crate) use pool::{Overloaded, Pool};
pub(crate) use rate::{Buckets, Rate};
pub(crate) use session::{Refused, SessionRules, Sessions, session_rules};

use types::limits;

use crate::config::Identity;

/// What every login and every change of a password goes through.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) passwords: Passwords,
    pub(crate) pool: Pool,
    pub(crate) sessions: Sessions,
    /// Logins on the client port, by address.
    pub(crate) attempts: Option<Buckets<IpAddr>>,
    /// Failed logins over HTTP, by address.
    pub(crate) http_attempts: Option<Buckets<IpAddr>>,
    /// Produce requests, by user.
    pub(crate) publish: Option<Buckets<Arc<str>>>,
}

impl Doors {
    /// Starts the hashing threads.
    ///
    /// # Errors
    /// Fails when a thread cannot be started.
    pub(crate) fn open(config: &Identity, publish: Option<Rate>) -> std::io::Result<Self> {
        Ok(Self {
            passwords: config.passwords,
            pool: Pool::start(config.passwords)?,
            sessions: Sessions::new(config.sessions.clone()),
            attempts: config.attempts.map(Buckets::new),
            http_attempts: config.http_attempts.map(Buckets::new),
            publish: publish.map(Buckets::new),
        })
    }

    /// Forgets what time has made meaningless; called now and then.
    pub(crate) fn sweep(&self) {
        let now = tokio::time::Instant::now();
        for buckets in [&self.attempts, &self.http_attempts].into_iter().flatten() {
            buckets.sweep(now);
        }
        if let Some(buckets) = &self.publish {
            buckets.sweep(now);
        }
        self.sessions.sweep(now);
    }
}

/// Whether it can be a user's name.
pub(crate) fn is_user_name(name: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._@:/+-".contains(b);
    !name.is_empty() && name.len() <= limits::USER_NAME_BYTES_MAX && name.iter().all(allowed)
}
