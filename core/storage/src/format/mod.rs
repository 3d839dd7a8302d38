//! Bytes that outlive us: headers, checksums, versions. One file for each kind.

pub mod batch;
pub mod index;
pub mod journal;
pub mod meta;
pub mod raft_log;
pub mod raft_snapshot;
