//! Commands one by one, the encodings, and (in `model`) random histories.

#![allow(clippy::unwrap_used)]

mod checks;
mod fuzz;
mod golden;
mod histories;
mod moves;
mod naive;
mod overlay;
mod ranges;
mod snapshots;
mod steps;
mod view;

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{
    FenceToken, GroupName, KeySpan, NodeId, Offset, Position, RaftIndex, RangeId, RangeSeq, SegmentId,
    SegmentSeq, TopicId, TopicName, WallTime, limits,
};

use super::*;
use crate::machine::Version;

const TOPIC: TopicId = TopicId(0x00aa);
const OTHER: TopicId = TopicId(0x00bb);
const ROOT: RangeId = RangeId { topic: TOPIC, seq: RangeSeq(0) };

fn run(vnode: &mut Vnode, command: &Command) -> Reply {
    vnode.apply(vnode.applied().next(), &command.encode())
}

fn create(name: &str, id: TopicId, keyspace_bits: u8) -> Command {
    let name = Bytes::copy_from_slice(name.as_bytes());
    Command::CreateTopic(CreateTopic { name, id, keyspace_bits, key_hash: 1 })
}

fn segment(seq: u64) -> SegmentId {
    SegmentId { range: ROOT, seq: SegmentSeq(seq) }
}

fn register(seq: u64, start: u64) -> Command {
    let replicas = vec![NodeId(1), NodeId(2)];
    let (segment, start, opened_at) = (segment(seq), Offset(start), WallTime(5));
    Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at })
}

fn seal(seq: u64, length: u64) -> Command {
    let (segment, sealed_at) = (segment(seq), WallTime(9));
    let byte_size = length.saturating_mul(10);
    Command::SealSegment(SealSegment { segment, length, byte_size, lost: 0, sealed_at })
}

fn tile(start: u64, end: u64, next: u64) -> Tile {
    Tile { range: RangeSeq(0), span: KeySpan::new(start, end).unwrap(), next: Offset(next) }
}

fn commit(group: &str, tiles: Vec<Tile>) -> Command {
    let group = Bytes::copy_from_slice(group.as_bytes());
    Command::CommitPositions { commits: vec![Commit { topic: TOPIC, group, tiles, at: WallTime(3) }] }
}

fn vnode() -> Vnode {
    let mut vnode = Vnode::default();
    assert_eq!(run(&mut vnode, &create("orders", TOPIC, 4)), Reply::TopicCreated { root: ROOT });
    vnode
}

/// A reply in the words of the naive machine.
fn naive_reply(reply: &Reply) -> view::Answer {
    let Reply::TopicExtracted(export) = reply else { return view::Answer::Reply(reply.clone()) };
    view::Answer::Extracted(export.as_ref().map(|export| view::observe_export(export)))
}

fn positions(vnode: &Vnode, group: &str) -> Vec<Tile> {
    vnode.positions(TOPIC, &GroupName::new(group.as_bytes()).unwrap()).to_vec()
}

#[track_caller]
fn refused(vnode: &mut Vnode, command: &Command, refusal: Refusal) {
    let mut before = vnode.clone();
    assert_eq!(run(vnode, command), Reply::Refused(refusal));
    before.applied = vnode.applied;
    assert_eq!(*vnode, before, "a refusal leaves the tables identical");
}

#[test]
fn a_topic_begins_with_one_range_over_its_keyspace() {
    let vnode = vnode();
    let (id, topic) = vnode.topic_by_name(&TopicName::new(b"orders").unwrap()).unwrap();
    assert_eq!((id, topic.state, topic.next_range_seq), (TOPIC, TopicState::Active, RangeSeq(1)));
    let (root, range) = vnode.active_range_at(TOPIC, Position(15)).unwrap();
    assert_eq!((root, range.span), (ROOT, topic.keyspace.whole()));
    assert_eq!(vnode.active_range_at(TOPIC, Position(16)), None);
}

#[test]
fn a_bad_topic_is_refused() {
    let mut vnode = vnode();
    for name in ["", "..", "a b", &"x".repeat(201)] {
        refused(&mut vnode, &create(name, OTHER, 4), Refusal::InvalidTopicName);
    }
    refused(&mut vnode, &create("orders", OTHER, 4), Refusal::AlreadyExists);
    refused(&mut vnode, &create("other", TOPIC, 4), Refusal::AlreadyExists);
    refused(&mut vnode, &create("other", OTHER, 0), Refusal::InvalidKeyspaceBits);
    refused(&mut vnode, &create("other", OTHER, 33), Refusal::InvalidKeyspaceBits);
    let Command::CreateTopic(good) = create("other", OTHER, 32) else { unreachable!() };
    let unknown_hash = Command::CreateTopic(CreateTopic { key_hash: 2, ..good });
    refused(&mut vnode, &unknown_hash, Refusal::InvalidKeyHash);
}

#[test]
fn sealing_a_topic_ends_its_ranges_and_keeps_it_readable() {
    let mut vnode = vnode();
    run(&mut vnode, &register(0, 0));
    for _ in 0..2 {
        assert_eq!(run(&mut vnode, &Command::SealTopic { topic: TOPIC }), Reply::TopicSealed);
    }
    assert_eq!(vnode.active_ranges_of(TOPIC).count(), 0);
    assert_eq!(vnode.leaf_ranges_of(TOPIC).count(), 1);
    // Its active segment can still be sealed, and no other opened.
    assert_eq!(run(&mut vnode, &seal(0, 3)), Reply::SegmentSealed);
    refused(&mut vnode, &register(1, 3), Refusal::Sealed);
    refused(&mut vnode, &Command::SealTopic { topic: OTHER }, Refusal::NoSuchTopic);
}

#[test]
fn a_topic_created_again_starts_clean() {
    let mut vnode = vnode();
    run(&mut vnode, &register(0, 0));
    run(&mut vnode, &commit("g", vec![tile(0, 16, 7)]));
    let replicas = vec![NodeId(1), NodeId(2)];
    let segments = vec![Removed { segment: segment(0), replicas }];
    assert_eq!(run(&mut vnode, &Command::DeleteTopic { topic: TOPIC }), Reply::TopicDeleted { segments });
    refused(&mut vnode, &Command::DeleteTopic { topic: TOPIC }, Refusal::NoSuchTopic);
    assert!(vnode.segments().next().is_none());
    run(&mut vnode, &create("orders", OTHER, 4));
    assert_eq!(vnode.positions(OTHER, &GroupName::new(b"g").unwrap()), []);
    assert_eq!(vnode.ranges_of(TOPIC).count(), 0);
}

#[test]
fn segments_of_a_range_follow_one_another() {
    let mut vnode = vnode();
    refused(&mut vnode, &register(1, 0), Refusal::InvalidSegmentId);
    refused(&mut vnode, &register(0, 1), Refusal::OffsetMismatch);
    assert_eq!(run(&mut vnode, &register(0, 0)), Reply::SegmentRegistered);
    refused(&mut vnode, &register(0, 0), Refusal::SegmentExists);
    refused(&mut vnode, &register(1, 0), Refusal::RangeHasActiveSegment);
    refused(&mut vnode, &seal(1, 5), Refusal::NoSuchSegment);
    assert_eq!(run(&mut vnode, &seal(0, 5)), Reply::SegmentSealed);
    assert_eq!(run(&mut vnode, &seal(0, 5)), Reply::SegmentSealed);
    refused(&mut vnode, &seal(0, 6), Refusal::AlreadySealed);
    refused(&mut vnode, &register(1, 4), Refusal::OffsetMismatch);
    assert_eq!(run(&mut vnode, &register(1, 5)), Reply::SegmentRegistered);
    refused(&mut vnode, &seal(1, u64::MAX), Refusal::InvalidLength);
    assert_eq!(vnode.active_segment(ROOT).map(|(id, _)| id), Some(segment(1)));
    assert_eq!(
        vnode.range(ROOT).map(|r| (r.next_segment_seq, r.sealed_end)),
        Some((SegmentSeq(2), Offset(5)))
    );
    let nowhere = RangeId { topic: OTHER, seq: RangeSeq(0) };
    let Command::RegisterSegment(good) = register(0, 0) else { unreachable!() };
    let lost = RegisterSegment { segment: SegmentId { range: nowhere, seq: SegmentSeq(0) }, ..good };
    refused(&mut vnode, &Command::RegisterSegment(lost), Refusal::NoSuchRange);
}

#[test]
fn replicas_are_some_and_distinct() {
    let mut vnode = vnode();
    let many = (0..=REPLICAS_MAX as u128).map(NodeId).collect();
    for replicas in [vec![], vec![NodeId(1), NodeId(1)], many] {
        let Command::RegisterSegment(good) = register(0, 0) else { unreachable!() };
        let bad = Command::RegisterSegment(RegisterSegment { replicas, ..good });
        refused(&mut vnode, &bad, Refusal::InvalidReplicaSet);
    }
}

#[test]
fn retention_removes_from_the_front_only() {
    let mut vnode = vnode();
    let delete = |seq| Command::DeleteSegment { segment: segment(seq) };
    for (seq, start, length) in [(0, 0, 5), (1, 5, 0), (2, 5, 5)] {
        run(&mut vnode, &register(seq, start));
        run(&mut vnode, &seal(seq, length));
    }
    run(&mut vnode, &register(3, 10));
    refused(&mut vnode, &delete(3), Refusal::SegmentActive);
    refused(&mut vnode, &delete(2), Refusal::SegmentNotOldest);
    refused(&mut vnode, &delete(4), Refusal::NoSuchSegment);
    assert!(matches!(run(&mut vnode, &delete(1)), Reply::SegmentDeleted(_)), "an empty one leaves no hole");
    assert!(matches!(run(&mut vnode, &delete(0)), Reply::SegmentDeleted(_)));
    assert_eq!(vnode.segments_of(ROOT).map(|(id, _)| id.seq.0).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn an_offset_leads_to_its_segment_or_the_next_one() {
    let mut vnode = vnode();
    let at = |vnode: &Vnode, offset| vnode.segment_at(ROOT, Offset(offset)).map(|(id, _)| id.seq.0);
    assert_eq!(at(&vnode, 0), None);
    for (seq, start, length) in [(0, 0, 5), (1, 5, 0), (2, 5, 5)] {
        run(&mut vnode, &register(seq, start));
        run(&mut vnode, &seal(seq, length));
    }
    assert_eq!([0, 4, 5, 9, 10].map(|offset| at(&vnode, offset)), [Some(0), Some(0), Some(2), Some(2), None]);
    run(&mut vnode, &register(3, 10));
    assert_eq!(at(&vnode, 10), Some(3));
    assert_eq!(at(&vnode, 99), Some(3), "only its replicas know where it ends");
    run(&mut vnode, &Command::DeleteSegment { segment: segment(0) });
    assert_eq!(at(&vnode, 0), Some(2));
}

#[test]
fn a_commit_replaces_what_it_covers_and_nothing_else() {
    let mut vnode = vnode();
    let ok = Reply::PositionsCommitted(vec![Ok(())]);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 16, 7)])), ok);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(4, 8, 9)])), ok);
    assert_eq!(positions(&vnode, "g"), [tile(0, 4, 7), tile(4, 8, 9), tile(8, 16, 7)]);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 2, 1), tile(14, 16, 1)])), ok);
    assert_eq!(
        positions(&vnode, "g"),
        [tile(0, 2, 1), tile(2, 4, 7), tile(4, 8, 9), tile(8, 12, 7), tile(12, 14, 7), tile(14, 16, 1)]
    );
    // A commit may move back; tiles at one place become one again.
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 8, 7), tile(8, 16, 7)])), ok);
    assert_eq!(positions(&vnode, "g"), [tile(0, 16, 7)]);
    assert_eq!(positions(&vnode, "h"), []);
}

#[test]
fn an_empty_commit_changes_nothing() {
    let mut vnode = vnode();
    assert_eq!(run(&mut vnode, &commit("g", vec![])), Reply::PositionsCommitted(vec![Ok(())]));
    assert_eq!(vnode.groups_of(TOPIC).count(), 0);
}

#[test]
fn each_commit_of_an_entry_is_judged_alone() {
    let mut vnode = vnode();
    let one = |topic, group: &[u8], tiles| Commit {
        topic,
        group: Bytes::copy_from_slice(group),
        tiles,
        at: WallTime(3),
    };
    let mut outside = tile(0, 16, 1);
    outside.span = KeySpan::new(16, 32).unwrap();
    let unknown_range = Tile { range: RangeSeq(1), ..tile(0, 16, 1) };
    let commits = vec![
        one(OTHER, b"g", vec![tile(0, 16, 1)]),
        one(TOPIC, &[b'x'; 256], vec![tile(0, 16, 1)]),
        one(TOPIC, b"g", vec![outside]),
        one(TOPIC, b"g", vec![unknown_range]),
        one(TOPIC, b"g", vec![tile(8, 16, 1), tile(0, 8, 1)]),
        one(TOPIC, b"g", vec![tile(0, 8, 1), tile(4, 8, 1)]),
        one(TOPIC, b"", vec![tile(0, 16, 4)]),
    ];
    let reply = run(&mut vnode, &Command::CommitPositions { commits });
    let bad = Err(Refusal::InvalidPosition);
    let expected = vec![Err(Refusal::NoSuchTopic), Err(Refusal::InvalidGroup), bad, bad, bad, bad, Ok(())];
    assert_eq!(reply, Reply::PositionsCommitted(expected));
    assert_eq!(positions(&vnode, ""), [tile(0, 16, 4)]);
}

#[test]
fn a_position_has_a_bounded_number_of_tiles() {
    let mut vnode = Vnode::default();
    run(&mut vnode, &create("wide", TOPIC, 32));
    let singles = |from: u64, count: u64, next: u64| {
        (0..count).map(|i| tile((from + i) * 2, (from + i) * 2 + 1, next)).collect::<Vec<_>>()
    };
    let most = limits::CURSOR_TILES_MAX as u64;
    let ok = Reply::PositionsCommitted(vec![Ok(())]);
    assert_eq!(run(&mut vnode, &commit("g", singles(0, most, 1))), ok);
    let full = Reply::PositionsCommitted(vec![Err(Refusal::TooManyTiles)]);
    assert_eq!(run(&mut vnode, &commit("g", singles(most, 1, 1))), full);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 1 << 32, 5)])), ok);
    assert_eq!(positions(&vnode, "g").len(), 1);
}

#[test]
fn what_is_no_command_is_refused() {
    let mut vnode = vnode();
    let mut before = vnode.clone();
    let good = create("other", OTHER, 4).encode();
    let later = [&[0, 2], &good[2..]].concat();
    let kind = [&good[..2], &[0, 99], &good[4..]].concat();
    let longer = [&good[..], &[0]].concat();
    for (bytes, refusal) in [
        (Vec::new(), Refusal::UnknownCommand),
        (good[..3].to_vec(), Refusal::UnknownCommand),
        (later, Refusal::UnknownCommand),
        (kind, Refusal::UnknownCommand),
        (longer, Refusal::InvalidCommand),
        (good[..good.len() - 1].to_vec(), Refusal::InvalidCommand),
    ] {
        assert_eq!(vnode.apply(vnode.applied().next(), &bytes.into()), Reply::Refused(refusal));
    }
    before.applied = vnode.applied;
    assert_eq!(vnode, before);
}

#[test]
fn an_entry_is_applied_once() {
    let mut vnode = vnode();
    let before = vnode.clone();
    let entry = create("other", OTHER, 4).encode();
    for index in [RaftIndex(0), vnode.applied()] {
        assert_eq!(vnode.apply(index, &entry), Reply::Refused(Refusal::AlreadyApplied));
    }
    assert_eq!(vnode, before);
    assert!(matches!(vnode.apply(RaftIndex(50), &entry), Reply::TopicCreated { .. }));
}

#[test]
fn what_a_leader_of_an_earlier_term_decided_is_passed_over() {
    let mut vnode = vnode();
    let mut before = vnode.clone();
    for (index, refusal) in [(vnode.applied(), Refusal::AlreadyApplied), (RaftIndex(50), Refusal::StaleTerm)]
    {
        assert_eq!(vnode.refuse_late(index), Reply::Refused(refusal));
    }
    before.applied = RaftIndex(50);
    assert_eq!(vnode, before);
    vnode.beyond = Some(crate::machine::Version(99));
    assert_eq!(vnode.refuse_late(RaftIndex(51)), Reply::Refused(Refusal::LaterVersion));
    assert_eq!(vnode.applied(), RaftIndex(50));
}

#[test]
fn a_command_above_the_effective_version_is_gated() {
    let mut vnode = Vnode::new(crate::machine::Version(0));
    refused(&mut vnode, &create("orders", TOPIC, 4), Refusal::UnknownCommand);
}
