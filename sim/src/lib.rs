//! The deterministic simulator: a second driver of the same core.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a judge names what it knows; everything else meets the same verdict"
)]

pub mod broker;
pub mod cluster;
pub mod consensus;
pub mod disk;
pub mod invariants;
pub mod membership;
pub mod outcome;
pub mod raft;
pub mod raft_log;
pub mod scale;
pub mod store;
pub mod upkeep;
