//! One node: routes each event to the machine that owns it.
//!
//! [`Node::step`] takes an [`Event`] and appends [`Action`]s; a driver performs them and brings back what came
//! of them as further events. Nothing here reads a clock, opens a file or draws randomness.
//!
//! ```text
//! Request ─▶ produce ─▶ segments ─▶ ending        Request ─▶ fetch ─▶ reading ─▶ cut
//!                │          │          │                       │         │
//!              route ───────┴── meta ──┴───────────────────────┴─────────┘
//!                                 └─▶ ledger            store (core/storage)
//! ```

pub mod action;
pub mod auth;
pub mod config;
pub mod event;
pub mod node;

mod admin;
pub mod commit;
mod cut;
mod ending;
pub mod fetch;
mod ledger;
pub mod meta;
pub mod planted;
pub mod produce;
mod random;
mod reading;
mod route;
mod segments;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests;
mod waiters;

pub use action::{Action, Actions, Cause, Fetched, Notice, Reply, Stop};
pub use auth::{Operation, Permissions, Session};
pub use config::Config;
pub use event::{Commit, ConnectionId, Event, Fetch, Produce, Request, RequestId, Volume};
pub use node::Node;
