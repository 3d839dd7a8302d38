//! Connections of the dashboard's port: a bounded number, one request each, its head within a deadline.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::tcp::gate::Gate;

/// Connections at one time; further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 1024;
/// The same from one address; further ones are closed, so that nobody alone keeps others from asking how the node is.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 128;
/// From accept to the end of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_millis(5000);
/// Pause after an accept that failed for want of something, file descriptors above all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What the HTTP library needs at least for a head, bytes.
const HEAD_BYTES_MIN: usize = 8192;

/// Limits of a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLimits {
    pub(crate) headers_max: usize,
    /// Below 8192 it is 8192.
    pub(crate) bytes_max: usize,
}

/// Serves until `stop` says so, then lets requests under way end.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HeadLimits,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let gate = Gate::new(Some(CONNECTIONS_PER_ADDRESS_MAX), None);
    let mut tasks = JoinSet::new();
    let for_connections = stop.clone();
    loop {
        let accept = async {
            let permit = permits.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accept => match accepted {
                Ok((stream, peer)) => {
                    let entered = gate.enter(peer.ip().to_canonical());
                    let Ok(entered) = entered else { continue };
                    let (router, stop) = (router.clone(), for_connections.clone());
                    tasks.spawn(async move {
                        let _held = (permit, entered);
                        connection(stream, peer, router, limits, stop).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Ends when the node shuts down.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone: the same.
    drop(stop.wait_for(|stop| *stop).await);
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: HeadLimits,
    mut stop: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(router.layer(Extension(ConnectInfo(peer))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_headers(limits.headers_max)
        .max_buf_size(limits.bytes_max.max(HEAD_BYTES_MIN))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(client = %peer.ip(), %error, "HTTP connection ended");
    }
}
