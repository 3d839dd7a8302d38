//! A topic under a load that the tests choose, place by place, and what becomes of its ranges.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use types::{Instant, KeySpan, Position, RangeSeq};

use super::decide::{Change, History, Leaf, Topic, load_of};
use super::meter::Rate;
use crate::upkeep::{Limit, Resize};

const PLACES: u64 = 32;
const EVERY: Duration = Duration::from_secs(10);

fn rules() -> Resize {
    Resize { records_per_second: 1000, bytes_per_second: u64::MAX, held_bytes: 1000, ..Resize::default() }
}

/// One range of the model.
#[derive(Clone, Debug)]
struct Piece {
    seq: u64,
    span: KeySpan,
    load_splits: u8,
}

/// A topic whose every place takes and holds what it is told.
struct World {
    rules: Resize,
    takes: Vec<u64>,
    holds: Vec<u64>,
    /// In the order of their spans.
    pieces: Vec<Piece>,
    next: u64,
    now: Instant,
    history: History,
    limits: BTreeSet<(u64, Limit)>,
    split: Vec<KeySpan>,
    merged: Vec<KeySpan>,
    elsewhere: usize,
    unknown: BTreeSet<u64>,
}

impl World {
    fn new(rules: Resize, takes: Vec<u64>) -> Self {
        let whole = Piece { seq: 0, span: KeySpan::new(0, PLACES).unwrap(), load_splits: 0 };
        Self {
            rules,
            takes,
            holds: vec![0; PLACES as usize],
            pieces: vec![whole],
            next: 1,
            now: Instant(0),
            history: History::default(),
            limits: BTreeSet::new(),
            split: Vec::new(),
            merged: Vec::new(),
            elsewhere: 0,
            unknown: BTreeSet::new(),
        }
    }

    fn of(amounts: &[u64], span: KeySpan) -> u64 {
        amounts[span.start() as usize..span.end() as usize].iter().sum()
    }

    /// So many keys as the meter keeps, each place by its share.
    fn keys(&self, span: KeySpan) -> Vec<Position> {
        let all = Self::of(&self.takes, span).max(1);
        let of_place =
            |place: u64| vec![Position(place as u32); (self.takes[place as usize] * 128 / all) as usize];
        (span.start()..span.end()).flat_map(of_place).collect()
    }

    fn leaves(&self) -> Vec<Leaf> {
        let leaf = |piece: &Piece| Leaf {
            seq: RangeSeq(piece.seq),
            span: piece.span,
            rate: (!self.unknown.contains(&piece.seq))
                .then(|| Rate { records: Self::of(&self.takes, piece.span), bytes: 0 }),
            keys: (self.keys(piece.span), 0),
            held: Self::of(&self.holds, piece.span),
            may_merge: piece.load_splits > 0,
        };
        self.pieces.iter().map(leaf).collect()
    }

    /// Looks once, and does what comes of it.
    fn look(&mut self) -> Option<Change> {
        self.now = self.now.plus(EVERY);
        let leaves = self.leaves();
        let ranges_in_cluster = self.pieces.len() + self.elsewhere;
        let topic = Topic { leaves: &leaves, ranges_ever: self.next, ranges_in_cluster };
        let (change, limits) = self.history.look(&self.rules, self.now, &topic);
        self.limits = limits.into_iter().map(|(seq, limit)| (seq.0, limit)).collect();
        match change {
            Some(Change::Split { range, block }) => self.cut(range.0, block),
            Some(Change::Merge { low, high }) => self.join(low.0, high.0),
            None => {}
        }
        change
    }

    fn cut(&mut self, seq: u64, block: KeySpan) {
        let at = self.pieces.iter().position(|piece| piece.seq == seq).unwrap();
        let piece = self.pieces.remove(at);
        self.split.push(piece.span);
        let (low, high) = piece.span.split().unwrap();
        for (n, span) in [low, high].into_iter().enumerate() {
            let half = Piece { seq: self.next, span, load_splits: piece.load_splits + 1 };
            self.pieces.insert(at + n, half);
            self.next += 1;
        }
        if let Some(half) = self.pieces[at..at + 2].iter().find(|half| half.span.covers(block)) {
            self.cut(half.seq, block);
        }
    }

    fn join(&mut self, low: u64, high: u64) {
        let at = self.pieces.iter().position(|piece| piece.seq == low).unwrap();
        let (low, other) = (self.pieces.remove(at), self.pieces.remove(at));
        assert_eq!(other.seq, high, "the other half is beside it");
        let high = other;
        let span = low.span.merge(high.span).unwrap();
        let load_splits = low.load_splits.min(high.load_splits).checked_sub(1).unwrap();
        self.merged.push(span);
        self.pieces.insert(at, Piece { seq: self.next, span, load_splits });
        self.next += 1;
    }

    /// Looks until nothing has changed for longer than anything waits.
    fn settle(&mut self) {
        let wait = self.rules.merge_after.max(self.rules.split_after).as_secs() / EVERY.as_secs() + 2;
        let mut quiet = 0;
        for _ in 0..20_000 {
            quiet = if self.look().is_some() { 0 } else { quiet + 1 };
            if quiet > wait {
                return;
            }
        }
        panic!("never at rest: {:?}", self.pieces);
    }

    fn load(&self, piece: &Piece) -> u64 {
        load_of(&self.rules, Rate { records: Self::of(&self.takes, piece.span), bytes: 0 })
    }
}

fn even(records: u64) -> Vec<u64> {
    vec![records / PLACES; PLACES as usize]
}

#[test]
fn a_hot_range_is_split_once_it_has_lasted_and_not_before() {
    let mut world = World::new(rules(), even(1600));
    for _ in 0..6 {
        assert_eq!(world.look(), None, "not for a moment's load");
    }
    let block = KeySpan::new(0, PLACES).unwrap();
    assert_eq!(world.look(), Some(Change::Split { range: RangeSeq(0), block }));
    world.settle();
    assert_eq!(world.pieces.len(), 2, "halves that take less are left alone");
}

#[test]
fn a_load_that_comes_and_goes_splits_nothing() {
    let mut world = World::new(rules(), even(1600));
    for turn in 0..100 {
        world.takes = even(if turn % 5 == 4 { 640 } else { 1600 });
        assert_eq!(world.look(), None);
    }
}

#[test]
fn what_became_quiet_is_merged_level_by_level_and_no_further_than_it_was_split() {
    let mut world = World::new(rules(), even(6400));
    // A person has split it before.
    world.pieces = vec![
        Piece { seq: 1, span: KeySpan::new(0, 16).unwrap(), load_splits: 0 },
        Piece { seq: 2, span: KeySpan::new(16, 32).unwrap(), load_splits: 0 },
    ];
    world.next = 3;
    world.settle();
    assert_eq!(world.pieces.len(), 8);
    world.takes = even(0);
    world.settle();
    let spans: Vec<KeySpan> = world.pieces.iter().map(|piece| piece.span).collect();
    assert_eq!(spans, [KeySpan::new(0, 16).unwrap(), KeySpan::new(16, 32).unwrap()]);
}

#[test]
fn what_nobody_tells_of_is_neither_split_nor_merged() {
    let mut world = World::new(rules(), even(1600));
    world.settle();
    world.takes = even(0);
    world.unknown = world.pieces.iter().map(|piece| piece.seq).take(1).collect();
    world.settle();
    assert_eq!((world.pieces.len(), world.merged.len()), (2, 0));
    world.unknown.clear();
    world.settle();
    assert_eq!(world.pieces.len(), 1);
}

#[test]
fn the_cut_is_where_the_keys_are() {
    let mut takes = vec![0; PLACES as usize];
    (takes[5], takes[6]) = (900, 900);
    let mut world = World::new(rules(), takes);
    let change = std::iter::repeat_with(|| world.look()).take(7).last().flatten();
    let block = KeySpan::new(4, 8).unwrap();
    assert_eq!(change, Some(Change::Split { range: RangeSeq(0), block }));
    assert_eq!(world.pieces.len(), 5, "down to the block that parts them, at once");
    assert!(world.pieces.iter().all(|piece| world.load(piece) <= 1000));
}

#[test]
fn one_key_is_a_limit_and_says_so() {
    let mut takes = vec![1; PLACES as usize];
    takes[9] = 5000;
    let mut world = World::new(rules(), takes);
    world.settle();
    assert_eq!(world.pieces.len(), 1);
    assert_eq!(world.limits, [(0, Limit::OneKey)].into());
    let mut narrow = World::new(rules(), even(PLACES * 2000));
    narrow.rules.ranges_per_topic = 1000;
    narrow.settle();
    assert_eq!(narrow.pieces.len(), PLACES as usize);
    assert!(narrow.limits.iter().all(|(_, limit)| *limit == Limit::Narrow) && narrow.limits.len() == 32);
}

#[test]
fn keys_that_are_too_few_tell_nothing_and_records_without_one_go_everywhere() {
    let whole = KeySpan::new(0, PLACES).unwrap();
    let cut = |keys: Vec<Position>, keyless: u16| {
        let rate = Some(Rate::default());
        let leaf =
            Leaf { seq: RangeSeq(0), span: whole, rate, keys: (keys, keyless), held: 0, may_merge: false };
        let topic = Topic { leaves: std::slice::from_ref(&leaf), ranges_ever: 1, ranges_in_cluster: 1 };
        super::decide::cut_of(&rules(), &topic, &leaf)
    };
    assert_eq!(cut(vec![Position(3); 15], 0), Ok(whole));
    assert_eq!(cut(vec![Position(3); 16], 0), Err(Limit::OneKey));
    assert_eq!(cut(vec![Position(3); 100], 500), Ok(whole), "half of what comes has no key");
}

#[test]
fn size_splits_what_takes_records_and_is_not_undone_by_little_load() {
    let mut world = World::new(rules(), even(0));
    world.holds = vec![50; PLACES as usize];
    world.settle();
    assert_eq!(world.pieces.len(), 1, "nothing comes, so nothing would go elsewhere");
    world.takes = even(PLACES);
    world.settle();
    assert_eq!(world.pieces.len(), 2);
    world.holds = vec![1; PLACES as usize];
    world.settle();
    assert_eq!(world.pieces.len(), 1, "retention has made it small again");
}

fn loads() -> impl Strategy<Value = Vec<u64>> {
    let place = prop_oneof![3 => 0..20_u64, 2 => 0..200_u64, 1 => 0..3000_u64];
    prop::collection::vec(place, PLACES as usize)
}

proptest! {
    /// Whatever the load, once it stays as it is: no block is both split and merged, it comes to rest, within the
    /// caps, and whatever takes too much then says why it is not split.
    #[test]
    fn a_steady_load_never_makes_ranges_come_and_go(
        takes in loads(),
        holds in prop::collection::vec(0..120_u64, PLACES as usize),
        before in loads(),
        per_topic in 1..40_usize,
        elsewhere in 0..40_usize,
    ) {
        let mut world = World::new(Resize { ranges_per_topic: per_topic, ranges_in_cluster: 48, ..rules() }, before);
        world.elsewhere = elsewhere;
        world.settle();
        (world.split, world.merged) = (Vec::new(), Vec::new());
        (world.takes, world.holds) = (takes, holds);
        let cap = per_topic.max(1).min(48_usize.saturating_sub(elsewhere)).max(world.pieces.len());
        world.settle();
        let undone = world.merged.iter().find(|span| world.split.contains(span));
        prop_assert_eq!(undone, None, "split and merged under one load");
        prop_assert!(world.pieces.len() <= cap, "{} of {cap}", world.pieces.len());
        for piece in &world.pieces {
            let is_limited = world.limits.iter().any(|(seq, _)| *seq == piece.seq);
            prop_assert!(world.load(piece) < 1000 || is_limited, "{piece:?}");
        }
        let spans: Vec<KeySpan> = world.pieces.iter().map(|piece| piece.span).collect();
        prop_assert!(spans.windows(2).all(|pair| pair[0].end() == pair[1].start()));
        for pair in world.pieces.windows(2) {
            let [low, high] = pair else { continue };
            let held = World::of(&world.holds, low.span) + World::of(&world.holds, high.span);
            let quiet = world.load(low) + world.load(high) < 250 && held < 250;
            let may = low.load_splits > 0 && high.load_splits > 0 && low.span.is_buddy_of(high.span);
            prop_assert!(!(quiet && may), "two quiet halves are left: {low:?} {high:?}");
        }
    }
}
