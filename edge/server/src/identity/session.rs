//! Session tokens: what a login gives, and whom a token stands for later.
//!
//! Kept in this process alone: a token is good on this node until it expires, its user loses it, or the process
//! ends. A connection of the client protocol is judged once, when it logs in; tokens are for HTTP.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::Session;
use tokio::time::Instant;

use super::network::Network;
use crate::config::Values;

/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;
/// Sessions at one time; the oldest goes first.
const SESSIONS_MAX: usize = 100_000;
/// Longest User-Agent that is remembered whole, bytes.
const AGENT_BYTES_MAX: usize = 256;

/// What a session is bound to and how long it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRules {
    lifetime: Duration,
    bind_address: bool,
    bind_agent: bool,
    /// Sessions made from these are not bound to an address.
    proxies: Vec<Network>,
}

/// The rules the configuration asks for.
pub(crate) fn session_rules(values: &mut Values) -> SessionRules {
    let mut proxies = Vec::new();
    for item in values.list("TRUSTED_PROXY_RANGES").to_vec() {
        match item.parse() {
            Ok(network) => proxies.push(network),
            Err(()) => {
                let warning = format!("MALACHI_TRUSTED_PROXY_RANGES: {item:?} is no network and ignored");
                values.warnings.push(warning);
            }
        }
    }
    SessionRules {
        lifetime: Duration::from_secs(values.number("SESSION_TIMEOUT_SEC")),
        bind_address: values.flag("SESSION_IP_BINDING"),
        bind_agent: values.flag("SESSION_UA_BINDING"),
        proxies,
    }
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nobody has it.
    Unknown,
    /// Its time is over.
    Expired,
    /// It was given to another address or program. The session stays.
    Elsewhere,
}

impl Refused {
    /// The token of the reason.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "invalid_session",
            Self::Expired => "session_expired",
            Self::Elsewhere => "session_hijack_attempt",
        }
    }
}

type Token = [u8; TOKEN_BYTES];

#[derive(Debug)]
struct Entry {
    session: Session,
    /// `None` when any will do.
    address: Option<IpAddr>,
    agent: Option<Vec<u8>>,
    expires_at: Instant,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Token, Entry>,
    /// In the order they were made, which is that in which they expire. Some are gone already.
    order: VecDeque<Token>,
}

/// Every live session of this node.
#[derive(Debug)]
pub(crate) struct Sessions {
    rules: SessionRules,
    table: Mutex<Table>,
}

impl Sessions {
    pub(crate) fn new(rules: SessionRules) -> Self {
        Self { rules, table: Mutex::default() }
    }

    /// Makes a session and gives its token: 43 characters nobody can guess. The address is in canonical form.
    pub(crate) fn create(
        &self,
        session: Session,
        address: IpAddr,
        agent: &[u8],
        now: Instant,
    ) -> Result<String, getrandom::Error> {
        let mut token = [0; TOKEN_BYTES];
        getrandom::fill(&mut token)?;
        let proxied = self.rules.proxies.iter().any(|network| network.contains(address));
        let entry = Entry {
            session,
            address: (self.rules.bind_address && !proxied).then_some(address),
            agent: self.rules.bind_agent.then(|| cut(agent).to_vec()),
            expires_at: now + self.rules.lifetime,
        };
        let mut table = self.lock();
        while table.entries.len() >= SESSIONS_MAX {
            table.drop_oldest();
        }
        table.entries.insert(token, entry);
        table.order.push_back(token);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    /// Whom a token stands for.
    pub(crate) fn validate(
        &self,
        token: &[u8],
        address: IpAddr,
        agent: &[u8],
        now: Instant,
    ) -> Result<Session, Refused> {
        let mut bytes = [0; TOKEN_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(token, &mut bytes) {
            Ok(TOKEN_BYTES) => {}
            Ok(_) | Err(_) => return Err(Refused::Unknown),
        }
        let mut table = self.lock();
        let entry = table.entries.get(&bytes).ok_or(Refused::Unknown)?;
        if entry.expires_at < now {
            table.entries.remove(&bytes);
            return Err(Refused::Expired);
        }
        let same_address = entry.address.is_none_or(|bound| bound == address);
        let same_agent = entry.agent.as_ref().is_none_or(|bound| bound == cut(agent));
        if same_address && same_agent { Ok(entry.session.clone()) } else { Err(Refused::Elsewhere) }
    }

    /// Ends a user's sessions of earlier revisions.
    pub(crate) fn revoke(&self, user: &str, revision: u64) {
        let stays = |session: &Session| &*session.user != user || session.revision >= revision;
        self.lock().entries.retain(|_, entry| stays(&entry.session));
    }

    /// Forgets what has expired.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut table = self.lock();
        let Table { entries, order } = &mut *table;
        entries.retain(|_, entry| entry.expires_at >= now);
        order.retain(|token| entries.contains_key(token));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn drop_oldest(&mut self) {
        match self.order.pop_front() {
            Some(token) => drop(self.entries.remove(&token)),
            // Every entry is in the order.
            None => self.entries.clear(),
        }
    }
}

fn cut(agent: &[u8]) -> &[u8] {
    &agent[..agent.len().min(AGENT_BYTES_MAX)]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules() -> SessionRules {
        let proxies = vec!["10.0.0.0/8".parse().unwrap()];
        SessionRules { lifetime: Duration::from_secs(60), bind_address: true, bind_agent: false, proxies }
    }

    fn session(user: &str, revision: u64) -> Session {
        Session { user: user.into(), revision }
    }

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn tokens_are_43_characters_and_stand_for_one_session_until_it_expires() {
        let (sessions, now) = (Sessions::new(rules()), Instant::now());
        let one = sessions.create(session("alice", 1), HOME, b"", now).unwrap();
        let two = sessions.create(session("bob", 1), HOME, b"", now).unwrap();
        assert!(one.len() == 43 && one != two);
        assert!(one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        let validate = |token: &str, address, now| sessions.validate(token.as_bytes(), address, b"x", now);
        assert_eq!(validate(&one, HOME, now), Ok(session("alice", 1)));
        let end = now + Duration::from_secs(60);
        assert_eq!(validate(&one, AWAY, now), Err(Refused::Elsewhere));
        assert_eq!(validate(&one, HOME, end), Ok(session("alice", 1)), "the last instant counts");
        let after = end + Duration::from_millis(1);
        assert_eq!(validate(&one, HOME, after), Err(Refused::Expired));
        assert_eq!(validate(&one, HOME, after), Err(Refused::Unknown));
        for bad in ["", "x", &one[..42], &format!("{one}x"), &"!".repeat(43)] {
            assert_eq!(validate(bad, HOME, now), Err(Refused::Unknown), "{bad}");
        }
        sessions.sweep(after);
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn bindings_are_those_of_the_login() {
        let bound = SessionRules { bind_agent: true, ..rules() };
        let (sessions, now) = (Sessions::new(bound), Instant::now());
        let proxied = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));
        let token = sessions.create(session("alice", 1), proxied, b"agent", now).unwrap();
        let validate = |address, agent: &[u8]| sessions.validate(token.as_bytes(), address, agent, now);
        assert!(validate(AWAY, b"agent").is_ok(), "made through a proxy");
        assert_eq!(validate(proxied, b"other"), Err(Refused::Elsewhere));
    }

    #[test]
    fn revoking_ends_older_sessions_of_one_user() {
        let (sessions, now) = (Sessions::new(rules()), Instant::now());
        let create = |user, revision| sessions.create(session(user, revision), HOME, b"", now).unwrap();
        let (old, new, other) = (create("alice", 1), create("alice", 2), create("bob", 1));
        sessions.revoke("alice", 2);
        let validate = |token: &str| sessions.validate(token.as_bytes(), HOME, b"", now);
        assert_eq!(validate(&old), Err(Refused::Unknown));
        assert!(validate(&new).is_ok() && validate(&other).is_ok());
    }

    #[test]
    fn the_table_is_bounded_oldest_first() {
        let (sessions, now) = (Sessions::new(rules()), Instant::now());
        let first = sessions.create(session("alice", 1), HOME, b"", now).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.create(session("bob", 1), HOME, b"", now).unwrap();
        }
        assert_eq!(sessions.count(), SESSIONS_MAX);
        assert_eq!(sessions.validate(first.as_bytes(), HOME, b"", now), Err(Refused::Unknown));
    }
}
