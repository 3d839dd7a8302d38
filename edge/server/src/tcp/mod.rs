//! The client port.
//!
//! Owns the listener and the limits on connections; each connection is a task of its own (`connection`).
//! Decides nothing about topics or records: requests go to the core and answers come back.

mod answers;
mod connection;
pub(crate) mod gate;
mod in_work;
pub(crate) mod socket;
mod translate;
mod welcome;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::Reason;

use crate::config::Connections;
use crate::driver::Core;
use crate::identity::Doors;
use crate::metrics::Metrics;
use crate::tls::Tls;
use gate::Gate;
use socket::Socket;

const BACKLOG: u32 = 4096;
/// Pause after an accept that failed for want of something, file descriptors above all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What every connection shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Connections,
    pub(crate) doors: Arc<Doors>,
    pub(crate) core: Core,
    pub(crate) metrics: Arc<Metrics>,
    /// `None` serves plaintext.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// A socket bound to the port on every address, IPv6 included when the host has it; it does not listen yet.
///
/// Binding early finds a port in use before anything else is touched.
pub(crate) fn bind(port: u16) -> std::io::Result<TcpSocket> {
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    match TcpSocket::new_v6().and_then(|socket| prepare(socket, any6)) {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => prepare(TcpSocket::new_v4()?, any4),
        result => result,
    }
}

fn prepare(socket: TcpSocket, address: SocketAddr) -> std::io::Result<TcpSocket> {
    socket.set_reuseaddr(true)?;
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Starts to listen.
pub(crate) fn listen(socket: TcpSocket) -> std::io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Accepts connections until `stop` says so, then waits until the last one is done.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let gate = Gate::new(shared.limits.per_address_max, shared.limits.total_max);
    let mut tasks = JoinSet::new();
    let for_connections = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    tasks.spawn(admit(stream, peer, Arc::clone(&gate), Arc::clone(&shared), for_connections.clone()));
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

/// Ends when the node shuts down.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone: the same.
    drop(stop.wait_for(|stop| *stop).await);
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "connection task failed");
    }
}

async fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    gate: Arc<Gate>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
) {
    let client = peer.ip().to_canonical();
    // Counted before the handshake, which costs more than anything that follows.
    let entered = gate.enter(client);
    let turned_away = entered.is_err().then(|| gate.turn_away());
    if let Some(None) = turned_away {
        shared.metrics.connections_refused.inc();
        return;
    }
    socket::prepare(&stream);
    let Some(mut socket) = shake_hands(stream, client, &shared).await else { return };
    let refused = match entered {
        Ok(_entered) => return connection::run(socket, client, &shared, stop).await,
        Err(gate::Full::Address) => Reason::ConnectionLimitExceeded,
        Err(gate::Full::Total) => Reason::GlobalLimitExceeded,
    };
    shared.metrics.connections_refused.inc();
    tracing::debug!(%client, reason = refused.as_str(), "connection refused");
    socket::refuse(&mut socket, 0, refused, shared.limits.send_timeout).await;
}

async fn shake_hands(stream: TcpStream, client: IpAddr, shared: &Shared) -> Option<Socket> {
    let Some(tls) = &shared.tls else { return Some(Socket::Plain(stream)) };
    let handshake = tls.accept(stream).await;
    shared.metrics.handshake(handshake.is_ok());
    match handshake {
        Ok(stream) => Some(Socket::Tls(Box::new(stream))),
        Err(error) => {
            tracing::debug!(%client, %error, "TLS handshake failed");
            None
        }
    }
}
