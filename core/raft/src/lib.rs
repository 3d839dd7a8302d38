//! One replicated log agreed by one group.
//!
//! Owns terms, votes, the commit index, the members, and the order in which entries are applied. Does not know what
//! an entry says, where entries are stored, how messages travel, or what time it is: it takes an [`Event`] and
//! returns [`Action`]s.
//!
//! The engine behind it is a library (`engine`), which nothing outside this crate sees. Callers must not rely on a
//! group's size: a proposal can be refused by a follower, its outcome can stay unknown, and a read can have to wait
//! for a quorum. A group of one needs no ticks and leads as soon as its first write is durable.

mod engine;
mod entry;
pub mod event;
pub mod group;
pub mod image;
pub mod members;
pub mod message;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(test)]
mod tests;

pub use event::{
    Action, Entry, EntryId, Event, HardState, Persist, PersistId, ProposalId, ReadId, Refusal, Role,
    Snapshot, SnapshotMark, SnapshotOrder,
};
pub use group::{Config, Error, Group, PeerView, Recovered};
pub use image::Image;
pub use members::{Change, Member, Members, Part, ReplicaId, Unchangeable};
pub use message::{Body, Message};
