//! Drills: three real brokers on three hosts, real clients, and everything done to them that a cluster has to
//! outlive. They take minutes and a machine that permits network namespaces: `make drill-chaos` and
//! `make drill-storage` ask for them.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod drill;
mod process;

use drill::{Asked, chaos, storage};

#[test]
fn nothing_acknowledged_is_lost_whatever_becomes_of_processes_and_links() {
    let Some(asked) = Asked::of("chaos") else { return };
    chaos::run(asked);
}

#[test]
fn nothing_acknowledged_is_lost_whatever_becomes_of_files_and_volumes() {
    let Some(asked) = Asked::of("storage") else { return };
    storage::run(asked);
}
