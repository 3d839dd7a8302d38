//! Segments and Raft logs as bytes, over a small [`disk::Disk`] trait.
//!
//! Everything here is a state machine that emits disk jobs and consumes their completions; it never waits,
//! and it knows neither quorums nor topics.

pub mod disk;
pub mod format;
pub mod planted;
pub mod raft_log;
mod recovery;
pub mod segment;
pub mod store;
