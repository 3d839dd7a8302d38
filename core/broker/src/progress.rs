//! How far every group of a topic is past the records of one of its ranges.
//!
//! Owns that arithmetic over committed positions. Does not decide what becomes of records everybody is past.
//!
//! A tile in a range that came later in a key's history says that the range before is drained for that key; one in a
//! range that came earlier, and none at all, that it was not begun. For one key the numbers of ranges only grow.

use metadata::vnode::{Range, Vnode};
use types::cursor::Tile;
use types::{KeySpan, Offset, RangeId};

/// Offsets of the range below this were committed by every group of its topic; `None` when there is no group. Takes
/// time in proportion to the tiles of all of them.
pub(crate) fn read_by_all(vnode: &Vnode, id: RangeId, range: &Range) -> Option<Offset> {
    let groups = vnode.groups_of(id.topic);
    groups.map(|group| read_upto(vnode.positions(id.topic, group), id, range.span)).min()
}

/// The same of one position, whose tiles are sorted and disjoint.
fn read_upto(tiles: &[Tile], id: RangeId, span: KeySpan) -> Offset {
    let (mut upto, mut covered) = (Offset(u64::MAX), span.start());
    let first = tiles.partition_point(|tile| tile.span.end() <= span.start());
    for tile in tiles[first..].iter().take_while(|tile| tile.span.start() < span.end()) {
        if tile.span.start() > covered || tile.range < id.seq {
            return Offset::ZERO;
        }
        if tile.range == id.seq {
            upto = upto.min(tile.next);
        }
        covered = tile.span.end();
    }
    if covered < span.end() { Offset::ZERO } else { upto }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use types::{RangeSeq, TopicId};

    use super::*;

    fn tile(range: u64, start: u64, end: u64, next: u64) -> Tile {
        Tile { range: RangeSeq(range), span: KeySpan::new(start, end).unwrap(), next: Offset(next) }
    }

    fn upto(tiles: &[Tile]) -> u64 {
        let id = RangeId { topic: TopicId(1), seq: RangeSeq(4) };
        read_upto(tiles, id, KeySpan::new(16, 32).unwrap()).0
    }

    #[test]
    fn the_slowest_slice_says_how_far_a_group_is() {
        assert_eq!(upto(&[tile(4, 16, 32, 7)]), 7);
        assert_eq!(upto(&[tile(4, 16, 24, 7), tile(4, 24, 32, 3)]), 3);
        assert_eq!(
            upto(&[tile(2, 0, 16, 0), tile(4, 16, 32, 7), tile(9, 32, 64, 0)]),
            7,
            "others do not count"
        );
    }

    #[test]
    fn a_later_range_is_past_it_and_an_earlier_one_before_it() {
        assert_eq!(upto(&[tile(5, 16, 24, 0), tile(6, 24, 32, 0)]), u64::MAX);
        assert_eq!(upto(&[tile(5, 16, 24, 0), tile(4, 24, 32, 9)]), 9);
        assert_eq!(upto(&[tile(8, 0, 64, 0)]), u64::MAX, "merged with what lay around it");
        assert_eq!(upto(&[tile(0, 0, 64, 1000)]), 0);
        assert_eq!(upto(&[tile(5, 16, 24, 0), tile(3, 24, 32, 9)]), 0);
    }

    #[test]
    fn what_no_tile_covers_was_not_begun() {
        assert_eq!(upto(&[]), 0);
        assert_eq!(upto(&[tile(4, 16, 24, 7)]), 0);
        assert_eq!(upto(&[tile(4, 24, 32, 7)]), 0);
        assert_eq!(upto(&[tile(4, 16, 20, 7), tile(4, 24, 32, 7)]), 0);
        assert_eq!(upto(&[tile(4, 0, 16, 7), tile(4, 32, 64, 7)]), 0);
    }
}
