//! Laying tiles on tiles, in a keyspace small enough to write every place down.

use proptest::prelude::*;

use super::*;
use crate::vnode::overlay::{is_canonical, overlay};

const PLACES: usize = 32;

fn tiles() -> impl Strategy<Value = Vec<Tile>> {
    let tile = (0..=5_u32, 0..PLACES as u64, 0..2_u64, 0..2_u64);
    prop::collection::vec(tile, 0..20).prop_map(|tiles| {
        let tile = |(bits, at, range, next): (u32, u64, u64, u64)| {
            let start = at >> bits << bits;
            let span = KeySpan::new(start, start + (1 << bits)).unwrap();
            Tile { range: RangeSeq(range), span, next: Offset(next) }
        };
        let mut tiles: Vec<Tile> = tiles.into_iter().map(tile).collect();
        tiles.sort_by_key(|tile| (tile.span.start(), tile.span.size()));
        let mut end = 0;
        tiles.retain(|tile| {
            let keep = tile.span.start() >= end;
            end = if keep { tile.span.end() } else { end };
            keep
        });
        tiles
    })
}

fn places(tiles: &[Tile]) -> [Option<(RangeSeq, Offset)>; PLACES] {
    let mut places = [None; PLACES];
    for tile in tiles {
        for place in tile.span.start()..tile.span.end() {
            let before = places[usize::try_from(place).unwrap()].replace((tile.range, tile.next));
            assert_eq!(before, None, "tiles overlap");
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_place_is_where_the_last_commit_over_it_says(commits in prop::collection::vec(tiles(), 1..8)) {
        let (mut laid, mut expected) = (Vec::new(), [None; PLACES]);
        for commit in &commits {
            prop_assert!(overlay(&mut laid, commit, usize::MAX));
            for (place, new) in expected.iter_mut().zip(places(commit)) {
                *place = new.or(*place);
            }
            prop_assert_eq!(places(&laid), expected);
            prop_assert!(is_canonical(&laid));
            prop_assert!(laid.is_sorted_by_key(|tile| tile.span.start()));
        }
        // One form: laid out place by place, or all at once, it comes to the same.
        let single = |(at, place): (usize, &Option<(RangeSeq, Offset)>)| {
            let (range, next) = (*place)?;
            Some(Tile { range, next, span: KeySpan::new(at as u64, at as u64 + 1).unwrap() })
        };
        let singles: Vec<Tile> = expected.iter().enumerate().filter_map(single).collect();
        let mut at_once = Vec::new();
        overlay(&mut at_once, &singles, usize::MAX);
        prop_assert_eq!(&at_once, &laid);
        let mut one_by_one = Vec::new();
        for tile in singles.iter().rev() {
            overlay(&mut one_by_one, &[*tile], usize::MAX);
        }
        prop_assert_eq!(&one_by_one, &laid);
    }

    #[test]
    fn what_does_not_fit_changes_nothing(under in tiles(), over in tiles(), max in 0..12_usize) {
        let mut before = Vec::new();
        overlay(&mut before, &under, usize::MAX);
        let mut unbounded = before.clone();
        overlay(&mut unbounded, &over, usize::MAX);
        let mut bounded = before.clone();
        let fits = overlay(&mut bounded, &over, max);
        prop_assert_eq!(fits, over.is_empty() || unbounded.len() <= max);
        prop_assert_eq!(bounded, if fits { unbounded } else { before });
    }
}
