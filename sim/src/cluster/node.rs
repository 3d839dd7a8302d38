//! One node: its two disks, and the process over them while it runs.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    Action, Actions, AskId, CallId, Config, Event, Formation, LockoutRules, Notice, Own, Permissions,
    SeedUser, Volume,
};
use rand::Rng;
use storage::disk::{Completion, Disk};
use types::{Incarnation, Instant, NodeId, RaftIndex, VnodeId, WallTime};

use super::detect::{Heard, first_incarnation};
use super::network::carried;
use super::world::{Happening, World};
use crate::disk::{Faults, SimDisk};
use crate::invariants::{Violation, ensure, inv_50};

/// The wall clock at the beginning.
const WALL_MS: u64 = 1_700_000_000_000;
/// Whoever asks for anything.
pub(super) const ADMIN: &str = "admin";

/// A running process.
pub(super) struct Process {
    pub(super) node: broker::Node,
    /// What the node's own clock is ahead of the world's: it starts anew, anywhere.
    pub(super) clock: u64,
    pub(super) began: u64,
    pub(super) ready: bool,
    /// Only another start helps.
    pub(super) is_hopeless: bool,
    /// It was asked to hand over.
    pub(super) is_leaving: bool,
    wake_at: Option<u64>,
    busy: [bool; 2],
    /// Whom the node wants to be connected to.
    pub(super) peers: BTreeSet<NodeId>,
    /// Connections it knows of, by number.
    pub(super) up: BTreeMap<NodeId, u64>,
    pub(super) asks: BTreeMap<AskId, (NodeId, u64)>,
    pub(super) calls: BTreeMap<CallId, (NodeId, u64, AskId)>,
    pub(super) answered: BTreeSet<CallId>,
    pub(super) calls_made: u64,
    /// What failure detection told it.
    pub(super) heard: BTreeMap<NodeId, Heard>,
    /// How far the tables of each group were.
    pub(super) seen: BTreeMap<VnodeId, RaftIndex>,
    /// Groups it leads.
    pub(super) leads: BTreeSet<VnodeId>,
    /// How far whoever asked before this process began was told that each group is.
    pub(super) floors: BTreeMap<VnodeId, RaftIndex>,
}

/// A node. Its disks outlive its processes.
pub(super) struct Node {
    pub(super) name: String,
    /// Counts processes, so that what was meant for an earlier one is known.
    pub(super) life: u64,
    /// It lives as at the moment, as far as failure detection is concerned.
    pub(super) incarnation: Incarnation,
    pub(super) disks: [SimDisk; 2],
    pub(super) process: Option<Process>,
    /// The process does nothing until then.
    pub(super) paused_until: u64,
    /// The wall clock is so many milliseconds off.
    pub(super) skew_ms: i64,
    pub(super) forms: bool,
    /// Whom it asks when it knows nobody.
    pub(super) seeds: Vec<NodeId>,
}

impl World {
    /// A new node with empty disks, which joins unless it is the first of all.
    pub(super) fn add_node(&mut self) -> NodeId {
        let number = self.number();
        let id = NodeId(u128::from(number) << 64 | u128::from(number));
        let ids = self.ids();
        let seeds = if ids.is_empty() {
            Vec::new()
        } else {
            // One is enough, wherever it is.
            let mut seeds = vec![ids[self.rng.random_range(0..ids.len())], ids[0]];
            seeds.dedup();
            seeds
        };
        let seed = self.seed.rotate_left(11) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let node = Node {
            name: format!("n{number}"),
            life: 0,
            incarnation: Incarnation::ZERO,
            disks: [SimDisk::new(seed, Faults::none()), SimDisk::new(!seed, Faults::none())],
            process: None,
            paused_until: 0,
            skew_ms: 0,
            forms: ids.is_empty(),
            seeds,
        };
        self.say(|| format!("there is a node {id}"));
        self.nodes.insert(id, node);
        self.summary.nodes += 1;
        id
    }

    fn config(&mut self, id: NodeId) -> Config {
        let setup = self.setup;
        let seed: u128 = self.chaos.random();
        let node = &self.nodes[&id];
        let formation = if node.forms { Formation::Forms { vnodes: setup.vnodes } } else { Formation::Joins };
        let permissions = Permissions { admin: true, produce: true, consume: true };
        let mut config = Config::new(id, seed);
        config.own = Own {
            name: node.name.as_str().into(),
            peer: format!("{}:4043", node.name).into(),
            client: Some(format!("{}:4040", node.name).into()),
            attributes: inv_50::attributes(node.life),
            flags: BTreeSet::new(),
            incarnation: first_incarnation(node.life),
        };
        config.formation = formation;
        config.vnode_replicas = setup.vnode_replicas;
        config.replace_after = setup.replace_after;
        config.snapshot_entries = setup.snapshot_entries;
        config.seed_users = vec![SeedUser { name: ADMIN.into(), hash: "$test$".into(), permissions }];
        // Failures are counted and never lock: how often each was counted is what is looked at.
        let attempts_max = std::num::NonZeroU32::MAX;
        config.lockout =
            LockoutRules { attempts_max, duration_ms: 1, progressive: false, forget_ms: 1_000_000_000_000 };
        config.store.preallocate_bytes = (0, 0);
        config.store.seed = seed as u64;
        config.raft_log.seed = (seed >> 64) as u64;
        config.raft_log.file_bytes = setup.log_file_bytes;
        self.records.configure(&mut config);
        config.bug = self.options.bug;
        config.store.bug = self.options.store_bug;
        config
    }

    /// Starts a node's process.
    pub(super) fn boot(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        if node.process.is_some() {
            return Ok(());
        }
        node.life += 1;
        node.paused_until = 0;
        let config = self.config(id);
        let process = Process {
            node: broker::Node::new(config),
            clock: self.chaos.random_range(0..1 << 40),
            began: self.now,
            ready: false,
            is_hopeless: false,
            is_leaving: false,
            wake_at: None,
            busy: [false; 2],
            peers: BTreeSet::new(),
            up: BTreeMap::new(),
            asks: BTreeMap::new(),
            calls: BTreeMap::new(),
            answered: BTreeSet::new(),
            calls_made: 0,
            heard: BTreeMap::new(),
            seen: BTreeMap::new(),
            leads: BTreeSet::new(),
            floors: self.views.acknowledged(),
        };
        self.node(id).process = Some(process);
        self.summary.lives += 1;
        self.say(|| format!("node {id} starts"));
        self.step(id, Event::Start)?;
        // What others say may come before anything on the disks is read.
        if self.chaos.random_bool(0.4) {
            self.dial_from(id);
        }
        Ok(())
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("somebody has just looked at it")
    }

    pub(super) fn process(&mut self, id: NodeId) -> &mut Process {
        self.node(id).process.as_mut().expect("it has just acted")
    }

    /// Ends a node's process.
    pub(super) fn end(&mut self, id: NodeId, with_power: bool) {
        let node = self.node(id);
        for disk in &mut node.disks {
            if with_power {
                disk.crash();
            } else {
                disk.kill();
            }
        }
        if node.process.take().is_none() {
            return;
        }
        self.say(|| format!("node {id} ends, power {with_power}"));
        self.summary.cuts += u64::from(with_power);
        self.break_all(id, if with_power { 3_000_000 } else { 50_000 });
        self.nobody_hears(id);
    }

    /// Somebody sees to a node.
    pub(super) fn restart(&mut self, id: NodeId) -> Result<(), Violation> {
        let is_hopeless = self.process(id).is_hopeless;
        if is_hopeless || self.chaos.random_bool(0.5) {
            let with_power = self.chaos.random_bool(0.7);
            self.end(id, with_power);
        }
        self.calm_disks(id);
        self.boot(id)
    }

    pub(super) fn calm_disks(&mut self, id: NodeId) {
        for disk in &mut self.node(id).disks {
            disk.clear_injections();
            let names = disk.faults_mut().names;
            *disk.faults_mut() = Faults { names, ..Faults::none() };
        }
    }

    /// What a node's wall clock shows.
    fn wall(&self, id: NodeId) -> WallTime {
        WallTime((WALL_MS + self.now / 1000).saturating_add_signed(self.nodes[&id].skew_ms))
    }

    /// What a node's own clock shows.
    pub(super) fn clock(&self, id: NodeId) -> Instant {
        Instant(self.nodes[&id].process.as_ref().map_or(0, |process| process.clock) + self.now)
    }

    /// Feeds one event to a node and performs what it asks for.
    pub(super) fn step(&mut self, id: NodeId, event: Event) -> Result<(), Violation> {
        self.act(id, |node, now, actions| node.step(now, event, actions))
    }

    /// Makes a node do something.
    pub(super) fn act(
        &mut self,
        id: NodeId,
        what: impl FnOnce(&mut broker::Node, Instant, &mut Actions),
    ) -> Result<(), Violation> {
        let (wall, now) = (self.wall(id), self.clock(id));
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else {
            return Ok(());
        };
        let mut actions = Actions::new();
        process.node.step(now, Event::Wall(wall), &mut actions);
        what(&mut process.node, now, &mut actions);
        process.node.flush(&mut actions);
        for action in actions {
            self.perform(id, action)?;
        }
        self.look(id)
    }

    fn perform(&mut self, id: NodeId, action: Action) -> Result<(), Violation> {
        let life = (id, self.nodes[&id].life);
        match action {
            Action::Reply { id: request, reply } => return self.replied(id, request, reply),
            Action::Disk(volume, job) => {
                let volume = usize::from(volume == Volume::Raft);
                self.node(id).disks[volume].submit(job);
                if !std::mem::replace(&mut self.process(id).busy[volume], true) {
                    self.later(1, Happening::DiskStep(life, volume));
                }
            }
            Action::WakeAt(at) => {
                let at = at.0.saturating_sub(self.process(id).clock).max(self.now);
                self.process(id).wake_at = Some(at);
                self.say(|| format!("node {id} wakes at {at}"));
                self.at(at, Happening::Wake(life, at));
            }
            Action::Ready => return self.is_ready(id),
            Action::Say { to, message } => {
                let message = carried(&message)?;
                self.say_peer(id, to, message);
            }
            Action::Ask { to, ask, message, within } => {
                let within = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
                let message = carried(&message)?;
                self.ask_peer(id, to, ask, message, within);
            }
            Action::Answer { to, call, message } => {
                let message = carried(&message)?;
                return self.answer_peer(id, to, call, message);
            }
            Action::Peers(peers) => {
                self.say(|| format!("node {id} wants to be connected to {peers:?}"));
                self.process(id).peers = peers.into_iter().map(|(peer, _)| peer).collect();
            }
            Action::Stop(stop) => {
                self.say(|| format!("node {id} STOPS: {stop}"));
                let is_faulty = self.is_faulty(id);
                ensure(is_faulty, "START", || format!("no fault was ordered, and node {id} stops: {stop}"))?;
                self.process(id).is_hopeless = true;
            }
            Action::Notice(Notice::MetadataStopped { detail }) => {
                self.say(|| format!("node {id} takes no more metadata: {detail}"));
                let is_faulty = self.is_faulty(id);
                ensure(is_faulty, "START", || {
                    format!("no fault was ordered, and the metadata of node {id} stops: {detail}")
                })?;
                self.process(id).is_hopeless = true;
            }
            Action::Notice(Notice::ReplicaLost { group }) => {
                self.say(|| format!("node {id} has lost its replica of {group}"));
                let is_faulty = self.is_faulty(id);
                ensure(is_faulty, "START", || {
                    format!("no fault was ordered, and node {id} has lost its replica of {group}")
                })?;
                self.process(id).is_hopeless = true;
            }
            Action::Notice(notice) => {
                self.summary.resized += u64::from(is_resize(&notice));
                self.say(|| format!("node {id} {notice:?}"));
            }
            Action::Left => {
                let leaving = std::mem::take(&mut self.process(id).is_leaving);
                ensure(leaving, "ANSWER", || format!("nobody waits for node {id} to leave"))?;
                self.say(|| format!("node {id} has handed over"));
                self.later(1, Happening::Gone(life));
            }
            Action::Suspended => {
                return Err(Violation::new("ANSWER", "a node stops serving, and nothing was upgraded"));
            }
            Action::Push { .. } | Action::StreamEnded { .. } => {
                return Err(Violation::new("ANSWER", "nobody asked for a stream"));
            }
            Action::Seeded { .. } | Action::Renewed { .. } | Action::Revoked { .. } => {}
        }
        Ok(())
    }

    /// Whether a node's disks were told to fail in this lifetime.
    fn is_faulty(&mut self, id: NodeId) -> bool {
        self.operator.faulty.get(&id) == Some(&self.nodes[&id].life)
    }

    pub(super) fn disk_step(&mut self, id: NodeId, volume: usize) -> Result<(), Violation> {
        let life = (id, self.nodes[&id].life);
        let disk = &mut self.node(id).disks[volume];
        let took = disk.step();
        let mut completed = Vec::new();
        while let Some(completion) = disk.ready() {
            completed.push(completion);
        }
        let micros = took.map_or(0, |took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)).max(1);
        for completion in completed {
            self.later(micros, Happening::DiskDone(life, volume, completion));
        }
        self.process(id).busy[volume] = took.is_some();
        if took.is_some() {
            self.later(micros, Happening::DiskStep(life, volume));
        }
        Ok(())
    }

    pub(super) fn disk_done(&mut self, id: NodeId, volume: usize, done: Completion) -> Result<(), Violation> {
        let volume = if volume == 0 { Volume::Log } else { Volume::Raft };
        self.step(id, Event::Disk(volume, done))
    }

    pub(super) fn wake(&mut self, id: NodeId, at: u64) -> Result<(), Violation> {
        if self.process(id).wake_at == Some(at) { self.step(id, Event::Timer) } else { Ok(()) }
    }
}

/// Whether ranges were split or merged by what they took.
fn is_resize(notice: &Notice) -> bool {
    matches!(
        notice,
        Notice::Upkeep(
            broker::upkeep::Notice::RangeSplit { .. } | broker::upkeep::Notice::RangesMerged { .. }
        )
    )
}
