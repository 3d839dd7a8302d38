//! Health and readiness over HTTP.
//!
//! Owns two routes; every other path is a 404 in the shape all errors of this port have.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::net::TcpListener;

/// Whether produce and consume requests are served now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub(crate) fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Serves until `stop` ends.
pub(crate) async fn serve(
    listener: TcpListener,
    ready: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/health", any(|| async { json(StatusCode::OK, r#"{"status":"ok"}"#) }))
        .route("/ready", any(readiness))
        .fallback(|| async { json(StatusCode::NOT_FOUND, r#"{"s":"err","reason":"not_found"}"#) })
        .with_state(ready);
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn readiness(State(ready): State<Readiness>) -> Response {
    if ready.get() {
        json(StatusCode::OK, r#"{"status":"ready"}"#)
    } else {
        json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"not_ready"}"#)
    }
}

fn json(status: StatusCode, body: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
