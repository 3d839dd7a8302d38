//! A login with a password, in the order that gives nothing away: locked, limited, right.
//!
//! The core knows the users and who is locked out; the password is compared here. A failure is counted before it
//! is answered, so that attempts made side by side are counted too.

use std::net::IpAddr;
use std::sync::Arc;

use broker::{Credentials, Event, Login, Reply, Session};
use bytes::Bytes;
use tokio::time::Instant;
use wire::Reason;

use super::{Buckets, Doors, Overloaded, is_user_name};
use crate::line::Line;

/// What somebody gives to prove who they are; null is nobody.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) username: Option<Bytes>,
    pub(crate) password: Option<Bytes>,
}

/// Which attempts the limit of an address counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Every,
    Failures,
}

/// The limit of an address, if there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit<'a> {
    pub(crate) buckets: Option<&'a Buckets<IpAddr>>,
    pub(crate) counted: Counted,
}

impl Limit<'_> {
    fn before(self, client: IpAddr) -> Result<(), Reason> {
        let now = Instant::now();
        let allowed = match (self.buckets, self.counted) {
            (None, _) => Ok(()),
            (Some(buckets), Counted::Every) => buckets.take(&client, now),
            (Some(buckets), Counted::Failures) => buckets.look(&client, now),
        };
        allowed.map_err(|_| Reason::RateLimitExceeded)
    }

    fn failed(self, client: IpAddr) {
        if let (Some(buckets), Counted::Failures) = (self.buckets, self.counted) {
            // An empty bucket stays empty.
            let _ = buckets.take(&client, Instant::now());
        }
    }
}

/// The session of whoever the proof stands for, or the reason to answer.
pub(crate) async fn log_in(
    doors: &Doors,
    line: &mut Line,
    client: IpAddr,
    limit: Limit<'_>,
    proof: Proof,
) -> Result<Session, Reason> {
    let Proof { username, password } = proof;
    let address: Arc<str> = client.to_string().into();
    // A name that cannot be a user's goes no further than here, and takes as long.
    let username = username.filter(|name| is_user_name(name));
    let credentials = match &username {
        Some(username) => credentials(line, username.clone(), address.clone()).await?,
        None => Credentials { hash: None, revision: 0, locked: false },
    };
    if credentials.locked {
        return Err(Reason::AccountLocked);
    }
    limit.before(client)?;
    let right = match doors.pool.verify(credentials.hash, password).await {
        Ok(right) => right,
        Err(Overloaded) => return Err(Reason::Overloaded),
    };
    let Some(username) = username else {
        limit.failed(client);
        return Err(Reason::InvalidCredentials);
    };
    if right {
        let revision = credentials.revision;
        let login = Login::Succeeded { username, address, revision };
        let Reply::Welcome(session) = ask(line, login).await? else { return Err(Reason::InternalError) };
        return Ok(session);
    }
    limit.failed(client);
    match ask(line, Login::Failed { username, address }).await {
        Ok(_) => {}
        // A lock began while the password was looked at.
        Err(Reason::AccountLocked) => return Err(Reason::AccountLocked),
        Err(reason) => tracing::warn!(%client, reason = reason.as_str(), "failed login not counted"),
    }
    Err(Reason::InvalidCredentials)
}

async fn credentials(line: &mut Line, username: Bytes, address: Arc<str>) -> Result<Credentials, Reason> {
    let reply = ask(line, Login::Credentials { username, address }).await?;
    let Reply::Credentials(credentials) = reply else { return Err(Reason::InternalError) };
    Ok(credentials)
}

/// A step of the login; the error is what the core refused it with.
async fn ask(line: &mut Line, login: Login) -> Result<Reply, Reason> {
    match line.ask(|id| Event::Login { id, login }).await {
        Some(Reply::Failed(reason)) => Err(reason),
        Some(reply) => Ok(reply),
        None => Err(Reason::Timeout),
    }
}
