//! One replicated log agreed by one group.
//!
//! Owns terms, votes, the commit index, and the order in which entries are applied. Does not know what an
//! entry says, where entries are stored, or what time it is: it takes an [`Event`] and returns [`Action`]s.
//!
//! This is the seam behind which the engine for groups of several members comes; today a group has one
//! member, and [`Group::new`] says so to anyone who asks for more. Callers must not rely on that: a proposal
//! can be refused by a follower, its outcome can stay unknown, and a read can have to wait for a quorum.

pub mod event;
pub mod group;
#[cfg(test)]
mod tests;

pub use event::{
    Action, Entry, Event, HardState, Persist, PersistId, ProposalId, ReadId, Refusal, Role, SnapshotMark,
};
pub use group::{Config, Error, Group, Recovered};
