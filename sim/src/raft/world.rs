//! Time, and what happens when.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use raft::{Config, Event, SnapshotMark};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::NodeId;

use super::judge::Judge;
use super::links::Links;
use super::member::Node;
use super::{Options, Summary};
use crate::invariants::{Violation, ensure};
use crate::outcome;

/// Happenings in one run: far more than any seed has. A group that keeps itself busy is found by it.
const HAPPENINGS_MAX: u64 = 3_000_000;

/// Something that will happen. What belongs to a process that is gone by then is dropped when its turn comes.
#[derive(Debug)]
pub(super) enum Happening {
    Deliver(NodeId, NodeId, Bytes),
    Tick(NodeId, u64),
    /// A change, or a snapshot, reaches the disk.
    Written(NodeId, u64, bool),
    Loaded(NodeId, u64, SnapshotMark),
    Boot(NodeId),
    /// Somebody sees to a node whose disk failed.
    Restart(NodeId),
    /// Clients ask for something.
    Ask,
    /// The weather changes.
    Weather,
}

/// The simulated world.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) seed: u64,
    /// Of clients.
    pub(super) rng: SmallRng,
    /// Of faults.
    pub(super) chaos: SmallRng,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) founders: Vec<NodeId>,
    pub(super) config: Config,
    pub(super) network: Links<Bytes>,
    /// Nodes that are switched off until their time comes.
    pub(super) is_down: BTreeSet<NodeId>,
    /// Slow disks and how slow.
    pub(super) slow: BTreeMap<NodeId, u64>,
    pub(super) judge: Judge,
    /// Of commands, proposals and reads.
    pub(super) numbers: u64,
    /// Changes of members that were asked for and that may yet happen: those nobody answers stay for ever.
    pub(super) changing: u32,
    /// A node lost its files in this run.
    pub(super) lost_before: bool,
    /// How often members change in this run: one in so many requests; 0 for never.
    pub(super) change_every: u32,
    /// Whether what messages disclose is judged also with a bug in: in half of the runs only what comes of it.
    pub(super) reads_messages: bool,
    pub(super) healing: bool,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x6167_7265_6500);
        let mut chaos = SmallRng::seed_from_u64(seed.rotate_left(31) ^ 0x7765_6174_6865_7200);
        let founding: u128 = [1, 3, 3, 3, 5][rng.random_range(0..5)];
        let spare: u128 = rng.random_range(0..3);
        let spare = if founding == 1 { spare.max(1) } else { spare };
        let founders: Vec<NodeId> = (1..=founding).map(|number| NodeId(number << 64 | number)).collect();
        let ids = (1..=founding + spare).map(|number| NodeId(number << 64 | number));
        let node = |id| (id, Node::new(id, founders.contains(&id), chaos.random_range(80_000..120_000)));
        let nodes: BTreeMap<NodeId, Node> = ids.map(node).collect();
        let config = Config {
            snapshot_entries: [8, 30, 200, 1_000_000][rng.random_range(0..4)],
            snapshot_bytes: [200, 2000, 100_000][rng.random_range(0..3)],
            part_bytes: [64, 200, 100_000][rng.random_range(0..3)],
            ..Config::joining(NodeId(0))
        };
        let network = Links::new(3000, chaos.random_bool(0.5));
        Self {
            options,
            seed,
            nodes,
            founders,
            config,
            network,
            change_every: if rng.random_bool(0.6) { rng.random_range(5..80) } else { 0 },
            reads_messages: rng.random_bool(0.5),
            rng,
            chaos,
            now: 1,
            queue: BTreeMap::new(),
            happened: 0,
            is_down: BTreeSet::new(),
            slow: BTreeMap::new(),
            judge: Judge::default(),
            numbers: 0,
            changing: 0,
            lost_before: false,
            healing: false,
            summary: Summary::default(),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { micros: self.now, ..self.summary }
    }

    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        outcome::say(self.options.verbose, self.now, line);
    }

    /// Mixes something that happened into the run's digest.
    pub(super) fn note(&mut self, what: u64) {
        self.summary.trace = outcome::mixed(self.summary.trace, what, self.now);
    }

    pub(super) fn later(&mut self, delay: u64, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    pub(super) fn at(&mut self, at: u64, happening: Happening) {
        self.numbers += 1;
        self.queue.insert((at, self.numbers), happening);
    }

    pub(super) fn rng_chance(&mut self, chance: f64) -> bool {
        !self.healing && self.chaos.random_bool(chance)
    }

    /// The part of the run in which things go wrong.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            let delay = self.chaos.random_range(0..500_000);
            self.later(delay, Happening::Boot(id));
        }
        self.later(1_000_000, Happening::Ask);
        self.later(2_500_000, Happening::Weather);
        let end = self.rng.random_range(10_000_000..45_000_000);
        self.run_until(end)
    }

    pub(super) fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some((&(at, number), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let happening = self.queue.remove(&(at, number)).expect("it was just seen");
            self.now = at;
            self.happened += 1;
            ensure(self.happened < HAPPENINGS_MAX, "LIVENESS", || {
                "the group never comes to rest".to_owned()
            })?;
            self.happen(happening)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Deliver(from, to, bytes) => self.deliver(from, to, bytes),
            Happening::Boot(id) => {
                self.is_down.remove(&id);
                self.boot(id)
            }
            Happening::Restart(id) => self.restart(id),
            Happening::Ask => self.ask(),
            Happening::Weather => self.change_weather(),
            Happening::Tick(id, life) => self.ticked(id, life),
            Happening::Written(id, life, is_save) => match self.awake(id, life) {
                Awake::Gone => Ok(()),
                Awake::At(at) => {
                    self.at(at, Happening::Written(id, life, is_save));
                    Ok(())
                }
                Awake::Now => self.written(id, is_save),
            },
            Happening::Loaded(id, life, mark) => match self.awake(id, life) {
                Awake::Gone => Ok(()),
                Awake::At(_) | Awake::Now => self.loaded(id, mark),
            },
        }
    }

    fn ticked(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let tick_micros = self.nodes[&id].tick_micros;
        match self.awake(id, life) {
            Awake::Gone => Ok(()),
            // A process that was stopped ticks once when it goes on: what is missed is missed.
            Awake::At(at) => {
                self.at(at, Happening::Tick(id, life));
                Ok(())
            }
            Awake::Now => {
                self.later(tick_micros, Happening::Tick(id, life));
                self.step(id, Event::Tick)
            }
        }
    }

    /// Whether a process of that life can act.
    fn awake(&self, id: NodeId, life: u64) -> Awake {
        let node = &self.nodes[&id];
        if node.life != life || node.process.is_none() {
            Awake::Gone
        } else if self.now < node.paused_until {
            Awake::At(node.paused_until)
        } else {
            Awake::Now
        }
    }

    /// How long the disk takes.
    pub(super) fn disk_delay(&mut self, id: NodeId) -> u64 {
        let slow = self.slow.get(&id).copied().unwrap_or(1);
        self.chaos.random_range(100..4000) * slow
    }
}

enum Awake {
    Gone,
    At(u64),
    Now,
}
