//! Why something does or does not move, as administrators are told, and how copies are.

use membership::Status;
use storage::store::FailReason;
use wire::request::{Depth, NodeChange, Subject};
use wire::response::{CopyHealth, Explanation, SegmentInfo, Verdict};

use super::healing::{at, seen};
use super::operator::change;
use super::*;
use crate::event::OfCluster;

fn of_range(range: u64) -> Request {
    Request::Cluster(OfCluster::Explain(Subject::Range { topic: name("t"), range }))
}

fn of_node(node: usize) -> Request {
    Request::Cluster(OfCluster::Explain(Subject::Node { node: id(node) }))
}

fn of_group(group: &'static str) -> Request {
    Request::Cluster(OfCluster::Explain(Subject::Group { topic: name("t"), group: name(group) }))
}

fn segments_of(from: (u64, u64), max: u32, depth: Depth) -> Request {
    Request::Cluster(OfCluster::Segments { topic: name("t"), from, max, depth })
}

fn as_explanation(reply: Reply) -> Explanation {
    let Reply::Explained(explanation) = reply else { panic!("{reply:?}") };
    *explanation
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

impl Cluster {
    fn why(&mut self, node: usize, request: Request) -> Explanation {
        as_explanation(self.ask(node, request))
    }

    fn pages(&mut self, node: usize, depth: Depth) -> Vec<SegmentInfo> {
        let (mut all, mut from) = (Vec::<SegmentInfo>::new(), (0, 0));
        loop {
            let Reply::Segments(page) = self.ask(node, segments_of(from, 1, depth)) else {
                panic!("segments")
            };
            let more = page.more;
            all.extend(page.segments);
            if !more {
                return all;
            }
            from = all.last().map(|last| (last.range, last.segment + 1)).unwrap();
        }
    }

    /// The health of each copy, in the order of nodes.
    fn healths(&mut self, asked: usize, segment: usize, depth: Depth) -> Vec<CopyHealth> {
        let mut copies = self.pages(asked, depth)[segment].copies.clone();
        copies.sort_by_key(|copy| copy.node);
        copies.iter().map(|copy| copy.health).collect()
    }
}

/// So many nodes, a topic `t` with a record in it, and the nodes that hold that: the primary first.
fn with_record(count: usize) -> (Cluster, Vec<usize>) {
    let mut cluster = Cluster::of(count);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..count).all(|node| cluster.knows(node, "t")));
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    cluster.pass(Duration::from_millis(400));
    let (_, listed) = cluster.segments(0, "t")[0].clone();
    (cluster, listed.replicas.iter().map(|node| at(*node)).collect())
}

#[test]
fn a_range_that_takes_records_says_so_wherever_it_is_asked() {
    let (mut cluster, holders) = with_record(4);
    for node in 0..4 {
        let told = cluster.why(node, of_range(0));
        assert_eq!((told.verdict, text(&told.cause)), (Verdict::Moves, "open"), "{told:?}");
        assert_eq!(told.told_by, id(holders[0]), "the primary tells");
        let segment = told.segment.unwrap();
        assert!(segment.copies.iter().all(|copy| copy.health == CopyHealth::Intact), "{segment:?}");
        assert!(segment.copies.iter().all(|copy| copy.end == Some(1)), "{segment:?}");
    }
    assert_eq!(cluster.ask(0, of_range(7)), failed(Reason::NoSuchRange));
}

#[test]
fn a_follower_that_is_away_is_named() {
    let (mut cluster, holders) = with_record(3);
    cluster.cut(holders[0], holders[2]);
    cluster.pass(Duration::from_millis(300));
    assert_eq!(cluster.ask(holders[0], produce("t", &["b"])), Reply::Stored(1));
    let told = cluster.why(holders[0], of_range(0));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Moves, "degraded"), "{told:?}");
    assert!(text(&told.text).contains(&format!("n{}", holders[2])), "{told:?}");
    let healths: Vec<CopyHealth> = told.segment.unwrap().copies.iter().map(|copy| copy.health).collect();
    assert_eq!(healths, [CopyHealth::Intact, CopyHealth::Intact, CopyHealth::Unreachable]);
}

#[test]
fn records_without_a_quorum_are_explained_by_who_lacks_them() {
    let (mut cluster, holders) = with_record(3);
    cluster.cut_off(holders[0]);
    cluster.pump();
    let waits = cluster.nodes[holders[0]].send(produce("t", &["b"]));
    cluster.pass(Duration::from_millis(1500));
    let told = cluster.why(holders[0], of_range(0));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "no_quorum"), "{told:?}");
    assert!(text(&told.text).starts_with("1 of 3 copies have the oldest append, and 2 must: "), "{told:?}");
    assert!(told.since_ms.unwrap() >= 1_000);
    assert_eq!(cluster.nodes[holders[0]].reply(waits), None);
    cluster.connect_again(holders[0]);
    cluster.until("it is answered", |cluster| {
        cluster.nodes[holders[0]].replies.iter().any(|(of, _)| *of == waits)
    });
}

#[test]
fn a_segment_that_too_few_copies_can_end_names_those_that_are_away() {
    let (mut cluster, holders) = with_record(5);
    cluster.cut_off(holders[0]);
    cluster.cut_off(holders[1]);
    let others: Vec<usize> = (0..5).filter(|node| *node != holders[0] && *node != holders[1]).collect();
    cluster.until("the others lead", |cluster| {
        others.iter().any(|node| cluster.nodes[*node].node.core.meta.leads(VNODE))
    });
    cluster.pass(Duration::from_secs(3));
    for node in others {
        let told = cluster.why(node, of_range(0));
        assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "too_few_copies"), "{told:?}");
        let said = text(&told.text);
        assert!(said.contains("2 of 3 copies must say where it ends"), "{said}");
        for away in &holders[..2] {
            assert!(said.contains(&format!("n{away}")), "{said}");
        }
    }
    cluster.connect_again(holders[1]);
    cluster.until("it was ended and is whole", |cluster| {
        cluster.segments(holders[2], "t").first().is_some_and(|(_, listed)| !listed.is_active())
    });
}

#[test]
fn without_a_majority_of_the_metadata_nobody_is_named_as_its_leader() {
    let (mut cluster, holders) = with_record(3);
    let last = holders[2];
    cluster.cut_off(holders[0]);
    cluster.cut_off(holders[1]);
    cluster.pass(Duration::from_secs(5));
    let told = cluster.why(last, of_range(0));
    assert_eq!(told.told_by, id(last));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "too_few_copies"), "{told:?}");
    assert!(text(&told.next).contains("nobody is known to lead its metadata"), "{told:?}");
}

#[test]
fn the_copies_of_an_ended_segment_are_settled_or_say_why_not() {
    let (mut cluster, _) = with_record(3);
    assert_eq!(cluster.ask(0, split(0)), Reply::Split { left: 1, right: 2 });
    cluster.until("it is whole", |cluster| cluster.is_healed(0, "t", 3));
    let told = cluster.why(1, of_range(0));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Moves, "replaced"), "{told:?}");
    assert_eq!(cluster.healths(0, 0, Depth::Tables), [CopyHealth::Unasked; 3]);
    assert_eq!(cluster.healths(1, 0, Depth::Copies), [CopyHealth::Settled; 3]);
    assert_eq!(cluster.healths(2, 0, Depth::Verify), [CopyHealth::Settled; 3]);

    // Whoever only looks is told that it is there; whoever reads it through sees what is wrong.
    cluster.nodes[1].log.flip(".log", 80);
    let settled = CopyHealth::Settled;
    assert_eq!(cluster.healths(0, 0, Depth::Copies), [settled; 3]);
    assert_eq!(cluster.healths(0, 0, Depth::Verify), [settled, CopyHealth::Damaged, settled]);

    let (segment, _) = cluster.segments(0, "t")[0].clone();
    cluster.nodes[2].latch(segment, FailReason::Other);
    assert_eq!(cluster.healths(0, 0, Depth::Copies)[2], CopyHealth::Latched);
    cluster.cut_off(2);
    cluster.pump();
    assert_eq!(cluster.healths(0, 0, Depth::Copies)[2], CopyHealth::Unreachable);
}

#[test]
fn a_topic_with_many_segments_comes_in_pages() {
    let (mut cluster, _) = with_record(1);
    for range in 0..5 {
        assert!(matches!(cluster.ask(0, split(range)), Reply::Split { .. }));
        let records: Vec<(String, String)> = (0..20).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let records: Vec<(&str, &str)> = records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        assert_eq!(cluster.ask(0, produce_keyed("t", &records)), Reply::Stored(20));
    }
    let one_by_one = cluster.pages(0, Depth::Copies);
    let Reply::Segments(page) = cluster.ask(0, segments_of((0, 0), 0, Depth::Copies)) else {
        panic!("a page")
    };
    assert_eq!((page.segments, page.more), (one_by_one.clone(), false));
    let listed: Vec<(u64, u64)> = one_by_one.iter().map(|info| (info.range, info.segment)).collect();
    assert!(listed.is_sorted() && listed.len() > 5, "{listed:?}");
    assert!(one_by_one.iter().flat_map(|info| &info.copies).all(|copy| copy.health.is_whole()));
}

#[test]
fn the_only_copy_that_failed_is_said_to_be_the_only_one() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let told = as_explanation(bench.ask(of_range(0)));
    assert_eq!((told.verdict, text(&told.cause), told.segment), (Verdict::Moves, "idle", None));
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let (segment, ..) = bench.node.core.meta.active_segments().next().unwrap();
    bench.latch(segment, FailReason::Other);
    bench.restart();
    let told = as_explanation(bench.ask(of_range(0)));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "only_copy_failed"), "{told:?}");
    assert_eq!(told.segment.unwrap().copies[0].health, CopyHealth::Latched);
}

#[test]
fn nodes_that_are_gone_or_on_their_way_out_say_so() {
    let (mut cluster, holders) = with_record(4);
    let told = cluster.why(0, of_node(1));
    assert_eq!((text(&told.cause), told.told_by), ("alive", id(1)), "it tells of itself");
    let outside = (0..4).find(|node| !holders.contains(node)).unwrap();
    assert!(matches!(cluster.ask(0, change(outside, NodeChange::Drain, false)), Reply::NodeChanged(_)));
    let told = cluster.why(holders[0], of_node(outside));
    assert!(["draining", "drained"].contains(&text(&told.cause)), "{told:?}");

    let lost = holders[1];
    cluster.cut_off(lost);
    cluster.pump();
    let told = cluster.why(holders[0], of_node(lost));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Waits, "suspect"), "{told:?}");
    seen(&mut cluster, lost, Status::Down);
    cluster.pass(Duration::from_secs(2));
    let told = cluster.why(holders[0], of_node(lost));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "dead"), "{told:?}");
    assert!(told.since_ms.unwrap() >= 2_000);
    assert_eq!(cluster.ask(0, of_node(9)), failed(Reason::NoSuchNode));
}

#[test]
fn a_group_is_behind_because_nobody_reads() {
    let (mut cluster, _) = with_record(1);
    let told = cluster.why(0, of_group("g"));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "unknown"), "{told:?}");
    let Reply::Fetched(fetched) = cluster.ask(0, Request::Fetch(fetch("t"))) else { panic!("records") };
    let cursor = fetched.cursor;
    assert_eq!(cluster.ask(0, commit("t", "g", &cursor)), Reply::Committed);
    assert_eq!(text(&cluster.why(0, of_group("g")).cause), "caught_up");
    assert_eq!(cluster.ask(0, produce("t", &["b"])), Reply::Stored(1));
    let told = cluster.why(0, of_group("g"));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "no_members"), "{told:?}");
    let reads = Fetch { group: name("g"), member: name("m"), ..fetch("t") };
    assert!(matches!(cluster.ask(0, Request::Fetch(reads)), Reply::Fetched(_)));
    assert_eq!(text(&cluster.why(0, of_group("g")).cause), "reading");
    cluster.pass(Duration::from_secs(6));
    let told = cluster.why(0, of_group("g"));
    assert_eq!((told.verdict, text(&told.cause)), (Verdict::Stands, "members_silent"), "{told:?}");
}

#[test]
fn only_administrators_are_told_why() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let user = Permissions { produce: true, consume: true, ..NOBODY };
    for request in [of_range(0), of_node(0), of_group("g"), segments_of((0, 0), 0, Depth::Tables)] {
        assert_eq!(bench.ask_as(user, request), failed(Reason::PermissionDenied));
    }
}
