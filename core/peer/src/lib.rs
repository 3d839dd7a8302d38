//! What nodes say to each other: one connection as a pure machine, and the messages it carries.
//!
//! Owns the handshake that proves both sides, frames, streams with their windows and the order in which they are
//! served, calls with their deadlines, and the bytes of every message (`docs/peer.md` lists them). Knows nothing of
//! what Raft messages, commands and forwarded requests say: they are opaque bytes here. Opens no socket, reads no
//! clock, draws no randomness: whoever drives a [`Link`] brings all three.
//!
//! Invariants:
//! - nothing but the handshake is decoded before the peer has proved what it claims to be;
//! - decoding is total: any bytes give a message or an error, never a panic, and nothing is allocated for a length
//!   or a count that the bytes at hand do not back;
//! - messages of one stream arrive whole, once and in the order they were sent, as long as the connection lasts;
//! - every buffer has a bound, and whatever the peer sends cannot move it.

mod hello;
mod link;
pub mod message;
mod proof;
mod refusal;
mod rope;
mod stream;

pub use hello::{Claim, Peer};
pub use link::{CallFailure, CallId, Error, Link, Parcel, Received, Setup, Unsent};
pub use message::Message;
pub use proof::{Authentication, Secret, SecretTooShort, Trust};
pub use refusal::Refusal;
pub use rope::Rope;
pub use stream::{Class, StreamId};
