//! The client protocol: bytes to messages and back, nothing else.
//!
//! Owns frames, requests, responses and the reasons a request can fail for (`docs/wire.md` lists them all).
//! Does not know who is connected, what a topic is or whether an operation is allowed; opens no socket.
//!
//! Invariants:
//! - decoding is total: any bytes give a message or an error, never a panic, and nothing is allocated for a
//!   length or a count that the bytes at hand do not back;
//! - a decoder consumes its payload exactly, and `decode(encode(x)) == x`;
//! - records pass through as shared slices: they are walked once when they come in and never built again.

pub mod api_key;
pub mod features;
pub mod frame;
pub mod gather;
pub mod reason;
pub mod request;
pub mod response;

pub use api_key::ApiKey;
pub use gather::Gather;
pub use reason::{Effect, Reason, Retry};
pub use request::Request;
pub use response::{BatchPage, Page, Payload, Response};

use bytes::Bytes;

/// A byte string that may be null; null and empty differ, and the bytes need not be text.
pub type Str = Option<Bytes>;

/// The payload is not what its operation says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(#[from] pub types::codec::Error);
