//! When records were appended, and where a cursor at a time may stand.
//!
//! The time of a record is known when a reader was told it, and otherwise lies between the arrival of its
//! request and the latest time that any clock of the node had shown when it was answered: a range's time never
//! goes back, so a clock that does leaves it where it is.

use super::log::{Log, Which};
use super::place::{Loose, Place};
use crate::invariants::{Violation, ensure};

/// What a search for a time must not answer, as far as it was known when it was asked.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Sought {
    at: u64,
    /// By number of the key: the first spot.
    least: Vec<usize>,
    /// Records without a key that lie before it.
    before: Vec<usize>,
}

impl Log {
    /// A reader was told when a record was appended.
    pub(super) fn appended_at(&mut self, which: Which, time: u64) -> Result<(), Violation> {
        let (label, (early, late)) = (self.label(which), self.entry(which).times);
        ensure(early <= time && time <= late, "TIME", || {
            format!("{label} was appended at {time}, and it must have been from {early} to {late}")
        })?;
        self.entry_mut(which).times = (time, time);
        let Which::Keyed { key, at } = which else { return Ok(()) };
        let exact = |entry: &super::log::Entry| {
            (entry.outcome.is_due() && entry.times.0 == entry.times.1).then_some(entry.times.0)
        };
        let entries = &self.keys[key].entries;
        let before = entries[..at].iter().rev().find_map(exact);
        let after = entries[at + 1..].iter().find_map(exact);
        let between = before.is_none_or(|before| before <= time) && after.is_none_or(|after| time <= after);
        ensure(between, "TIME", || {
            format!(
                "{label} was appended at {time}, its key's others before at {before:?}, after at {after:?}"
            )
        })
    }

    /// Somebody looks for a time. `known` tells whether the node knows where every range ends.
    pub(in super::super) fn seek(&self, at: u64, known: bool) -> Sought {
        let earlier = |entry: &super::log::Entry| entry.outcome.is_due() && entry.times.1 < at;
        if !known && at == u64::MAX {
            return Sought { at, ..Sought::default() };
        }
        let least = |key: &super::log::Key| key.entries.iter().rposition(earlier).map_or(0, |last| last + 1);
        let before = (0..self.loose.len()).filter(|at| earlier(&self.loose[*at]));
        Sought { at, least: self.keys.iter().map(least).collect(), before: before.collect() }
    }

    /// Where the cursor stands that the search was answered with.
    pub(in super::super) fn sought(&self, sought: &Sought) -> Place {
        let mut place = Place::beginning();
        if sought.at == 0 {
            return place;
        }
        let later = |entry: &super::log::Entry| entry.outcome.is_due() && entry.times.0 >= sought.at;
        for (key, of) in self.keys.iter().enumerate() {
            let least = sought.least.get(key).copied().unwrap_or(0);
            let most = of.entries.iter().position(later).unwrap_or(of.entries.len());
            place.set_spots(key, (least..=most.max(least)).collect());
        }
        for (at, entry) in self.loose.iter().enumerate() {
            let loose = match (sought.before.contains(&at), later(entry)) {
                (true, _) => Loose::Read,
                (false, true) => Loose::Unread,
                (false, false) => Loose::Either,
            };
            place.set_loose(at, loose);
        }
        place
    }
}
