//! Logins: what a password is checked against, and what a failed one costs.
//!
//! Owns the steps of a login and the lockouts. Does not verify anything: the edge asks for what to check
//! against and says what came of it. Limits of attempts per address are the edge's too.
//!
//! Invariants:
//! - a failure is answered after it was counted durably;
//! - an attempt that was let through before a lock began is refused like one that came after, whether or not it
//!   had the right password: guessing in parallel gains nothing over guessing in turn, and learns nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metadata::cluster::{self as tables, Address, UserName};
use wire::Reason;

use crate::action::{Credentials, Notice, Reply};
use crate::auth::Session;
use crate::cluster::Error;
use crate::event::{Login, RequestId};
use crate::meta::Fate;
use crate::node::Node;
use crate::planted::Bug;
use crate::users;

/// How often is looked for lockouts that have to be forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// Answers one step of a login.
    pub(crate) fn login(&mut self, id: RequestId, login: Login) {
        if !self.serves() {
            return self.core.reply(id, Reply::Failed(Reason::Unavailable));
        }
        match login {
            Login::Credentials { username, address } => {
                let credentials = match user_name(&username) {
                    Some(user) => self.core.credentials(&user, self.is_locked(&user, &address)),
                    // Nobody can have that name: not worth counting.
                    None => Credentials { hash: None, revision: 0, locked: false },
                };
                self.core.reply(id, Reply::Credentials(credentials));
            }
            Login::Failed { username, address } => self.login_failed(id, &username, address),
            Login::Succeeded { username, address, revision } => {
                if let Err(reason) = self.login_succeeded(id, &username, &address, revision) {
                    self.core.reply(id, Reply::Failed(reason));
                }
            }
        }
    }

    fn is_locked(&self, user: &str, address: &str) -> bool {
        let Some(address) = Address::new(address.as_bytes()) else { return false };
        self.core.meta.cluster().locked_until(user, &address).is_some_and(|until| until > self.core.wall)
    }

    fn login_failed(&mut self, id: RequestId, username: &Bytes, address: Arc<str>) {
        match user_name(username) {
            None => self.core.reply(id, Reply::Done),
            Some(user) if self.is_locked(&user, &address) => {
                self.core.reply(id, Reply::Failed(Reason::AccountLocked));
            }
            Some(user) => {
                if self.core.config.has_bug(Bug::CountLate) {
                    self.core.reply(id, Reply::Done);
                }
                self.core.record_failure(id, user, address);
            }
        }
    }

    /// A failure was counted, or came while the lock had just begun.
    pub(crate) fn failure_counted(
        &mut self,
        id: RequestId,
        user: Arc<str>,
        address: Arc<str>,
        result: Result<tables::Reply, Error>,
    ) {
        if let Ok(tables::Reply::FailureRecorded { count, locked_until: Some(until), locked_now: true }) =
            result
        {
            self.core.notice(Notice::AccountLocked { user, address, failures: count, until });
        }
        if self.core.config.has_bug(Bug::CountLate) {
            return;
        }
        let reply = match result {
            Ok(tables::Reply::FailureRecorded { locked_until: Some(_), locked_now: false, .. }) => {
                Reply::Failed(Reason::AccountLocked)
            }
            Ok(_) => Reply::Done,
            Err(error) => Reply::Failed(login_reason(error)),
        };
        self.core.reply(id, reply);
    }

    fn login_succeeded(
        &mut self,
        id: RequestId,
        username: &Bytes,
        address: &Arc<str>,
        revision: u64,
    ) -> Result<(), Reason> {
        let user = user_name(username).ok_or(Reason::InvalidCredentials)?;
        let session = self.core.session_of(&user).ok_or(Reason::InvalidCredentials)?;
        if self.is_locked(&user, address) {
            return Err(Reason::AccountLocked);
        }
        // The password was checked against another one than it is now.
        if session.revision != revision {
            return Err(Reason::InvalidCredentials);
        }
        let counted = Address::new(address.as_bytes())
            .is_some_and(|address| self.core.meta.cluster().lockout(&user, &address).is_some());
        if counted {
            self.core.record_success(id, session, address);
        } else {
            self.core.reply(id, Reply::Welcome(session));
        }
        Ok(())
    }

    /// What was counted is cleared.
    pub(crate) fn logged_in(
        &mut self,
        id: RequestId,
        session: Session,
        result: Result<tables::Reply, Error>,
    ) {
        let reply = match result {
            Ok(_) => Reply::Welcome(session),
            Err(error) => Reply::Failed(login_reason(error)),
        };
        self.core.reply(id, reply);
    }

    /// Has lockouts forgotten that are over, now and then.
    pub(crate) fn forget_lockouts(&mut self) {
        if self.forget_at > self.core.now || !self.serves() {
            return;
        }
        self.forget_at = self.core.now.plus(FORGET_EVERY);
        if self.core.meta.cluster().has_forgotten_lockouts(self.core.wall) {
            self.core.forget_lockouts();
        }
    }
}

/// The name as text, when it can be a user's.
fn user_name(username: &[u8]) -> Option<Arc<str>> {
    UserName::new(username).ok().map(|name| name.shared())
}

fn login_reason(error: Error) -> Reason {
    match error {
        Error::Refused(refusal) => users::reason(refusal),
        Error::Lost(Fate::NotRecorded) => Reason::Unavailable,
        Error::Lost(Fate::Unknown) => Reason::Timeout,
    }
}
