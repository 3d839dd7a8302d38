//! Where a reader may stand in a topic, key by key.
//!
//! Of a key with records it says how many of its records (asked for, not stored) lie behind the reader; of a
//! record without a key, whether it does. The product's positions are offsets in ranges, so splits and merges
//! move them about; these are not touched by any.
//!
//! A place may be uncertain, when an answer got lost: then it lists what is possible.

use std::rc::Rc;

use super::keyspace::{Span, contains};

/// Whether a record without a key lies behind the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Loose {
    Unread,
    Read,
    Either,
}

/// How a part of a position is stored by a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Move {
    Surely,
    Perhaps,
    Not,
}

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, at: usize, on: bool) {
        if at / 64 >= self.0.len() {
            if !on {
                return;
            }
            self.0.resize(at / 64 + 1, 0);
        }
        let bit = 1 << (at % 64);
        if on { self.0[at / 64] |= bit } else { self.0[at / 64] &= !bit }
    }

    fn end(&self) -> usize {
        self.0.len() * 64
    }
}

/// A place.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Place {
    /// By number of the key: sorted, different, never empty. What is missing is the beginning.
    keyed: Vec<Vec<usize>>,
    read: Bits,
    either: Bits,
    /// Records without a key that came with the page this place was given with.
    came: Bits,
    /// The slices it speaks of; everything without.
    covers: Option<Rc<[Span]>>,
}

/// The beginning.
static BEGINNING: [usize; 1] = [0];

impl Place {
    /// Before every record.
    pub(in super::super) fn beginning() -> Self {
        Self::default()
    }

    /// How many of a key's records may lie behind.
    pub(in super::super) fn spots(&self, key: usize) -> &[usize] {
        self.keyed.get(key).map_or(&BEGINNING, |spots| &spots[..])
    }

    pub(in super::super) fn set_spots(&mut self, key: usize, spots: Vec<usize>) {
        if key >= self.keyed.len() {
            self.keyed.resize(key + 1, vec![0]);
        }
        self.keyed[key] = spots;
    }

    pub(in super::super) fn loose(&self, at: usize) -> Loose {
        match (self.either.has(at), self.read.has(at)) {
            (true, _) => Loose::Either,
            (false, true) => Loose::Read,
            (false, false) => Loose::Unread,
        }
    }

    pub(in super::super) fn set_loose(&mut self, at: usize, loose: Loose) {
        self.either.set(at, loose == Loose::Either);
        self.read.set(at, loose == Loose::Read);
    }

    /// A record without a key came with the page.
    pub(in super::super) fn loose_came(&mut self, at: usize) {
        self.set_loose(at, Loose::Read);
        self.came.set(at, true);
    }

    pub(in super::super) fn covers(&self) -> Option<&[Span]> {
        self.covers.as_deref()
    }

    /// Whether it says something about a position.
    pub(in super::super) fn speaks_of(&self, position: u64) -> bool {
        self.covers().is_none_or(|spans| spans.iter().any(|span| contains(*span, position)))
    }

    /// The same place, speaking of some slices only.
    pub(in super::super) fn within(mut self, covers: Option<Rc<[Span]>>) -> Self {
        self.covers = covers;
        self.came = Bits::default();
        self
    }

    /// Where a reader of everything stands that comes with this place: at the beginning of whatever it does not
    /// speak of. `positions` are those of the keys.
    pub(in super::super) fn completed(&self, positions: &[u64]) -> Self {
        if self.covers.is_none() {
            return Self { came: Bits::default(), ..self.clone() };
        }
        let mut out = Self::beginning();
        for (key, position) in positions.iter().enumerate() {
            if self.speaks_of(*position) {
                out.set_spots(key, self.spots(key).to_vec());
            }
        }
        for at in 0..self.ends() {
            // Where it lies only whoever gave it knows: here, for sure, when it came with the page.
            let loose = match self.loose(at) {
                Loose::Unread => Loose::Unread,
                Loose::Read if self.came.has(at) => Loose::Read,
                Loose::Read | Loose::Either => Loose::Either,
            };
            out.set_loose(at, loose);
        }
        out
    }

    /// Where a stream stands when its member's share changes: it keeps its place in what it keeps, and begins at
    /// what its group has committed in the rest.
    pub(in super::super) fn reassigned(&mut self, committed: &Self, positions: &[u64]) {
        for (key, position) in positions.iter().enumerate() {
            if self.speaks_of(*position) {
                self.or_spots(key, committed.spots(key));
            } else {
                self.set_spots(key, committed.spots(key).to_vec());
            }
        }
        for at in 0..self.ends().max(committed.ends()) {
            self.or_loose(at, committed.loose(at));
        }
        self.covers = None;
    }

    /// The same place, seen twice: what either is certain of.
    pub(in super::super) fn sharpened(mut self, other: &Self) -> Self {
        for (key, spots) in self.keyed.iter_mut().enumerate() {
            if spots.len() > 1 && other.spots(key).len() < spots.len() {
                *spots = other.spots(key).to_vec();
            }
        }
        for at in 0..self.ends() {
            if self.loose(at) == Loose::Either {
                self.set_loose(at, other.loose(at));
            }
            if other.came.has(at) {
                self.came.set(at, true);
            }
        }
        self
    }

    /// Records without a key that it may say something about.
    fn ends(&self) -> usize {
        self.read.end().max(self.either.end())
    }

    /// Whatever `other` allows is possible too.
    pub(in super::super) fn or(&mut self, other: &Self) {
        for key in 0..self.keyed.len().max(other.keyed.len()) {
            self.or_spots(key, other.spots(key));
        }
        for at in 0..self.ends().max(other.ends()) {
            self.or_loose(at, other.loose(at));
        }
    }

    fn or_spots(&mut self, key: usize, others: &[usize]) {
        if self.spots(key) != others {
            let mut spots = [self.spots(key), others].concat();
            spots.sort_unstable();
            spots.dedup();
            self.set_spots(key, spots);
        }
    }

    fn or_loose(&mut self, at: usize, other: Loose) {
        if self.loose(at) != other {
            self.set_loose(at, Loose::Either);
        }
    }

    /// Stores `new` over this, as a commit does. `moves` says so of each key, `rest` of everything else.
    pub(in super::super) fn overlay(&mut self, new: &Self, positions: &[u64], moves: impl Fn(u64) -> Move) {
        for (key, position) in positions.iter().enumerate() {
            if !new.speaks_of(*position) {
                continue;
            }
            match moves(*position) {
                Move::Surely => self.set_spots(key, new.spots(key).to_vec()),
                Move::Perhaps => self.or_spots(key, new.spots(key)),
                Move::Not => {}
            }
        }
        // A record without a key lies in a slice that is not known here.
        let whole = new.covers.is_none();
        let surely = match new.covers() {
            None => moves(0) == Move::Surely,
            Some(spans) => spans.iter().all(|span| moves(span.0) == Move::Surely),
        };
        for at in 0..self.ends().max(new.ends()) {
            if surely && (whole || new.came.has(at)) {
                self.set_loose(at, new.loose(at));
            } else {
                self.or_loose(at, new.loose(at));
            }
        }
    }
}
