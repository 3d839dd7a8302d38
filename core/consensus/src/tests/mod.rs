//! Hosts driven step by step; the tests play the disks, the network and the clock.

#![allow(clippy::unwrap_used)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it looks for")]

mod damage;
mod disk;
mod life;
mod members;
mod outcomes;
mod strangers;
mod world;
