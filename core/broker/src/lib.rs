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

mod cluster;
pub mod commit;
mod cut;
mod ending;
pub mod fetch;
pub mod gauges;
mod groups;
mod inspect;
mod ledger;
mod login;
pub mod meta;
mod place;
pub mod planted;
pub mod produce;
mod random;
mod reading;
mod replace;
mod replica;
mod rests;
mod route;
mod seek;
mod segments;
mod streams;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests;
mod tiles;
mod topics;
mod users;
mod waiters;

pub use action::{
    Action, Actions, Cause, Credentials, Fetched, GroupInfo, MemberInfo, Notice, RangeInfo, RangeState,
    Reply, Run, Stop, TopicSummary, UserInfo,
};
pub use auth::{Operation, Permissions, Session};
pub use config::{Config, SeedUser};
pub use event::{
    Admin, Commit, ConnectionId, Event, Fetch, Form, Login, Membership, Produce, Request, RequestId, Right,
    StreamAck, Subscribe, Users, Volume,
};
pub use gauges::Gauges;
pub use metadata::cluster::LockoutRules;
pub use node::Node;
