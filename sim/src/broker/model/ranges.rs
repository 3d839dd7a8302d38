//! The ranges of a topic: who was split or merged into whom, as told by the answers alone.
//!
//! Every decision about ranges is answered in the order it was made, so the next one can be foretold: its numbers,
//! its slices, or why it is refused. Only what a crash left unanswered is learnt from what the node describes, and
//! then there must have been a request that explains it.

use std::collections::BTreeSet;

use wire::Reason;

use super::keyspace::{Span, contains};

/// What may be done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum State {
    Active,
    Sealed,
    Replaced,
}

/// One range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Range {
    pub(in super::super) span: Span,
    pub(in super::super) state: State,
    /// Lower slice first.
    pub(in super::super) parents: Vec<u64>,
}

/// A change of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    Split(u64),
    Merge(u64, u64),
}

/// All ranges of a topic, by number.
#[derive(Clone, Debug)]
pub(in super::super) struct Ranges {
    ranges: Vec<Range>,
    /// Changes whose answer never came.
    unknown: Vec<Change>,
}

impl Ranges {
    pub(super) fn new(size: u64) -> Self {
        let root = Range { span: (0, size), state: State::Active, parents: Vec::new() };
        Self { ranges: vec![root], unknown: Vec::new() }
    }

    pub(in super::super) fn get(&self, number: u64) -> Option<&Range> {
        self.ranges.get(usize::try_from(number).ok()?)
    }

    pub(in super::super) fn len(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// Number and range, in order of numbers.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = (u64, &Range)> {
        (0..).zip(&self.ranges)
    }

    /// Those nobody took the place of.
    pub(in super::super) fn leaves(&self) -> impl Iterator<Item = (u64, &Range)> {
        self.iter().filter(|(_, range)| range.state != State::Replaced)
    }

    /// The leaf that holds a position.
    pub(in super::super) fn leaf_at(&self, position: u64) -> u64 {
        let holds = |(_, range): &(u64, &Range)| contains(range.span, position);
        self.leaves().find(holds).expect("the leaves tile the keyspace").0
    }

    /// The ranges that held a range's keys before it, or some of them.
    pub(in super::super) fn ancestors(&self, young: u64) -> BTreeSet<u64> {
        let mut ancestors = BTreeSet::new();
        let parents = |number: u64, ancestors: &mut BTreeSet<u64>| {
            ancestors.extend(self.get(number).into_iter().flat_map(|range| &range.parents));
        };
        parents(young, &mut ancestors);
        // Parents have lower numbers than their children.
        for number in (0..young).rev() {
            if ancestors.contains(&number) {
                parents(number, &mut ancestors);
            }
        }
        ancestors
    }

    /// The ranges that took a range's place, and theirs.
    pub(in super::super) fn descendants(&self, old: u64) -> BTreeSet<u64> {
        let mut descendants = BTreeSet::new();
        for (number, range) in self.iter() {
            if range.parents.iter().any(|parent| *parent == old || descendants.contains(parent)) {
                descendants.insert(number);
            }
        }
        descendants
    }

    /// Whether nothing in a range's history was merged.
    pub(in super::super) fn is_of_splits(&self, number: u64) -> bool {
        let of_one = |number: &u64| self.get(*number).is_some_and(|range| range.parents.len() < 2);
        of_one(&number) && self.ancestors(number).iter().all(of_one)
    }

    fn active(&self, number: u64) -> Result<Span, Reason> {
        let range = self.get(number).ok_or(Reason::NoSuchRange)?;
        if range.state == State::Active { Ok(range.span) } else { Err(Reason::Sealed) }
    }

    /// The slices that would take the place of others.
    fn slices(&self, change: Change) -> Result<Vec<Span>, Reason> {
        match change {
            Change::Split(number) => {
                let (start, end) = self.active(number)?;
                let middle = start + (end - start) / 2;
                if middle == start {
                    Err(Reason::CannotSplit)
                } else {
                    Ok(vec![(start, middle), (middle, end)])
                }
            }
            Change::Merge(a, b) => {
                let (a, b) = (self.active(a)?, self.active(b)?);
                let (start, end) = (a.0.min(b.0), a.1.max(b.1));
                let size = a.1 - a.0;
                let halves =
                    a != b && b.1 - b.0 == size && end - start == 2 * size && start % (2 * size) == 0;
                if halves { Ok(vec![(start, end)]) } else { Err(Reason::NotBuddies) }
            }
        }
    }

    /// Why a change must be refused, if it must.
    pub(in super::super) fn refusal(&self, change: Change) -> Option<Reason> {
        self.slices(change).err()
    }

    /// Makes a change; gives the numbers of the new ranges, or why it must be refused.
    pub(in super::super) fn change(&mut self, change: Change) -> Result<Vec<u64>, Reason> {
        let slices = self.slices(change)?;
        let mut parents = match change {
            Change::Split(number) => vec![number],
            Change::Merge(a, b) => vec![a, b],
        };
        parents.sort_unstable_by_key(|parent| self.get(*parent).map(|range| range.span));
        for parent in &parents {
            if let Some(range) = usize::try_from(*parent).ok().and_then(|at| self.ranges.get_mut(at)) {
                range.state = State::Replaced;
            }
        }
        let first = self.len();
        let child = |span| Range { span, state: State::Active, parents: parents.clone() };
        self.ranges.extend(slices.into_iter().map(child));
        Ok((first..self.len()).collect())
    }

    pub(in super::super) fn seal(&mut self) {
        for range in self.ranges.iter_mut().filter(|range| range.state == State::Active) {
            range.state = State::Sealed;
        }
    }

    /// A change was refused or dropped in a way that says nothing.
    pub(in super::super) fn left_unknown(&mut self, change: Change) {
        self.unknown.push(change);
    }

    /// Makes of what was left unknown whatever leads to `described`. Both are compared by the caller.
    pub(in super::super) fn explain(&mut self, described: &[Range]) {
        while self.ranges.len() < described.len() {
            let next = &described[self.ranges.len()];
            let leads = |change: &Change| match (change, &next.parents[..]) {
                (Change::Split(number), [parent]) => number == parent,
                (Change::Merge(a, b), [low, high]) => (a, b) == (low, high) || (a, b) == (high, low),
                _ => false,
            };
            let Some(at) = self.unknown.iter().position(leads) else { break };
            let change = self.unknown.remove(at);
            if self.change(change).is_err() {
                break;
            }
        }
        self.unknown.clear();
    }

    pub(in super::super) fn as_slice(&self) -> &[Range] {
        &self.ranges
    }
}
