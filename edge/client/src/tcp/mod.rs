//! The client over TCP: one connection, any number of requests in flight on it.

mod admin;
mod client;
mod cluster;
mod connection;
mod consumer;
mod inspect;
mod outbox;
mod policies;
mod producer;
mod socket;
mod stream;
mod subscription;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub use admin::{GroupMove, GroupTarget};
pub use client::Client;
pub use consumer::{Consumer, ConsumerBuilder};
pub use outbox::{Outbox, OutboxOptions, Receipt};
pub use producer::{Producer, Progress};
pub use subscription::{Push, Subscription, SubscriptionBuilder};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsFiles, TlsUnusable};
pub use transport::Transport;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use types::limits;

/// How to reach a broker and as whom.
#[derive(Clone)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    /// Further brokers of the same cluster, tried in turn when that one does not answer.
    pub others: Vec<String>,
    /// The user.
    pub user: String,
    /// Its password, sent over this connection: in clear, unless it speaks TLS.
    pub password: String,
    /// Speak TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// What the client calls itself, for the broker's logs.
    pub name: String,
    /// Longest time to connect and authenticate.
    pub connect_timeout: Duration,
    /// Longest time for an answer, on top of what a fetch itself waits.
    pub request_timeout: Duration,
    /// How long a consumer or a subscription that lost its connection tries to get a new one before it
    /// reports the loss; zero reports it at once. Requests on a [`Client`] always report it.
    pub reconnect_for: Duration,
    /// Seed of the jitter between such tries; drawn anew for each `Options`.
    pub seed: u64,
    /// Whether records travel with checksums, both ways, when the broker can. Costs one pass over them.
    pub checksums: bool,
    /// Whether a [`Producer`] and an [`Outbox`] number what they send, when the broker can, so that they may send again
    /// what was not answered without storing it twice.
    pub idempotent: bool,
    /// How long they do so, from when a batch was sent first.
    pub retry_for: Duration,
    /// Requests in flight before the next one waits, at least 1.
    pub in_flight_max: usize,
    /// Largest frame taken from the broker, and largest request sent, bytes.
    pub frame_bytes_max: usize,
}

impl Options {
    /// The usual bounds.
    #[must_use]
    pub fn new(address: impl Into<String>, user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            others: Vec::new(),
            user: user.into(),
            password: password.into(),
            #[cfg(feature = "tls")]
            tls: None,
            name: concat!("malachi-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            reconnect_for: Duration::from_secs(30),
            // The standard library seeds each of these from the operating system.
            seed: RandomState::new().build_hasher().finish(),
            checksums: true,
            idempotent: true,
            retry_for: Duration::from_secs(120),
            in_flight_max: 256,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
        }
    }
}

impl std::fmt::Debug for Options {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("address", &self.address)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
