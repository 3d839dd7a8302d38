//! A node: its incarnation file, its clock, and the process that runs on it.

use bytes::Bytes;
use membership::{Action, Address, Config, Digest, Event, Key, Membership, Tuning, incarnation};
use rand::Rng;
use types::{Incarnation, Instant, NodeId};

use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// The cluster.
pub(super) const CONTROL_PLANE: u128 = 0x6d65_6d62_6572;
/// Its key.
pub(super) fn key() -> Key {
    Key::of_secret(b"a secret of the cluster", CONTROL_PLANE)
}

/// Seconds since 1970 when a run begins.
const BEGINNING: u64 = 1_700_000_000;

/// A node.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) address: Address,
    /// `malachi.incarnation`, as it is on the disk.
    pub(super) file: Option<Bytes>,
    /// How far its clock is off, seconds.
    pub(super) clock_off: i64,
    pub(super) digest: Digest,
    pub(super) process: Option<Membership>,
    /// Counts the processes.
    pub(super) life: u64,
    pub(super) wake_at: Option<Instant>,
    pub(super) paused_until: u64,
    /// Packets that wait in the socket of a process that is stopped.
    pub(super) waiting: usize,
    /// It was killed for good.
    pub(super) is_gone: bool,
    pub(super) moved: u32,
    /// What its process was told to look for.
    pub(super) seeds: Vec<Address>,
}

impl Node {
    pub(super) fn new(number: u128) -> Self {
        let id = NodeId(number << 64 | number);
        Self {
            id,
            address: address(number, 0),
            file: None,
            clock_off: 0,
            digest: Digest::default(),
            process: None,
            life: 0,
            wake_at: None,
            paused_until: 0,
            waiting: 0,
            is_gone: false,
            moved: 0,
            seeds: Vec::new(),
        }
    }

    /// The recorded ceiling.
    pub(super) fn ceiling(&self) -> Option<Incarnation> {
        self.file.as_ref().map(|bytes| incarnation::decode(bytes).expect("nobody damages the file"))
    }
}

pub(super) fn address(number: u128, moved: u32) -> Address {
    Address::new(format!("node-{number}.{moved}:4043").as_bytes()).expect("it is short text")
}

impl World {
    /// Where the seeds are now.
    pub(super) fn seed_addresses(&self) -> Vec<Address> {
        self.seeds.iter().map(|seed| self.nodes[seed].address.clone()).collect()
    }

    pub(super) fn boot(&mut self, id: NodeId) -> Result<(), Violation> {
        if self.nodes[&id].process.is_some() || self.nodes[&id].is_gone {
            return Ok(());
        }
        let seeds = self.seed_addresses();
        let process_seed = self.chaos.random();
        let now = self.now;
        let bug = self.options.bug;
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        let seconds = BEGINNING + now / 1_000_000;
        let life = incarnation::start(node.ceiling(), seconds.saturating_add_signed(node.clock_off))
            .map_err(|error| Violation::new("C-9", error.to_string()))?;
        // Durable before the first number is used.
        node.file = Some(incarnation::encode(life.ceiling));
        node.life += 1;
        node.seeds.clone_from(&seeds);
        (node.wake_at, node.paused_until, node.waiting) = (None, 0, 0);
        node.process = Some(Membership::new(
            Config {
                node: id,
                name: format!("node {id}").into(),
                address: node.address.clone(),
                incarnation: life.first,
                ceiling: life.ceiling,
                control_plane: CONTROL_PLANE,
                key: key(),
                tuning: Tuning::default(),
                bug,
            },
            process_seed,
        ));
        let digest = node.digest;
        self.summary.lives += 1;
        self.judge.begin(id, life.first)?;
        self.say(|| format!("node {id} starts as incarnation {}", life.first));
        self.step(id, Event::Seeds(seeds))?;
        self.step(id, Event::SetOwn(digest))?;
        self.step(id, Event::Start)
    }

    pub(super) fn end(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        if node.process.take().is_some() {
            self.say(|| format!("node {id} ends"));
        }
    }

    /// Feeds one event to a node's process and does what it asks for.
    pub(super) fn step(&mut self, id: NodeId, event: Event) -> Result<(), Violation> {
        let now = Instant(self.now);
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        let Some(process) = &mut node.process else { return Ok(()) };
        let mut out = Vec::new();
        process.step(now, event, &mut out);
        let (incarnation, load) = (process.incarnation(), process.load());
        let ceiling = node.ceiling();
        self.judge.used(id, incarnation, ceiling)?;
        let most = self.nodes.len();
        ensure(
            load.members < most && load.digests <= most && load.timers <= 5 && load.news <= most,
            "MEMORY",
            || format!("node {id} of {most} keeps {load:?}"),
        )?;
        out.into_iter().try_for_each(|action| self.act(id, action))
    }

    fn act(&mut self, id: NodeId, action: Action) -> Result<(), Violation> {
        match action {
            Action::Send { to, bytes } => self.transmit(id, to, bytes),
            Action::WakeAt(at) => {
                let node = self.nodes.get_mut(&id).expect("nodes are never removed");
                node.wake_at = Some(at);
                let life = node.life;
                // A timer of the operating system is a little late.
                let late = self.chaos.random_range(0..2000);
                self.at(at.0.max(self.now) + late, Happening::Wake(id, life, at));
            }
            Action::Changed(view) => {
                self.summary.changes += 1;
                self.note(view.incarnation.0 ^ (view.status as u64) << 60 ^ view.node.0 as u64);
                let lives = self.nodes.get(&view.node).is_some_and(|node| node.process.is_some());
                if view.status == membership::Status::Down && lives {
                    self.summary.wrong_deaths += 1;
                }
                self.say(|| {
                    format!(
                        "node {id}: {} is {:?} as incarnation {}",
                        view.node, view.status, view.incarnation
                    )
                });
                let life = self.nodes[&id].life;
                self.judge.told(id, life, &view)?;
            }
            Action::Forgotten(node) => {
                return Err(Violation::new("MEMBERSHIP", format!("node {id} forgot {node} within a day")));
            }
            Action::Reserve(ceiling) => {
                let life = self.nodes[&id].life;
                let delay = self.chaos.random_range(500..50_000);
                self.later(delay, Happening::Recorded(id, life, ceiling));
            }
            Action::Renewed(incarnation) => {
                self.summary.renewals += 1;
                self.say(|| format!("node {id} goes on as incarnation {incarnation}"));
            }
            Action::Duplicate { node, kept, refused } => {
                // A node that moved is seen at both places by whoever gets an old packet again.
                ensure(self.nodes[&node].moved > 0, "DUPLICATE", || {
                    format!("node {id} takes {refused} for a copy of {kept}")
                })?;
            }
            Action::Superseded { by, incarnation } => {
                return Err(Violation::new(
                    "DUPLICATE",
                    format!("node {id} gives way to {by}, {incarnation}"),
                ));
            }
        }
        Ok(())
    }
}
