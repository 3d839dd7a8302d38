//! The dashboard's port: health, readiness, metrics.
//!
//! Owns the routes; every other path and method is a 404 in the shape all errors of this port have. Plain HTTP, for
//! an internal network or behind a proxy.

mod guard;
mod listener;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::driver::WeakCore;
use crate::identity::Doors;
use crate::metrics::{self, Metrics};
pub(crate) use listener::HeadLimits;

/// Whether produce and consume requests are served now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub(crate) fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the routes look at.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) ready: Readiness,
    pub(crate) doors: Arc<Doors>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) core: WeakCore,
    /// Whether the metrics need a login.
    pub(crate) login: bool,
    pub(crate) limits: HeadLimits,
}

/// Serves until `stop` says so.
pub(crate) async fn serve(listener: TcpListener, shared: Shared, stop: watch::Receiver<bool>) {
    let limits = shared.limits;
    let router = Router::new()
        .route("/health", any(|| async { json(StatusCode::OK, r#"{"status":"ok"}"#) }))
        .route("/ready", any(readiness))
        .route("/metrics", get(metrics_text).fallback(not_found))
        .fallback(not_found)
        .with_state(shared);
    listener::serve(listener, router, limits, stop).await;
}

async fn not_found() -> Response {
    json(StatusCode::NOT_FOUND, r#"{"s":"err","reason":"not_found"}"#)
}

async fn readiness(State(shared): State<Shared>) -> Response {
    if shared.ready.get() {
        json(StatusCode::OK, r#"{"status":"ready"}"#)
    } else {
        json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"not_ready"}"#)
    }
}

async fn metrics_text(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if shared.login
        && let Err(refusal) = guard::may_look(&shared, peer.ip().to_canonical(), &headers).await
    {
        return refusal.into_response();
    }
    let observed = shared.core.observe().await;
    let text = shared.metrics.text(observed, shared.doors.sessions.count());
    let headers = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE), (header::CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}

fn json(status: StatusCode, body: impl Into<String>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.into()).into_response()
}
