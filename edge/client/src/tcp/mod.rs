//! The client over TCP: one connection, any number of requests in flight on it.

mod client;
mod connection;
mod producer;
mod socket;

pub use client::Client;
pub use producer::{Producer, Progress};

use std::time::Duration;

use types::limits;

/// How to reach a broker and as whom.
#[derive(Clone)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    /// The user.
    pub user: String,
    /// Its password, sent in clear over this connection.
    pub password: String,
    /// Longest time to connect and authenticate.
    pub connect_timeout: Duration,
    /// Longest time for an answer, on top of what a fetch itself waits.
    pub request_timeout: Duration,
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
            user: user.into(),
            password: password.into(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
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
