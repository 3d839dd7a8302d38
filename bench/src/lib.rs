//! The storage engine measured against the machine it runs on, in one run.
//!
//! Each case does the same work twice: by plain system calls (the *raw* side) and through
//! [`storage::store::Store`] over the server's disk (*ours*), in turns, so that what else the machine does
//! falls on both. Afterwards everything ours acknowledged is read back through a store opened anew and
//! compared with what was meant to be written; a difference ends the run as an error.
//!
//! Owns the load, the raw side, the comparison and the numbers. Decides nothing about the engine: what it
//! tunes, it tunes through [`storage::store::Config`], and says so in the row's name.
//!
//! - No number is reported for data that was not read back.
//! - Payloads come from a seeded generator and do not compress.
//! - What the connection tasks do in a server (the plain checksum of a body) is done before the clock starts.

mod cases;
mod check;
mod copy;
mod engine;
mod machine;
mod measure;
mod payload;
mod raw;
mod report;

pub use cases::{Case, Plan, run};
pub use machine::Machine;
pub use measure::Stat;
pub use report::{Goal, Report, Row};
