//! Laying one position on another, and the one form a position has.
//!
//! Both sides are lists of tiles, sorted by the start of their spans and disjoint. In canonical form no two
//! tiles that together form one aligned block stand at the same place: such a list is the only one of its kind
//! for what it says about each key.

use types::KeySpan;

use super::Tile;

/// Lays `over` on `under`, which is canonical and stays so: what `over` covers comes from it, the rest stays.
/// `false`, and no change, when the result would have more than `tiles_max` tiles.
pub(super) fn overlay(under: &mut Vec<Tile>, over: &[Tile], tiles_max: usize) -> bool {
    let (Some(first), Some(last)) = (over.first(), over.last()) else { return true };
    let from = under.partition_point(|tile| tile.span.end() <= first.span.start());
    let upto = under.partition_point(|tile| tile.span.start() < last.span.end());
    let patch = cover(&under[from..upto], over);
    if under.len() - (upto - from) + patch.len() <= tiles_max {
        splice(under, from, upto, patch);
        return true;
    }
    // Only joining can make it fit, and only trying tells.
    let mut joined = under.clone();
    splice(&mut joined, from, upto, patch);
    let fits = joined.len() <= tiles_max;
    if fits {
        *under = joined;
    }
    fits
}

/// Whether tiles are in canonical form.
pub(super) fn is_canonical(tiles: &[Tile]) -> bool {
    // Where a join of a join were possible, the first join is.
    tiles.windows(2).all(|pair| join(pair[0], pair[1]).is_none())
}

/// `over`, and of `under` what it does not cover, as aligned blocks; sorted.
fn cover(under: &[Tile], over: &[Tile]) -> Vec<Tile> {
    let mut all = over.to_vec();
    for tile in under {
        // Both lists are sorted, so the tiles of `over` that touch this one are neighbours.
        let first = over.partition_point(|o| o.span.end() <= tile.span.start());
        let last = over.partition_point(|o| o.span.start() < tile.span.end());
        keep_uncovered(*tile, &over[first..last], &mut all);
    }
    all.sort_unstable_by_key(|tile| tile.span.start());
    all
}

/// Adds the aligned blocks of `tile` that no tile of `over` touches; every tile of `over` touches `tile`.
/// Depth is at most the keyspace's width.
fn keep_uncovered(tile: Tile, over: &[Tile], out: &mut Vec<Tile>) {
    if over.is_empty() {
        out.push(tile);
    } else if !over[0].span.covers(tile.span) {
        // Aligned blocks nest: what touches without covering lies inside, so there are two halves.
        let (low, high) = tile.span.split().expect("a single position is touched only by what covers it");
        let middle = over.partition_point(|o| o.span.end() <= low.end());
        keep_uncovered(Tile { span: low, ..tile }, &over[..middle], out);
        keep_uncovered(Tile { span: high, ..tile }, &over[middle..], out);
    }
}

/// Puts `patch` in the place of `tiles[from..upto]` and joins what can be joined now.
fn splice(tiles: &mut Vec<Tile>, from: usize, upto: usize, patch: Vec<Tile>) {
    let mut rest = tiles.split_off(upto).into_iter();
    tiles.truncate(from);
    for tile in patch {
        push(tiles, tile);
    }
    // The rest was canonical: behind the first of its tiles that stays as it is, all do.
    for tile in rest.by_ref() {
        if !push(tiles, tile) {
            break;
        }
    }
    tiles.extend(rest);
}

/// Adds a tile behind the others, joined with the last ones as far as that goes; whether it was.
fn push(tiles: &mut Vec<Tile>, tile: Tile) -> bool {
    let mut last = tile;
    let mut joined = false;
    while let Some(whole) = tiles.last().and_then(|low| join(*low, last)) {
        tiles.pop();
        last = whole;
        joined = true;
    }
    tiles.push(last);
    joined
}

/// The one tile two neighbours make.
fn join(low: Tile, high: Tile) -> Option<Tile> {
    let same_place = low.range == high.range && low.next == high.next;
    let span: KeySpan = low.span.merge(high.span).filter(|_| same_place)?;
    Some(Tile { span, ..low })
}
