//! The engine: `raft` 0.7 (raft-rs), and the only place that names its types beside `group`.
//!
//! Owns the translation of our words into the engine's and back, and the in-memory log the engine reads. Decides
//! nothing.
//!
//! What it costs, and why that is acceptable:
//! - the engine depends on `protobuf` 2 and on `fxhash`, which advisories name (RUSTSEC-2024-0437: unbounded
//!   recursion when untrusted bytes are parsed; RUSTSEC-2025-0057: unmaintained). No byte from the network or the
//!   disk is ever parsed by them here: every message and entry goes through our own codec. The one parse there is
//!   reads back what the engine itself wrote a moment earlier, a proposed change of members on the leader. Whoever
//!   audits dependencies exempts the two by name with this reason;
//! - `raft-proto` builds its types with a protocol compiler that it brings along: none has to be installed;
//! - it draws election timeouts from a generator nobody seeded. The range is made one wide and out of reach, so
//!   that every draw is the same and never matters; elections are `group::election`'s, with timeouts of our own;
//! - its log lines are compiled out.

mod convert;
mod log;

pub(crate) use convert::{
    Translation, amendment_to_engine, entry_from_engine, message_from_engine, message_to_engine,
    snapshot_message,
};
pub(crate) use log::Log;
pub(crate) use raft_engine::eraftpb;
pub(crate) use raft_engine::{ProgressState, SnapshotStatus, StateRole};

use raft_engine::{Config, RawNode, ReadOnlyOption};
use types::limits;

use crate::members::ReplicaId;

/// Nobody, where the engine wants a replica.
pub(crate) const NOBODY: u64 = 0;

/// The engine of one group.
pub(crate) type Engine = RawNode<Log>;

/// What an engine is made with.
pub(crate) struct Settings {
    pub(crate) replica: ReplicaId,
    pub(crate) applied: u64,
    pub(crate) election_ticks: usize,
    pub(crate) heartbeat_ticks: usize,
}

/// An engine over what the log holds.
pub(crate) fn engine(settings: &Settings, log: Log) -> Result<Engine, raft_engine::Error> {
    let config = Config {
        id: settings.replica.0,
        applied: settings.applied,
        election_tick: settings.election_ticks,
        heartbeat_tick: settings.heartbeat_ticks,
        // One wide, and never reached.
        min_election_tick: usize::MAX - 1,
        max_election_tick: usize::MAX,
        max_size_per_msg: limits::RAFT_APPEND_BYTES as u64,
        max_inflight_msgs: limits::RAFT_APPENDS_IN_FLIGHT_MAX,
        max_uncommitted_size: limits::RAFT_UNCOMMITTED_BYTES_MAX as u64,
        check_quorum: true,
        pre_vote: true,
        read_only_option: ReadOnlyOption::Safe,
        ..Config::default()
    };
    let silent = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, log, &silent)
}
