//! What one range remembers of producers. Pure: it is told what was appended and says what a request is.
//!
//! - Whatever is not listed and was born after the horizon was never appended.
//! - Bounded: so many producers, so many requests of each; whoever was heard of longest ago goes first, and the horizon
//!   rises to where that was.

use std::collections::{BTreeMap, VecDeque};

use types::{KeySpan, Offset, ProducerEpoch, ProducerId, Stamp, WallTime, limits};

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing of it was ever appended.
    New,
    /// All of it is stored, in an ancestor or an earlier segment.
    Stored,
    /// All of it was appended, below this end.
    Below(Offset),
    /// Of its records those are stored whose keys lie in these slices, and no others.
    Partly(Vec<KeySpan>),
    /// Its producer has said that it has an outcome.
    Settled,
    /// Its producer has begun a later life.
    Fenced,
    /// It is not known whether it was appended.
    Forgotten,
}

/// Where a request was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// In this range, below this end.
    Own(Offset),
    /// In an ancestor that has all keys of this range.
    Whole,
    /// In an ancestor that has these keys of this range.
    Part(KeySpan),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    lives: BTreeMap<ProducerId, Life>,
    /// Requests of all of them.
    requests: usize,
    /// Everything that was dropped was appended at this time or earlier.
    dropped: WallTime,
}

#[derive(Debug)]
struct Life {
    epoch: ProducerEpoch,
    /// Requests below this are not listed.
    from: u32,
    used_at: WallTime,
    /// By number.
    requests: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    first: u32,
    /// All of it, below this end.
    end: Option<Offset>,
    /// In ancestors.
    parts: Vec<KeySpan>,
}

impl Table {
    /// Producers, and requests of them.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.lives.len(), self.requests)
    }

    /// What a request is, when nothing is listed of what was appended at `unread` or earlier and not read.
    pub(crate) fn judge(&self, stamp: &Stamp, unread: WallTime) -> Verdict {
        let unlisted = if stamp.born > self.dropped.max(unread) { Verdict::New } else { Verdict::Forgotten };
        let Some(life) = self.lives.get(&stamp.producer) else { return unlisted };
        if stamp.epoch < life.epoch {
            return Verdict::Fenced;
        }
        if stamp.epoch > life.epoch {
            return unlisted;
        }
        if stamp.first < life.from {
            return Verdict::Settled;
        }
        let at = life.requests.partition_point(|request| request.first < stamp.first);
        match life.requests.get(at).filter(|request| request.first == stamp.first) {
            None => unlisted,
            Some(Request { end: Some(Offset::ZERO), .. }) => Verdict::Stored,
            Some(Request { end: Some(end), .. }) => Verdict::Below(*end),
            // The rest may lie in what was not read, or was dropped with what was known of it.
            Some(_) if unlisted == Verdict::Forgotten => Verdict::Forgotten,
            Some(Request { parts, .. }) => Verdict::Partly(parts.clone()),
        }
    }

    /// A request was appended, or found where it was appended at `at`.
    pub(crate) fn note(&mut self, stamp: &Stamp, mark: Mark, at: WallTime) {
        let is_known = self.lives.contains_key(&stamp.producer);
        if !is_known && self.lives.len() >= limits::PRODUCERS_PER_RANGE_MAX {
            self.drop_oldest();
        }
        let fresh = || Life { epoch: stamp.epoch, from: 0, used_at: at, requests: VecDeque::new() };
        let life = self.lives.entry(stamp.producer).or_insert_with(fresh);
        if stamp.epoch < life.epoch {
            return;
        }
        if stamp.epoch > life.epoch {
            self.requests -= life.requests.len();
            *life = fresh();
        }
        life.used_at = life.used_at.max(at);
        if stamp.first < life.from {
            return;
        }
        let place = life.requests.partition_point(|request| request.first < stamp.first);
        if life.requests.get(place).is_none_or(|request| request.first != stamp.first) {
            life.requests.insert(place, Request { first: stamp.first, end: None, parts: Vec::new() });
            self.requests += 1;
        }
        match mark {
            Mark::Own(end) => life.requests[place].end = Some(end),
            Mark::Whole => life.requests[place].end = Some(Offset::ZERO),
            Mark::Part(span) => life.requests[place].parts.push(span),
        }
        if life.requests.len() > limits::PRODUCER_REQUESTS_MAX
            && let Some(dropped) = life.requests.pop_front()
        {
            life.from = dropped.first.saturating_add(1);
            self.requests -= 1;
        }
        if self.requests > limits::PRODUCER_REQUESTS_PER_RANGE_MAX {
            self.drop_oldest();
        }
    }

    /// Its producer says which of its requests have an outcome.
    pub(crate) fn settled(&mut self, stamp: &Stamp) {
        let Some(life) = self.lives.get_mut(&stamp.producer) else { return };
        if life.epoch != stamp.epoch || life.from >= stamp.settled {
            return;
        }
        life.from = stamp.settled;
        while life.requests.front().is_some_and(|request| request.first < stamp.settled) {
            life.requests.pop_front();
            self.requests -= 1;
        }
    }

    /// What this range was given past `end` was not stored.
    pub(crate) fn cut(&mut self, end: Offset) {
        for life in self.lives.values_mut() {
            let before = life.requests.len();
            life.requests.retain_mut(|request| {
                request.end = request.end.filter(|own| *own <= end);
                request.end.is_some() || !request.parts.is_empty()
            });
            self.requests -= before - life.requests.len();
        }
    }

    /// Drops a quarter of the producers, those that were heard of longest ago: a search for one each time would cost more.
    pub(crate) fn drop_oldest(&mut self) {
        let mut used: Vec<WallTime> = self.lives.values().map(|life| life.used_at).collect();
        used.sort_unstable();
        let Some(limit) = used.get(used.len() / 4).copied() else { return };
        self.drop_until(limit);
    }

    /// Drops the producers that were not heard of after a time.
    pub(crate) fn drop_until(&mut self, limit: WallTime) {
        if self.lives.values().all(|life| life.used_at > limit) {
            return;
        }
        self.dropped = self.dropped.max(limit);
        let requests = &mut self.requests;
        self.lives.retain(|_, life| {
            let stays = life.used_at > limit;
            *requests -= if stays { 0 } else { life.requests.len() };
            stays
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn stamp(producer: u64, first: u32, born: u64) -> Stamp {
        let (producer, epoch) = (ProducerId(producer), ProducerEpoch(1));
        Stamp { producer, epoch, first, settled: 0, born: WallTime(born) }
    }

    fn span(start: u64, end: u64) -> KeySpan {
        KeySpan::new(start, end).unwrap()
    }

    #[test]
    fn what_was_appended_is_known_and_what_was_not_is_new() {
        let mut table = Table::default();
        let known = stamp(1, 5, 10);
        assert_eq!(table.judge(&known, WallTime(9)), Verdict::New);
        assert_eq!(table.judge(&known, WallTime(10)), Verdict::Forgotten, "it may lie in what was not read");
        table.note(&known, Mark::Own(Offset(7)), WallTime(10));
        assert_eq!(table.judge(&known, WallTime(10)), Verdict::Below(Offset(7)));
        assert_eq!(table.judge(&stamp(1, 6, 11), WallTime(10)), Verdict::New);
        assert_eq!(table.judge(&stamp(1, 4, 10), WallTime(10)), Verdict::Forgotten);
        table.cut(Offset(6));
        assert_eq!(table.judge(&known, WallTime(9)), Verdict::New, "it was not stored after all");
        assert_eq!(table.len(), (1, 0));
    }

    #[test]
    fn a_later_life_fences_an_earlier_one() {
        let mut table = Table::default();
        table.note(&stamp(1, 5, 10), Mark::Own(Offset(7)), WallTime(10));
        let later = Stamp { epoch: ProducerEpoch(2), ..stamp(1, 0, 11) };
        assert_eq!(table.judge(&later, WallTime(0)), Verdict::New);
        table.note(&later, Mark::Own(Offset(8)), WallTime(11));
        assert_eq!(table.judge(&stamp(1, 5, 10), WallTime(0)), Verdict::Fenced);
        table.note(&stamp(1, 9, 10), Mark::Whole, WallTime(10));
        assert_eq!(table.len(), (1, 1), "what was read of an earlier life is of no use");
    }

    #[test]
    fn what_has_an_outcome_is_not_kept_and_not_appended() {
        let mut table = Table::default();
        for first in 0..10 {
            table.note(&stamp(1, first, 1), Mark::Own(Offset(first.into())), WallTime(1));
        }
        table.settled(&Stamp { settled: 8, ..stamp(1, 10, 1) });
        assert_eq!(table.len(), (1, 2));
        assert_eq!(table.judge(&stamp(1, 7, 1), WallTime(0)), Verdict::Settled);
        table.note(&stamp(1, 7, 1), Mark::Whole, WallTime(1));
        assert_eq!(table.len(), (1, 2));
    }

    #[test]
    fn ancestors_have_slices() {
        let mut table = Table::default();
        let request = stamp(1, 0, 10);
        table.note(&request, Mark::Part(span(0, 4)), WallTime(10));
        assert_eq!(table.judge(&request, WallTime(0)), Verdict::Partly(vec![span(0, 4)]));
        assert_eq!(table.judge(&request, WallTime(10)), Verdict::Forgotten, "the other side was not read");
        table.note(&request, Mark::Own(Offset(3)), WallTime(11));
        assert_eq!(table.judge(&request, WallTime(10)), Verdict::Below(Offset(3)));
        table.cut(Offset(2));
        assert_eq!(table.judge(&request, WallTime(0)), Verdict::Partly(vec![span(0, 4)]), "as before");
        table.note(&request, Mark::Whole, WallTime(12));
        assert_eq!(table.judge(&request, WallTime(0)), Verdict::Stored);
    }

    #[test]
    fn the_table_is_bounded_and_says_what_it_does_not_know() {
        let mut table = Table::default();
        let many = u64::try_from(limits::PRODUCERS_PER_RANGE_MAX).unwrap() * 2;
        for producer in 1..=many {
            table.note(&stamp(producer, 0, producer), Mark::Own(Offset(producer)), WallTime(producer));
            assert!(table.len().0 <= limits::PRODUCERS_PER_RANGE_MAX);
        }
        assert_eq!(table.judge(&stamp(1, 0, 1), WallTime(0)), Verdict::Forgotten);
        assert_eq!(table.judge(&stamp(1, 1, many + 1), WallTime(0)), Verdict::New);
        assert_eq!(table.judge(&stamp(many, 0, many), WallTime(0)), Verdict::Below(Offset(many)));

        let mut table = Table::default();
        let many = u32::try_from(limits::PRODUCER_REQUESTS_MAX).unwrap() + 5;
        for first in 0..many {
            table.note(&stamp(1, first, 1), Mark::Own(Offset(1)), WallTime(1));
        }
        assert_eq!(table.len(), (1, limits::PRODUCER_REQUESTS_MAX));
        assert_eq!(table.judge(&stamp(1, 4, 1), WallTime(0)), Verdict::Settled);
    }

    proptest! {
        /// Against a model that never forgets: nothing that was appended is ever taken for new.
        #[test]
        fn nothing_appended_is_taken_for_new(
            steps in prop::collection::vec((1_u64..4, 0_u32..600, 0_u64..6, any::<bool>()), 1..900),
        ) {
            let (mut table, mut model, mut now) = (Table::default(), BTreeMap::new(), 1);
            for (producer, first, age, settles) in steps {
                now += 1;
                let born = *model.get(&(producer, first)).unwrap_or(&(now - age.min(now - 1)));
                let stamp = Stamp { settled: if settles { first / 2 } else { 0 }, ..stamp(producer, first, born) };
                match table.judge(&stamp, WallTime(0)) {
                    Verdict::New => {
                        prop_assert!(!model.contains_key(&(producer, first)), "{stamp:?} is appended twice");
                        model.insert((producer, first), born);
                        table.note(&stamp, Mark::Own(Offset(now)), WallTime(now));
                        table.settled(&stamp);
                    }
                    Verdict::Below(_) => prop_assert!(model.contains_key(&(producer, first))),
                    Verdict::Settled | Verdict::Forgotten => {}
                    Verdict::Stored | Verdict::Partly(_) | Verdict::Fenced => {
                        prop_assert!(false, "there are no ancestors and no later lives");
                    }
                }
            }
        }
    }
}
