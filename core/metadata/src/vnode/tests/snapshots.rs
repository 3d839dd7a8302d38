//! Snapshots whose rows are each fine and make no sense together: refused, so that no later command meets them.

use super::*;
use crate::vnode::snapshot::Error;

fn range(seq: u64) -> RangeId {
    RangeId { seq: RangeSeq(seq), ..ROOT }
}

/// A topic of five ranges (root split, one half split again, the quarters merged), segments and a position.
fn sample() -> Vnode {
    let mut vnode = vnode();
    for command in [
        register(0, 0),
        seal(0, 5),
        register(1, 5),
        seal(1, 0),
        register(2, 5),
        seal(2, 4),
        Command::SplitRange { range: ROOT },
        Command::SplitRange { range: range(1) },
        Command::MergeRanges { a: range(3), b: range(4) },
        commit("g", vec![tile(0, 8, 3), Tile { range: RangeSeq(2), ..tile(8, 16, 1) }]),
    ] {
        assert!(!matches!(run(&mut vnode, &command), Reply::Refused(_)));
    }
    assert_eq!(Vnode::decode_snapshot(vnode.encode_snapshot()).as_ref(), Ok(&vnode));
    vnode
}

#[track_caller]
fn contradicts(what: &'static str, change: impl FnOnce(&mut Vnode)) {
    let mut vnode = sample();
    change(&mut vnode);
    assert_eq!(Vnode::decode_snapshot(vnode.encode_snapshot()), Err(Error::Inconsistent(what)));
}

#[track_caller]
fn contradicts_in_range(what: &'static str, seq: u64, change: impl FnOnce(&mut Range)) {
    contradicts(what, |vnode| change(vnode.tables.ranges.get_mut(range(seq)).unwrap()));
}

const UNFIT: &str = "a range does not fit its topic";
const REPLACED: &str = "a range was not replaced by what covers it";

#[test]
fn ranges_that_do_not_tile_are_refused() {
    let span = |start, end| KeySpan::new(start, end).unwrap();
    contradicts_in_range(UNFIT, 0, |root| root.span = span(0, 8));
    contradicts_in_range(UNFIT, 2, |half| half.span = span(12, 16));
    contradicts_in_range(UNFIT, 2, |half| half.span = span(0, 16));
    contradicts_in_range(UNFIT, 5, |merged| merged.span = span(8, 16));
    contradicts_in_range(UNFIT, 5, |merged| merged.span = span(0, 4));
    // The same half twice.
    contradicts_in_range(REPLACED, 2, |half| half.span = span(0, 8));
}

#[test]
fn ranges_of_an_impossible_family_are_refused() {
    contradicts_in_range(UNFIT, 5, |merged| merged.parents = vec![RangeSeq(4), RangeSeq(3)]);
    contradicts_in_range(UNFIT, 5, |merged| merged.parents = vec![RangeSeq(3), RangeSeq(3)]);
    contradicts_in_range(UNFIT, 5, |merged| merged.parents = vec![RangeSeq(3), RangeSeq(4), RangeSeq(0)]);
    contradicts_in_range(UNFIT, 5, |merged| merged.parents = vec![]);
    contradicts_in_range(UNFIT, 2, |half| half.parents = vec![RangeSeq(2)]);
    contradicts_in_range(UNFIT, 2, |half| half.parents = vec![RangeSeq(9)]);
    contradicts_in_range(UNFIT, 0, |root| root.parents = vec![RangeSeq(0)]);
    // Half of a range that was replaced by a merge.
    contradicts_in_range(REPLACED, 5, |merged| {
        merged.parents = vec![RangeSeq(3)];
        merged.span = KeySpan::new(0, 2).unwrap();
    });
    // The lower half must be the older one.
    let mut swapped = vnode();
    run(&mut swapped, &Command::SplitRange { range: ROOT });
    let (low, high) = (swapped.range(range(1)).unwrap().clone(), swapped.range(range(2)).unwrap().clone());
    *swapped.tables.ranges.get_mut(range(1)).unwrap() = high;
    *swapped.tables.ranges.get_mut(range(2)).unwrap() = low;
    assert_eq!(Vnode::decode_snapshot(swapped.encode_snapshot()), Err(Error::Inconsistent(REPLACED)));
}

#[test]
fn ranges_in_an_impossible_state_are_refused() {
    contradicts_in_range(REPLACED, 2, |leaf| leaf.state = RangeState::Replaced);
    contradicts_in_range(UNFIT, 2, |leaf| leaf.state = RangeState::Sealed);
    contradicts_in_range(UNFIT, 0, |root| root.state = RangeState::Active);
    contradicts_in_range(UNFIT, 3, |quarter| quarter.state = RangeState::Active);
    contradicts(UNFIT, |vnode| vnode.tables.topics.get_mut(TOPIC).unwrap().state = TopicState::Sealed);
    for next in [RangeSeq(5), RangeSeq(7), RangeSeq(u64::MAX)] {
        contradicts("ranges of a topic are missing", |vnode| {
            vnode.tables.topics.get_mut(TOPIC).unwrap().next_range_seq = next;
        });
    }
}

#[test]
fn segments_that_do_not_follow_one_another_are_refused() {
    let end = "a range does not end where its last segment does";
    let unfit = "a segment does not fit its range";
    contradicts_in_range(end, 0, |root| root.sealed_end = Offset(10));
    contradicts_in_range(end, 0, |root| root.sealed_end = Offset(8));
    contradicts_in_range(unfit, 0, |root| root.next_segment_seq = SegmentSeq(2));
    let put = |vnode: &mut Vnode, range, seq, start, state| {
        let id = SegmentId { range, seq: SegmentSeq(seq) };
        let (start, replicas, opened_at) = (Offset(start), vec![NodeId(1)], WallTime(1));
        vnode.tables.segments.insert(id, Segment { start, replicas, opened_at, state });
    };
    let sealed = |length| SegmentState::Sealed(Sealed { length, byte_size: 1, lost: 0, at: WallTime(1) });
    contradicts(unfit, |vnode| put(vnode, ROOT, 1, 5, sealed(1)));
    contradicts(unfit, |vnode| put(vnode, ROOT, 0, 0, sealed(4)));
    contradicts(unfit, |vnode| put(vnode, ROOT, 0, 0, sealed(6)));
    contradicts(unfit, |vnode| put(vnode, ROOT, 2, 6, sealed(3)));
    contradicts(unfit, |vnode| put(vnode, ROOT, 2, 4, SegmentState::Active));
    // What is active is the last one, and starts where the range ends.
    contradicts("an active segment does not start where its range ends", |vnode| {
        put(vnode, ROOT, 1, 5, SegmentState::Active);
    });
    contradicts("an active segment does not start where its range ends", |vnode| {
        put(vnode, ROOT, 2, 5, SegmentState::Active);
    });
    contradicts("a segment's extent or replicas", |vnode| put(vnode, ROOT, 2, 5, sealed(u64::MAX)));
    contradicts("a segment has no range", |vnode| put(vnode, range(9), 0, 0, sealed(1)));
    // A range that ends wrongly is noticed also when another one follows.
    contradicts(unfit, |vnode| {
        vnode.tables.ranges.get_mut(ROOT).unwrap().sealed_end = Offset(8);
        let leaf = vnode.tables.ranges.get_mut(range(5)).unwrap();
        (leaf.next_segment_seq, leaf.sealed_end) = (SegmentSeq(1), Offset(1));
        put(vnode, range(5), 0, 0, sealed(1));
    });
}

#[test]
fn positions_that_have_another_form_or_place_are_refused() {
    let set = |what, tiles: Vec<Tile>| {
        contradicts(what, |vnode| {
            let standing = crate::vnode::position::Standing { tiles, committed_at: WallTime(1) };
            vnode.tables.positions.set(TOPIC, GroupName::new(b"g").unwrap(), standing);
        });
    };
    let unfit = "a position does not fit its topic";
    set("a position without tiles, or with too many", vec![]);
    set(unfit, vec![tile(0, 8, 3), tile(8, 16, 3)]);
    set(unfit, vec![tile(8, 16, 3), tile(0, 8, 4)]);
    set(unfit, vec![tile(0, 16, 3), tile(8, 16, 4)]);
    set(unfit, vec![Tile { range: RangeSeq(1), ..tile(0, 16, 3) }]);
    set(unfit, vec![Tile { range: RangeSeq(9), ..tile(0, 16, 3) }]);
}

#[test]
fn a_fence_on_nothing_is_refused() {
    contradicts("a topic that is not there is fenced", |vnode| {
        vnode.migrating.insert(OTHER, MigrationId(1));
    });
}

#[test]
fn the_same_goes_for_what_is_inserted() {
    let mut export = sample().export(TOPIC).unwrap();
    export.tables.ranges.get_mut(range(2)).unwrap().state = RangeState::Replaced;
    assert!(Export::decode(export.encode()).is_err());
    let command = Command::InsertTopic { export: Box::new(export), lease: FenceToken(1) };
    refused(&mut Vnode::default(), &command, Refusal::InvalidCommand);
}
