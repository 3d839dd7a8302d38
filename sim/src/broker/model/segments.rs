//! Which segment of each range takes records, as the node tells its operator.

use std::collections::{BTreeMap, BTreeSet};

use types::{Offset, RangeId, SegmentId};

use crate::invariants::{Violation, inv_07, inv_12, inv_13, inv_16, inv_18};

/// One range.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// Opened in this lifetime and not sealed.
    active: Option<SegmentId>,
    /// Opened in an earlier lifetime; it may have been sealed without anybody hearing of it.
    leftover: Option<(SegmentId, Offset)>,
    /// Where the last segment ended, when it was told.
    end: Option<Offset>,
    base: Offset,
    opened: BTreeSet<SegmentId>,
    sealed: BTreeMap<SegmentId, Offset>,
}

/// All ranges.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Segments {
    chains: BTreeMap<RangeId, Chain>,
}

impl Segments {
    /// A segment takes records now; `kept` records of its range were acknowledged or read.
    pub(in super::super) fn opened(
        &mut self,
        segment: SegmentId,
        base: Offset,
        kept: u64,
    ) -> Result<(), Violation> {
        let chain = self.chains.entry(segment.range).or_default();
        inv_12::segment(segment, !chain.opened.insert(segment))?;
        inv_13::one_active(segment, chain.active)?;
        match (chain.leftover.take(), chain.end) {
            // Sealed while nobody listened, at or behind its base.
            (Some((leftover, start)), _) => inv_16::check(leftover, base, kept.max(start.0))?,
            (None, Some(end)) => inv_07::follows(segment, base, end)?,
            (None, None) => inv_16::check(segment, base, kept)?,
        }
        chain.active = Some(segment);
        chain.base = base;
        chain.end = None;
        Ok(())
    }

    /// A segment ended for good.
    pub(in super::super) fn sealed(
        &mut self,
        segment: SegmentId,
        end: Offset,
        kept: u64,
    ) -> Result<(), Violation> {
        let chain = self.chains.entry(segment.range).or_default();
        inv_16::check(segment, end, kept)?;
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
        }
    }

    /// Whether a segment opened in this lifetime takes the range's records.
    pub(in super::super) fn is_open(&self, range: RangeId) -> bool {
        self.chains.get(&range).is_some_and(|chain| chain.active.is_some())
    }

    /// Where the range ends, when its last segment ended in this lifetime.
    pub(in super::super) fn end(&self, range: RangeId) -> Option<Offset> {
        self.chains.get(&range).and_then(|chain| chain.end)
    }

    /// Every seal that was told of.
    pub(in super::super) fn seals(&self) -> impl Iterator<Item = (SegmentId, Offset)> {
        self.chains.values().flat_map(|chain| chain.sealed.iter().map(|(segment, end)| (*segment, *end)))
    }
}
