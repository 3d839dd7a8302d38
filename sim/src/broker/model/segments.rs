//! Which segment of each range takes records, as the node tells its operator.

use std::collections::{BTreeMap, BTreeSet};

use types::{Offset, RangeId, SegmentId};

use crate::invariants::{Violation, inv_07, inv_11, inv_12, inv_13, inv_16, inv_17, inv_18, inv_28};

/// One range.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// Opened in this lifetime and not sealed.
    active: Option<SegmentId>,
    /// One was opened in this lifetime.
    opened_now: bool,
    /// Opened in an earlier lifetime; it may have been sealed without anybody hearing of it.
    leftover: Option<(SegmentId, Offset)>,
    /// Where the last segment ended, when it was told in this lifetime.
    end: Option<Offset>,
    base: Offset,
    opened: BTreeSet<SegmentId>,
    sealed: BTreeMap<SegmentId, Offset>,
    /// Offsets below it were acknowledged, or read.
    kept: u64,
    /// What a description gave for its end in this lifetime.
    described: u64,
}

/// All ranges.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Segments {
    chains: BTreeMap<RangeId, Chain>,
    /// Ranges whose descendants took records: they take none any more.
    closed: BTreeSet<RangeId>,
}

impl Segments {
    /// A segment takes records now. `ancestors` are the ranges that held its keys before.
    pub(in super::super) fn opened(
        &mut self,
        segment: SegmentId,
        base: Offset,
        ancestors: &[RangeId],
    ) -> Result<(), Violation> {
        inv_11::closed(segment, self.closed.contains(&segment.range))?;
        for ancestor in ancestors {
            let open = self.chains.get(ancestor).and_then(|chain| chain.active);
            inv_11::parent_ended(segment, open)?;
        }
        self.closed.extend(ancestors);
        let chain = self.chains.entry(segment.range).or_default();
        inv_12::segment(segment, !chain.opened.insert(segment))?;
        inv_13::one_active(segment, chain.active)?;
        match (chain.leftover.take(), chain.end) {
            // Sealed while nobody listened, at or behind its base.
            (Some((leftover, start)), _) => inv_16::check(leftover, base, chain.kept.max(start.0))?,
            (None, Some(end)) => inv_07::follows(segment, base, end)?,
            (None, None) => inv_16::check(segment, base, chain.kept)?,
        }
        chain.active = Some(segment);
        chain.opened_now = true;
        chain.base = base;
        chain.end = None;
        Ok(())
    }

    /// A segment ended for good.
    pub(in super::super) fn sealed(&mut self, segment: SegmentId, end: Offset) -> Result<(), Violation> {
        let chain = self.chains.entry(segment.range).or_default();
        inv_16::check(segment, end, chain.kept)?;
        inv_18::once(segment, chain.sealed.insert(segment, end))?;
        chain.active = None;
        chain.leftover = None;
        chain.end = Some(end);
        Ok(())
    }

    pub(in super::super) fn life_ended(&mut self) {
        for chain in self.chains.values_mut() {
            chain.leftover = chain.active.take().map(|segment| (segment, chain.base)).or(chain.leftover);
            // A registration may have been decided, and its segment sealed, without a word.
            chain.end = None;
            chain.opened_now = false;
            chain.described = 0;
        }
    }

    /// So many more records of a range were acknowledged: at least, because only whose key is known counts.
    pub(in super::super) fn acknowledged(&mut self, range: RangeId, count: u64) {
        let chain = self.chains.entry(range).or_default();
        // Each lies at an offset of its own.
        chain.kept = chain.kept.max(count);
    }

    /// Somebody was given a cursor that stands in a range.
    pub(in super::super) fn read_up_to(&mut self, range: RangeId, next: Offset) -> Result<(), Violation> {
        let chain = self.chains.entry(range).or_default();
        if chain.active.is_none() && chain.leftover.is_none() {
            inv_17::check(range, next, chain.end)?;
        }
        chain.kept = chain.kept.max(next.0);
        Ok(())
    }

    /// The node describes where a range ends.
    pub(in super::super) fn described(&mut self, range: RangeId, end: u64) -> Result<(), Violation> {
        let chain = self.chains.entry(range).or_default();
        if chain.opened_now {
            inv_28::check(range, chain.described.max(chain.kept), end)?;
            chain.described = end;
        }
        Ok(())
    }

    /// The segment that takes a range's records.
    pub(in super::super) fn active(&self, range: RangeId) -> Option<SegmentId> {
        self.chains.get(&range)?.active
    }

    /// Whether a segment was opened for the range in this lifetime.
    pub(in super::super) fn was_opened(&self, range: RangeId) -> bool {
        self.chains.get(&range).is_some_and(|chain| chain.opened_now)
    }

    /// Whether a segment was ever opened for the range, as far as was told.
    pub(in super::super) fn was_ever_opened(&self, range: RangeId) -> bool {
        self.chains.get(&range).is_some_and(|chain| !chain.opened.is_empty())
    }

    /// Whether the node may not know where the range ends.
    pub(in super::super) fn has_leftover(&self, range: RangeId) -> bool {
        self.chains.get(&range).is_some_and(|chain| chain.leftover.is_some())
    }

    /// Every seal of a range that was told of.
    pub(in super::super) fn seals(&self, range: RangeId) -> impl Iterator<Item = (SegmentId, Offset)> + '_ {
        let sealed = self.chains.get(&range).into_iter().flat_map(|chain| &chain.sealed);
        sealed.map(|(segment, end)| (*segment, *end))
    }

    pub(in super::super) fn forget(&mut self, wanted: impl Fn(RangeId) -> bool) {
        self.chains.retain(|range, _| !wanted(*range));
        self.closed.retain(|range| !wanted(*range));
    }
}
