//! The machine: what every event does.
//!
//! Owns the engine, what is known of each member, and the order of things: an event is looked at, the engine is called,
//! and what it asked for and learned is settled, until nothing is left.

mod clock;
mod duty;
mod known;
mod life;
mod receive;

use std::collections::{BTreeMap, VecDeque};

use foca::{Member, State};
use rand_engine::rngs::SmallRng;
use rand_engine::{RngExt, SeedableRng};
use types::{Incarnation, Instant, NodeId, limits};

use self::clock::{Clock, Timers};
use self::known::Known;
use crate::address::Address;
use crate::config::Config;
use crate::digest::{About, Abouts, Digest};
use crate::engine::{Asked, Engine, Identity, engine};
use crate::event::{Action, Event, MemberView, Status};
use crate::packet::{Envelope, Packet, Sealer};

/// What came and went, counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were taken.
    pub received: u64,
    /// Packets that are none of ours, or of another version.
    pub foreign: u64,
    /// Packets of another cluster.
    pub other_control_plane: u64,
    /// Packets not made with the cluster's key.
    pub wrong_key: u64,
    /// Packets made with the key that make no sense; none in a cluster of sound builds.
    pub malformed: u64,
    /// Packets received before, or meant for an earlier life.
    pub repeated: u64,
    /// Suspicions of this node that it answered.
    pub refuted: u64,
    /// Members this node declared dead by itself.
    pub declared: u64,
}

/// What is kept in memory, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Members, dead ones included.
    pub members: usize,
    /// Digests.
    pub digests: usize,
    /// Timers of the engine.
    pub timers: usize,
    /// News that is still being sent.
    pub news: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    /// Left, or superseded: takes no further part.
    Ended,
}

/// One node's view of who is alive.
pub struct Membership {
    config: Config,
    phase: Phase,
    rng: SmallRng,
    sealer: Sealer,
    engine: Engine,
    /// Who this node is now.
    own: Identity,
    ceiling: Incarnation,
    /// A higher ceiling was asked for.
    reserving: bool,
    /// The incarnation this node must go on as, as soon as it may.
    renewal: Option<Incarnation>,
    clock: Clock,
    timers: Timers,
    known: BTreeMap<NodeId, Known>,
    abouts: Abouts,
    about_number: u32,
    digest: Digest,
    seeds: Vec<Address>,
    /// Since when others may know much that this node does not: its start, or its return.
    young_since: Instant,
    /// When others are looked for next.
    look_at: Option<Instant>,
    /// Which of the dead is asked next.
    reach_after: Option<NodeId>,
    duplicates: VecDeque<(NodeId, Address, Address)>,
    sequence: u64,
    tally: Tally,
}

impl Membership {
    /// A node that does nothing before [`Event::Start`]. Two processes should not have one `seed`.
    #[must_use]
    pub fn new(mut config: Config, seed: u64) -> Self {
        while config.name.len() > limits::NODE_NAME_BYTES_MAX {
            let mut name = config.name.to_string();
            name.pop();
            config.name = name.into();
        }
        let mut rng = SmallRng::seed_from_u64(seed);
        let (node, address) = (config.node, config.address.clone());
        let own = Identity { node, incarnation: config.incarnation, address };
        let sealer = Sealer { key: config.key, control_plane: config.control_plane };
        Self {
            phase: Phase::New,
            sealer,
            engine: engine(own.clone(), &config.tuning, rng.random()),
            rng,
            ceiling: config.ceiling.max(config.incarnation),
            own,
            reserving: false,
            renewal: None,
            clock: Clock::default(),
            timers: Timers::default(),
            known: BTreeMap::new(),
            abouts: Abouts::default(),
            about_number: 0,
            digest: Digest::default(),
            seeds: Vec::new(),
            young_since: Instant::default(),
            look_at: None,
            reach_after: None,
            duplicates: VecDeque::new(),
            sequence: 0,
            tally: Tally::default(),
            config,
        }
    }

    /// Feeds one event and appends what the node must do about it.
    pub fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        if self.phase == Phase::Ended {
            return;
        }
        let now = self.clock.lived(now);
        match event {
            Event::Start => self.start(now, out),
            Event::Packet(bytes) => self.receive(now, bytes, out),
            Event::Timer => self.do_due(now, out),
            Event::SetOwn(digest) => self.set_own(digest),
            Event::Seeds(seeds) => self.set_seeds(now, seeds),
            Event::Forget(node) => self.unlist(now, node),
            Event::Reserved(ceiling) => self.reserved(now, ceiling, out),
            Event::Leave => self.leave(now, out),
        }
        let next = if self.phase == Phase::Running { self.next_due() } else { None };
        self.clock.wake(next, out);
    }

    /// What is known of every member but this node, in the order of their ids.
    pub fn members(&self) -> impl Iterator<Item = MemberView> {
        self.known.keys().filter_map(|node| self.member(*node))
    }

    /// What is known of one member.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<MemberView> {
        let known = self.known.get(&node)?;
        // What it said in an earlier life is not what it says now.
        let about = self.abouts.of(node).filter(|about| about.incarnation >= known.identity.incarnation);
        Some(MemberView {
            node,
            name: self.abouts.of(node).map_or_else(|| "".into(), |about| about.name.clone()),
            address: known.identity.address.clone(),
            incarnation: known.identity.incarnation,
            status: known.status,
            digest: about.map(|about| about.digest),
        })
    }

    /// The incarnation this node goes by now. Only grows.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.own.incarnation
    }

    /// What came and went.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What is kept.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            members: self.known.len(),
            digests: self.abouts.count(),
            timers: self.timers.count(),
            news: self.engine.updates_backlog(),
        }
    }

    /// Members that are not dead.
    fn active_count(&self) -> usize {
        self.known.values().filter(|known| known.status != Status::Down).count()
    }

    fn set_own(&mut self, digest: Digest) {
        if digest != self.digest || self.about_number == 0 {
            self.digest = digest;
            self.speak();
        }
    }

    /// Says what is true of this node now.
    fn speak(&mut self) {
        self.about_number = self.about_number.saturating_add(1);
        self.abouts.learn(About {
            node: self.own.node,
            incarnation: self.own.incarnation,
            number: self.about_number,
            name: self.config.name.clone(),
            digest: self.digest,
        });
    }

    /// Calls the engine, and settles what it asked for and learned.
    fn engage(
        &mut self,
        now: Instant,
        call: impl FnOnce(&mut Engine, &mut Asked) -> Result<(), foca::Error>,
        out: &mut Vec<Action>,
    ) {
        let mut asked = Asked::default();
        // What it complains about is a packet's fault, which was screened, or a probe that was cut short by a pause,
        // from which it recovers by itself.
        if call(&mut self.engine, &mut asked).is_err() {
            self.tally.malformed += 1;
        }
        for (after, timer) in asked.timers {
            match timer {
                // Deadlines of suspects and the end of the dead are ours.
                foca::Timer::ChangeSuspectToDown { .. } | foca::Timer::RemoveDown(_) => {}
                foca::Timer::ProbeRandomMember(_)
                | foca::Timer::SendIndirectProbe { .. }
                | foca::Timer::PeriodicAnnounce(_)
                | foca::Timer::PeriodicAnnounceDown(_)
                | foca::Timer::PeriodicGossip(_) => self.timers.set(now.plus(after), timer),
            }
        }
        self.learn(now, out);
        for (to, bytes) in asked.sends {
            self.send_news(&to, bytes, out);
        }
        if asked.is_defunct && self.phase == Phase::Running {
            self.want(now, self.own.incarnation.next(), out);
        }
    }

    fn send_news(&mut self, to: &Identity, engine: bytes::Bytes, out: &mut Vec<Action>) {
        let suspect = self
            .known
            .get(&to.node)
            .filter(|known| known.status == Status::Suspect && known.identity.incarnation == to.incarnation);
        let accused = suspect.map(|known| known.refutations);
        let abouts = self.abouts.next(self.own.node, &mut self.rng);
        let envelope = Envelope { sequence: self.sequence, accused, engine, abouts };
        self.sequence += 1;
        self.send(&to.address, &Packet::News(envelope), out);
    }

    fn send(&mut self, to: &Address, packet: &Packet, out: &mut Vec<Action>) {
        let bytes = self.sealer.seal(packet);
        self.tally.sent += 1;
        self.tally.sent_bytes += bytes.len() as u64;
        out.push(Action::Send { to: to.clone(), bytes });
    }

    /// Compares what the engine knows with what was known.
    fn learn(&mut self, now: Instant, out: &mut Vec<Action>) {
        let changed: Vec<Member<Identity>> =
            self.engine.iter_membership_state().filter(|member| self.is_news(member)).cloned().collect();
        for member in changed {
            self.take_news(now, &member, out);
        }
    }

    fn is_news(&self, member: &Member<Identity>) -> bool {
        self.known.get(&member.id().node).is_none_or(|known| {
            known.identity != *member.id()
                || known.refutations != member.incarnation()
                || known.status != status(member.state())
        })
    }

    fn take_news(&mut self, now: Instant, member: &Member<Identity>, out: &mut Vec<Action>) {
        let node = member.id().node;
        let before = self.member(node);
        let suspicion = self.config.tuning.suspicion_of(self.active_count() + 1);
        let known = self.known.entry(node).or_insert_with(|| Known::new(member.id().clone(), now));
        if known.identity != *member.id() {
            known.identity = member.id().clone();
            known.since = now;
            known.is_unlisted = false;
        }
        known.refutations = member.incarnation();
        known.status = status(member.state());
        (known.deadline, known.ask_at) = match known.status {
            Status::Alive => (None, None),
            // However it came to be suspected: by this node's probe or by what others said.
            Status::Suspect => (Some(now.plus(suspicion)), Some(now)),
            Status::Down => (Some(now.plus(self.config.tuning.forget_after)), None),
        };
        if known.is_unlisted && known.status == Status::Down {
            known.deadline = Some(now.plus(life::UNLISTED_AFTER));
        }
        let after = self.member(node);
        if before != after {
            out.extend(after.map(Action::Changed));
        }
    }
}

fn status(state: State) -> Status {
    match state {
        State::Alive => Status::Alive,
        State::Suspect => Status::Suspect,
        State::Down => Status::Down,
    }
}
