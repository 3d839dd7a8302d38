//! The Rust client.
//!
//! Owns the client's side of a connection. [`link`] is pure: bytes in, answers out, so that the simulator can
//! drive it; the feature `tcp` (on by default) adds [`Client`], [`Producer`] and the connection under them.
//! Does not consume push streams and does not speak TLS yet.

pub mod batch;
mod error;
pub mod link;
#[cfg(feature = "tcp")]
mod tcp;

pub use batch::Batch;
pub use error::Error;
#[cfg(feature = "tcp")]
pub use tcp::{Client, Options, Producer, Progress};
pub use types::record::{Header, Record};
pub use wire::request::Fetch;
pub use wire::response::Page;
pub use wire::{Effect, Reason, Retry};
