//! What must hold of a vnode whatever happened to it: the reads against the naive machine's lists, and the
//! invariants M-1 to M-17 of the specification where a single state, or two in a row, can show them.

use super::view::{Naive, NaiveRange, NaiveTopic, PLACES, observe};
use super::*;

pub(super) fn check(vnode: &Vnode, expected: &Naive) {
    assert_eq!(&observe(vnode), expected, "the reads tell what happened");
    for topic in &expected.topics {
        let named = vnode.topic_by_name(&TopicName::new(&topic.name).unwrap());
        assert_eq!(named.map(|(id, _)| id), Some(topic.id));
        check_tiling(vnode, topic);
        check_family(vnode, topic);
        for seq in 0..topic.ranges.len() as u64 {
            check_segments(vnode, topic, seq);
        }
        check_positions(vnode, topic);
        check_overview(vnode, topic);
    }
    // M-2: nothing belongs to what is not there.
    let ranges = vnode.tables.ranges.iter().all(|(id, _)| expected.topic(id.topic).is_some());
    let segments = vnode.segment_ids().all(|id| vnode.range(id.range).is_some());
    let positions = vnode.tables.positions.iter().all(|(id, _, _)| expected.topic(id).is_some());
    assert!(ranges && segments && positions);
    // M-4: derived indexes are rebuilt when a snapshot is decoded, so equality compares them with a rescan.
    assert_eq!(Vnode::decode_snapshot(vnode.encode_snapshot()).as_ref(), Ok(vnode));
}

/// M-1, M-3, M-15.
fn check_tiling(vnode: &Vnode, topic: &NaiveTopic) {
    let is_leaf = |range: &&NaiveRange| range.state != RangeState::Replaced;
    let mut leaves: Vec<(u64, u64)> = topic.ranges.iter().filter(is_leaf).map(|r| (r.start, r.end)).collect();
    leaves.sort_unstable();
    assert_eq!(leaves.first().map(|leaf| leaf.0), Some(0));
    assert!(leaves.windows(2).all(|pair| pair[0].1 == pair[1].0));
    assert_eq!(leaves.last().map(|leaf| leaf.1), Some(PLACES as u64));
    let spans = |(_, range): (RangeId, &Range)| (range.span.start(), range.span.end());
    assert_eq!(vnode.leaf_ranges_of(topic.id).map(spans).collect::<Vec<_>>(), leaves);
    let active = if topic.sealed { vec![] } else { leaves };
    assert_eq!(vnode.active_ranges_of(topic.id).map(spans).collect::<Vec<_>>(), active);
    for place in 0..=PLACES as u64 {
        let owns =
            |&(_, r): &(u64, &NaiveRange)| r.state == RangeState::Active && (r.start..r.end).contains(&place);
        let owners: Vec<u64> = (0..).zip(&topic.ranges).filter(owns).map(|(seq, _)| seq).collect();
        assert_eq!(owners.len(), usize::from(!topic.sealed && place < PLACES as u64));
        let position = Position(u32::try_from(place).unwrap());
        let found = vnode.active_range_at(topic.id, position).map(|(id, _)| id.seq.0);
        assert_eq!(found, owners.first().copied());
    }
    let next = vnode.topic(topic.id).unwrap().next_range_seq.0;
    assert_eq!(next, topic.ranges.len() as u64);
}

/// M-14, and who came from whom.
fn check_family(vnode: &Vnode, topic: &NaiveTopic) {
    let detail = vnode.topic_detail(topic.id).unwrap();
    for (seq, range) in (0..).zip(&topic.ranges) {
        let id = RangeId { topic: topic.id, seq: RangeSeq(seq) };
        let ancestors = topic.ancestors(seq);
        assert!(ancestors.iter().all(|ancestor| *ancestor < seq));
        assert_eq!(vnode.ancestor_count(id), ancestors.len());
        let shown = &detail.ranges[usize::try_from(seq).unwrap()];
        assert_eq!((shown.seq.0, shown.state, shown.ancestor_count), (seq, range.state, ancestors.len()));
        let of_range = |(_, child): &(u64, &NaiveRange)| child.parents.contains(&seq);
        let mut children: Vec<(u64, u64)> =
            (0..).zip(&topic.ranges).filter(of_range).map(|(seq, child)| (child.start, seq)).collect();
        children.sort_unstable();
        let told: Vec<u64> = vnode.children_of(id).iter().map(|seq| seq.0).collect();
        assert_eq!(told, children.iter().map(|(_, seq)| *seq).collect::<Vec<_>>());
        assert_eq!(told.is_empty(), range.state != RangeState::Replaced);
        let starts: Vec<u64> =
            range.parents.iter().map(|p| topic.ranges[usize::try_from(*p).unwrap()].start).collect();
        assert!(starts.is_sorted(), "parents stand in the order of their spans");
    }
}

/// M-7, M-8, and what an offset leads to.
fn check_segments(vnode: &Vnode, topic: &NaiveTopic, seq: u64) {
    let range = &topic.ranges[usize::try_from(seq).unwrap()];
    let id = RangeId { topic: topic.id, seq: RangeSeq(seq) };
    let active: Vec<u64> =
        range.segments.iter().filter(|(_, s)| s.is_active()).map(|(seq, _)| *seq).collect();
    assert!(active.len() <= 1);
    assert_eq!(vnode.active_segment(id).map(|(id, _)| id.seq.0), active.first().copied());
    let open: Vec<u64> = topic
        .ancestors(seq)
        .into_iter()
        .filter(|seq| topic.ranges[usize::try_from(*seq).unwrap()].has_active_segment())
        .collect();
    assert!(open.is_empty() || range.segments.is_empty(), "an ancestor of a written range takes records");
    let mut told: Vec<u64> = vnode.open_ancestors_of(id).iter().map(|id| id.seq.0).collect();
    told.sort_unstable();
    let mut open = open;
    open.sort_unstable();
    assert_eq!(told, open);
    for pair in range.segments.windows(2) {
        assert_eq!(pair[0].1.goes_on(), Some(pair[1].1.start));
    }
    if let Some((last, segment)) = range.segments.last() {
        assert!(*last < range.next_segment);
        assert_eq!(segment.goes_on().unwrap_or(segment.start).0, range.sealed_end);
    }
    let holds = |offset: u64, s: &Segment| s.end().is_none_or(|end| end.0 > offset.max(s.start.0));
    for offset in 0..range.sealed_end.min(40) + 2 {
        let expected = range.segments.iter().find(|(_, s)| holds(offset, s)).map(|(seq, _)| *seq);
        let found = vnode.segment_at(id, Offset(offset)).map(|(id, _)| id.seq.0);
        assert_eq!(found, expected, "offset {offset}");
    }
}

/// A position has one form. What it says was compared place by place.
fn check_positions(vnode: &Vnode, topic: &NaiveTopic) {
    for group in &topic.groups {
        let tiles = vnode.positions(topic.id, &GroupName::new(&group.name).unwrap());
        assert!(!tiles.is_empty() && tiles.is_sorted_by_key(|tile| tile.span.start()));
        for (at, a) in tiles.iter().enumerate() {
            let same = |b: &&Tile| a.range == b.range && a.next == b.next && a.span.is_buddy_of(b.span);
            assert_eq!(tiles[at..].iter().find(same), None, "{tiles:?} has tiles that are one");
        }
    }
}

fn check_overview(vnode: &Vnode, topic: &NaiveTopic) {
    let overview = vnode.overview();
    assert!(overview.is_sorted_by(|a, b| a.name.as_str() < b.name.as_str()));
    let line = overview.iter().find(|line| line.id == topic.id).unwrap();
    let segments: Vec<&Segment> =
        topic.ranges.iter().flat_map(|r| &r.segments).map(|(_, segment)| segment).collect();
    let active = topic.ranges.iter().filter(|range| range.state == RangeState::Active).count();
    let bytes = |segment: &&Segment| match segment.state {
        SegmentState::Active => 0,
        SegmentState::Sealed(sealed) => sealed.byte_size,
    };
    assert_eq!((line.range_count, line.active_range_count), (topic.ranges.len(), active));
    assert_eq!(line.segment_count, segments.len());
    assert_eq!(line.active_segment_count, segments.iter().filter(|segment| segment.is_active()).count());
    assert_eq!(line.total_bytes, segments.iter().map(bytes).sum::<u64>());
    let groups: Vec<&[u8]> = line.groups.iter().map(GroupName::as_bytes).collect();
    assert_eq!(groups, topic.groups.iter().map(|group| &group.name[..]).collect::<Vec<_>>());
    assert_eq!((line.keyspace_size, line.state == TopicState::Sealed), (PLACES as u64, topic.sealed));
}

/// M-5, M-9, M-10, M-11, M-13, M-14, M-17: what one command may do to what was there. `moves` says that it is one
/// of those that carry a topic from vnode to vnode, and `forgets` that it may end a group's position.
pub(super) fn check_step(before: &Naive, after: &Naive, moves: bool, forgets: bool) {
    for old in &before.topics {
        let Some(new) = after.topic(old.id) else {
            assert!(moves || (before.owns(&old.name) && !before.fences.contains_key(&old.id)));
            continue;
        };
        if before.fences.contains_key(&old.id) || !before.owns(&old.name) {
            assert_eq!(old, new, "a topic that moves, or is not ours, stands still");
        }
        assert!(new.sealed || !old.sealed, "a sealed topic stays sealed");
        assert_eq!((&old.name, old.arrived_by), (&new.name, new.arrived_by));
        assert!(new.ranges.len() >= old.ranges.len());
        for (old, new) in old.ranges.iter().zip(&new.ranges) {
            check_range_step(old, new);
        }
        let kept = |group: &super::view::NaiveGroup| new.groups.iter().any(|g| g.name == group.name);
        assert!(forgets || old.groups.iter().all(kept), "a position was dropped");
    }
    for new in after.topics.iter().filter(|new| before.topic(new.id).is_none()) {
        assert!(moves || after.owns(&new.name), "a topic was created outside the arc");
    }
}

fn check_range_step(old: &NaiveRange, new: &NaiveRange) {
    assert_eq!((old.start, old.end, &old.parents), (new.start, new.end, &new.parents));
    assert!(old.state == RangeState::Active || old.state == new.state, "a range came back");
    assert!(new.next_segment >= old.next_segment && new.sealed_end >= old.sealed_end);
    for (seq, segment) in &new.segments {
        match old.segments.iter().find(|(old, _)| old == seq) {
            None => assert!(*seq >= old.next_segment, "a segment's number was used twice"),
            Some((_, old)) => {
                assert_eq!((old.start, old.opened_at), (segment.start, segment.opened_at));
                assert!(old.state == SegmentState::Active || old.state == segment.state);
            }
        }
    }
}
