//! Time, and what happens when.
//!
//! Everything that will happen is in one queue, by time and then by order of decision. Whatever belongs to a
//! process or a connection that is gone by then is dropped when its turn comes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::Completion;
use types::{NodeId, limits};

use super::audit::Audit;
use super::client::Client;
use super::cuts::Begun;
use super::logins::{self, Logins};
use super::model::{CallId, Life, Model};
use super::network::{Conn, ConnId};
use super::process::Process;
use super::trace::Failure;
use super::weather::Weather;
use super::workload::{Call, TOPICS};
use super::{Options, Summary};
use crate::disk::{Faults, NameLoss, SimDisk};
use crate::invariants::{Violation, ensure};

/// Happenings in one run: far more than any seed has. A node that keeps itself busy is found by it.
const HAPPENINGS_MAX: u64 = 2_000_000;
/// Happenings at one instant.
const AT_ONCE_MAX: u32 = 20_000;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// A process starts.
    Start,
    /// The process ends, unless it is another by then.
    End(Life),
    /// A disk runs one step.
    DiskStep(usize, Life),
    /// A job's completion reaches the node.
    DiskDone(usize, Life, Completion),
    /// A burst of events is over.
    Flush(Life),
    /// The node asked to be woken.
    Wake(Life, u64),
    /// Bytes reach the node's end of a connection.
    ToEdge(ConnId, Bytes),
    /// The node's end may have something to start.
    EdgeTurn(ConnId),
    /// The node's end learns that the client is gone.
    Gone(ConnId),
    /// The node's end closes.
    Close(ConnId),
    /// Bytes reach the client.
    ToClient(ConnId, Bytes),
    /// The client learns that the connection is over.
    Cut(ConnId),
    /// The last push of a stream is written.
    Pushed(Life, broker::RequestId),
    /// A client has time to do something.
    Think(usize),
    /// Time passes.
    Nothing,
}

/// The simulated world.
pub(super) struct World {
    pub(super) options: Options,
    /// Of clients and network.
    pub(super) rng: SmallRng,
    /// Of faults, so that another workload meets the same ones.
    pub(super) chaos: SmallRng,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    at_once: u32,
    pub(super) disks: [SimDisk; 2],
    pub(super) process: Option<Process>,
    pub(super) weather: Weather,
    pub(super) clients: Vec<Client>,
    pub(super) conns: BTreeMap<ConnId, Conn>,
    pub(super) conn_next: u64,
    pub(super) calls: Vec<Call>,
    /// Calls the node has and has not answered.
    pub(super) waiting: BTreeMap<broker::RequestId, CallId>,
    /// Calls whose client went away while they might wait; the node may still answer each once.
    pub(super) dropped: BTreeSet<broker::RequestId>,
    pub(super) model: Model,
    pub(super) logins: Logins,
    pub(super) audit: Audit,
    pub(super) begun: Begun,
    /// Active ranges of a topic at which operators rather merge.
    pub(super) ranges_most: usize,
    pub(super) config: broker::Config,
    pub(super) lives_left: u32,
    /// The faults are over: processes end only when told to.
    pub(super) healing: bool,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x636c_6965_6e74_7300);
        let mut chaos = SmallRng::seed_from_u64(seed.rotate_left(29) ^ 0x6368_616f_7300);
        let mut faults = Faults::none();
        if chaos.random_bool(0.3) {
            faults.names = NameLoss::Prefix;
        }
        let mut disks = [SimDisk::new(seed, faults.clone()), SimDisk::new(!seed, faults)];
        if options.verbose {
            disks.iter_mut().for_each(SimDisk::record_trace);
        }
        let config = config(seed, options, &mut rng);
        let clients = (0..rng.random_range(2..8)).map(|number| Client::new(number, &mut rng)).collect();
        let ranges_most = [1, 2, 4, 8, 16][rng.random_range(0..5)];
        Self {
            options,
            ranges_most,
            audit: Audit::default(),
            begun: Begun::default(),
            lives_left: chaos.random_range(1..7),
            rng,
            chaos,
            now: 1,
            queue: BTreeMap::new(),
            happened: 0,
            at_once: 0,
            disks,
            process: None,
            weather: Weather::default(),
            clients,
            conns: BTreeMap::new(),
            conn_next: 1,
            calls: Vec::new(),
            waiting: BTreeMap::new(),
            dropped: BTreeSet::new(),
            model: Model::new(&TOPICS),
            logins: Logins::default(),
            config,
            healing: false,
            summary: Summary::default(),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let disks = self.disks[0].trace_hash() ^ self.disks[1].trace_hash().rotate_left(1);
        Summary { trace: self.summary.trace ^ disks, micros: self.now, ..self.summary }
    }

    pub(super) fn failure(&self, seed: u64, violation: Violation) -> Failure {
        Failure { seed, lives: self.summary.lives, violation }
    }

    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        if self.options.verbose {
            #[expect(clippy::print_stderr, reason = "asked for by the person who replays a seed")]
            {
                eprintln!("{:>12} {}", self.now, line());
            }
        }
    }

    /// Mixes something that happened into the run's digest.
    pub(super) fn note(&mut self, word: u64) {
        self.summary.trace =
            self.summary.trace.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word ^ self.now;
    }

    /// Decides that something happens so many microseconds from now.
    pub(super) fn after(&mut self, micros: u64, happening: Happening) {
        self.at(self.now + micros, happening);
    }

    pub(super) fn at(&mut self, time: u64, happening: Happening) {
        self.happened += 1;
        self.queue.insert((time, self.happened), happening);
    }

    /// The part with faults: process after process, until there have been enough.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        self.after(0, Happening::Start);
        for client in 0..self.clients.len() {
            self.after(0, Happening::Think(client));
        }
        while self.lives_left > 0 {
            self.happen()?;
        }
        Ok(())
    }

    /// Lets the next thing happen; false when nothing will.
    pub(super) fn happen(&mut self) -> Result<bool, Violation> {
        let Some(((time, _), happening)) = self.queue.pop_first() else { return Ok(false) };
        self.at_once = if time == self.now { self.at_once + 1 } else { 0 };
        ensure(self.at_once < AT_ONCE_MAX && self.happened < HAPPENINGS_MAX, "LIVELOCK", || {
            format!("{} things happened, {} of them at one instant", self.happened, self.at_once)
        })?;
        self.now = time;
        match happening {
            Happening::Start => self.start_process()?,
            Happening::End(life) => self.end_process_of(life),
            Happening::DiskStep(volume, life) => self.disk_step(volume, life)?,
            Happening::DiskDone(volume, life, completion) => self.disk_done(volume, life, completion)?,
            Happening::Flush(life) => self.flush_of(life)?,
            Happening::Wake(life, at) => self.wake(life, at)?,
            Happening::ToEdge(conn, bytes) => self.edge_received(conn, &bytes),
            Happening::EdgeTurn(conn) => self.edge_turn(conn)?,
            Happening::Gone(conn) => self.edge_gone(conn)?,
            Happening::Close(conn) => self.close_edge(conn)?,
            Happening::ToClient(conn, bytes) => self.client_received(conn, &bytes)?,
            Happening::Cut(conn) => self.client_cut(conn)?,
            Happening::Pushed(life, stream) => self.pushed(life, stream)?,
            Happening::Think(client) => self.think(client)?,
            Happening::Nothing => {}
        }
        Ok(true)
    }
}

/// A node with limits so small that everything rolls, overflows and closes all the time.
fn config(seed: u64, options: Options, rng: &mut SmallRng) -> broker::Config {
    let mut config = broker::Config::new(NodeId(u128::from(seed) + 1), 0);
    config.segment_bytes = [200, 600, 2000, 10_000][rng.random_range(0..4)];
    config.frame_bytes_max = [limits::FRAME_BYTES_MIN, 2500, 20_000][rng.random_range(0..3)];
    config.waiters_max = [1, 3, 100][rng.random_range(0..3)];
    config.snapshot_entries = [10, 40, 100_000][rng.random_range(0..3)];
    config.store.open_copies_max = rng.random_range(1..4);
    config.store.tail_cache_bytes = [0, 500, 1 << 20][rng.random_range(0..3)];
    config.store.queue_max = [3, 1000][usize::from(rng.random_bool(0.7))];
    config.store.preallocate_bytes = [(0, 0), (64, 512), (600, 3000)][rng.random_range(0..3)];
    config.store.preallocate_below_bytes = 2000;
    config.store.recycled_files_max = rng.random_range(0..3);
    config.store.recycled_bytes_min = 100;
    config.store.spare_files_max = rng.random_range(0..3);
    config.store.spare_bytes = [600, 3000][rng.random_range(0..2)];
    config.store.spare_piece_bytes = 1000;
    config.store.journal_bytes = [0, 6000, 100_000][rng.random_range(0..3)];
    config.store.journal_copies_min = rng.random_range(1..4);
    config.store.journal_part_bytes_max = [300, 3000][rng.random_range(0..2)];
    config.raft_log.file_bytes = [4096, 16_384][rng.random_range(0..2)];
    config.seed_users = logins::everybody();
    config.lockout = logins::rules();
    config.segment_age = rng.random_bool(0.3).then(|| Duration::from_secs(rng.random_range(1..20)));
    // What a start finds is gone before long, and somebody reads sealed copies beside everybody else.
    config.orphan_sweep.every = Duration::from_secs(1);
    config.orphan_sweep.min_age = Duration::from_secs(1);
    config.scrub.every = rng.random_bool(0.5).then(|| Duration::from_secs(rng.random_range(1..10)));
    config.bug = options.bug;
    config
}
