//! Readers that were moved over records that are no longer stored.
//!
//! Owns that every such move is counted, once, and told without a flood of lines. Does not move anybody: a reader that
//! stands below what is stored goes on at the first record that is, which is no error.
//!
//! Invariants:
//! - a move is counted once, however often the same group, or readers without one, come to it before a position is
//!   committed; if more has expired meanwhile, only what is new is counted;
//! - what is remembered is bounded: a move that was forgotten counts again when it is read again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::cursor::Tile;
use types::{GroupName, Instant, Offset, RangeId, RangeSeq, TopicId};

use crate::node::Node;
use crate::reading::Reading;
use crate::upkeep::{Notice, Origin};

/// A place that a reader was moved from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    topic: TopicId,
    group: Option<GroupName>,
    range: RangeSeq,
    /// Of the reader's slice.
    slice: (u64, u64),
    from: Offset,
}

/// Moves that were counted, and lines that were written.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// Up to where each was counted, exclusive.
    counted: BTreeMap<Place, Offset>,
    /// In the order in which they came.
    order: VecDeque<Place>,
    lines: BTreeMap<(TopicId, Option<GroupName>), Line>,
}

#[derive(Debug)]
struct Line {
    written_at: Instant,
    /// Moves without a line since.
    held_back: u64,
}

impl Skips {
    /// Offsets of a move that were not counted before; 0 when all were.
    fn count(&mut self, place: Place, to: Offset, skips_max: usize) -> u64 {
        if let Some(counted) = self.counted.get_mut(&place) {
            let new = to.0.saturating_sub(counted.0);
            *counted = (*counted).max(to);
            return new;
        }
        while self.order.len() >= skips_max.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            self.counted.remove(&oldest);
        }
        let new = to.0.saturating_sub(place.from.0);
        self.order.push_back(place.clone());
        self.counted.insert(place, to);
        new
    }

    /// Whether a line may be written about a reader now, and how many were not since the last.
    fn line(
        &mut self,
        reader: (TopicId, Option<GroupName>),
        now: Instant,
        every: Duration,
        max: usize,
    ) -> Option<u64> {
        if let Some(line) = self.lines.get_mut(&reader) {
            if now.since(line.written_at) < every {
                line.held_back = line.held_back.saturating_add(1);
                return None;
            }
            line.written_at = now;
            return Some(std::mem::take(&mut line.held_back));
        }
        if self.lines.len() >= max.max(1) {
            // Whoever was told of longest ago may be told of again.
            let oldest =
                self.lines.iter().min_by_key(|(_, line)| line.written_at).map(|(reader, _)| reader.clone());
            oldest.map(|oldest| self.lines.remove(&oldest));
        }
        self.lines.insert(reader, Line { written_at: now, held_back: 0 });
        Some(0)
    }
}

impl Node {
    /// Where a reader goes on for which nothing is stored in its range any more, although there were records; `None`
    /// when there were none, or some still are.
    pub(crate) fn end_of_gone(&self, range: RangeId, next: Offset) -> Option<Offset> {
        let vnode = self.core.meta.of(range.topic);
        let end = vnode.range(range)?.sealed_end;
        (end > next && vnode.segment_at(range, next).is_none()).then_some(end)
    }

    /// A reader that stands at `tile` goes on at `to`: what lies between is not stored any more.
    pub(crate) fn skipped(&mut self, reading: &Reading, tile: Tile, to: Offset) {
        let (topic, group) = (reading.id(), reading.group().cloned());
        let slice = (tile.span.start(), tile.span.end());
        let place = Place { topic, group: group.clone(), range: tile.range, slice, from: tile.next };
        let (skips_max, every) =
            (self.core.config.retention.skips_max, self.core.config.retention.skip_line_every);
        let offsets = self.skips.count(place, to, skips_max);
        if offsets == 0 {
            return;
        }
        let range = RangeId { topic, seq: tile.range };
        let lost = self.lost_between(range, tile.next, to).min(offsets);
        // Whoever reads a slice of a range would have been given only that slice's records.
        let exact = self.core.meta.of(topic).range(range).is_some_and(|range| range.span == tile.span);
        let line = self.skips.line((topic, group.clone()), self.core.now, every, skips_max);
        self.core.upkeep(Notice::Skipped {
            topic: self.topic_text(topic),
            group: group.map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned()),
            range,
            to,
            offsets,
            lost,
            origin: if reading.is_positioned() { Origin::Cursor } else { Origin::Start },
            exact,
            held_back: line,
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TOPIC: TopicId = TopicId(1);

    fn place(from: u64) -> Place {
        Place { topic: TOPIC, group: None, range: RangeSeq(0), slice: (0, 4), from: Offset(from) }
    }

    #[test]
    fn a_move_counts_once_and_then_only_what_is_new() {
        let mut skips = Skips::default();
        assert_eq!(skips.count(place(3), Offset(10), 8), 7);
        assert_eq!(skips.count(place(3), Offset(10), 8), 0);
        assert_eq!(skips.count(place(3), Offset(12), 8), 2);
        assert_eq!(skips.count(place(3), Offset(11), 8), 0, "tables that lag behind count nothing twice");
        let other = Place { group: Some(GroupName::new(b"g").unwrap()), ..place(3) };
        assert_eq!(skips.count(other, Offset(10), 8), 7, "another reader");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_counts_again_once_forgotten() {
        let mut skips = Skips::default();
        for from in 0..100 {
            assert_eq!(skips.count(place(from), Offset(100), 8), 100 - from);
            assert!(skips.counted.len() <= 8 && skips.order.len() == skips.counted.len());
        }
        assert_eq!(skips.count(place(99), Offset(100), 8), 0);
        assert_eq!(skips.count(place(0), Offset(100), 8), 100);
    }

    #[test]
    fn one_line_about_one_reader_in_a_window() {
        let (mut skips, every) = (Skips::default(), Duration::from_secs(1));
        let mut line =
            |at: u64, topic: u128| skips.line((TopicId(topic), None), Instant(at * 1000), every, 2);
        assert_eq!(line(0, 1), Some(0));
        assert_eq!((line(10, 1), line(999, 1)), (None, None));
        assert_eq!(line(1000, 1), Some(2));
        assert_eq!(line(1001, 2), Some(0), "another reader");
        assert_eq!(line(1002, 3), Some(0), "the one told of longest ago is forgotten");
        assert_eq!(line(1003, 1), Some(0));
    }
}
