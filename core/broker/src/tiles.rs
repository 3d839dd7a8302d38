//! Where a reader stands, as slices of the keyspace.
//!
//! Pure. Owns how a position is cut to what a reader is responsible for, what stands in for a part it says
//! nothing about, how a drained range gives way to the ranges that took its place, and the one form of a
//! position. Reads nothing and decides nothing about members.
//!
//! Every key has one history: the ranges that held it, one after another. A tile says for all keys of its
//! slice how far along that history the reader is, so a split or merge never moves a position: it only
//! regroups the tiles.
//!
//! ```text
//! keys        0        1        2        3
//! range 0     ################################   root
//! ranges 1,2  ################|###############   after a split
//! tiles       [0: slice 0-1 next 7][2: slice 2-3 next 4]
//! ```

use metadata::vnode::Vnode;
use types::cursor::Tile;
use types::{KeySpan, Offset, RangeId, RangeSeq, TopicId};

/// Every topic begins with this range over its whole keyspace.
const ROOT: RangeSeq = RangeSeq(0);

/// Where a reader that is responsible for `spans` stands: `first` where it says something, else `second`, else
/// the beginning. All three sorted and disjoint; so is the result, in its one form.
pub(crate) fn start(first: &[Tile], second: &[Tile], spans: &[KeySpan]) -> Vec<Tile> {
    let mut tiles = Vec::with_capacity(spans.len());
    for span in spans {
        fill(first, *span, &mut tiles, &mut |gap, tiles| {
            fill(second, gap, tiles, &mut |gap, tiles| {
                tiles.push(Tile { range: ROOT, span: gap, next: Offset::ZERO });
            });
        });
    }
    coalesce(tiles)
}

/// Adds what `known` says about `span`, and asks for the blocks that it says nothing about.
fn fill(
    known: &[Tile],
    span: KeySpan,
    tiles: &mut Vec<Tile>,
    missing: &mut dyn FnMut(KeySpan, &mut Vec<Tile>),
) {
    let mut at = span.start();
    let first = known.partition_point(|tile| tile.span.end() <= span.start());
    for tile in known[first..].iter().take_while(|tile| tile.span.start() < span.end()) {
        // Two aligned blocks that overlap lie one in the other.
        let inside = if tile.span.covers(span) { span } else { tile.span };
        blocks(at, inside.start(), |gap| missing(gap, tiles));
        tiles.push(Tile { span: inside, ..*tile });
        at = inside.end();
    }
    blocks(at, span.end(), |gap| missing(gap, tiles));
}

/// The aligned blocks that tile `[from, to)`, in order.
fn blocks(from: u64, to: u64, mut each: impl FnMut(KeySpan)) {
    let mut at = from;
    while at < to {
        let aligned = if at == 0 { u64::MAX } else { 1 << at.trailing_zeros() };
        let fits = 1 << (to - at).ilog2();
        let size = aligned.min(fits);
        each(KeySpan::new(at, at + size).expect("a power of two, aligned, inside a span"));
        at += size;
    }
}

/// Puts neighbours together that form one block and stand at the same place.
pub(crate) fn coalesce(tiles: impl IntoIterator<Item = Tile>) -> Vec<Tile> {
    let mut out: Vec<Tile> = Vec::new();
    for mut tile in tiles {
        while let Some(last) = out.last()
            && (last.range, last.next) == (tile.range, tile.next)
            && let Some(span) = last.span.merge(tile.span)
        {
            tile.span = span;
            out.pop();
        }
        out.push(tile);
    }
    out
}

/// The indices of the tiles that overlap `span`.
pub(crate) fn overlapping(tiles: &[Tile], span: KeySpan) -> std::ops::Range<usize> {
    let start = tiles.partition_point(|tile| tile.span.end() <= span.start());
    let end = tiles.partition_point(|tile| tile.span.start() < span.end());
    start..end.max(start)
}

/// Moves the drained tile at `at` to the ranges that took its range's place, and says which tiles are new.
///
/// After a merge the reader waits until it has drained both sides, as far as it is responsible for them: so it
/// reads the merged range once, not once for each side. A side that is in the merged range already, or past it,
/// is not waited for: a search for a time, or members that shared the sides, may have left it there. `None` while
/// it waits, or when nothing took the place.
pub(crate) fn move_on(
    vnode: &Vnode,
    topic: TopicId,
    tiles: &mut Vec<Tile>,
    at: usize,
    drained: impl Fn(Tile) -> bool,
) -> Option<std::ops::Range<usize>> {
    let tile = tiles[at];
    let id = |seq| RangeId { topic, seq };
    let children = vnode.children_of(id(tile.range));
    let (replaced, new) = match *children {
        [] => return None,
        [child] => {
            let span = vnode.range(id(child))?.span;
            let sides = overlapping(tiles, span);
            // Numbers grow from parents to children.
            let is_past = |tile: &Tile| tile.range >= child;
            let is_done = |tile: &Tile| vnode.children_of(id(tile.range)) == [child] && drained(*tile);
            if !tiles[sides.clone()].iter().all(|tile| is_past(tile) || is_done(tile)) {
                return None;
            }
            let begin = |tile: &Tile| match is_past(tile) {
                true => *tile,
                false => Tile { range: child, next: Offset::ZERO, ..*tile },
            };
            let new = coalesce(tiles[sides.clone()].iter().map(begin));
            (sides, new)
        }
        [..] => {
            let begin = |seq: &RangeSeq| {
                let child = vnode.range(id(*seq))?.span;
                let span = if child.covers(tile.span) { tile.span } else { child };
                tile.span.covers(span).then_some(Tile { range: *seq, span, next: Offset::ZERO })
            };
            (at..at + 1, children.iter().filter_map(begin).collect())
        }
    };
    let new_end = replaced.start + new.len();
    let start = replaced.start;
    tiles.splice(replaced, new);
    Some(start..new_end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 16;

    fn tile(range: u64, start: u64, end: u64, next: u64) -> Tile {
        Tile { range: RangeSeq(range), span: KeySpan::new(start, end).unwrap(), next: Offset(next) }
    }

    /// Where the reader of each position stands.
    fn by_position(tiles: &[Tile]) -> Vec<Option<(u64, u64)>> {
        let at = |position: u64| {
            let holds = |tile: &&Tile| tile.span.start() <= position && position < tile.span.end();
            tiles.iter().find(holds).map(|tile| (tile.range.0, tile.next.0))
        };
        (0..SIZE).map(at).collect()
    }

    prop_compose! {
        /// Blocks made by halving at random, some left out.
        fn blocks_of()(
            cuts in prop::collection::vec(any::<u8>(), 0..12),
            facts in prop::collection::vec((0_u64..3, 0_u64..3, any::<bool>()), 13),
        ) -> Vec<Tile> {
            let mut spans = vec![KeySpan::new(0, SIZE).unwrap()];
            for cut in cuts {
                let at = usize::from(cut) % spans.len();
                if let Some((low, high)) = spans[at].split() {
                    spans.splice(at..=at, [low, high]);
                }
            }
            let tiles = spans.into_iter().zip(facts);
            tiles
                .filter(|(_, (_, _, keep))| *keep)
                .map(|(span, (range, next, _))| Tile { range: RangeSeq(range), span, next: Offset(next) })
                .collect()
        }
    }

    proptest! {
        #[test]
        fn a_start_says_for_every_position_what_the_first_that_knows_says(
            first in blocks_of(), second in blocks_of(), spans in blocks_of(),
        ) {
            let spans: Vec<KeySpan> = spans.iter().map(|tile| tile.span).collect();
            let tiles = start(&first, &second, &spans);
            prop_assert!(tiles.is_sorted_by(|a, b| a.span.end() <= b.span.start()));
            let (first, second) = (by_position(&first), by_position(&second));
            for (position, stands) in (0..).zip(by_position(&tiles)) {
                let mine = spans.iter().any(|span| span.start() <= position && position < span.end());
                let at = usize::try_from(position).unwrap();
                let expected = first[at].or(second[at]).or(Some((0, 0))).filter(|_| mine);
                prop_assert_eq!(stands, expected, "position {}", position);
            }
        }

        #[test]
        fn a_position_has_one_form(tiles in blocks_of(), cuts in prop::collection::vec(any::<u8>(), 0..6)) {
            let one = coalesce(tiles.iter().copied());
            prop_assert_eq!(by_position(&one), by_position(&tiles));
            // Cutting it anywhere changes nothing.
            let mut cut = tiles;
            for at in cuts {
                if cut.is_empty() { break; }
                let at = usize::from(at) % cut.len();
                let tile = cut[at];
                if let Some((low, high)) = tile.span.split() {
                    cut.splice(at..=at, [Tile { span: low, ..tile }, Tile { span: high, ..tile }]);
                }
            }
            prop_assert_eq!(coalesce(cut), one);
        }

        #[test]
        fn what_overlaps_a_block_lies_together(tiles in blocks_of(), blocks in blocks_of()) {
            for block in blocks {
                let found = overlapping(&tiles, block.span);
                for (index, tile) in tiles.iter().enumerate() {
                    let overlaps = tile.span.start() < block.span.end() && block.span.start() < tile.span.end();
                    prop_assert_eq!(found.contains(&index), overlaps);
                }
            }
        }
    }

    #[test]
    fn neighbours_that_are_no_block_stay_apart() {
        let middle = [tile(0, 4, 8, 5), tile(0, 8, 12, 5)];
        assert_eq!(coalesce(middle), middle);
        assert_eq!(coalesce([tile(0, 0, 4, 5), tile(0, 4, 8, 5), tile(0, 8, 16, 5)]), [tile(0, 0, 16, 5)]);
    }
}
