//! What clients were told of records, and what must therefore be read.
//!
//! Knows nothing of nodes, ranges, segments or offsets. A record is known by the request that carried it and its place
//! in that. Whoever reads a key from the beginning reads the same records of it in the same order, whichever node is
//! asked: so the first to read one settles it for all.
//!
//! - A request that was answered ok is there, whole; one that was refused with nothing done is never read; of any other
//!   each record may be there, and once it was read it stays.
//! - Records of one key that were acknowledged lie in the order in which they were asked for: a client asks for the next
//!   one when it heard of the last, or on the same connection. Not those of clients that repeat themselves: what is sent
//!   again may come behind what was sent after it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::record::Record;

use crate::cluster::model::Told;
use crate::invariants::{Violation, inv_04, inv_10, inv_41, inv_53};

/// A record: its request, and its place in that.
pub(super) type Name = (u64, u32);

/// A request that was sent.
#[derive(Clone, Debug)]
struct Sent {
    topic: usize,
    records: Vec<Record>,
    /// `None` while nobody was told anything.
    told: Option<Told>,
    /// What the refusal said.
    refusal: Option<wire::Reason>,
    /// Its client repeats itself: it may have been sent after requests that it was asked for before.
    repeats: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    requests: BTreeMap<u64, Sent>,
    /// Of each key what was acknowledged, in the order in which it was asked for.
    acknowledged: BTreeMap<Bytes, BTreeSet<Name>>,
    /// Of each key what was read, in the order of all readers.
    order: BTreeMap<Bytes, Vec<Name>>,
    /// Where each record that was read stands in its key's order.
    places: BTreeMap<Name, usize>,
    /// Of each topic what has to be read by whoever reads all of it.
    due: BTreeMap<usize, BTreeSet<Name>>,
}

/// How far a reader is.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) seen: BTreeSet<Name>,
    /// Of each key, how many.
    keys: BTreeMap<Bytes, usize>,
}

impl Model {
    pub(super) fn send(&mut self, request: u64, topic: usize, records: Vec<Record>, repeats: bool) {
        self.requests.insert(request, Sent { topic, records, told: None, refusal: None, repeats });
    }

    pub(super) fn count(&self, request: u64) -> usize {
        self.requests.get(&request).map_or(0, |sent| sent.records.len())
    }

    /// What whoever reads all of a topic has to read.
    pub(super) fn due(&self, topic: usize) -> &BTreeSet<Name> {
        const NONE: &BTreeSet<Name> = &BTreeSet::new();
        self.due.get(&topic).unwrap_or(NONE)
    }

    /// How many records there are that were acknowledged or read.
    pub(super) fn due_count(&self) -> usize {
        self.due.values().map(BTreeSet::len).sum()
    }

    /// A client is told what became of a request, or never will be.
    pub(super) fn tell(
        &mut self,
        request: u64,
        told: Told,
        refusal: Option<wire::Reason>,
    ) -> Result<(), Violation> {
        let Some(sent) = self.requests.get_mut(&request) else { return Ok(()) };
        sent.told = Some(told);
        sent.refusal = refusal;
        let names = (0..).zip(&sent.records).map(|(at, record)| ((request, at), record.key.clone()));
        let repeats = sent.repeats;
        let (names, topic): (Vec<(Name, Option<Bytes>)>, usize) = (names.collect(), sent.topic);
        for (name, key) in names {
            match told {
                Told::Unknown => {}
                Told::Refused if self.places.contains_key(&name) => inv_04::check(shown(name), refusal)?,
                Told::Refused => {}
                Told::Done => {
                    self.due.entry(topic).or_default().insert(name);
                    if let Some(key) = key.filter(|_| !repeats) {
                        self.acknowledged.entry(key.clone()).or_default().insert(name);
                        self.judge_order(&key)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A reader of a topic is given a record.
    pub(super) fn read(
        &mut self,
        topic: usize,
        progress: &mut Progress,
        record: &Record,
    ) -> Result<(), Violation> {
        let name = self.known(topic, record)?;
        let again = !progress.seen.insert(name);
        if self.requests.get(&name.0).is_some_and(|sent| sent.repeats) {
            inv_53::once(shown(name), again)?;
        }
        inv_10::not_twice(shown(name), again)?;
        self.read_on(topic, progress, name, record)
    }

    /// Somebody who reads as a group is given a record, which may be again what one of it was given. Returns which, and
    /// whether it is.
    pub(super) fn read_for_group(
        &mut self,
        topic: usize,
        progress: &mut Progress,
        record: &Record,
    ) -> Result<(Name, bool), Violation> {
        let name = self.known(topic, record)?;
        if !progress.seen.insert(name) {
            return Ok((name, true));
        }
        self.read_on(topic, progress, name, record)?;
        Ok((name, false))
    }

    /// Where a record that was read stands among those of its key.
    pub(super) fn place(&self, name: Name) -> Option<usize> {
        self.places.get(&name).copied()
    }

    /// Which record it is, if somebody sent it to that topic.
    fn known(&self, topic: usize, record: &Record) -> Result<Name, Violation> {
        let name = name_in(&record.value);
        let sent = name.and_then(|name| Some((name, self.requests.get(&name.0)?)));
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        let is_same = |(name, sent): &(Name, &Sent)| {
            sent.topic == topic && sent.records.get(place(name.1)) == Some(record)
        };
        let Some((name, sent)) = sent.filter(is_same) else {
            return Err(Violation::new("INV-3", format!("nobody sent {record:?}")));
        };
        if sent.told == Some(Told::Refused) {
            inv_04::check(shown(name), sent.refusal)?;
        }
        Ok(name)
    }

    /// The next record of whoever was not given it before.
    fn read_on(
        &mut self,
        topic: usize,
        progress: &mut Progress,
        name: Name,
        record: &Record,
    ) -> Result<(), Violation> {
        self.due.entry(topic).or_default().insert(name);
        let Some(key) = record.key.clone() else {
            self.places.insert(name, 0);
            return Ok(());
        };
        let order = self.order.entry(key.clone()).or_default();
        let at = progress.keys.entry(key.clone()).or_default();
        match order.get(*at) {
            Some(other) => inv_41::same_for_all(shown(name), shown(*other), name == *other)?,
            None => {
                self.places.insert(name, order.len());
                order.push(name);
            }
        }
        *at += 1;
        self.judge_order(&key)
    }

    /// Whether the acknowledged records of a key that were read come in the order in which they were asked for, and
    /// none was left out.
    fn judge_order(&self, key: &Bytes) -> Result<(), Violation> {
        let Some(acknowledged) = self.acknowledged.get(key) else { return Ok(()) };
        let (mut last, mut missing) = (None, None);
        for name in acknowledged {
            let Some(place) = self.places.get(name) else {
                missing = missing.or(Some(name));
                continue;
            };
            if let Some(missing) = missing {
                inv_10::check(shown(*missing), true)?;
            }
            inv_10::in_order(shown(*name), last.is_some_and(|last| last > place))?;
            last = Some(place);
        }
        Ok(())
    }
}

/// How a record is spoken of.
pub(super) fn shown(name: Name) -> String {
    format!("record {}/{}", name.0, name.1)
}

/// The value of a record begins with its name.
pub(super) fn value_of(name: Name, padding: usize) -> Bytes {
    let mut value = format!("{}/{}/", name.0, name.1).into_bytes();
    value.resize(value.len() + padding, b'.');
    value.into()
}

/// The name a value begins with.
pub(super) fn name_in(value: &[u8]) -> Option<Name> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split('/');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
