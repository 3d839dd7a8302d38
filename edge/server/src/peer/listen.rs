//! Who may come in: the peer port, and the limits on those who have not proved anything.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use peer::{Error, Link, Refusal};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use types::limits;

use super::connection::{self, Channel};
use super::{Cause, Shared, Tls, log_panic, stopped};
use crate::tcp::gate::{Entered, Gate};
use crate::tcp::socket;

/// Pause after an accept that failed for want of something, file descriptors above all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// From accept to the end of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_millis(limits::PEER_HANDSHAKE_MS);

/// Accepts connections until `stop` says so, then waits until the last one is done.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let gate = Gate::new(Some(limits::PEER_CONNECTIONS_PER_ADDRESS_MAX), Some(limits::PEER_CONNECTIONS_MAX));
    let unproved = Gate::new(Some(limits::PEER_UNPROVED_PER_ADDRESS_MAX), Some(limits::PEER_UNPROVED_MAX));
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let address = address.ip().to_canonical();
                    let (Ok(entered), Ok(waits)) = (gate.enter(address), unproved.enter(address)) else {
                        turn_away(&stream, address, &shared);
                        continue;
                    };
                    let (shared, stop) = (Arc::clone(&shared), stop.clone());
                    tasks.spawn(async move {
                        admit(stream, address, waits, shared, stop).await;
                        drop(entered);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Finished tasks are collected as they end, so that their number stays that of the open ones.
            Some(ended) = tasks.join_next() => log_panic(ended),
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    while let Some(ended) = tasks.join_next().await {
        log_panic(ended);
    }
}

/// Too many are here: said in one frame if that costs nothing.
fn turn_away(stream: &TcpStream, address: IpAddr, shared: &Shared) {
    tracing::debug!(client = %address, "peer connection turned away");
    if shared.tls.is_some() {
        return;
    }
    if let Ok(setup) = shared.setup(Bytes::new()) {
        let mut link = Link::accept(setup, shared.clock.now());
        link.refuse(Refusal::Busy, "too many connections".to_owned());
        // A new socket has room for so little, or it does not matter.
        drop(stream.try_write(link.outgoing().chunk()));
    }
}

async fn admit(
    stream: TcpStream,
    address: IpAddr,
    waits: Entered,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
) {
    let port = stream.peer_addr().map_or(0, |address| address.port());
    let address = SocketAddr::from((address, port)).to_string();
    let (cause, is_mistake) = match open(stream, &shared).await {
        Ok((link, channel)) => {
            let ended = connection::run(link, channel, None, Some(waits), Arc::clone(&shared), stop).await;
            if ended.counted {
                return;
            }
            let is_mistake = is_worth_a_line(&ended.cause);
            (ended.cause, is_mistake)
        }
        Err(error) => {
            let is_mistake = Tls::is_about_certificates(&error);
            (Cause::from(error), is_mistake)
        }
    };
    if is_mistake && shared.may_tell() {
        tracing::warn!(client = address, reason = %cause, "peer connection refused");
    } else {
        tracing::debug!(client = address, reason = %cause, "peer connection refused");
    }
    if matches!(cause, Cause::Protocol(_)) {
        shared.refused(&address, &cause);
    }
}

/// Whether it looks like a node that somebody set up wrongly, and not like a stranger who tries doors.
fn is_worth_a_line(cause: &Cause) -> bool {
    match cause {
        Cause::Protocol(Error::Refuses { refusal, .. } | Error::RefusedBy(refusal)) => !refusal.passes(),
        Cause::Protocol(Error::RefusedByLater(_)) => true,
        Cause::Protocol(Error::Unproved | Error::Silent | Error::Malformed(_))
        | Cause::Channel(_)
        | Cause::Ending => false,
    }
}

async fn open(stream: TcpStream, shared: &Shared) -> std::io::Result<(Link, Box<dyn Channel>)> {
    socket::prepare(&stream);
    let (channel, binding): (Box<dyn Channel>, _) = match &shared.tls {
        None => (Box::new(stream), Bytes::new()),
        Some(tls) => {
            let (stream, binding) = timeout(HANDSHAKE, tls.accept(stream)).await??;
            (Box::new(stream), binding)
        }
    };
    let link = Link::accept(shared.setup(binding)?, shared.clock.now());
    Ok((link, channel))
}
