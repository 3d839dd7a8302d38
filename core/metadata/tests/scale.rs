//! A vnode as large as one is meant to be: many topics, and one topic of many ranges.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use malachi_metadata::vnode::{
    Command, Commit, CreateTopic, RegisterSegment, Reply, SealSegment, Tile, Vnode,
};
use types::{
    GroupName, NodeId, Offset, Position, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime,
};

const TOPICS: u64 = 10_000;
const RANGES: usize = 10_000;
const WIDE: TopicId = TopicId(0);

fn run(vnode: &mut Vnode, command: &Command) -> Reply {
    vnode.apply(vnode.applied().next(), &command.encode())
}

fn create(vnode: &mut Vnode, id: TopicId, name: &str, keyspace_bits: u8) {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let reply = run(vnode, &Command::CreateTopic(CreateTopic { name, id, keyspace_bits, key_hash: 1 }));
    assert!(matches!(reply, Reply::TopicCreated { .. }), "{reply:?}");
}

/// A sealed segment and an active one.
fn write(vnode: &mut Vnode, range: RangeId) {
    for (seq, start) in [(0, 0), (1, 100)] {
        let segment = SegmentId { range, seq: SegmentSeq(seq) };
        let (start, replicas, opened_at) =
            (Offset(start), vec![NodeId(1), NodeId(2), NodeId(3)], WallTime(1));
        let register = RegisterSegment { segment, start, replicas, opened_at };
        assert_eq!(run(vnode, &Command::RegisterSegment(register)), Reply::SegmentRegistered);
        if seq == 0 {
            let seal = SealSegment { segment, length: 100, byte_size: 4096, lost: 0, sealed_at: WallTime(2) };
            assert_eq!(run(vnode, &Command::SealSegment(seal)), Reply::SegmentSealed);
        }
    }
}

/// 10,000 topics of one range beside one topic whose 10,000 active ranges came from as many splits.
fn large() -> Vnode {
    let mut vnode = Vnode::default();
    create(&mut vnode, WIDE, "wide", 32);
    for seq in 0..RANGES as u64 - 1 {
        let range = RangeId { topic: WIDE, seq: RangeSeq(seq) };
        assert!(matches!(run(&mut vnode, &Command::SplitRange { range }), Reply::RangeSplit { .. }));
    }
    for number in 1..=TOPICS {
        let id = TopicId(u128::from(number));
        create(&mut vnode, id, &format!("topic-{number}"), 16);
        write(&mut vnode, RangeId { topic: id, seq: RangeSeq(0) });
    }
    let leaves: Vec<RangeId> = vnode.leaf_ranges_of(WIDE).map(|(id, _)| id).collect();
    for range in leaves {
        write(&mut vnode, range);
    }
    vnode
}

#[test]
fn a_large_vnode_is_saved_read_and_told_about() {
    let vnode = large();
    assert_eq!(vnode.leaf_ranges_of(WIDE).count(), RANGES);
    assert_eq!(vnode.segment_ids().count(), (RANGES + usize::try_from(TOPICS).unwrap()) * 2);
    let bytes = vnode.encode_snapshot();
    let decoded = Vnode::decode_snapshot(bytes.clone()).unwrap();
    assert_eq!(decoded, vnode);
    // A range costs its row and its two segments, whatever its past: all of it together is a few megabytes.
    let rows = vnode.ranges_of(WIDE).count() + usize::try_from(TOPICS).unwrap();
    assert!(bytes.len() / rows < 300, "{} bytes for {rows} ranges", bytes.len());
    let overview = vnode.overview();
    assert_eq!(overview.len() as u64, TOPICS + 1);
    let detail = vnode.topic_detail(WIDE).unwrap();
    assert_eq!(detail.ranges.len(), RANGES * 2 - 1);
    assert_eq!(detail.ranges.iter().map(|range| range.ancestor_count).max(), Some(14));
}

#[test]
fn a_group_stands_in_every_range_and_moves_one_at_a_time() {
    let mut vnode = large();
    let group = GroupName::new(b"readers").unwrap();
    let tiles: Vec<Tile> = vnode
        .leaf_ranges_of(WIDE)
        .map(|(id, range)| Tile { range: id.seq, span: range.span, next: Offset(0) })
        .collect();
    let commit = |vnode: &mut Vnode, tiles: Vec<Tile>| {
        let group = Bytes::copy_from_slice(group.as_bytes());
        let commits = vec![Commit { topic: WIDE, group, tiles, at: WallTime(1) }];
        assert_eq!(
            run(vnode, &Command::CommitPositions { commits }),
            Reply::PositionsCommitted(vec![Ok(())])
        );
    };
    commit(&mut vnode, tiles.clone());
    for (number, tile) in (0_u64..).zip(&tiles) {
        let position = Position(u32::try_from(tile.span.start()).unwrap());
        let (owner, _) = vnode.active_range_at(WIDE, position).unwrap();
        assert_eq!(owner.seq, tile.range);
        commit(&mut vnode, vec![Tile { next: Offset(number), ..*tile }]);
    }
    let stands: Vec<u64> = vnode.positions(WIDE, &group).iter().map(|tile| tile.next.0).collect();
    assert_eq!(stands, (0..RANGES as u64).collect::<Vec<_>>());
}
