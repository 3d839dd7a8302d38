//! Time, and what happens when.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::AskId;
use peer::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::Completion;
use types::NodeId;

use super::client::Clients;
use super::model::Model;
use super::network::{Network, Parcel};
use super::node::Node;
use super::operator::Operator;
use super::probes::Probes;
use super::records::Records;
use super::ring::Moves;
use super::views::Views;
use super::voters::Voters;
use super::{Options, Summary};
use crate::invariants::{Violation, ensure};
use crate::outcome;

/// Happenings in one run: far more than any seed has. Nodes that keep themselves busy are found by it.
const HAPPENINGS_MAX: u64 = 3_000_000;

/// One process of a node.
pub(super) type Life = (NodeId, u64);

/// Something that will happen. What belongs to a process that is gone by then is dropped when its turn comes.
#[derive(Debug)]
pub(super) enum Happening {
    Boot(NodeId),
    /// Somebody sees to a node that takes no more writes.
    Restart(Life),
    Wake(Life, u64),
    DiskStep(Life, usize),
    DiskDone(Life, usize, Completion),
    Dial,
    Up(Life, NodeId, u64),
    Down(Life, NodeId, u64),
    Deliver(Life, NodeId, u64, Parcel),
    Late(Life, AskId),
    /// Whoever is connected notices when nothing has come for a while.
    Silence(NodeId, NodeId, u64),
    /// Clients ask for something.
    Ask,
    /// Clients write and read records.
    Records,
    /// Consumers read as groups.
    Consume,
    /// People change the cluster.
    Operate,
    /// Every node looks who is there.
    Detect,
    /// Somebody proposes what is to be refused.
    Probe,
    /// A node is asked to hand over and go.
    Leave(Life),
    /// It has, or has had time enough to.
    Gone(Life),
    /// The weather changes.
    Weather,
    /// Links flap.
    Flap(u32),
}

/// The simulated world.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) seed: u64,
    /// Of clients and people.
    pub(super) rng: SmallRng,
    /// Of faults.
    pub(super) chaos: SmallRng,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) network: Network,
    pub(super) views: Views,
    pub(super) voters: Voters,
    pub(super) moves: Moves,
    pub(super) clients: Clients,
    pub(super) model: Model,
    pub(super) operator: Operator,
    pub(super) probes: Probes,
    pub(super) records: Records,
    pub(super) setup: Setup,
    /// Of happenings, nodes, connections, requests and names.
    pub(super) numbers: u64,
    pub(super) healing: bool,
    /// Nothing goes wrong but what a story orders.
    pub(super) is_story: bool,
    /// Answers that nobody waits for any more.
    pub(super) overheard: Vec<(NodeId, Message)>,
    pub(super) summary: Summary,
}

/// What is the same for all nodes of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) vnodes: u32,
    pub(super) vnode_replicas: usize,
    pub(super) replace_after: Duration,
    pub(super) snapshot_entries: u64,
    pub(super) log_file_bytes: u64,
    pub(super) nodes_max: usize,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x636c_7573_7465_7200);
        let chaos = SmallRng::seed_from_u64(seed.rotate_left(29) ^ 0x7765_6174_6865_7200);
        let setup = Setup {
            vnodes: [1, 1, 2, 3][rng.random_range(0..4)],
            vnode_replicas: [3, 3, 3, 5][rng.random_range(0..4)],
            replace_after: Duration::from_secs([1, 5, 5, 300][rng.random_range(0..4)]),
            snapshot_entries: [10, 40, 1_000_000][rng.random_range(0..3)],
            log_file_bytes: [16 * 1024, 256 * 1024][rng.random_range(0..2)],
            nodes_max: rng.random_range(4..=7),
        };
        let count = [1, 2, 3, 3, 3, 4, 5][rng.random_range(0..7)];
        Self::with(seed, options, setup, rng, chaos, count)
    }

    pub(super) fn with(
        seed: u64,
        options: Options,
        setup: Setup,
        rng: SmallRng,
        chaos: SmallRng,
        count: usize,
    ) -> Self {
        let mut world = Self {
            options,
            seed,
            rng,
            chaos,
            now: 1,
            queue: BTreeMap::new(),
            happened: 0,
            nodes: BTreeMap::new(),
            network: Network::new(),
            views: Views::default(),
            voters: Voters::default(),
            moves: Moves::default(),
            clients: Clients::default(),
            model: Model::default(),
            operator: Operator::default(),
            probes: Probes::default(),
            records: Records::default(),
            setup,
            numbers: 0,
            healing: false,
            is_story: false,
            overheard: Vec::new(),
            summary: Summary::default(),
        };
        for _ in 0..count {
            world.add_node();
        }
        world
    }

    pub(super) fn summary(&self) -> Summary {
        let disks = self.nodes.values().flat_map(|node| &node.disks);
        let disks = disks.fold(0, |sum: u64, disk| sum.rotate_left(1) ^ disk.trace_hash());
        let healing = self.summary.healing;
        Summary {
            ring_changes: self.moves.changes,
            micros: self.now,
            trace: self.summary.trace ^ disks,
            healing,
            ..self.summary
        }
    }

    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        outcome::say(self.options.verbose, self.now, line);
    }

    /// Mixes something that happened into the run's digest.
    pub(super) fn note(&mut self, what: u64) {
        self.summary.trace = outcome::mixed(self.summary.trace, what, self.now);
    }

    /// A number nothing had before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn later(&mut self, delay: u64, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    pub(super) fn at(&mut self, at: u64, happening: Happening) {
        let number = self.number();
        self.queue.insert((at, number), happening);
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// The part of the run in which things go wrong.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        self.boot_all();
        let first = self.rng.random_range(2_000_000..8_000_000);
        self.later(1_000_000, Happening::Ask);
        self.begin_records();
        self.later(first, Happening::Operate);
        self.later(first, Happening::Weather);
        self.later(first, Happening::Probe);
        let end = self.rng.random_range(20_000_000..60_000_000);
        self.run_until(end)
    }

    pub(super) fn boot_all(&mut self) {
        for id in self.ids() {
            let delay = self.chaos.random_range(0..500_000);
            self.later(delay, Happening::Boot(id));
        }
        self.later(1000, Happening::Dial);
        self.later(400_000, Happening::Detect);
    }

    pub(super) fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some((&(at, number), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let happening = self.queue.remove(&(at, number)).expect("it was just seen");
            self.now = at;
            self.happened += 1;
            ensure(self.happened < HAPPENINGS_MAX, "LIVENESS", || "the nodes never come to rest".to_owned())?;
            self.happen(happening)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        // A process that stands still takes everything later, in order.
        if let Some(life) = of_process(&happening) {
            match self.nodes.get(&life.0) {
                Some(node) if node.life == life.1 && node.process.is_some() => {
                    if self.now < node.paused_until {
                        let at = node.paused_until;
                        self.at(at, happening);
                        return Ok(());
                    }
                }
                Some(_) | None => return Ok(()),
            }
        }
        match happening {
            Happening::Boot(id) => self.boot(id),
            Happening::Restart((id, _)) => self.restart(id),
            Happening::Wake((id, _), at) => self.wake(id, at),
            Happening::DiskStep((id, _), volume) => self.disk_step(id, volume),
            Happening::DiskDone((id, _), volume, done) => self.disk_done(id, volume, done),
            Happening::Dial => self.dial(),
            Happening::Up((id, _), other, number) => self.up(id, other, number),
            Happening::Down((id, _), other, number) => self.down(id, other, number),
            Happening::Deliver((id, _), from, number, parcel) => self.deliver(id, from, number, parcel),
            Happening::Late((id, _), ask) => self.late(id, ask),
            Happening::Silence(a, b, number) => {
                self.silence(a, b, number);
                Ok(())
            }
            Happening::Ask => self.ask(),
            Happening::Records => self.handle_records(),
            Happening::Consume => self.handle_groups(),
            Happening::Operate => self.operate(),
            Happening::Detect => self.detect(),
            Happening::Probe => self.probe(),
            Happening::Leave((id, _)) => self.leave(id),
            Happening::Gone((id, _)) => {
                self.gone(id);
                Ok(())
            }
            Happening::Weather => {
                self.change_weather();
                Ok(())
            }
            Happening::Flap(left) => {
                self.flap(left);
                Ok(())
            }
        }
    }
}

fn of_process(happening: &Happening) -> Option<Life> {
    match happening {
        Happening::Restart(life)
        | Happening::Wake(life, _)
        | Happening::DiskStep(life, _)
        | Happening::DiskDone(life, ..)
        | Happening::Up(life, ..)
        | Happening::Down(life, ..)
        | Happening::Deliver(life, ..)
        | Happening::Late(life, _)
        | Happening::Leave(life)
        | Happening::Gone(life) => Some(*life),
        Happening::Boot(_)
        | Happening::Dial
        | Happening::Silence(..)
        | Happening::Ask
        | Happening::Records
        | Happening::Consume
        | Happening::Operate
        | Happening::Detect
        | Happening::Probe
        | Happening::Weather
        | Happening::Flap(_) => None,
    }
}
