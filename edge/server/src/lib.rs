//! The driver: sockets, disks, time and threads around one node.
//!
//! [`run()`] is the whole server: it reads the configuration, makes every check, opens the data directories,
//! recovers, serves, and shuts down when asked to. What the node decides is decided in `core/`; this crate
//! performs it.
//!
//! ```text
//! tcp (tasks) ──▶ driver (core thread: node.step) ──▶ disk (storage threads)
//!      ◀── answers ──┘        ◀── completions ────────────┘
//! ```

mod audit;
mod boot;
mod clock;
mod cluster;
pub mod config;
mod descriptors;
pub mod disk;
mod driver;
mod http;
mod identity;
mod line;
mod metrics;
mod notices;
pub mod peer;
mod run;
mod tcp;
mod telemetry;
mod tls;

pub use run::{Options, run};
