//! Groups driven event by event; the tests play the storage, the network and the clock.

#![allow(clippy::unwrap_used)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it looks for")]

mod alone;
mod away;
mod durability;
mod harness;
mod hostile;
mod reconfigure;
mod replication;
mod snapshots;
