//! Splits and merges: who takes whose place, what is refused, what stays closed and for how long.

use super::*;

fn range(seq: u64) -> RangeId {
    RangeId { seq: RangeSeq(seq), ..ROOT }
}

fn split(vnode: &mut Vnode, seq: u64) -> (u64, u64) {
    let reply = run(vnode, &Command::SplitRange { range: range(seq) });
    let Reply::RangeSplit { left, right } = reply else { panic!("{reply:?}") };
    (left.seq.0, right.seq.0)
}

fn merge(vnode: &mut Vnode, a: u64, b: u64) -> u64 {
    let reply = run(vnode, &Command::MergeRanges { a: range(a), b: range(b) });
    let Reply::RangesMerged { child } = reply else { panic!("{reply:?}") };
    child.seq.0
}

fn open(seq: u64) -> Command {
    let segment = SegmentId { range: range(seq), seq: SegmentSeq(0) };
    let (replicas, opened_at) = (vec![NodeId(1)], WallTime(1));
    Command::RegisterSegment(RegisterSegment { segment, start: Offset::ZERO, replicas, opened_at })
}

fn close(seq: u64, length: u64) -> Command {
    let segment = SegmentId { range: range(seq), seq: SegmentSeq(0) };
    Command::SealSegment(SealSegment { segment, length, byte_size: length, lost: 0, sealed_at: WallTime(2) })
}

fn active(vnode: &Vnode) -> Vec<u64> {
    vnode.active_ranges_of(TOPIC).map(|(id, _)| id.seq.0).collect()
}

fn children(vnode: &Vnode, seq: u64) -> Vec<u64> {
    vnode.children_of(range(seq)).iter().map(|seq| seq.0).collect()
}

fn parents(vnode: &Vnode, seq: u64) -> Vec<u64> {
    vnode.range(range(seq)).unwrap().parents.iter().map(|seq| seq.0).collect()
}

#[test]
fn a_split_puts_the_two_halves_in_a_ranges_place() {
    let mut vnode = vnode();
    assert_eq!(split(&mut vnode, 0), (1, 2));
    assert_eq!(vnode.range(range(1)).unwrap().span, KeySpan::new(0, 8).unwrap());
    assert_eq!(vnode.range(range(2)).unwrap().span, KeySpan::new(8, 16).unwrap());
    assert_eq!(vnode.range(ROOT).unwrap().state, RangeState::Replaced);
    assert_eq!((active(&vnode), children(&vnode, 0), parents(&vnode, 2)), (vec![1, 2], vec![1, 2], vec![0]));
    assert_eq!(split(&mut vnode, 1), (3, 4));
    assert_eq!(active(&vnode), [3, 4, 2], "in the order of their spans");
    assert_eq!(vnode.active_range_at(TOPIC, Position(7)).map(|(id, _)| id.seq.0), Some(4));
    assert_eq!([0, 2, 4].map(|seq| vnode.ancestor_count(range(seq))), [0, 1, 2]);
}

#[test]
fn a_merge_puts_the_whole_in_the_halves_place_whichever_is_named_first() {
    for swap in [false, true] {
        let mut vnode = vnode();
        split(&mut vnode, 0);
        let child = if swap { merge(&mut vnode, 2, 1) } else { merge(&mut vnode, 1, 2) };
        assert_eq!((child, active(&vnode)), (3, vec![3]));
        assert_eq!(parents(&vnode, 3), [1, 2], "in the order of their spans");
        assert_eq!((children(&vnode, 1), children(&vnode, 2)), (vec![3], vec![3]));
        assert_eq!(vnode.range(range(3)).unwrap().span, KeySpan::new(0, 16).unwrap());
        assert_eq!(vnode.ancestor_count(range(3)), 3, "the root counts once");
    }
}

#[test]
fn what_cannot_be_split_or_merged_is_refused() {
    let mut vnode = vnode();
    let elsewhere = RangeId { topic: OTHER, seq: RangeSeq(0) };
    let split_of = |range| Command::SplitRange { range };
    let merge_of = |a, b| Command::MergeRanges { a, b };
    refused(&mut vnode, &split_of(range(9)), Refusal::NoSuchRange);
    refused(&mut vnode, &split_of(elsewhere), Refusal::NoSuchRange);
    refused(&mut vnode, &merge_of(ROOT, elsewhere), Refusal::NoSuchRange);
    refused(&mut vnode, &merge_of(ROOT, ROOT), Refusal::NotBuddies);
    run(&mut vnode, &create("other", OTHER, 4));
    refused(&mut vnode, &merge_of(ROOT, elsewhere), Refusal::DifferentTopic);
    split(&mut vnode, 0);
    refused(&mut vnode, &split_of(ROOT), Refusal::Sealed);
    refused(&mut vnode, &merge_of(range(1), ROOT), Refusal::Sealed);
    refused(&mut vnode, &merge_of(ROOT, range(9)), Refusal::Sealed);
    // Neighbours of one size that are not the halves of one block, and neighbours of two sizes.
    split(&mut vnode, 1);
    split(&mut vnode, 2);
    refused(&mut vnode, &merge_of(range(4), range(5)), Refusal::NotBuddies);
    split(&mut vnode, 3);
    refused(&mut vnode, &merge_of(range(8), range(4)), Refusal::NotBuddies);
    split(&mut vnode, 7);
    refused(&mut vnode, &split_of(range(9)), Refusal::CannotSplit);
    run(&mut vnode, &Command::SealTopic { topic: TOPIC });
    refused(&mut vnode, &split_of(range(4)), Refusal::Sealed);
}

#[test]
fn a_child_opens_once_its_ancestors_have_ended_even_past_those_never_written() {
    let mut vnode = vnode();
    run(&mut vnode, &open(0));
    split(&mut vnode, 0);
    // 1 and 3 never had a segment: what keeps 3 closed is its grandparent.
    split(&mut vnode, 1);
    refused(&mut vnode, &open(3), Refusal::RangeHasActiveSegment);
    assert_eq!(vnode.open_ancestors_of(range(3)), [ROOT]);
    refused(&mut vnode, &open(2), Refusal::RangeHasActiveSegment);
    run(&mut vnode, &close(0, 5));
    assert_eq!(run(&mut vnode, &open(3)), Reply::SegmentRegistered);
    // Its sibling has nothing to wait for; what both are merged into waits for both.
    assert_eq!(run(&mut vnode, &open(4)), Reply::SegmentRegistered);
    merge(&mut vnode, 3, 4);
    refused(&mut vnode, &open(5), Refusal::RangeHasActiveSegment);
    assert_eq!(vnode.open_ancestors_of(range(5)).len(), 2);
    run(&mut vnode, &close(3, 1));
    refused(&mut vnode, &open(5), Refusal::RangeHasActiveSegment);
    run(&mut vnode, &close(4, 0));
    assert_eq!(run(&mut vnode, &open(5)), Reply::SegmentRegistered);
    refused(&mut vnode, &open(1), Refusal::Sealed);
}

#[test]
fn positions_stay_where_they_are_when_ranges_change() {
    let mut vnode = vnode();
    run(&mut vnode, &commit("g", vec![tile(0, 16, 7)]));
    split(&mut vnode, 0);
    assert_eq!(positions(&vnode, "g"), [tile(0, 16, 7)]);
    // One half has gone on in its own range, the other is still in the root.
    let in_child = Tile { range: RangeSeq(2), ..tile(8, 16, 2) };
    run(&mut vnode, &commit("g", vec![in_child]));
    assert_eq!(positions(&vnode, "g"), [tile(0, 8, 7), in_child]);
    merge(&mut vnode, 1, 2);
    assert_eq!(positions(&vnode, "g"), [tile(0, 8, 7), in_child]);
    let in_merged = Tile { range: RangeSeq(3), ..tile(0, 16, 1) };
    run(&mut vnode, &commit("g", vec![in_merged]));
    assert_eq!(positions(&vnode, "g"), [in_merged]);
    // A tile of a range that never had the slice is nobody's position.
    let lost = Command::CommitPositions {
        commits: vec![Commit {
            topic: TOPIC,
            group: Bytes::from_static(b"g"),
            tiles: vec![Tile { range: RangeSeq(1), ..tile(8, 16, 1) }],
            at: WallTime(1),
        }],
    };
    assert_eq!(run(&mut vnode, &lost), Reply::PositionsCommitted(vec![Err(Refusal::InvalidPosition)]));
}

#[test]
fn a_topic_has_a_bounded_number_of_ranges_in_its_life() {
    let mut vnode = vnode();
    split(&mut vnode, 0);
    split(&mut vnode, 1);
    let (mut last, mut count) = (2, 5);
    while count + 3 <= limits::RANGES_PER_TOPIC_MAX {
        let (left, right) = split(&mut vnode, last);
        last = merge(&mut vnode, left, right);
        count += 3;
    }
    // The last two there are numbers for.
    assert_eq!(limits::RANGES_PER_TOPIC_MAX - count, 2);
    let (left, right) = split(&mut vnode, last);
    refused_by(&mut vnode, &Command::SplitRange { range: range(left) }, Refusal::TooManyRanges);
    let merge = Command::MergeRanges { a: range(left), b: range(right) };
    refused_by(&mut vnode, &merge, Refusal::TooManyRanges);
    // All but itself, its sibling, the other half and the quarters of that.
    assert_eq!(vnode.ancestor_count(range(right)), limits::RANGES_PER_TOPIC_MAX - 5);
    let detail = vnode.topic_detail(TOPIC).unwrap();
    assert_eq!(detail.ranges.last().unwrap().ancestor_count, limits::RANGES_PER_TOPIC_MAX - 5);
}

#[test]
fn a_topic_has_a_bounded_number_of_active_ranges() {
    let mut vnode = Vnode::default();
    run(&mut vnode, &create("wide", TOPIC, 16));
    let most = limits::ACTIVE_RANGES_PER_TOPIC_MAX as u64;
    for seq in 0..most - 1 {
        split(&mut vnode, seq);
    }
    let last = vnode.active_ranges_of(TOPIC).last().unwrap().0;
    refused_by(&mut vnode, &Command::SplitRange { range: last }, Refusal::TooManyRanges);
    // Room comes back with a merge.
    let pair: Vec<u64> = active(&vnode)[..2].to_vec();
    let child = merge(&mut vnode, pair[0], pair[1]);
    split(&mut vnode, child);
    assert_eq!(vnode.active_ranges_of(TOPIC).count() as u64, most);
    let overview = vnode.overview();
    assert_eq!(overview[0].active_range_count as u64, most);
}

/// As [`refused`], without copying a state that is large.
#[track_caller]
fn refused_by(vnode: &mut Vnode, command: &Command, refusal: Refusal) {
    assert_eq!(run(vnode, command), Reply::Refused(refusal));
}

/// What a person asked for stays: only what came of splits by load is merged by load, as many levels as were split.
#[test]
fn a_merge_by_load_undoes_splits_by_load_only() {
    let mut vnode = vnode();
    split(&mut vnode, 0);
    refused_by(&mut vnode, &Command::MergeByLoad { a: range(1), b: range(2) }, Refusal::NotBuddies);
    run(&mut vnode, &Command::SplitByLoad { range: range(1) });
    run(&mut vnode, &Command::SplitByLoad { range: range(3) });
    assert_eq!([1, 3, 5].map(|seq| vnode.range(range(seq)).unwrap().load_splits), [0, 1, 2]);
    run(&mut vnode, &Command::MergeByLoad { a: range(6), b: range(5) });
    run(&mut vnode, &Command::MergeByLoad { a: range(7), b: range(4) });
    assert_eq!(active(&vnode), [8, 2]);
    assert_eq!(vnode.range(range(8)).unwrap().load_splits, 0);
    refused_by(&mut vnode, &Command::MergeByLoad { a: range(8), b: range(2) }, Refusal::NotBuddies);
    assert_eq!(merge(&mut vnode, 8, 2), 9, "a person may");
}
