//! A connection nobody has logged in on: one frame, one deadline.
//!
//! Owns the checks of that frame. The core hears of the connection only once it has brought a login.

use std::net::IpAddr;

use broker::Session;
use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use types::limits;
use wire::request::Envelope;
use wire::{ApiKey, Gather, Payload, Reason, Response, frame};

use super::in_work::IN_FLIGHT_MAX;
use super::socket::{self, READ_BYTES_MIN, Socket};
use super::{Shared, stopped};
use crate::audit::{Kind, Line as AuditLine};
use crate::identity::{Counted, Limit, Proof, log_in};
use crate::line::Line;

/// A connection that was let in.
pub(super) struct Guest {
    pub(super) socket: Socket,
    /// What it sent after its login.
    pub(super) buffer: BytesMut,
    pub(super) line: Line,
    pub(super) session: Session,
    /// The answer to its login, not written yet.
    pub(super) out: Gather,
}

/// Why it was not let in.
enum Rejected {
    /// Told under this correlation id.
    Told(u32, Reason),
    /// The deadline passed, or the peer left: nothing is said.
    Silent,
}

/// Waits for the one frame that may come first; `None` when the connection is over.
pub(super) async fn receive(
    mut socket: Socket,
    client: IpAddr,
    shared: &Shared,
    mut stop: watch::Receiver<bool>,
) -> Option<Guest> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES_MIN);
    let admitted = async {
        let body = first_frame(&mut socket, &mut buffer, shared, &mut stop).await?;
        let (envelope, payload) = Envelope::split(body).ok_or(Rejected::Told(0, Reason::AuthRequired))?;
        let refuse = |reason| Rejected::Told(envelope.correlation_id, reason);
        let key = ApiKey::from_number(envelope.api_key).filter(|key| key.authenticates());
        let key = key.ok_or(refuse(Reason::AuthRequired))?;
        let proof = match wire::Request::decode(key, payload) {
            Ok(wire::Request::Auth { username, password }) => Proof { username, password },
            Ok(wire::Request::MtlsAuth) => {
                audit(shared, client, "", key, Err(Reason::MtlsAuthDisabled));
                return Err(refuse(Reason::MtlsAuthDisabled));
            }
            Ok(_) => {
                audit(shared, client, "", key, Err(Reason::OidcAuthDisabled));
                return Err(refuse(Reason::OidcAuthDisabled));
            }
            Err(_) => return Err(Rejected::Told(0, Reason::AuthRequired)),
        };
        let (line, session, token) = admit(proof, client, shared).await.map_err(refuse)?;
        let mut out = Gather::new();
        Response::Ok(Payload::Token(token.into())).encode(envelope.correlation_id, &mut out);
        Ok((line, session, out))
    };
    match admitted.await {
        Ok((line, session, out)) => Some(Guest { socket, buffer, line, session, out }),
        Err(Rejected::Told(correlation_id, reason)) => {
            tracing::info!(%client, reason = reason.as_str(), "authentication failed");
            socket::refuse(&mut socket, correlation_id, reason, shared.limits.send_timeout).await;
            None
        }
        Err(Rejected::Silent) => None,
    }
}

async fn first_frame(
    socket: &mut Socket,
    buffer: &mut BytesMut,
    shared: &Shared,
    stop: &mut watch::Receiver<bool>,
) -> Result<bytes::Bytes, Rejected> {
    let deadline = Instant::now() + shared.limits.auth_timeout;
    let limit = shared.limits.frame_bytes_max.min(limits::FRAME_BYTES_UNAUTHENTICATED_MAX);
    loop {
        match frame::take(buffer, limit) {
            Ok(Some(body)) => return Ok(body),
            Ok(None) => {}
            Err(_) => return Err(Rejected::Told(0, Reason::FrameTooLarge)),
        }
        buffer.reserve(READ_BYTES_MIN);
        let read = tokio::select! {
            read = timeout_at(deadline, socket.read_buf(buffer)) => read,
            () = stopped(stop) => return Err(Rejected::Told(0, Reason::ServerShutdown)),
        };
        match read {
            Ok(Ok(read)) if read > 0 => shared.metrics.input_bytes.inc_by(read as u64),
            Ok(_) | Err(_) => return Err(Rejected::Silent),
        }
    }
}

async fn admit(proof: Proof, client: IpAddr, shared: &Shared) -> Result<(Line, Session, String), Reason> {
    let doors = &shared.doors;
    let mut line = Line::open(&shared.core, IN_FLIGHT_MAX).await.ok_or(Reason::ServerShutdown)?;
    let limit = Limit { buckets: doors.attempts.as_ref(), counted: Counted::Every };
    let username = proof.username.clone().unwrap_or_default();
    let session = log_in(doors, &mut line, client, limit, proof).await;
    let outcome = session.as_ref().map(drop).map_err(|reason| *reason);
    audit(shared, client, &String::from_utf8_lossy(&username), ApiKey::Auth, outcome);
    shared.metrics.login(session.as_ref().map(drop).map_err(|reason| *reason));
    let session = session?;
    tracing::debug!(%client, user = &*session.user, "authenticated");
    let token = doors.sessions.create(session.clone(), client, b"", Instant::now());
    Ok((line, session, token.map_err(|_| Reason::InternalError)?))
}

/// Tells the auditor of a login.
fn audit(shared: &Shared, client: IpAddr, user: &str, operation: ApiKey, outcome: Result<(), Reason>) {
    let kind = if outcome.is_ok() { Kind::AuthSuccess } else { Kind::AuthFailure };
    let failure = outcome.err().map(Reason::as_str);
    shared.metrics.audited(kind);
    let action = operation.name();
    AuditLine { kind, actor: user, client: Some(client), action, failure, object: user, detail: "" }.write();
}
