//! One node: routes each event to the machine that owns it.
//!
//! [`Node::step`] takes an [`Event`] and appends [`Action`]s; a driver performs them and brings back what came
//! of them as further events. Nothing here reads a clock, opens a file or draws randomness.
//!
//! ```text
//! Request ─▶ produce ─▶ segments ─▶ ending        Request ─▶ fetch ─▶ reading ─▶ cut
//!                │          │          │                       │         │
//!              route ───────┴── meta ──┴───────────────────────┴─────────┘
//!                                 └─▶ core/consensus     store (core/storage)
//! ```

pub mod action;
pub mod auth;
pub mod config;
pub mod event;
mod explain;
pub mod node;

mod ahead;
mod behind;
mod cluster;
pub mod commit;
mod control;
mod copies;
mod cut;
mod elsewhere;
mod ending;
pub mod fetch;
mod followers;
mod gather;
pub mod gauges;
mod groups;
pub mod healing;
mod holders;
mod inspect;
mod late;
mod liveness;
mod login;
mod loss;
pub mod meta;
mod orphans;
mod outlet;
mod owner;
mod peers;
mod place;
pub mod planted;
mod policies;
pub mod produce;
mod producers;
mod progress;
mod random;
mod reading;
mod replace;
mod resize;
mod rests;
mod retention;
mod route;
mod scrub;
mod seek;
mod segments;
mod skips;
mod spread;
mod streams;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests;
mod tiles;
mod topics;
pub mod upkeep;
mod users;
mod waiters;
mod watch;
#[cfg(feature = "planted")]
pub mod witness;

pub use ::placement::place::Policy as PlacementPolicy;
pub use action::{
    Action, Actions, Cause, Credentials, Effective, Fetched, GroupInfo, MemberInfo, Notice, RangeInfo,
    RangeState, Reply, Run, Source, Stop, TopicPolicy, TopicSummary, Unlisted, UserInfo,
};
pub use auth::{Operation, Permissions, Role, Session};
pub use config::{Config, Formation, MinDomains, Own, Placement, Rebalance, SeedUser, Sweep, Timing};
pub use control::FLAGS;
pub use event::{
    Admin, AskId, CallId, Commit, ConnectionId, Event, Fetch, Form, Login, Membership, OfCluster, PeerEvent,
    Policies, Produce, Request, RequestId, Right, StreamAck, Subscribe, Users, Volume,
};
pub use gauges::{ClusterGauges, Gauges};
pub use metadata::cluster::{LockoutRules, Policy, Setting};
pub use node::Node;
