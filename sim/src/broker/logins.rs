//! Logins: how a client gets a session, and what guessing costs.
//!
//! Every connection logs in through the node, as the server's end would once it has checked a password. Guesses go
//! along: names nobody has, whose failures must be counted durably before they are answered, and lock when there
//! are enough of them. The rules of this world never forget, so what may be locked and what must be is exact.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use broker::{ConnectionId, Event, LockoutRules, Login, Permissions, Reply, RequestId, SeedUser, Session};
use bytes::Bytes;
use rand::Rng;
use wire::Reason;

use super::network::ConnId;
use super::world::World;
use crate::invariants::{Violation, ensure};

/// Of every user; nobody knows the password.
const HASH: &str = "$simulated$";
const ADDRESS: &str = "192.0.2.1";
/// Failures that lock.
const ATTEMPTS_MAX: u32 = 3;
/// Longer than any run.
const FOREVER_MS: u64 = 1 << 50;
/// Requests of this number and above are logins.
const LOGINS_FROM: u64 = 1 << 62;

/// What is known about logins.
#[derive(Debug, Default)]
pub(super) struct Logins {
    /// Users that are there: the node said it made them, or has shown them.
    known: Vec<Arc<str>>,
    /// In this lifetime not every user could be made.
    pub(super) seed_failed: bool,
    /// The answer to the last step of a login, which comes at once.
    answer: Option<Reply>,
    number: u64,
    /// The name that is guessed at.
    guessed: u64,
    tries: Tries,
    /// Failures the node has and has not answered, and of which name.
    waiting: BTreeMap<RequestId, u64>,
}

/// Failures of the name that is guessed at.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    sent: u32,
    counted: u32,
}

/// Rules that never forget.
pub(super) fn rules() -> LockoutRules {
    LockoutRules {
        attempts_max: NonZeroU32::new(ATTEMPTS_MAX).expect("it is not zero"),
        duration_ms: FOREVER_MS,
        progressive: false,
        forget_ms: FOREVER_MS,
    }
}

/// One user for each set of permissions.
pub(super) fn everybody() -> Vec<SeedUser> {
    (0..8_u8)
        .map(|bits| {
            let has = |bit: u8| bits & (1 << bit) != 0;
            let permissions = Permissions { admin: has(0), produce: has(1), consume: has(2) };
            SeedUser { name: name_of(permissions).into(), hash: HASH.into(), permissions }
        })
        .collect()
}

fn name_of(Permissions { admin, produce, consume }: Permissions) -> String {
    format!("admin-{admin}/produce-{produce}/consume-{consume}")
}

impl Logins {
    /// Whether the node owes nobody an answer.
    pub(super) fn are_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The process ended: whoever waited hears nothing.
    pub(super) fn life_ended(&mut self) {
        self.waiting.clear();
        self.answer = None;
        self.seed_failed = false;
    }
}

impl World {
    /// Logs a client in; `None` when its user is not there, which is so only when it could not be made.
    pub(super) fn log_in(&mut self, client: usize, id: ConnId) -> Result<Option<Session>, Violation> {
        if self.rng.random_bool(0.3) {
            self.guess(id)?;
        }
        self.log_in_as(self.clients[client].permissions, id)
    }

    /// A session of the user with these permissions.
    pub(super) fn log_in_as(
        &mut self,
        permissions: Permissions,
        id: ConnId,
    ) -> Result<Option<Session>, Violation> {
        let name = name_of(permissions);
        let (username, address) = (Bytes::from(name.clone()), Arc::from(ADDRESS));
        let found = match self.login_step(id, Login::Credentials { username: username.clone(), address })? {
            Some(Reply::Credentials(found)) => found,
            other => return Err(unexpected(&name, other.as_ref())),
        };
        ensure(!found.locked, "LOCKOUT", || format!("{name} is locked and never failed"))?;
        let known = self.logins.known.iter().any(|known| **known == *name);
        if found.hash.is_none() {
            ensure(!known && self.logins.seed_failed, "USERS", || {
                format!("{name} is not there; it was once: {known}")
            })?;
            return Ok(None);
        }
        ensure(found.hash.as_deref() == Some(HASH), "USERS", || format!("{name} has another password"))?;
        if !known {
            // An earlier process ended after it had made the user and before it could say so.
            self.logins.known.push(name.as_str().into());
        }
        let (address, revision) = (Arc::from(ADDRESS), found.revision);
        match self.login_step(id, Login::Succeeded { username, address, revision })? {
            Some(Reply::Welcome(session)) if *session.user == *name => Ok(Some(session)),
            other => Err(unexpected(&name, other.as_ref())),
        }
    }

    /// A step that needs no disk: answered at once.
    fn login_step(&mut self, id: ConnId, login: Login) -> Result<Option<Reply>, Violation> {
        self.logins.answer = None;
        let id = self.login_id(id);
        self.step(Event::Login { id, login })?;
        Ok(self.logins.answer.take())
    }

    fn login_id(&mut self, id: ConnId) -> RequestId {
        self.logins.number += 1;
        RequestId { connection: ConnectionId(id.0), number: LOGINS_FROM + self.logins.number }
    }

    /// Somebody fails to log in.
    fn guess(&mut self, id: ConnId) -> Result<(), Violation> {
        let username = Bytes::from(format!("guess-{}", self.logins.guessed));
        let look = Login::Credentials { username: username.clone(), address: Arc::from(ADDRESS) };
        let Tries { sent, counted } = self.logins.tries;
        match self.login_step(id, look)? {
            Some(Reply::Credentials(found)) if found.hash.is_none() => {
                ensure(found.locked || counted < ATTEMPTS_MAX, "LOCKOUT", || {
                    format!("{counted} failures were counted, and nothing is locked")
                })?;
                ensure(!found.locked || sent >= ATTEMPTS_MAX, "LOCKOUT", || {
                    format!("there were {sent} failures, and it is locked")
                })?;
                if found.locked && self.rng.random_bool(0.5) {
                    self.logins.guessed += 1;
                    self.logins.tries = Tries::default();
                    return Ok(());
                }
            }
            other => return Err(unexpected("a guess", other.as_ref())),
        }
        self.logins.tries.sent += 1;
        let id = self.login_id(id);
        self.logins.waiting.insert(id, self.logins.guessed);
        self.step(Event::Login { id, login: Login::Failed { username, address: Arc::from(ADDRESS) } })
    }

    /// Whether the request is one of these.
    pub(super) fn is_login(id: RequestId) -> bool {
        id.number >= LOGINS_FROM
    }

    /// The node has answered a step.
    pub(super) fn login_answered(&mut self, id: RequestId, reply: Reply) -> Result<(), Violation> {
        let Some(guessed) = self.logins.waiting.remove(&id) else {
            self.logins.answer = Some(reply);
            return Ok(());
        };
        self.say(|| format!("   guess-{guessed} -> {reply:?}"));
        let current = guessed == self.logins.guessed;
        let Tries { sent, .. } = self.logins.tries;
        match reply {
            Reply::Done => {
                self.note(u64::from(sent));
                self.logins.tries.counted += u32::from(current);
                Ok(())
            }
            Reply::Failed(Reason::AccountLocked) => {
                ensure(!current || sent > ATTEMPTS_MAX, "LOCKOUT", || {
                    format!("failure {sent} was refused unseen")
                })
            }
            Reply::Failed(reason) => {
                ensure(self.excused(reason), "ANSWER", || format!("a guess was answered {reason:?}"))
            }
            other => Err(unexpected("a guess", Some(&other))),
        }
    }

    /// The node says that it made a user.
    pub(super) fn seeded(&mut self, user: Arc<str>) -> Result<(), Violation> {
        ensure(!self.logins.known.contains(&user), "USERS", || {
            format!("{user} was made in an earlier lifetime and is made again")
        })?;
        self.logins.known.push(user);
        Ok(())
    }
}

fn unexpected(who: &str, reply: Option<&Reply>) -> Violation {
    Violation::new("ANSWER", format!("{who}: a step of a login was answered {reply:?}"))
}
