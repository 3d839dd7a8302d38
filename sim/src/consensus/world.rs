//! Time, and what happens when.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{NodeId, Term, VnodeId};

use super::mail::Pile;
use super::node::Node;
use super::replicas::Replicas;
use super::{Options, Summary};
use crate::invariants::{Violation, ensure};
use crate::outcome;
use crate::raft::judge::Judge;
use crate::raft::links::Links;

/// Happenings in one run: far more than any seed has. Groups that keep themselves busy are found by it.
const HAPPENINGS_MAX: u64 = 6_000_000;

/// Something that will happen. What belongs to a process that is gone by then is dropped when its turn comes.
#[derive(Debug)]
pub(super) enum Happening {
    Deliver(NodeId, NodeId, Pile),
    Tick(NodeId, u64),
    /// The disk does one more step.
    Disk(NodeId, u64),
    /// Somebody has a group begun that was found.
    Begin(NodeId, u64, VnodeId),
    Boot(NodeId),
    /// Somebody sees to a node that takes no more writes, or does not start.
    Restart(NodeId, u64),
    /// A founder is told of its group.
    Found(VnodeId, NodeId),
    /// Clients ask for something.
    Ask,
    /// The weather changes.
    Weather,
    /// The cluster sees to its groups.
    Drive,
}

/// One group, as far as it is known from outside.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) judge: Judge,
    pub(super) founders: Vec<NodeId>,
    /// So many members are wanted.
    pub(super) wanted: usize,
    /// Changes of members that were asked for and may yet happen: by the term of the leader that was asked.
    pub(super) changing: BTreeMap<u64, Term>,
    /// Too many voters may have lost their files for it to go on.
    pub(super) is_doubtful: bool,
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
    pub(super) groups: BTreeMap<VnodeId, Known>,
    pub(super) replicas: Replicas,
    /// Replicas whose files are damaged, as their nodes have told.
    pub(super) lost: BTreeSet<(NodeId, VnodeId)>,
    pub(super) snapshot_entries: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) log_file_bytes: u64,
    pub(super) links: Links<Pile>,
    /// Of commands, proposals, reads, happenings and nodes.
    pub(super) numbers: u64,
    /// How often members change in this run: one in so many requests; 0 for never.
    pub(super) change_every: u32,
    /// Whether files may be lost in this run also where a group may not survive it.
    pub(super) is_ruthless: bool,
    pub(super) healing: bool,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x636f_6e73_656e_7300);
        let mut chaos = SmallRng::seed_from_u64(seed.rotate_left(31) ^ 0x7765_6174_6865_7200);
        let count: u64 = rng.random_range(3..=5);
        let links = Links::new(3000, chaos.random_bool(0.5));
        let mut world = Self {
            options,
            seed,
            snapshot_entries: [4, 12, 60, 1_000_000][rng.random_range(0..4)],
            snapshot_bytes: [200, 2000, 100_000][rng.random_range(0..3)],
            log_file_bytes: [4096, 16 * 1024, 256 * 1024][rng.random_range(0..3)],
            change_every: if rng.random_bool(0.7) { rng.random_range(4..60) } else { 0 },
            is_ruthless: chaos.random_bool(0.1),
            rng,
            chaos,
            now: 1,
            queue: BTreeMap::new(),
            happened: 0,
            nodes: BTreeMap::new(),
            groups: BTreeMap::new(),
            replicas: Replicas::default(),
            lost: BTreeSet::new(),
            links,
            numbers: 0,
            healing: false,
            summary: Summary::default(),
        };
        for _ in 0..count {
            world.add_node();
        }
        world.found_groups();
        world
    }

    /// A new node with an empty disk.
    pub(super) fn add_node(&mut self) -> NodeId {
        self.numbers += 1;
        let number = u128::from(self.numbers);
        let id = NodeId(number << 64 | number);
        let seed = self.seed.rotate_left(11) ^ self.numbers.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.nodes.insert(id, Node::new(id, seed, self.chaos.random_range(80_000..120_000)));
        id
    }

    /// Decides which groups there will be, and when each of the founders hears of it.
    fn found_groups(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let count: u64 = [1, 1, 2, 3, 5, 8, 40][self.rng.random_range(0..7)];
        for number in 1..=count {
            let group = VnodeId(if number == 1 { 0 } else { number * 1000 });
            let wanted = [1, 3, 3, 3, 5][self.rng.random_range(0..5)].min(ids.len());
            let first = self.rng.random_range(0..ids.len());
            let founders: Vec<NodeId> = (0..wanted).map(|at| ids[(first + at) % ids.len()]).collect();
            for founder in &founders {
                let late = if self.rng.random_bool(0.2) { 8_000_000 } else { 900_000 };
                let at = self.rng.random_range(0..late);
                self.later(at, Happening::Found(group, *founder));
            }
            self.groups.insert(group, Known { founders, wanted, ..Known::default() });
        }
        self.summary.groups = count;
    }

    pub(super) fn summary(&self) -> Summary {
        let doubtful = self.groups.values().filter(|known| known.is_doubtful).count() as u64;
        let disks = self.nodes.values().fold(0, |sum: u64, node| sum.rotate_left(1) ^ node.disk.trace_hash());
        Summary { micros: self.now, doubtful, trace: self.summary.trace ^ disks, ..self.summary }
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

    pub(super) fn known(&mut self, group: VnodeId) -> &mut Known {
        self.groups.entry(group).or_default()
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// The part of the run in which things go wrong.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        for id in self.ids() {
            let delay = self.chaos.random_range(0..500_000);
            self.later(delay, Happening::Boot(id));
        }
        self.later(1_000_000, Happening::Ask);
        self.later(2_500_000, Happening::Weather);
        self.later(1_500_000, Happening::Drive);
        let end = self.rng.random_range(10_000_000..40_000_000);
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
                "the groups never come to rest".to_owned()
            })?;
            self.happen(happening)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Deliver(from, to, pile) => self.deliver(from, to, pile),
            Happening::Boot(id) => self.boot(id),
            Happening::Restart(id, life) => self.restart(id, life),
            Happening::Found(group, id) => self.found(group, id),
            Happening::Ask => self.ask(),
            Happening::Weather => self.change_weather(),
            Happening::Drive => self.drive(),
            Happening::Tick(id, life) => match self.awake(id, life) {
                Awake::Gone => Ok(()),
                // A process that was stopped ticks once when it goes on: what is missed is missed.
                Awake::At(at) => {
                    self.at(at, Happening::Tick(id, life));
                    Ok(())
                }
                Awake::Now => self.ticked(id, life),
            },
            Happening::Disk(id, life) => match self.awake(id, life) {
                Awake::Gone => Ok(()),
                Awake::At(at) => {
                    self.at(at, Happening::Disk(id, life));
                    Ok(())
                }
                Awake::Now => self.step_disk(id, life),
            },
            Happening::Begin(id, life, group) => match self.awake(id, life) {
                Awake::Gone => Ok(()),
                Awake::At(at) => {
                    self.at(at, Happening::Begin(id, life, group));
                    Ok(())
                }
                Awake::Now => self.begin(id, group),
            },
        }
    }

    /// Whether a process of that life can act.
    fn awake(&self, id: NodeId, life: u64) -> Awake {
        match self.nodes.get(&id) {
            Some(node) if node.life == life && node.process.is_some() => {
                if self.now < node.paused_until {
                    Awake::At(node.paused_until)
                } else {
                    Awake::Now
                }
            }
            Some(_) | None => Awake::Gone,
        }
    }
}

enum Awake {
    Gone,
    At(u64),
    Now,
}
