//! Every record that was asked for, and what is known to have become of it.
//!
//! Records with one key lie in the order in which their requests reached the node; between keys there is no
//! order. What a request puts under one key is stored whole or not at all, and so is what it has without keys,
//! because either goes to one range; what goes to several ranges may fail in parts.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use wire::{Effect, Reason};

use super::{CallId, Life, keyspace};
use crate::invariants::{Violation, inv_04, inv_10};

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// Its request waits.
    Pending,
    /// It was acknowledged in this lifetime.
    Acked(Life),
    /// Nobody knows, since this lifetime.
    Unknown(Life),
    /// It was never acknowledged, and somebody has read it, or what it is stored together with.
    Present,
    /// It is not there and must never be.
    Absent(Option<Reason>),
}

impl Outcome {
    /// Whether it must be there.
    pub(in super::super) fn is_due(self) -> bool {
        matches!(self, Self::Acked(_) | Self::Present)
    }
}

/// One record.
#[derive(Clone, Debug)]
pub(in super::super) struct Entry {
    pub(in super::super) batch: usize,
    /// Place in its request.
    pub(in super::super) index: usize,
    pub(in super::super) outcome: Outcome,
    /// A record behind it was read, and it was not.
    pub(super) passed: bool,
    /// Somebody has read it.
    pub(super) read: bool,
    /// When it was appended: not before, not after; milliseconds.
    pub(super) times: (u64, u64),
}

/// One key.
#[derive(Clone, Debug)]
pub(in super::super) struct Key {
    pub(in super::super) entries: Vec<Entry>,
}

/// Which record: a key's or one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Which {
    Keyed { key: usize, at: usize },
    Loose(usize),
}

/// One request.
#[derive(Clone, Debug)]
pub(in super::super) struct Batch {
    pub(in super::super) call: CallId,
    pub(in super::super) records: Vec<Which>,
    /// Whatever ranges there are, it is stored whole or not at all.
    pub(super) uniform: bool,
}

/// A record, for people.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Label {
    topic: &'static str,
    call: CallId,
    index: usize,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {}: record {} of call {}", self.topic, self.index, self.call)
    }
}

/// All records of one life of a topic.
#[derive(Clone, Debug)]
pub(in super::super) struct Log {
    pub(super) topic: &'static str,
    pub(super) size: u64,
    pub(in super::super) keys: Vec<Key>,
    pub(super) numbers: BTreeMap<Bytes, usize>,
    /// Where each key lies.
    pub(in super::super) positions: Vec<u64>,
    pub(in super::super) loose: Vec<Entry>,
    pub(in super::super) batches: Vec<Batch>,
    /// Each record as it is encoded.
    pub(super) found: BTreeMap<Bytes, Which>,
}

impl Log {
    pub(super) fn new(topic: &'static str, size: u64) -> Self {
        Self {
            topic,
            size,
            keys: Vec::new(),
            numbers: BTreeMap::new(),
            positions: Vec::new(),
            loose: Vec::new(),
            batches: Vec::new(),
            found: BTreeMap::new(),
        }
    }

    pub(in super::super) fn entry(&self, which: Which) -> &Entry {
        match which {
            Which::Keyed { key, at } => &self.keys[key].entries[at],
            Which::Loose(at) => &self.loose[at],
        }
    }

    pub(super) fn entry_mut(&mut self, which: Which) -> &mut Entry {
        match which {
            Which::Keyed { key, at } => &mut self.keys[key].entries[at],
            Which::Loose(at) => &mut self.loose[at],
        }
    }

    pub(in super::super) fn label(&self, which: Which) -> Label {
        let entry = self.entry(which);
        Label { topic: self.topic, call: self.batches[entry.batch].call, index: entry.index }
    }

    /// Which record these bytes are.
    pub(in super::super) fn find(&self, record: &Bytes) -> Option<Which> {
        self.found.get(record).copied()
    }

    /// Where a record's key lies; nobody outside knows it of one without.
    pub(in super::super) fn position_of(&self, which: Which) -> Option<u64> {
        match which {
            Which::Keyed { key, .. } => Some(self.positions[key]),
            Which::Loose(_) => None,
        }
    }

    fn key(&mut self, bytes: &Bytes) -> usize {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        self.numbers.insert(bytes.clone(), self.keys.len());
        self.positions.push(keyspace::position(bytes, self.size));
        self.keys.push(Key { entries: Vec::new() });
        self.keys.len() - 1
    }

    /// A request to append has reached the node at this time.
    pub(in super::super) fn asked(
        &mut self,
        call: CallId,
        records: Vec<(Option<Bytes>, Bytes)>,
        wall: u64,
    ) -> usize {
        let batch = self.batches.len();
        let mut which = Vec::with_capacity(records.len());
        for (index, (key, bytes)) in records.into_iter().enumerate() {
            let times = (wall, u64::MAX);
            let entry = Entry { batch, index, outcome: Outcome::Pending, passed: false, read: false, times };
            let one = match key {
                Some(key) => {
                    let key = self.key(&key);
                    self.keys[key].entries.push(entry);
                    Which::Keyed { key, at: self.keys[key].entries.len() - 1 }
                }
                None => {
                    self.loose.push(entry);
                    Which::Loose(self.loose.len() - 1)
                }
            };
            self.found.insert(bytes, one);
            which.push(one);
        }
        let home = |which: &Which| match which {
            Which::Keyed { key, .. } => Some(*key),
            Which::Loose(_) => None,
        };
        let uniform = which.iter().all(|one| home(one) == home(&which[0]));
        self.batches.push(Batch { call, records: which, uniform });
        batch
    }

    /// The request was acknowledged; the latest time any clock has shown is `wall`.
    pub(in super::super) fn acknowledged(
        &mut self,
        batch: usize,
        life: Life,
        wall: u64,
    ) -> Result<(), Violation> {
        for which in self.batches[batch].records.clone() {
            let label = self.label(which);
            let entry = self.entry_mut(which);
            inv_10::check(label, entry.passed)?;
            entry.outcome = Outcome::Acked(life);
            entry.times.1 = entry.times.1.min(wall);
        }
        Ok(())
    }

    /// The request was refused.
    pub(in super::super) fn refused(
        &mut self,
        batch: usize,
        reason: Reason,
        life: Life,
        wall: u64,
    ) -> Result<(), Violation> {
        for which in self.batches[batch].records.clone() {
            let label = self.label(which);
            let entry = self.entry_mut(which);
            entry.times.1 = entry.times.1.min(wall);
            if entry.outcome == Outcome::Present {
                // A part of it was stored, and read.
                inv_04::check(label, Some(reason))?;
                continue;
            }
            entry.outcome = match reason.effect() {
                Effect::Unknown if !entry.passed => Outcome::Unknown(life),
                Effect::Unknown | Effect::None => Outcome::Absent(Some(reason)),
            };
        }
        Ok(())
    }

    /// The process has ended: nobody will be told what became of what waits.
    pub(in super::super) fn life_ended(&mut self, life: Life, wall: u64) {
        let loose = self.loose.iter_mut();
        for entry in self.keys.iter_mut().flat_map(|key| key.entries.iter_mut()).chain(loose) {
            if entry.outcome == Outcome::Pending {
                entry.outcome = if entry.passed { Outcome::Absent(None) } else { Outcome::Unknown(life) };
                entry.times.1 = entry.times.1.min(wall);
            }
        }
    }

    /// Every record, in no promised order.
    pub(in super::super) fn all(&self) -> impl Iterator<Item = Which> + '_ {
        let keyed = self.keys.iter().enumerate();
        let keyed = keyed.flat_map(|(key, of)| (0..of.entries.len()).map(move |at| Which::Keyed { key, at }));
        keyed.chain((0..self.loose.len()).map(Which::Loose))
    }

    /// Records that must be there.
    pub(in super::super) fn due(&self) -> usize {
        self.all().filter(|which| self.entry(*which).outcome.is_due()).count()
    }
}
