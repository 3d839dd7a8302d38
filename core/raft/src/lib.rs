//! One replicated log agreed by one group.
//!
//! Owns terms, votes, the commit index, the members, and the order in which entries are applied. Does not know what
//! an entry says, where entries are stored, how messages travel, or what time it is: it takes an [`Event`] and
//! returns [`Action`]s.
//!
//! The engine behind it is a library (`engine`), which nothing outside this crate sees. Callers must not rely on a
//! group's size: a proposal can be refused by a follower, its outcome can stay unknown, and a read can have to wait
//! for a quorum. A group of one needs no ticks and leads as soon as its first write is durable.
//!
//! What a node that hosts members must do, beside performing actions in their order:
//! - it becomes a replica when it first hears a message for one with a higher number than any it ever was
//!   ([`Message::to`], [`Config::replica`]), and forgets what it was before;
//! - it remembers the highest number it ever was outside the group's own storage, and never becomes that or a lower
//!   one from nothing: a replica whose storage was lost is removed and comes back as another;
//! - a replica that was removed answers on until a leader says that it may forget ([`Group::may_forget`]);
//! - a [`Persist`] with a snapshot is durable before those asked for after it are begun.

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

pub use entry::command_of;
pub use event::{
    Action, Contradiction, Entry, EntryId, Event, HardState, Persist, PersistId, ProposalId, ReadId, Refusal,
    Role, Snapshot, SnapshotMark, SnapshotOrder,
};
pub use group::{Config, Error, Group, PeerView, Recovered};
pub use image::Image;
pub use members::{Change, Member, Members, Part, ReplicaId, Unchangeable};
pub use message::{Body, Message};
