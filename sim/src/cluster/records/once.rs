//! Clients that repeat themselves: what was not answered, or whose outcome nobody knows, is sent again, to any node, also
//! while an earlier attempt is on its way.
//!
//! Owns names and stamps of such clients, and the requests of theirs that have no outcome. Everything is drawn from a
//! stream of its own.
//!
//! - A request is told to the model once, when nobody will send it again: it is stored if any attempt was, and refused
//!   only if every one was refused with nothing done.

use std::collections::BTreeMap;

use broker::{Produce, Reply, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{NodeId, ProducerEpoch, ProducerId, Stamp, WallTime};
use wire::reason::Effect;

use super::{Asked, bytes};
use crate::cluster::model::Told;
use crate::cluster::world::World;
use crate::invariants::{Violation, ensure, inv_06};

/// What the clients of a run that repeat themselves remember.
#[derive(Debug)]
pub(super) struct Once {
    rng: SmallRng,
    /// By client; those without an entry do not repeat themselves.
    names: BTreeMap<usize, Option<Name>>,
    /// By number.
    requests: BTreeMap<u64, Attempts>,
    /// A seldom kind of run: clients give up after so many attempts.
    tries_max: u32,
}

/// A name that a node gave.
#[derive(Clone, Copy, Debug)]
struct Name {
    id: ProducerId,
    /// What its clock said, and when.
    clock: (u64, u64),
    next: u32,
}

/// A request without an outcome.
#[derive(Clone, Debug)]
struct Attempts {
    client: usize,
    stamp: Stamp,
    produce: Produce,
    on_their_way: usize,
    tries: u32,
    /// Some attempt may have been stored.
    doubtful: bool,
    /// Some attempt was.
    stored: bool,
    /// It is of no use to send it again.
    is_over: bool,
    reason: Option<wire::Reason>,
}

impl Default for Once {
    fn default() -> Self {
        Self {
            rng: SmallRng::seed_from_u64(0),
            names: BTreeMap::new(),
            requests: BTreeMap::new(),
            tries_max: 0,
        }
    }
}

impl Once {
    /// Some of so many clients, in most runs.
    pub(super) fn new(seed: u64, clients: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x6f6e_6365_0000_0000);
        let some = rng.random_bool(0.7);
        let names = (0..clients).filter(|_| some && rng.random_bool(0.6)).map(|client| (client, None));
        let names = names.collect();
        let tries_max = [4, 40][rng.random_range(0..2)];
        Self { rng, names, requests: BTreeMap::new(), tries_max }
    }

    /// Whether a client is one of these.
    pub(super) fn is_of(&self, client: usize) -> bool {
        self.names.contains_key(&client)
    }

    pub(super) fn has(&self, request: u64) -> bool {
        self.requests.contains_key(&request)
    }

    /// Requests of a client that wait to be sent again.
    fn waiting(&self, client: usize) -> Option<u64> {
        let mine = self.requests.iter().filter(|(_, attempts)| attempts.client == client);
        mine.filter(|(_, attempts)| attempts.on_their_way == 0).map(|(request, _)| *request).next()
    }

    /// A stamp for a request of so many records; `None` without a name.
    fn stamp(&mut self, client: usize, count: u32, now: u64) -> Option<Stamp> {
        let name = self.names.get_mut(&client)?.as_mut()?;
        let first = name.next;
        name.next = first.checked_add(count)?;
        let (ms, at) = name.clock;
        let mine = self.requests.values().filter(|attempts| attempts.stamp.producer == name.id);
        let open = mine.filter(|attempts| !attempts.stored && !attempts.is_over);
        let settled = open.map(|attempts| attempts.stamp.first).min().unwrap_or(first);
        let born = WallTime((ms + (now - at) / 1000).max(1));
        Some(Stamp { producer: name.id, epoch: ProducerEpoch(0), first, settled, born })
    }
}

impl World {
    /// A client that repeats itself does so, or asks who it is; false when it sends something new instead.
    pub(super) fn repeat_something(&mut self, id: NodeId, client: usize) -> Result<bool, Violation> {
        let once = &mut self.records.once;
        let Some(name) = once.names.get(&client) else { return Ok(false) };
        // What waits goes first; now and then something is sent again that is still on its way.
        let again = once.waiting(client).or_else(|| {
            let impatient = once.rng.random_bool(0.1);
            let mine = once.requests.iter().filter(|(_, attempts)| attempts.client == client && impatient);
            mine.map(|(request, _)| *request).next()
        });
        if let Some(request) = again {
            self.attempt(id, request)?;
            return Ok(true);
        }
        if name.is_some() {
            return Ok(false);
        }
        let topic = Some(bytes(&self.records.topics[self.records.producers[client].topic()]));
        self.records.producers[client].sends(id);
        self.ask_for(id, Asked::Name { producer: client }, 0, Request::NewProducer { topic })?;
        Ok(true)
    }

    /// A client sends a request for the first time: one that repeats itself stamps it.
    pub(super) fn attempt_first(
        &mut self,
        id: NodeId,
        client: usize,
        request: u64,
        produce: Produce,
    ) -> Result<bool, Violation> {
        let Some(stamp) = self.records.once.stamp(client, produce.count, self.now) else { return Ok(false) };
        let produce = Produce { stamp: Some(stamp), ..produce };
        let (on_their_way, tries) = (0, 0);
        let (doubtful, stored, is_over, reason) = (false, false, false, None);
        let attempts =
            Attempts { client, stamp, produce, on_their_way, tries, doubtful, stored, is_over, reason };
        self.records.once.requests.insert(request, attempts);
        self.attempt(id, request)?;
        Ok(true)
    }

    fn attempt(&mut self, id: NodeId, request: u64) -> Result<(), Violation> {
        let Some(attempts) = self.records.once.requests.get_mut(&request) else { return Ok(()) };
        attempts.on_their_way += 1;
        attempts.tries += 1;
        let (client, produce) = (attempts.client, attempts.produce.clone());
        if attempts.tries > 1 {
            self.summary.repeated += 1;
        }
        self.records.producers[client].sends(id);
        self.ask_for(id, Asked::Produce { producer: client, request }, 0, Request::Produce(produce))
    }

    /// A client is told who it is, or not.
    pub(super) fn named(&mut self, client: usize, reply: Option<&Reply>) -> Result<(), Violation> {
        self.records.producers[client].hears(format!("{reply:?}"));
        match reply {
            Some(Reply::Producer { id, now }) => {
                let name = Name { id: *id, clock: (now.0, self.now), next: 0 };
                self.records.once.names.insert(client, Some(name));
                Ok(())
            }
            Some(Reply::Failed(_)) | None => Ok(()),
            Some(other) => {
                Err(Violation::new("ANSWER", format!("client {client} asks who it is and is told {other:?}")))
            }
        }
    }

    /// An attempt was answered, or never will be.
    pub(super) fn attempted(&mut self, request: u64, reply: Option<&Reply>) -> Result<(), Violation> {
        let count = u32::try_from(self.records.model.count(request)).unwrap_or(u32::MAX);
        let Some(attempts) = self.records.once.requests.get_mut(&request) else { return Ok(()) };
        let client = attempts.client;
        attempts.on_their_way -= 1;
        let mut forgotten = false;
        let mut is_first = false;
        match reply {
            None => attempts.doubtful = true,
            Some(Reply::Stored(stored)) => {
                inv_06::whole(format!("produce {request}"), *stored, count)?;
                is_first = !attempts.stored;
                attempts.stored = true;
            }
            Some(Reply::Failed(wire::Reason::InternalError)) => {
                return Err(Violation::new("OUTCOME", format!("produce {request} is answered {reply:?}")));
            }
            Some(Reply::Failed(reason)) => {
                attempts.reason = Some(*reason);
                attempts.doubtful |= reason.effect() == Effect::Unknown;
                forgotten = *reason == wire::Reason::ProducerForgotten;
                let is_named = forgotten || *reason == wire::Reason::OutOfWindow;
                ensure(*reason != wire::Reason::ProducerFenced, "INV-53", || {
                    format!("produce {request} is of the only life of its client, and answered {reply:?}")
                })?;
                attempts.is_over |= is_named;
                self.summary.forgotten += u64::from(is_named && !attempts.stored);
            }
            Some(other) => {
                return Err(Violation::new("ANSWER", format!("produce {request} is answered {other:?}")));
            }
        }
        let ends = attempts.stored || attempts.is_over || attempts.tries >= self.records.once.tries_max;
        let (on_their_way, attempts) = (attempts.on_their_way, attempts.clone());
        self.records.producers[client].hears(format!("{reply:?}"));
        if on_their_way == 0 && ends {
            self.records.once.requests.remove(&request);
        }
        if forgotten && !attempts.stored {
            // A client that is forgotten goes on under another name.
            self.records.once.names.insert(client, None);
        }
        let told = match (attempts.stored, attempts.doubtful) {
            (true, _) if is_first => Told::Done,
            (true, _) => return Ok(()),
            (false, true) if on_their_way == 0 && ends => Told::Unknown,
            (false, false) if on_their_way == 0 && ends => Told::Refused,
            (false, _) => return Ok(()),
        };
        let records = u64::from(count);
        match told {
            Told::Done => self.summary.records_acknowledged += records,
            Told::Unknown => self.summary.records_unknown += records,
            Told::Refused => self.summary.records_refused += records,
        }
        self.records.model.tell(request, told, attempts.reason)?;
        if told == Told::Done { self.audit_acknowledged(request) } else { Ok(()) }
    }
}
