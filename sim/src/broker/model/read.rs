//! What a reader may be given, and what is learnt from what it was given.
//!
//! A page is judged record by record against the place it was asked from: each key's next record, none left out
//! that must be there, none twice. An outcome nobody was told is decided by the first reader that comes by, and
//! stays so for ever.

use std::fmt::Display;
use std::rc::Rc;

use bytes::Bytes;

use super::Life;
use super::keyspace::{Span, contains};
use super::log::{Log, Outcome, Which};
use super::place::{Loose, Place};
use crate::invariants::{
    Violation, ensure, inv_01, inv_03, inv_04, inv_10, inv_25, inv_41, inv_42, inv_43, inv_44, p_38,
};

/// How a reader came to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reader {
    /// By a cursor, or from the beginning.
    Cursor,
    /// By what a group has committed.
    Group,
    /// By what was pushed before.
    Stream,
}

/// What was given, and to whom.
pub(in super::super) struct Page<'a> {
    pub(in super::super) who: &'a dyn Display,
    pub(in super::super) reader: Reader,
    pub(in super::super) start: &'a Place,
    /// Each as it is encoded.
    pub(in super::super) records: &'a [Bytes],
    /// When each was appended, if that was told.
    pub(in super::super) times: Option<Vec<u64>>,
    /// The slices the reader is responsible for; everything without.
    pub(in super::super) covers: Option<Rc<[Span]>>,
    /// The topic never had more than one range.
    pub(in super::super) single: bool,
    pub(in super::super) life: Life,
    pub(in super::super) power_lost: Option<Life>,
}

/// What a page says.
pub(in super::super) struct Seen {
    /// Where it began.
    pub(in super::super) start: Place,
    /// Where it leads.
    pub(in super::super) after: Place,
}

impl Log {
    /// Judges a page and learns from it.
    pub(in super::super) fn read(&mut self, page: &Page<'_>) -> Result<Seen, Violation> {
        let mut seen =
            Seen { start: page.start.clone(), after: page.start.clone().within(page.covers.clone()) };
        let mut last = None;
        for (nth, record) in page.records.iter().enumerate() {
            let which = self.find(record);
            let which = which.ok_or_else(|| {
                Violation::new("INV-3", format!("{}: record {nth} is one nobody produced there", page.who))
            })?;
            let entry = self.entry(which);
            let place = (entry.batch, entry.index);
            inv_10::in_order(self.label(which), page.single && last.is_some_and(|last| last > place))?;
            last = Some(place);
            self.is_of_reader(page, which)?;
            match which {
                Which::Keyed { key, at } => self.read_keyed(page, &mut seen, key, at)?,
                Which::Loose(at) => self.read_loose(page, &mut seen, at)?,
            }
            if let Some(times) = &page.times {
                self.appended_at(which, times[nth])?;
            }
        }
        if page.records.is_empty() {
            self.read_nothing(page, &mut seen)?;
        }
        Ok(seen)
    }

    fn is_of_reader(&self, page: &Page<'_>, which: Which) -> Result<(), Violation> {
        let (Some(covers), Some(position)) = (&page.covers, self.position_of(which)) else { return Ok(()) };
        ensure(covers.iter().any(|span| contains(*span, position)), "INV-42", || {
            format!("{} gets {}, whose key is somebody else's", page.who, self.label(which))
        })
    }

    fn read_keyed(
        &mut self,
        page: &Page<'_>,
        seen: &mut Seen,
        key: usize,
        at: usize,
    ) -> Result<(), Violation> {
        let which = Which::Keyed { key, at };
        let spots = seen.after.spots(key).to_vec();
        let legal: Vec<usize> =
            spots.iter().copied().filter(|spot| *spot <= at && self.may_pass(key, *spot, at)).collect();
        let Some(&furthest) = legal.last() else {
            return Err(self.misplaced(page, key, &spots, at));
        };
        for entry in &mut self.keys[key].entries[furthest..at] {
            match entry.outcome {
                Outcome::Pending => entry.passed = true,
                Outcome::Unknown(_) => entry.outcome = Outcome::Absent(None),
                Outcome::Acked(_) | Outcome::Present | Outcome::Absent(_) => {}
            }
        }
        self.judge(page, which)?;
        if seen.start.spots(key) == spots {
            seen.start.set_spots(key, legal);
        }
        seen.after.set_spots(key, vec![at + 1]);
        Ok(())
    }

    /// Whether a reader may get from one record of a key to another without those between.
    fn may_pass(&self, key: usize, from: usize, to: usize) -> bool {
        let entries = &self.keys[key].entries;
        let batch = entries[to].batch;
        entries[from..to].iter().all(|entry| !entry.outcome.is_due() && entry.batch != batch)
    }

    /// Why a record is not the next one.
    fn misplaced(&self, page: &Page<'_>, key: usize, spots: &[usize], at: usize) -> Violation {
        let label = self.label(Which::Keyed { key, at });
        let from = spots.iter().rev().find(|spot| **spot <= at);
        let Some(&from) = from else { return repeated(page, label) };
        let batch = self.keys[key].entries[at].batch;
        let skipped = (from..at).find(|at| {
            let entry = &self.keys[key].entries[*at];
            entry.outcome.is_due() || entry.batch == batch
        });
        self.missing(page, Which::Keyed { key, at: skipped.unwrap_or(from) })
    }

    /// A record that is due was not given.
    fn missing(&self, page: &Page<'_>, which: Which) -> Violation {
        let label = self.label(which);
        let acked = match self.entry(which).outcome {
            Outcome::Acked(life) => Some(life),
            _ => None,
        };
        let lost = acked.is_some_and(|life| page.power_lost.is_some_and(|lost| lost >= life));
        let checks = [
            inv_01::check(label, acked.is_some(), lost && page.reader == Reader::Cursor),
            inv_42::skipped(page.who, label, page.reader == Reader::Group),
            inv_43::skipped(page.who, label, self.entry(which).read),
            inv_03::not_skipped(label, true),
        ];
        checks.into_iter().find_map(Result::err).expect("the last one always fails")
    }

    fn read_loose(&mut self, page: &Page<'_>, seen: &mut Seen, at: usize) -> Result<(), Violation> {
        let which = Which::Loose(at);
        if seen.after.loose(at) == Loose::Read {
            return Err(repeated(page, self.label(which)));
        }
        self.judge(page, which)?;
        if seen.start.loose(at) == Loose::Either {
            seen.start.set_loose(at, Loose::Unread);
        }
        seen.after.loose_came(at);
        Ok(())
    }

    /// A record was read: it may be there, and stays from now on with what it was stored with.
    fn judge(&mut self, page: &Page<'_>, which: Which) -> Result<(), Violation> {
        let label = self.label(which);
        let entry = self.entry_mut(which);
        entry.read = true;
        let (batch, outcome) = (entry.batch, entry.outcome);
        let whole = self.batches[batch].uniform || page.single;
        match outcome {
            Outcome::Acked(_) | Outcome::Present => return Ok(()),
            Outcome::Pending => inv_41::committed(label, whole)?,
            Outcome::Unknown(_) => {}
            Outcome::Absent(reason) => {
                inv_04::check(label, reason)?;
                inv_41::not_back(label, true)?;
            }
        }
        for mate in self.batches[batch].records.clone() {
            let together = whole || home(mate) == home(which);
            if together {
                let label = self.label(mate);
                let entry = self.entry_mut(mate);
                let absent = matches!(entry.outcome, Outcome::Absent(_)) || entry.passed;
                inv_03::whole(label, absent)?;
                entry.outcome = Outcome::Present;
            }
        }
        Ok(())
    }

    /// Nothing was given: nothing may be left.
    fn read_nothing(&mut self, page: &Page<'_>, seen: &mut Seen) -> Result<(), Violation> {
        for key in 0..self.keys.len() {
            if !seen.after.speaks_of(self.positions[key]) {
                continue;
            }
            let entries = &mut self.keys[key].entries;
            let end = entries.iter().rposition(|entry| entry.outcome.is_due()).map_or(0, |last| last + 1);
            let legal: Vec<usize> =
                seen.after.spots(key).iter().copied().filter(|spot| *spot >= end).collect();
            let Some(&furthest) = legal.last() else {
                let label = self.label(Which::Keyed { key, at: end - 1 });
                return Err(inv_25::left(page.who, label));
            };
            for entry in entries.iter_mut().skip(furthest) {
                decide_absent(&mut entry.outcome, page.life);
            }
            seen.start.set_spots(key, legal.clone());
            seen.after.set_spots(key, legal);
        }
        if page.covers.is_some() {
            // Which of the records without keys are the reader's is not known here.
            return Ok(());
        }
        for at in 0..self.loose.len() {
            let due = self.loose[at].outcome.is_due();
            match seen.after.loose(at) {
                Loose::Unread if due => return Err(inv_25::left(page.who, self.label(Which::Loose(at)))),
                Loose::Unread => decide_absent(&mut self.loose[at].outcome, page.life),
                Loose::Either if due => {
                    seen.start.set_loose(at, Loose::Read);
                    seen.after.set_loose(at, Loose::Read);
                }
                Loose::Either | Loose::Read => {}
            }
        }
        Ok(())
    }

    /// Whether a reader that waits there has records to get.
    pub(in super::super) fn has_more(&self, place: &Place) -> bool {
        let keyed = (0..self.keys.len()).filter(|key| place.speaks_of(self.positions[*key])).any(|key| {
            let furthest = place.spots(key).last().copied().unwrap_or(0);
            self.keys[key].entries.iter().skip(furthest).any(|entry| entry.outcome.is_due())
        });
        let unread = |(at, entry): (usize, &super::log::Entry)| {
            entry.outcome.is_due() && place.loose(at) == Loose::Unread
        };
        keyed || (place.covers().is_none() && self.loose.iter().enumerate().any(unread))
    }

    /// Records that must be there and lie at or after a place, if that is certain.
    pub(in super::super) fn behind(&self, place: &Place) -> Option<usize> {
        let mut count = 0;
        for (key, of) in self.keys.iter().enumerate() {
            let [spot] = place.spots(key) else { return None };
            count += of.entries.iter().skip(*spot).filter(|entry| entry.outcome.is_due()).count();
        }
        for (at, entry) in self.loose.iter().enumerate() {
            match place.loose(at) {
                Loose::Unread if entry.outcome.is_due() => count += 1,
                Loose::Unread | Loose::Read => {}
                Loose::Either => return None,
            }
        }
        Some(count)
    }
}

/// Whatever an earlier lifetime left was found when this one began.
fn decide_absent(outcome: &mut Outcome, life: Life) {
    if let Outcome::Unknown(then) = outcome
        && *then < life
    {
        *outcome = Outcome::Absent(None);
    }
}

fn home(which: Which) -> Option<usize> {
    match which {
        Which::Keyed { key, .. } => Some(key),
        Which::Loose(_) => None,
    }
}

fn repeated(page: &Page<'_>, label: impl Display) -> Violation {
    match page.reader {
        Reader::Group => inv_44::repeated(page.who, label),
        Reader::Cursor | Reader::Stream => p_38::repeated(page.who, label),
    }
}
