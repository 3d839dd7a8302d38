//! A network that only loses packets: what failure detection costs and how good it is.

use std::collections::BTreeMap;

use bytes::Bytes;
use membership::{Action, Address, Config, Event, Membership, Status, Tuning};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Incarnation, Instant, NodeId};

use super::node::{CONTROL_PLANE, address, key};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Members.
    pub count: u128,
    /// Chance that a packet is lost.
    pub loss: f64,
    /// How long they live together, seconds of virtual time.
    pub seconds: u64,
    /// Times to go by.
    pub tuning: Tuning,
}

impl Setup {
    /// Fifty members at one lost packet in ten, for ten minutes.
    #[must_use]
    pub fn usual() -> Self {
        Self { count: 50, loss: 0.1, seconds: 600, tuning: Tuning::default() }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Members that lived and were declared dead, each once for each of its lives.
    pub false_deaths: u64,
    /// Suspicions somebody had of somebody who lived.
    pub suspicions: u64,
    /// From a member's end until the first other knew, seconds.
    pub noticed: f64,
    /// Until the last one knew.
    pub known: f64,
    /// From the first start until all knew each other.
    pub joined: f64,
    /// Sent by one node in one second, bytes.
    pub bytes_per_second: f64,
}

enum Happening {
    Deliver(usize, Bytes),
    Wake(usize, Instant),
    Start(usize),
}

struct Run {
    setup: Setup,
    rng: SmallRng,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    nodes: Vec<Membership>,
    wake_at: Vec<Option<Instant>>,
    places: BTreeMap<Address, usize>,
    dead: Option<(usize, u64)>,
    knowing: BTreeMap<usize, u64>,
    false_deaths: std::collections::BTreeSet<(NodeId, Incarnation)>,
    figures: Figures,
}

/// Lets members live together, ends one, and waits until all others know.
#[must_use]
pub fn measure(seed: u64, setup: Setup) -> Figures {
    let mut run = Run::new(seed, setup);
    let quarter = 250_000;
    while !run.all_know_each_other() && run.now < 120_000_000 {
        run.run_for(quarter);
    }
    run.figures.joined = run.now as f64 / 1e6;
    run.run_for(setup.seconds * 1_000_000);
    let sent: u64 = run.nodes.iter().map(|node| node.tally().sent_bytes).sum();
    run.figures.bytes_per_second = sent as f64 / run.nodes.len() as f64 / (run.now as f64 / 1e6);
    let victim = run.rng.random_range(0..run.nodes.len());
    run.dead = Some((victim, run.now));
    while run.knowing.len() + 1 < run.nodes.len() && run.now < run.dead.map_or(0, |(_, at)| at) + 120_000_000
    {
        run.run_for(quarter);
    }
    let (_, died) = run.dead.expect("it was just set");
    let after = |at: Option<&u64>| at.map_or(f64::INFINITY, |at| (at - died) as f64 / 1e6);
    run.figures.noticed = after(run.knowing.values().min());
    run.figures.known = after(run.knowing.values().max());
    run.figures.false_deaths = run.false_deaths.len() as u64;
    run.figures
}

impl Run {
    fn new(seed: u64, setup: Setup) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let numbers = 1..=setup.count;
        let config = |number| Config {
            node: NodeId(number),
            name: format!("node-{number}").into(),
            address: address(number, 0),
            incarnation: Incarnation(1),
            ceiling: Incarnation(1 << 20),
            control_plane: CONTROL_PLANE,
            key: key(),
            tuning: setup.tuning,
            bug: None,
        };
        let nodes: Vec<Membership> =
            numbers.clone().map(|number| Membership::new(config(number), rng.random())).collect();
        let places = numbers.zip(0..).map(|(number, place)| (address(number, 0), place)).collect();
        let mut run = Self {
            setup,
            wake_at: vec![None; nodes.len()],
            nodes,
            rng,
            now: 1,
            queue: BTreeMap::new(),
            number: 0,
            places,
            dead: None,
            knowing: BTreeMap::new(),
            false_deaths: std::collections::BTreeSet::new(),
            figures: Figures::default(),
        };
        for place in 0..run.nodes.len() {
            let delay = run.rng.random_range(0..2_000_000);
            run.later(delay, Happening::Start(place));
        }
        run
    }

    fn later(&mut self, delay: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((self.now + delay, self.number), happening);
    }

    fn run_for(&mut self, micros: u64) {
        let end = self.now + micros;
        while let Some((&(at, number), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let happening = self.queue.remove(&(at, number)).expect("it was just seen");
            self.now = at;
            self.happen(happening);
        }
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deliver(place, bytes) => self.step(place, Event::Packet(bytes)),
            Happening::Wake(place, at) => {
                if self.wake_at[place] == Some(at) {
                    self.wake_at[place] = None;
                    self.step(place, Event::Timer);
                }
            }
            Happening::Start(place) => {
                self.step(place, Event::Seeds((1..=3).map(|number| address(number, 0)).collect()));
                self.step(place, Event::Start);
            }
        }
    }

    fn step(&mut self, place: usize, event: Event) {
        if self.dead.is_some_and(|(dead, _)| dead == place) {
            return;
        }
        let mut out = Vec::new();
        self.nodes[place].step(Instant(self.now), event, &mut out);
        for action in out {
            match action {
                Action::Send { to, bytes } => self.carry(&to, bytes),
                Action::WakeAt(at) => {
                    self.wake_at[place] = Some(at);
                    let delay = at.0.saturating_sub(self.now);
                    self.later(delay, Happening::Wake(place, at));
                }
                Action::Changed(view) => {
                    let is_dead = self.dead.is_some_and(|(dead, _)| dead as u128 + 1 == view.node.0);
                    match (view.status, is_dead) {
                        (Status::Down, true) => {
                            self.knowing.entry(place).or_insert(self.now);
                        }
                        (Status::Down, false) => {
                            self.false_deaths.insert((view.node, view.incarnation));
                        }
                        (Status::Suspect, false) => self.figures.suspicions += 1,
                        (Status::Suspect, true) | (Status::Alive, _) => {}
                    }
                }
                Action::Forgotten(_)
                | Action::Reserve(_)
                | Action::Renewed(_)
                | Action::Duplicate { .. }
                | Action::Superseded { .. } => {}
            }
        }
    }

    fn carry(&mut self, to: &Address, bytes: Bytes) {
        let Some(&to) = self.places.get(to) else { return };
        if !self.rng.random_bool(self.setup.loss) {
            let delay = self.rng.random_range(200..3000);
            self.later(delay, Happening::Deliver(to, bytes));
        }
    }

    fn all_know_each_other(&self) -> bool {
        let others = self.nodes.len() - 1;
        self.nodes.iter().all(|node| {
            node.members().filter(|view| view.status == Status::Alive && view.digest.is_some()).count()
                == others
        })
    }
}
