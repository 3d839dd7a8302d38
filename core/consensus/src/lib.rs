//! Every Raft group of one node, over one log and one clock.
//!
//! Owns which replicas this node is and was (`registry`), the way between a group's words and the log's
//! (`host::ledger`), one tick for all groups, and what nodes tell each other about a group beside its own messages
//! (`letter`). Does not know what an entry says, where nodes are, or how bytes travel.
//!
//! Invariants:
//! - a node is a replica only after its own list, which is in the same log, says so durably; it is never again a
//!   replica of a number it once was, whatever became of the files;
//! - what a replica that was replaced had stored is gone before its successor begins;
//! - a replica that left answers on until a leader says that it may forget;
//! - a snapshot that replaces a log is durable before anything that was asked for after it is begun.

pub mod action;
pub mod beats;
pub mod host;
pub mod letter;
#[cfg(feature = "planted")]
pub mod planted;
mod registry;
#[cfg(test)]
mod tests;

pub use action::{Action, Stop};
pub use beats::Beat;
pub use host::{Config, Host};
pub use letter::Letter;
