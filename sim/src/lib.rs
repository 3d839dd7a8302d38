//! The deterministic simulator: a second driver of the same core.

pub mod broker;
pub mod disk;
pub mod invariants;
pub mod raft_log;
pub mod store;
