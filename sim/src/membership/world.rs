//! Time, and what happens when.

use std::collections::BTreeMap;

use bytes::Bytes;
use membership::{Address, Digest, Event, incarnation};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Incarnation, Instant, NodeId};

use super::attacker::Captured;
use super::judge::Judge;
use super::network::Network;
use super::node::Node;
use super::{Options, Summary};
use crate::invariants::{Violation, ensure};
use crate::outcome;

/// Happenings in one run: far more than any seed has. A cluster that keeps itself busy is found by it.
const HAPPENINGS_MAX: u64 = 3_000_000;

/// Something that will happen. What belongs to a process that is gone by then is dropped when its turn comes.
#[derive(Debug)]
pub(super) enum Happening {
    Deliver(Address, Bytes),
    Wake(NodeId, u64, Instant),
    /// A ceiling is durable.
    Recorded(NodeId, u64, Incarnation),
    Boot(NodeId),
    /// A node has something else to say about itself.
    Say,
    Weather,
    Attack,
}

/// The simulated world.
pub(super) struct World {
    pub(super) options: Options,
    /// Of what nodes do by themselves.
    pub(super) rng: SmallRng,
    /// Of faults.
    pub(super) chaos: SmallRng,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    happened: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    /// Everybody looks for these.
    pub(super) seeds: Vec<NodeId>,
    pub(super) network: Network,
    pub(super) captured: Vec<Captured>,
    pub(super) judge: Judge,
    pub(super) healing: bool,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x6d65_6d62_6572_7300);
        let chaos = SmallRng::seed_from_u64(seed.rotate_left(31) ^ 0x7765_6174_6865_7200);
        let count: u128 = match rng.random_range(0..100) {
            0..60 => rng.random_range(3..6),
            60..92 => rng.random_range(6..13),
            92..99 => rng.random_range(13..26),
            _ => 50,
        };
        let nodes: BTreeMap<NodeId, Node> = (1..=count).map(Node::new).map(|node| (node.id, node)).collect();
        // One to three, and not always the first ones.
        let seed_count = rng.random_range(1..4);
        let seeds = nodes.keys().copied().skip(rng.random_range(0..2)).take(seed_count).collect();
        Self {
            options,
            nodes,
            seeds,
            network: Network { delay: 3000, ..Network::default() },
            rng,
            chaos,
            now: 1,
            queue: BTreeMap::new(),
            number: 0,
            happened: 0,
            captured: Vec::new(),
            judge: Judge::default(),
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
        self.number += 1;
        self.queue.insert((at, self.number), happening);
    }

    /// Some node.
    pub(super) fn somebody(&mut self) -> NodeId {
        let at = self.chaos.random_range(0..self.nodes.len());
        *self.nodes.keys().nth(at).expect("it is below their number")
    }

    /// The part of the run in which things go wrong.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            let delay = self.chaos.random_range(0..3_000_000);
            self.later(delay, Happening::Boot(id));
        }
        self.later(500_000, Happening::Say);
        self.later(100_000, Happening::Weather);
        self.later(1_000_000, Happening::Attack);
        let end = self.rng.random_range(10_000_000..60_000_000);
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
                "the cluster never comes to rest".to_owned()
            })?;
            self.happen(happening)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Deliver(to, bytes) => self.deliver(to, bytes),
            Happening::Wake(id, life, at) => self.wake(id, life, at),
            Happening::Recorded(id, life, ceiling) => {
                let node = self.nodes.get_mut(&id).expect("nodes are never removed");
                if node.life != life || node.process.is_none() {
                    return Ok(());
                }
                node.file = Some(incarnation::encode(ceiling));
                self.step(id, Event::Reserved(ceiling))
            }
            Happening::Boot(id) => self.boot(id),
            Happening::Say => self.say_something(),
            Happening::Weather => self.change_weather(),
            Happening::Attack => self.attack(),
        }
    }

    fn wake(&mut self, id: NodeId, life: u64, at: Instant) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        if node.life != life || node.process.is_none() || node.wake_at != Some(at) {
            return Ok(());
        }
        if self.now < node.paused_until {
            let until = node.paused_until;
            self.at(until, Happening::Wake(id, life, at));
            return Ok(());
        }
        node.wake_at = None;
        self.step(id, Event::Timer)
    }

    fn say_something(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let next = self.rng.random_range(100_000..4_000_000);
        self.later(next, Happening::Say);
        let at = self.rng.random_range(0..self.nodes.len());
        let id = *self.nodes.keys().nth(at).expect("it is below their number");
        let digest = Digest {
            ring_version: self.rng.random_range(0..5),
            attributes: self.rng.random(),
            capabilities: self.rng.random_range(0..3),
            led_count: self.rng.random_range(0..1000),
            led: self.rng.random(),
        };
        self.nodes.get_mut(&id).expect("nodes are never removed").digest = digest;
        self.step(id, Event::SetOwn(digest))
    }
}
