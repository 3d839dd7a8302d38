//! Random histories against a model that is too simple to be wrong: positions as one entry for each place of
//! a tiny keyspace, indexes as rescans.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BITS: u8 = 4;
const PLACES: usize = 1 << BITS;

fn topic_id() -> impl Strategy<Value = TopicId> {
    (1..4_u128).prop_map(TopicId)
}

fn a_segment() -> impl Strategy<Value = SegmentId> {
    let range = (topic_id(), 0..2_u64).prop_map(|(topic, seq)| RangeId { topic, seq: RangeSeq(seq) });
    (range, 0..6_u64).prop_map(|(range, seq)| SegmentId { range, seq: SegmentSeq(seq) })
}

fn a_tile() -> impl Strategy<Value = Tile> {
    (0..=BITS, 0..PLACES as u64, 0..3_u64, 0..2_u64).prop_map(|(bits, at, next, range)| {
        let size = 1_u64 << bits;
        let start = at / size * size;
        let span = KeySpan::new(start, start + size).unwrap();
        Tile { range: RangeSeq(range / 2), span, next: Offset(next) }
    })
}

/// Mostly sorted and disjoint, sometimes not.
fn some_tiles() -> impl Strategy<Value = Vec<Tile>> {
    (prop::collection::vec(a_tile(), 0..6), prop::bool::weighted(0.9)).prop_map(|(mut tiles, tidy)| {
        if tidy {
            tiles.sort_by_key(|tile| (tile.span.start(), tile.span.end()));
            let mut end = 0;
            tiles.retain(|tile| {
                let keep = tile.span.start() >= end;
                end = if keep { tile.span.end() } else { end };
                keep
            });
        }
        tiles
    })
}

fn a_commit() -> impl Strategy<Value = Commit> {
    (topic_id(), 0..3_u8, some_tiles()).prop_map(|(topic, group, tiles)| Commit {
        topic,
        group: vec![b'g', group].into(),
        tiles,
    })
}

fn a_command() -> impl Strategy<Value = Command> {
    let create = (topic_id(), 0..4_u8).prop_map(|(id, name)| create(&format!("t{name}"), id, BITS));
    let register = (a_segment(), 0..12_u64, 0..3_u128).prop_map(|(segment, start, nodes)| {
        let replicas = (0..nodes).map(NodeId).collect();
        let (start, opened_at) = (Offset(start), WallTime(start));
        Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at })
    });
    let seal = (a_segment(), 0..4_u64).prop_map(|(segment, length)| {
        let (byte_size, sealed_at) = (length, WallTime(length));
        Command::SealSegment(SealSegment { segment, length, byte_size, sealed_at })
    });
    prop_oneof![
        3 => create,
        1 => topic_id().prop_map(|topic| Command::SealTopic { topic }),
        1 => topic_id().prop_map(|topic| Command::DeleteTopic { topic }),
        2 => register,
        4 => seal,
        2 => a_segment().prop_map(|segment| Command::DeleteSegment { segment }),
        6 => prop::collection::vec(a_commit(), 0..4).prop_map(|commits| Command::CommitPositions { commits }),
    ]
}

/// Asks for the segment the range would really open next, so that histories get anywhere.
fn next_register(vnode: &Vnode, topic: TopicId) -> Option<Command> {
    let (id, range) = vnode.active_ranges_of(topic).next()?;
    let segment = SegmentId { range: id, seq: range.next_segment_seq };
    let (start, replicas, opened_at) = (range.sealed_end, vec![NodeId(1)], WallTime(1));
    Some(Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at }))
}

#[derive(Clone, Debug)]
enum Step {
    Random(Command),
    OpenNext(TopicId),
    SealActive(TopicId, u64),
    Garbage(Vec<u8>),
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => a_command().prop_map(Step::Random),
        3 => topic_id().prop_map(Step::OpenNext),
        2 => (topic_id(), 0..5_u64).prop_map(|(topic, length)| Step::SealActive(topic, length)),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Garbage),
    ]
}

fn entry_of(step: &Step, vnode: &Vnode) -> Bytes {
    let command = match step {
        Step::Random(command) => Some(command.clone()),
        Step::OpenNext(topic) => next_register(vnode, *topic),
        Step::SealActive(topic, length) => {
            let range = RangeId { topic: *topic, seq: RangeSeq(0) };
            vnode.active_segment(range).map(|(segment, _)| {
                let (length, byte_size, sealed_at) = (*length, 1, WallTime(2));
                Command::SealSegment(SealSegment { segment, length, byte_size, sealed_at })
            })
        }
        Step::Garbage(bytes) => return bytes.clone().into(),
    };
    command.map_or_else(Bytes::new, |command| command.encode())
}

/// Where each group stands at each place of the keyspace.
type Places = BTreeMap<(TopicId, Vec<u8>), [Option<(u64, u64)>; PLACES]>;

fn lay(places: &mut Places, commit: &Commit) {
    if commit.tiles.is_empty() {
        return;
    }
    let at = places.entry((commit.topic, commit.group.to_vec())).or_insert([None; PLACES]);
    for tile in &commit.tiles {
        for place in tile.span.start()..tile.span.end() {
            at[usize::try_from(place).unwrap()] = Some((tile.range.0, tile.next.0));
        }
    }
}

fn follow(places: &mut Places, entry: &Bytes, reply: &Reply) {
    let command = crate::machine::Envelope::decode(entry).ok().and_then(|e| Command::decode(e).ok());
    match (command, reply) {
        (Some(Command::DeleteTopic { topic }), Reply::TopicDeleted { .. }) => {
            places.retain(|(id, _), _| *id != topic);
        }
        (Some(Command::CommitPositions { commits }), Reply::PositionsCommitted(answers)) => {
            let taken = commits.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
            taken.for_each(|(commit, _)| lay(places, commit));
        }
        _ => {}
    }
}

fn check(vnode: &Vnode, places: &Places) {
    for (id, topic) in vnode.topics() {
        assert_eq!(vnode.topic_by_name(&topic.name).map(|(found, _)| found), Some(id));
        let mut spans: Vec<KeySpan> = vnode.leaf_ranges_of(id).map(|(_, range)| range.span).collect();
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].end() == pair[1].start()));
        assert_eq!(spans.first().map(|span| span.start()), Some(0));
        assert_eq!(spans.last().map(|span| span.end()), Some(topic.keyspace.size()));
        assert!(vnode.ranges_of(id).all(|(range, _)| range.seq < topic.next_range_seq));
        let active = vnode.active_ranges_of(id).count();
        assert_eq!(active == 0, topic.state == TopicState::Sealed);
    }
    let ranges: Vec<RangeId> = vnode.ranges.iter().map(|(id, _)| id).collect();
    assert!(ranges.iter().all(|id| vnode.topic(id.topic).is_some()));
    assert!(vnode.segments().all(|(id, _)| ranges.contains(&id.range)));
    for id in ranges {
        check_segments(vnode, id);
    }
    check_positions(vnode, places);
    // Derived indexes are rebuilt when a snapshot is decoded, so equality checks them against a rescan.
    assert_eq!(Vnode::decode_snapshot(vnode.encode_snapshot()).as_ref(), Ok(vnode));
}

fn check_segments(vnode: &Vnode, id: RangeId) {
    let range = vnode.range(id).unwrap();
    let segments: Vec<_> = vnode.segments_of(id).collect();
    let active = segments.iter().filter(|(_, segment)| segment.is_active()).count();
    assert_eq!(active, usize::from(vnode.active_segment(id).is_some()));
    for pair in segments.windows(2) {
        assert_eq!(pair[0].1.end(), Some(pair[1].1.start));
    }
    if let Some((last, segment)) = segments.last() {
        assert!(last.seq < range.next_segment_seq);
        assert_eq!(segment.end().unwrap_or(segment.start), range.sealed_end);
    }
    let scan = |offset: u64| {
        segments
            .iter()
            .find(|(_, s)| s.end().is_none_or(|end| end.0 > offset.max(s.start.0)))
            .map(|(id, _)| *id)
    };
    for offset in 0..range.sealed_end.0 + 2 {
        assert_eq!(vnode.segment_at(id, Offset(offset)).map(|(id, _)| id), scan(offset), "offset {offset}");
    }
}

fn check_positions(vnode: &Vnode, places: &Places) {
    let stored: Vec<_> =
        vnode.positions.iter().map(|(topic, group, _)| (topic, group.as_bytes().to_vec())).collect();
    assert_eq!(stored, places.keys().cloned().collect::<Vec<_>>());
    for ((topic, group), expected) in places {
        let tiles = vnode.positions(*topic, &GroupName::new(group).unwrap());
        assert!(tiles.windows(2).all(|pair| pair[0].span.end() <= pair[1].span.start()));
        let mut found = [None; PLACES];
        for tile in tiles {
            for place in tile.span.start()..tile.span.end() {
                found[usize::try_from(place).unwrap()] = Some((tile.range.0, tile.next.0));
            }
        }
        assert_eq!(found, *expected);
        let joinable = |pair: &[Tile]| {
            let same = pair[0].range == pair[1].range && pair[0].next == pair[1].next;
            same && pair[0].span.is_buddy_of(pair[1].span)
        };
        assert!(!tiles.windows(2).any(joinable), "coalesced: {tiles:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_keep_every_invariant(
        steps in prop::collection::vec(a_step(), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut vnode, mut places) = (Vnode::default(), Places::new());
        let mut entries = Vec::new();
        for (step, index) in steps.iter().zip(1..) {
            let entry = entry_of(step, &vnode);
            let mut before = vnode.clone();
            let reply = vnode.apply(RaftIndex(index), &entry);
            if matches!(reply, Reply::Refused(_)) {
                before.applied = vnode.applied;
                prop_assert_eq!(&vnode, &before);
            }
            follow(&mut places, &entry, &reply);
            check(&vnode, &places);
            entries.push(entry);
        }
        // The same log gives the same bytes, also across a snapshot taken anywhere.
        let cut = cut.index(entries.len());
        let mut other = Vnode::default();
        for (at, entry) in entries.iter().enumerate() {
            if at == cut {
                other = Vnode::decode_snapshot(other.encode_snapshot()).unwrap();
            }
            other.apply(RaftIndex(at as u64 + 1), entry);
        }
        prop_assert_eq!(other.encode_snapshot(), vnode.encode_snapshot());
        prop_assert_eq!(other.state_hash(), vnode.state_hash());
    }

    #[test]
    fn commands_come_back(command in a_command()) {
        let envelope = crate::machine::Envelope::decode(&command.encode()).unwrap();
        prop_assert_eq!(Command::decode(envelope), Ok(command));
    }

    #[test]
    fn no_bytes_stop_the_machine(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..9_u8) {
        let mut vnode = vnode();
        let entry = [&[0, 1, 0, kind], &bytes[..]].concat();
        vnode.apply(RaftIndex(9), &entry.into());
        let _ = Vnode::decode_snapshot(bytes.clone().into());
        let snapshot = [b"MVN\x01\x00\x01", &bytes[..]].concat();
        if let Ok(state) = Vnode::decode_snapshot(snapshot.clone().into()) {
            prop_assert_eq!(&state.encode_snapshot()[..], &snapshot[..]);
        }
    }
}
