//! The Rust client.
//!
//! Owns the client's side of a connection. [`link`] and [`backoff`] are pure: bytes in, answers out, pauses
//! from a seed, so that the simulator can drive them; the feature `tcp` (on by default) adds [`Client`] and
//! what is made from one, the feature `tls` (on by default too) [`Tls`].
//!
//! | to | use |
//! |---|---|
//! | append single records | [`Outbox`]: gathers by itself, a receipt for each |
//! | append batches of one's own | [`Producer`]: many requests under way, exact counts |
//! | read page by page | [`Consumer`]: by cursor, for a group, or a member's share |
//! | have records pushed | [`Subscription`]: credit, commits and heartbeats by themselves |
//! | manage topics, ranges, groups, users, the cluster | [`Client`] |
//!
//! Each has a program to run in `examples/`. Records, cursors and names of groups are bytes; topics and users
//! are text.
//!
//! What an error may have left behind is [`Error::effect`]: after [`Effect::None`] sending again duplicates
//! nothing.

pub mod backoff;
pub mod batch;
mod error;
#[cfg(feature = "tcp")]
mod identity;
pub mod link;
#[cfg(feature = "tcp")]
mod tcp;

pub use batch::Batch;
pub use error::Error;
#[cfg(feature = "tcp")]
pub use tcp::{
    Client, Consumer, ConsumerBuilder, GroupMove, GroupTarget, Options, Outbox, OutboxOptions, Producer,
    Progress, Push, Receipt, Subscription, SubscriptionBuilder, Transport,
};
#[cfg(feature = "tls")]
pub use tcp::{Tls, TlsFiles, TlsUnusable};
pub use types::record::{Header, Record};
pub use types::{NodeId, VnodeId};
pub use wire::request::{Depth, Fetch, NodeChange, Produce, ProduceBatch, ProduceOnce, Subject};
pub use wire::response::{
    BatchPage, ClusterNode, ClusterStatus, CopyHealth, CopyInfo, Explanation, Flag, FlagEnabled, Flags,
    Grant, GroupInfo, GroupMember, GroupNames, Hello, MemberInfo, NodeChanged, NodeHealth, NodeState, Page,
    RangeInfo, RangeState, Rebalancing, Resharding, RingPage, RingStep, SegmentInfo, SegmentPage, TopicInfo,
    TopicState, TopicSummaries, TopicSummary, User, UserPage, UserV2, Verdict, VnodeInfo, VnodeMove,
};
pub use wire::{Effect, Payload, Reason, Request, Response, Retry, Str, features};
