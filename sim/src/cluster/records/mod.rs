//! Records in a cluster: clients write and read them on any node while everything goes wrong, and nothing that was
//! acknowledged or read may ever be missing.
//!
//! Owns the clients ([`produce`], [`consume`], [`groups`]), what they were told ([`model`]), and the judges of what the tables say
//! ([`tables`]) and of what disks would hold if all power went now ([`platter`], [`audit`]). The world around it, its
//! faults and its people are the cluster's. Topics of records are made here and are neither sealed nor removed, so that
//! whatever was acknowledged is due in the end.
//!
//! - Everything of it is drawn from a stream of its own: a run without records is as it was.
//! - No judge looks at what the product keeps in memory, but for the tables, which are compared elsewhere.

mod audit;
mod consume;
mod damage;
mod groups;
mod heal;
mod model;
mod once;
mod platter;
mod produce;
pub mod stories;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::upkeep::Resize;
use broker::{Config, ConnectionId, Event, Reply, Request, RequestId};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{NodeId, SegmentId};

use super::client::Op;
use super::node::ADMIN;
use super::world::{Happening, World};
use super::{Failure, Options, Summary, tell};
use crate::invariants::{Violation, ensure};

use self::consume::Reader;
use self::groups::{Groups, What};
use self::model::Model;
use self::once::Once;
use self::produce::Producer;
use self::tables::Known;

/// How long a process that runs may take to answer beside what it was asked to wait, microseconds.
const PATIENCE: u64 = 60_000_000;

/// What is the same for all nodes of one run.
#[derive(Clone, Copy, Debug)]
struct Mix {
    /// Copies of a segment.
    factor: usize,
    segment_bytes: u64,
    segment_age: Option<Duration>,
    tail_cache_bytes: usize,
    journal_bytes: u64,
    open_copies_max: usize,
    /// One acknowledgement in so many is looked up on the disks.
    audits: u32,
    /// Records in a second that are much for one range: what comes moves from key to key, and ranges are split and
    /// merged by it.
    much: Option<u64>,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Produce { producer: usize, request: u64 },
    Name { producer: usize },
    Fetch { reader: usize },
    Group { consumer: usize, what: What },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    asked: Asked,
    at: u64,
    wait_ms: u32,
}

/// See the module.
pub(super) struct Records {
    mix: Option<Mix>,
    rng: SmallRng,
    topics: Vec<String>,
    model: Model,
    producers: Vec<Producer>,
    once: Once,
    readers: Vec<Reader>,
    groups: Groups,
    waiting: BTreeMap<(NodeId, RequestId), Waiting>,
    known: Known,
    /// Copies that were damaged on purpose and not found whole since.
    harmed: BTreeSet<(NodeId, SegmentId)>,
    /// Which copies of sealed segments were whole when all disks were looked at last, and whose was the first.
    whole: BTreeMap<SegmentId, (BTreeSet<NodeId>, Option<NodeId>)>,
    /// Nothing new is written any more.
    is_over: bool,
    /// Nobody asks for anything any more.
    is_closed: bool,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            mix: None,
            rng: SmallRng::seed_from_u64(0),
            topics: Vec::new(),
            model: Model::default(),
            producers: Vec::new(),
            once: Once::default(),
            readers: Vec::new(),
            groups: Groups::default(),
            waiting: BTreeMap::new(),
            known: Known::default(),
            harmed: BTreeSet::new(),
            whole: BTreeMap::new(),
            is_over: false,
            is_closed: false,
        }
    }
}

impl Records {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x7265_636f_7264_7300);
        let mix = Mix {
            factor: [1, 2, 3, 3, 3, 3, 5][rng.random_range(0..7)],
            segment_bytes: [400, 1500, 6000, 20_000][rng.random_range(0..4)],
            segment_age: rng.random_bool(0.3).then(|| Duration::from_secs(rng.random_range(2..15))),
            tail_cache_bytes: [0, 600, 1 << 20][rng.random_range(0..3)],
            journal_bytes: [0, 8000, 100_000][rng.random_range(0..3)],
            open_copies_max: rng.random_range(2..8),
            audits: 12,
            // Nothing is drawn for it: seeds of before go on as they were.
            much: [Some(2), None, Some(6), None][(seed % 4) as usize],
        };
        let topics: Vec<String> = (0..rng.random_range(1..4)).map(|at| format!("r{at}")).collect();
        let producers = (0..rng.random_range(2..6)).map(|at| Producer::new(at, topics.len(), &mut rng));
        let producers: Vec<Producer> = producers.collect();
        let once = Once::new(seed, producers.len());
        let readers = (0..rng.random_range(2..6)).map(|_| Reader::new(rng.random_range(0..topics.len())));
        let readers = readers.collect();
        Self { mix: Some(mix), rng, topics, producers, once, readers, ..Self::default() }
    }

    /// Whether there are any.
    pub(super) fn is_on(&self) -> bool {
        self.mix.is_some()
    }

    /// Whether there are groups, too.
    pub(super) fn has_groups(&self) -> bool {
        self.groups.is_on()
    }

    /// What a node is told.
    pub(super) fn configure(&self, config: &mut Config) {
        let Some(mix) = self.mix else { return };
        config.segment_replicas = mix.factor;
        config.segment_bytes = mix.segment_bytes;
        config.scrub.every = Some(Duration::from_secs(3));
        config.scrub.copies_per_pass = 10;
        config.orphan_sweep.every = Duration::from_secs(4);
        config.orphan_sweep.min_age = Duration::from_secs(10);
        config.orphan_sweep.sightings = 2;
        config.segment_age = mix.segment_age;
        config.store.tail_cache_bytes = mix.tail_cache_bytes;
        config.store.journal_bytes = mix.journal_bytes;
        config.store.journal_copies_min = 1;
        config.store.journal_part_bytes_max = 2000;
        config.store.open_copies_max = mix.open_copies_max;
        config.store.recycled_files_max = 2;
        config.store.recycled_bytes_min = 100;
        config.store.spare_files_max = 1;
        config.store.spare_bytes = 3000;
        config.store.spare_piece_bytes = 1000;
        self.configure_resize(&mut config.resize);
    }
}

impl Records {
    /// Whether ranges are split and merged by what comes.
    fn splits_by_load(&self) -> bool {
        self.mix.is_some_and(|mix| mix.much.is_some())
    }

    fn configure_resize(&self, resize: &mut Resize) {
        let much = self.mix.and_then(|mix| mix.much);
        resize.on = much.is_some();
        resize.records_per_second = much.unwrap_or(1);
        resize.report_every = Duration::from_millis(700);
        resize.every = Duration::from_millis(900);
        resize.split_after = Duration::from_secs(2);
        resize.merge_after = Duration::from_secs(3);
        resize.ranges_per_topic = 12;
        resize.ranges_in_cluster = 24;
    }
}

/// Runs one seed of a cluster with records.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    run_with(seed, options, false)
}

/// The same with consumers that read as groups.
pub fn run_groups(seed: u64, options: Options) -> Result<Summary, Failure> {
    run_with(seed, options, true)
}

fn run_with(seed: u64, options: Options, with_groups: bool) -> Result<Summary, Failure> {
    let mut world = World::new(seed, options);
    world.records = Records::new(seed);
    if with_groups {
        world.records.groups = Groups::new(seed, world.records.topics.len());
    }
    while world.nodes.len() < 3 && world.records.rng.random_bool(0.9) {
        world.add_node();
    }
    tell(&mut world, |world| world.live().and_then(|()| world.heal()))
}

/// Whether a topic is one of records, which stays.
pub(super) fn is_kept(topic: &str) -> bool {
    topic.starts_with('r')
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl World {
    /// Clients begin, in a run with records.
    pub(super) fn begin_records(&mut self) {
        if self.records.mix.is_some() {
            self.later(1_500_000, Happening::Records);
        }
        self.begin_groups();
    }

    /// Clients do something, and something else a little later.
    pub(super) fn handle_records(&mut self) -> Result<(), Violation> {
        let pause = if self.records.rng.random_bool(0.02) { 900_000 } else { 45_000 };
        let pause = self.records.rng.random_range(500..pause);
        self.later(pause, Happening::Records);
        self.no_client_waits_long()?;
        if self.records.is_closed || (self.is_story && !self.healing) {
            return Ok(());
        }
        match self.records.rng.random_range(0..100) {
            0..3 if !self.healing => self.change_ranges(),
            3..4 if !self.healing && self.records.rng.random_bool(0.3) => self.harm_something(),
            0..55 if !self.records.is_over => self.produce_some(),
            _ => self.read_some(),
        }
    }

    /// A topic is made that is not known to be there, or its ranges are split and merged.
    fn change_ranges(&mut self) -> Result<(), Violation> {
        let Some(id) = self.some_running() else { return Ok(()) };
        let at = self.records.rng.random_range(0..self.records.topics.len());
        let topic = self.records.topics[at].clone();
        let is_there = self.model.topic(&topic).created.sure > 0;
        let op = match self.records.rng.random_range(0..10) {
            _ if !is_there => Op::Create(topic),
            0..3 => Op::Split(topic),
            3..5 => Op::Merge(topic),
            _ => Op::Describe(topic),
        };
        self.request(id, op)
    }

    /// A node whose process serves and is not standing still.
    fn some_running(&mut self) -> Option<NodeId> {
        let now = self.now;
        let serves = |node: &super::node::Node| {
            node.paused_until <= now && node.process.as_ref().is_some_and(|process| process.ready)
        };
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| serves(node)).map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| ids[self.records.rng.random_range(0..ids.len())])
    }

    /// A client asks a node.
    fn ask_for(&mut self, id: NodeId, asked: Asked, wait_ms: u32, request: Request) -> Result<(), Violation> {
        let number = self.number();
        let numbered = |number: usize| ConnectionId(u64::try_from(number).unwrap_or(u64::MAX));
        let connection = match asked {
            Asked::Produce { producer, .. } | Asked::Name { producer } => numbered(100 + producer),
            Asked::Fetch { reader } => numbered(200 + reader),
            Asked::Group { consumer, .. } => self.consumer_connection(consumer),
        };
        let request_id = RequestId { connection, number };
        self.say(|| format!("client asks node {id}: {asked:?}"));
        self.records.waiting.insert((id, request_id), Waiting { asked, at: self.now, wait_ms });
        let session = self.process(id).node.session(ADMIN);
        self.step(id, Event::Request { id: request_id, session, request })
    }

    /// A node answers; `None` when it is nobody's here.
    pub(super) fn hear_records(
        &mut self,
        id: NodeId,
        request: RequestId,
        reply: &Reply,
    ) -> Option<Result<(), Violation>> {
        if self.is_forsaken(id, request) {
            return Some(Ok(()));
        }
        let waiting = self.records.waiting.remove(&(id, request))?;
        self.note(request.number);
        Some(match waiting.asked {
            Asked::Produce { request, .. } if self.records.once.has(request) => {
                self.say(|| format!("node {id} answers the produce {request}: {reply:?}"));
                self.attempted(request, Some(reply))
            }
            Asked::Produce { producer, request } => self.produced(id, producer, request, reply),
            Asked::Name { producer } => self.named(producer, Some(reply)),
            Asked::Fetch { reader } => self.fetched(id, reader, reply),
            Asked::Group { consumer, what } => self.consumer_heard(id, consumer, (what, waiting.at), reply),
        })
    }

    /// A process is gone: nobody will hear what became of what it was asked.
    pub(super) fn hear_no_records(&mut self, id: NodeId) {
        let lost: Vec<_> = self.records.waiting.keys().filter(|(node, _)| *node == id).copied().collect();
        for key in lost {
            match self.records.waiting.remove(&key).map(|waiting| waiting.asked) {
                Some(Asked::Produce { request, .. }) if self.records.once.has(request) => {
                    self.attempted(request, None).expect("what was never heard contradicts nothing");
                }
                Some(Asked::Produce { producer, request }) => self.never_heard(producer, request),
                Some(Asked::Name { producer }) => {
                    self.named(producer, None).expect("what was never heard contradicts nothing");
                }
                Some(Asked::Fetch { reader }) => self.records.readers[reader].waits = false,
                Some(Asked::Group { consumer, what }) => self.consumer_unheard(consumer, what),
                None => {}
            }
        }
    }

    fn no_client_waits_long(&self) -> Result<(), Violation> {
        for ((id, request), waiting) in &self.records.waiting {
            let since = waiting.at.max(self.nodes.get(id).map_or(0, |node| node.paused_until));
            let patience = PATIENCE + u64::from(waiting.wait_ms) * 1000;
            ensure(since + patience > self.now, "INV-5", || {
                format!("node {id} does not answer {request:?}: {waiting:?}")
            })?;
        }
        Ok(())
    }
}
