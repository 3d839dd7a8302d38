//! Clients that write: on any node, with keys of their own and without, one request at a time or several.
//!
//! A client stays with a node while it waits for it, so that what it asked for in order arrives in order. It repeats
//! nothing: what became of a request that was not answered is left open.

use broker::{Produce, Reply, Request};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use rand::rngs::SmallRng;
use types::NodeId;
use types::record::{Header, Record};
use wire::reason::Effect;

use super::model::value_of;
use super::{Asked, bytes};
use crate::cluster::model::Told;
use crate::cluster::world::World;
use crate::invariants::{Violation, inv_06};

/// A client that writes to one topic.
#[derive(Clone, Debug)]
pub(super) struct Producer {
    number: usize,
    topic: usize,
    keys: u32,
    /// Requests on their way at one time.
    window: usize,
    on_their_way: usize,
    node: Option<NodeId>,
    /// Records of one request at most.
    batch: u32,
    /// What it was told last.
    pub(super) last: String,
}

impl Producer {
    pub(super) fn new(number: usize, topics: usize, rng: &mut SmallRng) -> Self {
        Self {
            number,
            topic: rng.random_range(0..topics),
            keys: rng.random_range(1..9),
            window: [1, 1, 3, 8][rng.random_range(0..4)],
            on_their_way: 0,
            node: None,
            batch: [1, 3, 10][rng.random_range(0..3)],
            last: String::new(),
        }
    }

    pub(super) fn topic(&self) -> usize {
        self.topic
    }

    /// It asks a node for something.
    pub(super) fn sends(&mut self, id: NodeId) {
        self.node = Some(id);
        self.on_their_way += 1;
    }

    /// It is told something, or that nobody will tell it.
    pub(super) fn hears(&mut self, what: String) {
        self.on_their_way -= 1;
        self.last = what;
    }

    /// Whether it waits for nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.on_their_way == 0
    }

    /// Keys nobody else uses.
    fn key(&self, rng: &mut SmallRng) -> Option<Bytes> {
        rng.random_bool(0.85)
            .then(|| Bytes::from(format!("k{}-{}", self.number, rng.random_range(0..self.keys))))
    }
}

fn sample(rng: &mut SmallRng, name: (u64, u32), key: Option<Bytes>) -> Record {
    let value = value_of(name, [0, 0, 20, 100, 500][rng.random_range(0..5)]);
    let header = || Header { name: Bytes::from_static(b"h"), value: Bytes::from_static(b"v") };
    let headers = if rng.random_bool(0.1) { vec![header()] } else { Vec::new() };
    Record { key, value, timestamp: rng.random(), headers }
}

impl World {
    /// Some client writes something.
    pub(super) fn produce_some(&mut self) -> Result<(), Violation> {
        let mut at = self.records.rng.random_range(0..self.records.producers.len());
        if self.records.splits_by_load() && self.records.rng.random_bool(0.7) {
            // What comes is mostly one client's, and every few seconds another's.
            at = usize::try_from(self.now / 8_000_000).unwrap_or(0) % self.records.producers.len();
        }
        let producer = self.records.producers[at].clone();
        if producer.on_their_way >= producer.window {
            return Ok(());
        }
        let stays = producer.node.filter(|_| producer.on_their_way > 0 || self.records.rng.random_bool(0.7));
        let stays = stays.filter(|id| {
            let node = self.nodes.get(id);
            let process = node.and_then(|node| node.process.as_ref());
            process.is_some_and(|process| process.ready)
        });
        // Whoever waits for a process that is gone was told so: it waits for nobody here.
        let Some(id) = stays.or_else(|| self.some_running()) else { return Ok(()) };
        self.produce_on(id, at)
    }

    /// A client writes something through a node.
    pub(super) fn produce_on(&mut self, id: NodeId, at: usize) -> Result<(), Violation> {
        if self.repeat_something(id, at)? {
            return Ok(());
        }
        let request = self.number();
        let rng = &mut self.records.rng;
        let producer = &mut self.records.producers[at];
        let count = rng.random_range(1..=producer.batch);
        let mut records = Vec::new();
        for index in 0..count {
            let key = producer.key(rng);
            records.push(sample(rng, (request, index), key));
        }
        let topic = producer.topic;
        let mut encoded = BytesMut::new();
        records.iter().for_each(|record| record.encode(&mut encoded));
        self.records.model.send(request, topic, records, self.records.once.is_of(at));
        let records = encoded.freeze();
        let crc = crc32fast::hash(&records);
        let topic = Some(bytes(&self.records.topics[topic]));
        let produce = Produce { topic, records, count, crc, stamp: None };
        if self.attempt_first(id, at, request, produce.clone())? {
            return Ok(());
        }
        self.records.producers[at].sends(id);
        self.ask_for(id, Asked::Produce { producer: at, request }, 0, Request::Produce(produce))
    }

    /// A client is told what became of a request.
    pub(super) fn produced(
        &mut self,
        id: NodeId,
        producer: usize,
        request: u64,
        reply: &Reply,
    ) -> Result<(), Violation> {
        self.say(|| format!("node {id} answers the produce {request}: {reply:?}"));
        self.records.producers[producer].on_their_way -= 1;
        self.records.producers[producer].last = format!("{reply:?}");
        let count = u32::try_from(self.records.model.count(request)).unwrap_or(u32::MAX);
        let (told, reason) = match reply {
            Reply::Stored(stored) => {
                inv_06::whole(format!("produce {request}"), *stored, count)?;
                (Told::Done, None)
            }
            Reply::Failed(wire::Reason::InternalError) => {
                return Err(Violation::new("OUTCOME", format!("produce {request} is answered {reply:?}")));
            }
            Reply::Failed(reason) => match reason.effect() {
                Effect::None => (Told::Refused, Some(*reason)),
                Effect::Unknown => (Told::Unknown, Some(*reason)),
            },
            other => {
                return Err(Violation::new("ANSWER", format!("produce {request} is answered {other:?}")));
            }
        };
        let records = u64::from(count);
        match told {
            Told::Done => self.summary.records_acknowledged += records,
            Told::Unknown => self.summary.records_unknown += records,
            Told::Refused => self.summary.records_refused += records,
        }
        self.records.model.tell(request, told, reason)?;
        if told == Told::Done { self.audit_acknowledged(request) } else { Ok(()) }
    }

    /// Nobody will say what became of a request.
    pub(super) fn never_heard(&mut self, producer: usize, request: u64) {
        self.records.producers[producer].on_their_way -= 1;
        let count = self.records.model.count(request);
        self.summary.records_unknown += u64::try_from(count).unwrap_or(0);
        let told = self.records.model.tell(request, Told::Unknown, None);
        told.expect("an unknown outcome contradicts nothing");
    }
}
