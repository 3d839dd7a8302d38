//! How many bytes lie behind an offset, about.
//!
//! Owns a mark for every so many bytes given out, so that how far a follower is behind can be said in bytes without
//! keeping every batch. Small: one mark a mebibyte of a segment.

use std::collections::VecDeque;

use types::Offset;

/// Bytes between two marks.
const STEP_BYTES: u64 = 1024 * 1024;

/// Marks in the order of offsets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// An offset, and the bytes given out before it.
    marks: VecDeque<(Offset, u64)>,
    bytes: u64,
}

impl Marks {
    /// A batch that ends at `end` was given its place.
    pub(crate) fn note(&mut self, end: Offset, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let last = self.marks.back().map_or(0, |(_, before)| *before);
        if self.bytes - last >= STEP_BYTES {
            self.marks.push_back((end, self.bytes));
        }
    }

    /// Bytes that whoever has everything before `offset` lacks at least: up to a step less than it does.
    pub(crate) fn behind(&self, offset: Offset) -> u64 {
        let next = self.marks.partition_point(|(mark, _)| *mark < offset);
        // Without a mark behind it, it lacks less than a step.
        self.marks.get(next).map_or(0, |(_, before)| self.bytes - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacked_is_told_to_a_step() {
        let mut marks = Marks::default();
        assert_eq!(marks.behind(Offset(0)), 0);
        // Four batches to a step.
        for batch in 1..=40_u64 {
            marks.note(Offset(batch), STEP_BYTES / 4);
        }
        for offset in 0..=40_u64 {
            let lacks = (40 - offset) * STEP_BYTES / 4;
            let told = marks.behind(Offset(offset));
            assert!(told <= lacks && told + STEP_BYTES >= lacks, "{offset}: {told} of {lacks}");
        }
        assert_eq!(marks.marks.len(), 10);
    }
}
