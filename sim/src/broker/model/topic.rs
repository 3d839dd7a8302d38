//! One topic: whether it exists, its records, its groups.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use types::{RangeId, RangeSeq, TopicId};
use wire::Reason;

use super::{CallId, Group, Life};
use crate::invariants::{Violation, inv_01, inv_03, inv_04, inv_10, inv_12, inv_25, inv_41};

/// Whether a topic exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Existence {
    /// It does not, or only by a request that is on its way or was never answered.
    Unseen,
    /// Somebody was told so.
    Known,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// Its request waits.
    Pending,
    /// It was acknowledged in this lifetime.
    Acked(Life),
    /// Nobody knows, since this lifetime.
    Unknown(Life),
    /// It was never acknowledged, and somebody has read it.
    Present,
    /// It is not there and must never be.
    Absent(Option<Reason>),
}

/// The records of one request.
#[derive(Clone, Debug)]
pub(in super::super) struct Batch {
    pub(in super::super) call: CallId,
    /// Each as it is encoded.
    pub(in super::super) records: Vec<Bytes>,
    pub(in super::super) outcome: Outcome,
    /// A batch behind it was read, and it was not.
    passed: bool,
}

/// A batch, for people.
#[derive(Clone, Copy, Debug)]
struct Label {
    topic: &'static str,
    call: CallId,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {}: the batch of call {}", self.topic, self.call)
    }
}

/// One topic.
#[derive(Clone, Debug)]
pub(in super::super) struct Topic {
    pub(in super::super) name: &'static str,
    pub(in super::super) existence: Existence,
    pub(in super::super) id: Option<TopicId>,
    /// Somebody was told that his request created it.
    pub(in super::super) created: bool,
    /// Creations on their way.
    pub(in super::super) creating: Vec<CallId>,
    /// Lifetimes of creations whose answer never came.
    pub(in super::super) maybe: Vec<Life>,
    /// In the order in which the requests reached the node.
    batches: Vec<Batch>,
    /// What lies at each offset, as far as it was read: a batch and a record of it.
    places: Vec<(usize, usize)>,
    /// Records acknowledged, or read without that.
    kept: u64,
    pub(in super::super) groups: BTreeMap<Bytes, Group>,
}

impl Topic {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            existence: Existence::Unseen,
            id: None,
            created: false,
            creating: Vec::new(),
            maybe: Vec::new(),
            batches: Vec::new(),
            places: Vec::new(),
            kept: 0,
            groups: BTreeMap::new(),
        }
    }

    pub(in super::super) fn is_known(&self) -> bool {
        self.existence == Existence::Known
    }

    /// Its one range, when its id has been seen.
    pub(in super::super) fn range(&self) -> Option<RangeId> {
        self.id.map(|topic| RangeId { topic, seq: RangeSeq(0) })
    }

    /// Records acknowledged, or read without that.
    pub(in super::super) fn kept(&self) -> u64 {
        self.kept
    }

    /// Offsets that were read so far.
    pub(in super::super) fn read_end(&self) -> u64 {
        self.places.len() as u64
    }

    /// The topic was seen under this id.
    pub(in super::super) fn seen_as(&mut self, id: TopicId) -> Result<(), Violation> {
        inv_12::topic(self.name, id, *self.id.get_or_insert(id))?;
        self.existence = Existence::Known;
        Ok(())
    }

    /// Somebody was told that it does not exist: what earlier lifetimes left unanswered came to nothing.
    pub(in super::super) fn seen_absent(&mut self, life: Life) {
        self.maybe.retain(|then| *then >= life);
    }

    /// Whether some request can have created it.
    pub(in super::super) fn may_exist(&self) -> bool {
        self.is_known() || !self.creating.is_empty() || !self.maybe.is_empty()
    }

    pub(in super::super) fn life_ended(&mut self, life: Life) {
        let lost = self.creating.drain(..).map(|_| life);
        self.maybe.extend(lost);
        for batch in &mut self.batches {
            if batch.outcome == Outcome::Pending {
                batch.outcome = Outcome::Unknown(life);
            }
        }
        self.groups.values_mut().for_each(|group| group.life_ended(life));
    }

    /// A request to append has reached the node.
    pub(in super::super) fn asked(&mut self, call: CallId, records: Vec<Bytes>) -> usize {
        self.batches.push(Batch { call, records, outcome: Outcome::Pending, passed: false });
        self.batches.len() - 1
    }

    /// The request was acknowledged.
    pub(in super::super) fn acknowledged(&mut self, batch: usize, life: Life) -> Result<(), Violation> {
        let name = self.batch_name(batch);
        let batch = &mut self.batches[batch];
        inv_10::check(name, batch.passed)?;
        batch.outcome = Outcome::Acked(life);
        self.kept += batch.records.len() as u64;
        Ok(())
    }

    /// The request was refused; `unknown` when that says nothing about its records.
    pub(in super::super) fn refused(&mut self, batch: usize, reason: Reason, life: Life, unknown: bool) {
        let batch = &mut self.batches[batch];
        batch.outcome = match unknown {
            true if !batch.passed => Outcome::Unknown(life),
            true | false => Outcome::Absent(Some(reason)),
        };
    }

    fn batch_name(&self, batch: usize) -> Label {
        Label { topic: self.name, call: self.batches[batch].call }
    }

    /// Judges records read from `start` on, which must not lie past what was read before, and learns from them.
    pub(in super::super) fn read(
        &mut self,
        start: u64,
        page: &[Bytes],
        power_lost: Option<Life>,
    ) -> Result<(), Violation> {
        for (offset, record) in (start..).zip(page) {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(&(batch, index)) = self.places.get(at) {
                let place = format_args!("topic {} at {offset}", self.name);
                inv_03::same(place, record, &self.batches[batch].records[index])?;
                continue;
            }
            let place = self.next_place(record, power_lost)?;
            self.places.push(place);
        }
        Ok(())
    }

    /// Where the next record to be read may come from: the rest of a batch, or a batch after it.
    fn due(&self) -> (usize, usize) {
        match self.places.last() {
            None => (0, 0),
            Some(&(batch, index)) if index + 1 < self.batches[batch].records.len() => (batch, index + 1),
            Some(&(batch, _)) => (batch + 1, 0),
        }
    }

    /// Which record this is, which has never been read before.
    fn next_place(&mut self, record: &Bytes, power_lost: Option<Life>) -> Result<(usize, usize), Violation> {
        let (mut at, index) = self.due();
        if index > 0 {
            // A batch is stored whole or not at all.
            let name = self.batch_name(at);
            inv_03::same(format_args!("{name}, record {index}"), record, &self.batches[at].records[index])?;
            return Ok((at, index));
        }
        loop {
            if at >= self.batches.len() {
                inv_03::same(
                    format_args!("topic {}, after everything that was produced", self.name),
                    record,
                    b"",
                )?;
            }
            let name = self.batch_name(at);
            let batch = &mut self.batches[at];
            let found = batch.records[0] == *record;
            match batch.outcome {
                Outcome::Acked(_) if found => return Ok((at, 0)),
                Outcome::Acked(life) => {
                    inv_01::check(name, true, power_lost.is_some_and(|lost| lost >= life))?;
                    inv_03::not_skipped(name, true)?;
                }
                Outcome::Pending => {
                    inv_41::committed(name, found)?;
                    batch.passed = true;
                }
                Outcome::Unknown(_) if found => {
                    batch.outcome = Outcome::Present;
                    self.kept += batch.records.len() as u64;
                    return Ok((at, 0));
                }
                Outcome::Unknown(_) => batch.outcome = Outcome::Absent(None),
                Outcome::Absent(reason) => {
                    inv_04::check(name, reason.filter(|_| found))?;
                    inv_41::not_back(name, found)?;
                }
                // Read before, and so at its place already.
                Outcome::Present => inv_41::not_back(name, found)?,
            }
            at += 1;
        }
    }

    /// Judges an answer without records to a reader at `position`, and learns from it.
    pub(in super::super) fn nothing_at(&mut self, position: u64, life: Life) -> Result<(), Violation> {
        inv_25::nothing_left(self.name, position, position < self.read_end())?;
        let (due, index) = self.due();
        inv_25::nothing_left(self.name, position, index > 0)?;
        for batch in self.batches.iter_mut().skip(due) {
            match batch.outcome {
                Outcome::Acked(_) | Outcome::Present => inv_25::nothing_left(self.name, position, true)?,
                // Whatever an earlier lifetime left was found when this one began.
                Outcome::Unknown(then) if then < life => batch.outcome = Outcome::Absent(None),
                Outcome::Pending | Outcome::Unknown(_) | Outcome::Absent(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a batch ends at an offset that was read.
    pub(in super::super) fn is_boundary(&self, offset: u64) -> bool {
        let Some(last) = usize::try_from(offset).ok().and_then(|offset| offset.checked_sub(1)) else {
            return true;
        };
        self.places.get(last).is_some_and(|&(batch, index)| index + 1 == self.batches[batch].records.len())
    }
}
