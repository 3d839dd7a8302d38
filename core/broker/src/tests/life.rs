//! Segments through sizes, restarts and damage.

use metadata::vnode::RegisterSegment;
use storage::store;
use types::SegmentId;

use super::*;
use crate::Cause;

fn sealed(bench: &Bench) -> Vec<(u64, Cause)> {
    let sealed = bench.notices.iter().filter_map(|notice| match notice {
        Notice::SegmentSealed { end, cause, .. } => Some((end.0, *cause)),
        _ => None,
    });
    sealed.collect()
}

#[test]
fn a_full_segment_ends_after_the_batch_that_filled_it() {
    let mut bench = Bench::with(|config| config.segment_bytes = 400);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let ids: Vec<_> = (0..10).map(|_| bench.send(produce("t", &["0123456789"; 3]))).collect();
    bench.settle();
    for id in ids {
        assert_eq!(bench.reply(id), Some(Reply::Stored(3)));
    }
    // 72 + 3 * 27 bytes a batch: three of them pass 400 bytes.
    assert_eq!(sealed(&bench), [(9, Cause::Size), (18, Cause::Size), (27, Cause::Size)]);
    assert_eq!(bench.page(Fetch { max: 1000, ..fetch("t") }).values.len(), 30);
}

#[test]
fn a_restart_ends_what_was_active_and_goes_on_behind_it() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a", "b"])), Reply::Stored(2));
    bench.restart();
    assert!(bench.ready);
    assert_eq!(sealed(&bench), [(2, Cause::Restart)]);
    assert_eq!(bench.page(fetch("t")).values, ["a", "b"]);
    assert_eq!(bench.ask(produce("t", &["c"])), Reply::Stored(1));
    assert_eq!(bench.page(fetch("t")).values, ["a", "b", "c"]);
    bench.restart();
    bench.restart();
    assert_eq!(bench.page(fetch("t")).values, ["a", "b", "c"]);
}

#[test]
fn a_process_that_ends_at_any_job_loses_nothing_it_acknowledged() {
    // However many jobs were done before the end, and again before the end of the next life, what was
    // acknowledged is there, in order, once.
    let mut most = 0;
    for done in 0..60 {
        for again in [0, 1, 3, 6, 10, 15] {
            most = most.max(end_and_look(done, again));
        }
    }
    assert_eq!(most, 8, "the last of these ends came after everything was acknowledged");
}

/// How many produce requests were acknowledged before the end.
fn end_and_look(done: usize, again: usize) -> usize {
    let case = format!("{done} jobs, then {again}");
    let mut bench = Bench::with(|config| config.segment_bytes = 300);
    let mut sent = vec![(bench.send(create("t")), "")];
    let mut left = bench.run_jobs(done);
    for value in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        sent.push((bench.send(produce("t", &[value, value])), value));
        left = bench.run_jobs(left);
    }
    let stored = |bench: &mut Bench, id| bench.reply(id).is_some_and(|reply| reply == Reply::Stored(2));
    let acknowledged: Vec<&str> =
        sent.iter().filter(|(id, _)| stored(&mut bench, *id)).map(|(_, value)| *value).collect();
    bench.restart_for(again);
    bench.restart();
    assert!(bench.ready, "{case}: {:?}", bench.stop);
    let values = bench.page(Fetch { max: 1000, ..fetch("t") }).values;
    assert!(values.chunks(2).all(|pair| pair[0] == pair[1]), "{case}: a batch is whole: {values:?}");
    let firsts: Vec<&str> = values.chunks(2).map(|pair| pair[0].as_str()).collect();
    assert_eq!(firsts[..acknowledged.len()], acknowledged, "{case}");
    assert!(firsts.windows(2).all(|pair| pair[0] < pair[1]), "{case}: {firsts:?}");
    acknowledged.len()
}

#[test]
fn a_registered_segment_without_a_copy_is_no_loss() {
    let mut bench = Bench::with_topic();
    let id = bench.send(produce("t", &["a"]));
    // The registration becomes durable, the copy does not come to be.
    while let Some(completion) = bench.raft.run_one() {
        bench.step(Event::Disk(Volume::Raft, completion));
    }
    assert_eq!(bench.reply(id), None);
    bench.restart();
    assert!(bench.notices.iter().any(|notice| matches!(notice, Notice::SegmentMissing { .. })));
    assert_eq!(bench.page(fetch("t")).values, [""; 0]);
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    assert_eq!(bench.page(fetch("t")).values, ["b"]);
}

#[test]
fn a_range_goes_on_behind_the_only_copy_that_is_damaged() {
    let mut bench = Bench::with_topic();
    for value in ["a", "b", "c"] {
        assert_eq!(bench.ask(produce("t", &[value])), Reply::Stored(1));
    }
    // Let the copy record how far it is durable, so that the damage cannot pass for a torn tail.
    bench.pass(Duration::from_secs(3));
    // The second batch: 72 bytes of header and 18 of payload each.
    bench.log.flip(".log", 90 + 72 + 5);
    bench.restart();
    assert!(bench.ready);
    let lost = |bench: &Bench| {
        let lost = bench.notices.iter().filter_map(|notice| match notice {
            Notice::RecordsLost { end, goes_on, .. } => Some((end.0, goes_on.0)),
            _ => None,
        });
        lost.collect::<Vec<_>>()
    };
    let [(end, goes_on)] = lost(&bench)[..] else { panic!("{:?}", bench.notices) };
    assert!(
        end == 1 && goes_on > 3,
        "no offset that was acknowledged is given out again: {end} to {goes_on}"
    );
    // What is intact is served, the rest is stepped over, once and counted, and the range goes on.
    assert_eq!(bench.ask(produce("t", &["d"])), Reply::Stored(1));
    let page = bench.page(Fetch { max: 1, ..fetch("t") });
    assert_eq!(page.values, ["a"]);
    let skips = |bench: &Bench| {
        let skips = bench.notices.iter().filter_map(|notice| match notice {
            Notice::Upkeep(crate::upkeep::Notice::Skipped { offsets, lost, .. }) => Some((*offsets, *lost)),
            _ => None,
        });
        skips.collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let on = Fetch { cursor: Some(page.cursor.clone()), ..fetch("t") };
        assert_eq!(bench.page(on).values, ["d"]);
        assert_eq!(skips(&bench), [(goes_on - 1, goes_on - 1)]);
    }
    bench.restart();
    assert_eq!(bench.page(fetch("t")).values, ["a", "d"]);
    assert_eq!(lost(&bench).len(), 1, "it is found once: {:?}", bench.notices);
    assert!(bench.log.dirs().iter().filter(|dir| dir.contains("-s")).count() >= 2, "its bytes stay");
    // Other topics do not notice.
    assert_eq!(bench.ask(create("u")), Reply::Created);
    assert_eq!(bench.ask(produce("u", &["x"])), Reply::Stored(1));
}

/// Damage that a read comes across while the segment takes records: what was acknowledged is known.
#[test]
fn damage_met_while_a_segment_takes_records_costs_no_more_than_what_was_acknowledged() {
    let mut bench = Bench::with_topic();
    for value in ["a", "b", "c"] {
        assert_eq!(bench.ask(produce("t", &[value])), Reply::Stored(1));
    }
    bench.pass(Duration::from_secs(3));
    let (segment, ..) = bench.node.core.meta.active_segments().next().unwrap();
    bench.log.flip(".log", 90 + 72 + 5);
    // Somebody read it, and out of service it went.
    bench.latch(segment, store::FailReason::Other);
    assert_eq!(bench.ask(produce("t", &["d"])), failed(Reason::Storage), "it met the copy");
    bench.settle();
    assert_eq!(bench.ask(produce("t", &["e"])), Reply::Stored(1));
    let gap = bench.notices.iter().find_map(|notice| match notice {
        Notice::RecordsLost { end, goes_on, .. } => Some((end.0, goes_on.0)),
        _ => None,
    });
    assert_eq!(gap, Some((1, 3)));
    assert_eq!(bench.page(fetch("t")).values, ["a", "e"]);
}

/// A device that does not answer, or whoever took the copy out of service, has not said that records are lost.
#[test]
fn a_copy_that_is_out_of_service_and_whole_stops_its_range() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let (segment, ..) = bench.node.core.meta.active_segments().next().unwrap();
    bench.latch(segment, store::FailReason::Eio);
    bench.restart();
    assert!(bench.notices.iter().any(|notice| matches!(notice, Notice::RangeStopped { .. })));
    assert!(!bench.notices.iter().any(|notice| matches!(notice, Notice::RecordsLost { .. })));
    assert_eq!(bench.ask(produce("t", &["b"])), failed(Reason::Storage));
    let page = bench.page(fetch("t"));
    assert_eq!(page.values, ["a"]);
    let on = Request::Fetch(Fetch { cursor: Some(page.cursor), wait_ms: 1000, ..fetch("t") });
    assert_eq!(bench.ask(on), failed(Reason::Storage));
}

#[test]
fn records_without_the_metadata_that_lists_them_stop_the_start() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    // Nothing, what a start left that went no further, and a group that began and never decided anything.
    let raft = std::mem::take(&mut bench.raft);
    for other in [Disk::default(), Bench::new().raft] {
        bench.raft = other;
        for start in 1..=3 {
            bench.stop = None;
            bench.restart();
            assert!(!bench.ready, "start {start}");
            assert_eq!(bench.stop, Some(Stop::Orphans { copies: 1 }), "start {start}");
        }
    }
    bench.raft = raft;
    bench.restart();
    assert!(bench.ready);
    assert_eq!(bench.page(fetch("t")).values, ["a"]);
}

#[test]
fn metadata_survives_its_snapshots() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let cursor = bench.page(fetch("t")).cursor;
    // Entries of about 60 kB, so that the log is cut on the way.
    let group = |n: usize| Some(Bytes::from(format!("{n:0>200}")));
    for round in 0..100 {
        for n in 0..250 {
            let group = group(round * 250 + n);
            bench.send(Request::Commit(Commit { topic: name("t"), group, cursor: Some(cursor.clone()) }));
        }
        bench.settle();
    }
    assert!(bench.replies.iter().all(|(_, reply)| *reply == Reply::Committed));
    assert!(bench.raft.has_file(".snap"), "the log was cut");
    bench.restart();
    assert!(bench.ready, "{:?}", bench.stop);
    for n in [0, 24_999] {
        let page = bench.page(Fetch { group: group(n), ..fetch("t") });
        assert_eq!(page.values, [""; 0], "group {n} is at the end");
    }
    assert_eq!(bench.page(fetch("t")).values, ["a"]);
}

#[test]
fn nothing_is_answered_before_everything_is_recovered() {
    let config = Config::new(NodeId(1), 7);
    let mut node = Node::new(config);
    let mut actions = Actions::new();
    let id = RequestId { connection: ConnectionId(1), number: 1 };
    let session = Session { user: "u".into(), revision: 0 };
    node.step(Instant(1), Event::Start, &mut actions);
    actions.clear();
    node.step(Instant(1), Event::Request { id, session, request: Request::Fetch(fetch("t")) }, &mut actions);
    node.flush(&mut actions);
    let reply = actions.into_iter().find_map(|action| match action {
        Action::Reply { reply, .. } => Some(reply),
        _ => None,
    });
    assert_eq!(reply, Some(failed(Reason::Unavailable)));
}

/// A command of an earlier process came late: its segment is active, this node's, and nobody ever opened it.
#[test]
fn a_segment_that_an_earlier_process_asked_for_is_ended_and_the_range_goes_on() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.restart();
    bench.settle();
    let (segment, start) = {
        let vnode = bench.node.core.meta.vnodes().next().unwrap();
        let (topic, _) = vnode.topics().next().unwrap();
        let (id, range) = vnode.ranges_of(topic).next().unwrap();
        (SegmentId { range: id, seq: range.next_segment_seq }, range.sealed_end)
    };
    let replicas = vec![bench.config.node];
    bench.decide(&Command::RegisterSegment(RegisterSegment {
        segment,
        start,
        replicas,
        opened_at: bench.wall,
    }));
    bench.settle();
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    assert_eq!(bench.page(fetch("t")).values, ["a", "b"]);
}
