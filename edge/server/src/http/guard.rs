//! Who may look: an administrator or whoever has a role, by a session's token or by name and password.
//!
//! A token that is good costs nothing; what fails counts against the address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::{Event, Reply, Request, Session, Users};
use bytes::Bytes;
use tokio::time::Instant;
use wire::Reason;

use super::{Shared, json};
use crate::audit::{Kind, Line as AuditLine};
use crate::identity::{Counted, Limit, Proof, Refused, log_in};
use crate::line::Line;

/// Name of the cookie that carries a token.
const COOKIE: &str = "malachi_token";

/// Why somebody may not look.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing was presented.
    Unauthenticated,
    /// The address has failed too often; seconds until it may try again.
    TooOften(Duration),
    /// What was presented opens nothing, or not this.
    Forbidden(&'static str),
    /// The core cannot say now.
    Unavailable,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthenticated => {
                let challenge = [(header::WWW_AUTHENTICATE, r#"Bearer realm="Malachi Dashboard""#)];
                (challenge, error(StatusCode::UNAUTHORIZED, "authentication_required")).into_response()
            }
            Self::TooOften(wait) => {
                let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1);
                let retry = [(header::RETRY_AFTER, millis.div_ceil(1000).to_string())];
                let body =
                    format!(r#"{{"s":"err","reason":"rate_limit_exceeded","retry_after_ms":{millis}}}"#);
                (retry, json(StatusCode::TOO_MANY_REQUESTS, body)).into_response()
            }
            Self::Forbidden(reason) => error(StatusCode::FORBIDDEN, reason),
            Self::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }
}

fn error(status: StatusCode, reason: &str) -> Response {
    json(status, format!(r#"{{"s":"err","reason":"{reason}"}}"#))
}

/// What a request presents.
enum Presented {
    Token(Bytes),
    Password(Proof),
}

/// Lets those pass who may look.
pub(super) async fn may_look(shared: &Shared, client: IpAddr, headers: &HeaderMap) -> Result<(), Refusal> {
    let passed = pass(shared, client, headers).await;
    audit(shared, client, &passed);
    passed.map(drop)
}

/// Tells the auditor; that nothing was presented is no attempt.
fn audit(shared: &Shared, client: IpAddr, passed: &Result<Arc<str>, Refusal>) {
    let failure = match passed {
        Ok(_) => None,
        Err(Refusal::Unauthenticated) => return,
        Err(Refusal::TooOften(_)) => Some(Reason::RateLimitExceeded.as_str()),
        Err(Refusal::Forbidden(reason)) => Some(*reason),
        Err(Refusal::Unavailable) => Some(Reason::Unavailable.as_str()),
    };
    let kind = if failure.is_some() { Kind::DashboardAuthFailure } else { Kind::DashboardAccess };
    shared.metrics.audited(kind);
    let actor = passed.as_deref().unwrap_or_default();
    let action = "http_GET_/metrics";
    AuditLine { kind, actor, client: Some(client), action, failure, object: "", detail: "" }.write();
}

/// Gives the name of who may.
async fn pass(shared: &Shared, client: IpAddr, headers: &HeaderMap) -> Result<Arc<str>, Refusal> {
    let presented = presented(headers).ok_or(Refusal::Unauthenticated)?;
    look(shared, client)?;
    let core = shared.core.upgrade().ok_or(Refusal::Unavailable)?;
    let mut line = Line::open(&core, 1).await.ok_or(Refusal::Unavailable)?;
    let session = match presented {
        Presented::Token(token) => by_token(shared, client, headers, &token)?,
        Presented::Password(proof) => by_password(shared, client, &mut line, proof).await?,
    };
    let (user, request) = (Arc::clone(&session.user), Request::Users(Users::Look));
    match line.ask(|id| Event::Request { id, session, request }).await {
        Some(Reply::Done) => Ok(user),
        Some(Reply::Failed(Reason::PermissionDenied)) => Err(Refusal::Forbidden("insufficient_permissions")),
        Some(_) | None => Err(Refusal::Unavailable),
    }
}

fn look(shared: &Shared, client: IpAddr) -> Result<(), Refusal> {
    let Some(buckets) = &shared.doors.http_attempts else { return Ok(()) };
    buckets.look(&client, Instant::now()).map_err(|wait| {
        shared.metrics.http_login(Err(Reason::RateLimitExceeded));
        Refusal::TooOften(wait)
    })
}

fn by_token(shared: &Shared, client: IpAddr, headers: &HeaderMap, token: &[u8]) -> Result<Session, Refusal> {
    let (agent, now) = (text(headers, &header::USER_AGENT), Instant::now());
    let validated = shared.doors.sessions.validate(token, client, agent, now);
    shared.metrics.http_login(validated.as_ref().map(drop).map_err(|_| Reason::PermissionDenied));
    validated.map_err(|refused: Refused| {
        if let Some(buckets) = &shared.doors.http_attempts {
            // An empty bucket stays empty.
            let _ = buckets.take(&client, now);
        }
        Refusal::Forbidden(refused.as_str())
    })
}

async fn by_password(
    shared: &Shared,
    client: IpAddr,
    line: &mut Line,
    proof: Proof,
) -> Result<Session, Refusal> {
    let limit = Limit { buckets: shared.doors.http_attempts.as_ref(), counted: Counted::Failures };
    let session = log_in(&shared.doors, line, client, limit, proof).await;
    shared.metrics.http_login(session.as_ref().map(drop).map_err(|reason| *reason));
    session.map_err(|reason| {
        if reason == Reason::InvalidCredentials || reason == Reason::AccountLocked {
            Refusal::Forbidden(reason.as_str())
        } else {
            Refusal::Unavailable
        }
    })
}

/// The cookie first, then the header.
fn presented(headers: &HeaderMap) -> Option<Presented> {
    if let Some(token) = cookie(headers) {
        return Some(Presented::Token(token));
    }
    let given = text(headers, &header::AUTHORIZATION);
    let (scheme, value) = given.split_at_checked(given.iter().position(|b| *b == b' ')?)?;
    let value = value.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(Presented::Token(Bytes::copy_from_slice(value)));
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        return STANDARD.decode(value).ok().and_then(proof).map(Presented::Password);
    }
    None
}

/// `name:password`; only the first colon separates.
fn proof(pair: Vec<u8>) -> Option<Proof> {
    let pair = Bytes::from(pair);
    let colon = pair.iter().position(|b| *b == b':')?;
    Some(Proof { username: Some(pair.slice(..colon)), password: Some(pair.slice(colon + 1..)) })
}

fn cookie(headers: &HeaderMap) -> Option<Bytes> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, token)| Bytes::copy_from_slice(token.as_bytes()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a [u8] {
    headers.get(name).map(axum::http::HeaderValue::as_bytes).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn token(pairs: &[(HeaderName, &str)]) -> Option<Bytes> {
        match presented(&headers(pairs))? {
            Presented::Token(token) => Some(token),
            Presented::Password(_) => None,
        }
    }

    #[test]
    fn the_cookie_wins_over_the_header() {
        let cookie = (header::COOKIE, "a=b; malachi_token=one; c=d");
        let bearer = (header::AUTHORIZATION, "bearer two");
        assert_eq!(token(&[cookie.clone(), bearer.clone()]).unwrap(), "one");
        assert_eq!(token(&[bearer]).unwrap(), "two");
        assert!(token(&[(header::COOKIE, "other_malachi_token=x")]).is_none());
        assert!(token(&[(header::AUTHORIZATION, "two")]).is_none());
    }

    #[test]
    fn name_and_password_are_split_at_the_first_colon() {
        let basic = headers(&[(header::AUTHORIZATION, "Basic YWRtaW46YTpi")]);
        let Some(Presented::Password(proof)) = presented(&basic) else { panic!("a password") };
        assert_eq!((proof.username.unwrap(), proof.password.unwrap()), ("admin".into(), "a:b".into()));
        for bad in ["Basic !!!", "Basic YWRtaW4=", "Digest x"] {
            assert!(presented(&headers(&[(header::AUTHORIZATION, bad)])).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_wait_is_rounded_up() {
        let response = Refusal::TooOften(Duration::from_micros(1500)).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
