//! What `produce` and `create_topic` answer.

use types::limits;

use super::*;
use crate::Cause;

#[test]
fn an_answer_comes_only_after_the_sync() {
    let mut bench = Bench::with_topic();
    let id = bench.send(produce("t", &["a", "b"]));
    assert_eq!(bench.reply(id), None);
    bench.settle();
    assert_eq!(bench.reply(id), Some(Reply::Stored(2)));
    let id = bench.send(produce("t", &["c"]));
    assert_eq!(bench.reply(id), None, "the segment is open now, and still nothing is promised");
    bench.settle();
    assert_eq!(bench.reply(id), Some(Reply::Stored(1)));
}

#[test]
fn requests_that_meet_a_segment_on_its_way_keep_their_order() {
    let mut bench = Bench::with_topic();
    let ids: Vec<_> = ["a", "b", "c"].map(|value| bench.send(produce("t", &[value]))).into();
    bench.settle();
    for id in ids {
        assert_eq!(bench.reply(id), Some(Reply::Stored(1)));
    }
    assert_eq!(bench.page(fetch("t")).values, ["a", "b", "c"]);
}

#[test]
fn nothing_is_created_by_producing() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("unknown", &["a"])), failed(Reason::NoSuchTopic));
    assert_eq!(bench.ask(produce("unknown", &[])), failed(Reason::NoSuchTopic));
    assert_eq!(bench.ask(produce("no/name", &["a"])), failed(Reason::NoSuchTopic));
    let mut nameless = produce("t", &["a"]);
    let Request::Produce(request) = &mut nameless else { unreachable!() };
    request.topic = None;
    assert_eq!(bench.ask(nameless), failed(Reason::NoSuchTopic));
    assert_eq!(bench.ask(produce("t", &[])), Reply::Stored(0));
    assert!(!bench.log.has_file(".log"), "no record, no segment");
}

#[test]
fn permissions_are_asked_first() {
    let mut bench = Bench::with_topic();
    let consumer = Permissions { consume: true, ..NOBODY };
    for permissions in [NOBODY, consumer] {
        assert_eq!(bench.ask_as(permissions, produce("unknown", &["a"])), failed(Reason::PermissionDenied));
        assert_eq!(bench.ask_as(permissions, create("no/name")), failed(Reason::PermissionDenied));
    }
    let producer = Permissions { produce: true, ..NOBODY };
    assert_eq!(bench.ask_as(producer, produce("t", &["a"])), Reply::Stored(1));
}

#[test]
fn topics_have_valid_names_and_exist_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create("no/name")), failed(Reason::InvalidTopicName));
    assert_eq!(
        bench.ask(Request::CreateTopic { topic: None, keyspace_bits: 16 }),
        failed(Reason::InvalidTopicName)
    );
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.ask(create("t")), failed(Reason::AlreadyExists));
    // Any width is accepted: existing clients send what they like.
    let odd = |topic, keyspace_bits| Request::CreateTopic { topic: name(topic), keyspace_bits };
    assert_eq!(bench.ask(odd("zero", 0)), Reply::Created);
    assert_eq!(bench.ask(odd("huge", 255)), Reply::Created);
}

#[test]
fn a_sealed_topic_takes_nothing_and_stays_readable() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let topic = bench.node.topic(&Bytes::from_static(b"t")).unwrap();
    bench.decide(&Command::SealTopic { topic });
    assert_eq!(bench.ask(produce("t", &["b"])), failed(Reason::Unroutable));
    assert_eq!(bench.ask(produce("t", &[])), Reply::Stored(0));
    assert_eq!(bench.page(fetch("t")).values, ["a"]);
}

#[test]
fn too_much_in_flight_is_refused_and_the_rest_is_served() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["first"])), Reply::Stored(1));
    let ids: Vec<_> = (0..limits::PRODUCES_IN_FLIGHT_MAX).map(|_| bench.send(produce("t", &["x"]))).collect();
    let extra = bench.send(produce("t", &["one too many"]));
    assert_eq!(bench.reply(extra), Some(failed(Reason::Overloaded)));
    bench.settle();
    assert_eq!(bench.replies.len(), ids.len());
    assert!(bench.replies.iter().all(|(_, reply)| *reply == Reply::Stored(1)));
    bench.replies.clear();
    assert_eq!(bench.ask(produce("t", &["y"])), Reply::Stored(1));
}

#[test]
fn a_full_disk_is_answered_and_the_range_goes_on_in_a_new_segment() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.log.fail_writes = Some(ErrorKind::Full);
    let ids: Vec<_> = ["b", "c"].map(|value| bench.send(produce("t", &[value]))).into();
    bench.settle();
    for id in ids {
        assert_eq!(bench.reply(id), Some(failed(Reason::Storage)));
    }
    assert_eq!(bench.ask(produce("t", &["d"])), failed(Reason::Storage));
    assert_eq!(bench.page(fetch("t")).values, ["a"], "what was acknowledged is readable meanwhile");
    bench.log.fail_writes = None;
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.ask(produce("t", &["e"])), Reply::Stored(1));
    let values = bench.page(fetch("t")).values;
    assert!(values.first().unwrap() == "a" && values.last().unwrap() == "e", "{values:?}");
    let ended = |notice: &Notice| matches!(notice, Notice::SegmentSealed { cause: Cause::Failure, .. });
    assert_eq!(bench.notices.iter().filter(|notice| ended(notice)).count(), 1, "{:?}", bench.notices);
    bench.restart();
    assert_eq!(bench.page(fetch("t")).values, values);
}

#[test]
fn a_copy_that_cannot_be_made_is_answered_and_made_later() {
    let mut bench = Bench::with_topic();
    bench.log.fail_writes = Some(ErrorKind::Full);
    assert_eq!(bench.ask(produce("t", &["a"])), failed(Reason::Storage));
    assert_eq!(bench.ask(produce("t", &["b"])), failed(Reason::Storage));
    assert_eq!(bench.page(fetch("t")).values, [""; 0]);
    bench.log.fail_writes = None;
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.ask(produce("t", &["c"])), Reply::Stored(1));
    assert_eq!(bench.page(fetch("t")).values, ["c"]);
}

#[test]
fn without_metadata_no_segment_opens_and_open_ones_go_on() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(create("new")), Reply::Created);
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.raft.fail_writes = Some(ErrorKind::Io);
    let reply = bench.ask(create("other"));
    assert_eq!(reply, failed(Reason::Timeout), "the entry may have reached the disk");
    assert_eq!(bench.ask(create("third")), failed(Reason::Unavailable));
    assert_eq!(bench.ask(produce("new", &["a"])), failed(Reason::Unavailable));
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    assert_eq!(bench.page(fetch("t")).values, ["a", "b"]);
    assert!(bench.notices.iter().any(|notice| matches!(notice, Notice::MetadataStopped { .. })));
}

#[test]
fn the_time_of_a_range_never_goes_back() {
    let mut bench = Bench::with_topic();
    let times = |bench: &mut Bench| bench.node.ranges.first_key_value().unwrap().1.appended_at;
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let before = times(&mut bench);
    bench.wall = WallTime(bench.wall.0 - 60_000);
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    assert_eq!(times(&mut bench), before);
    bench.restart();
    assert_eq!(bench.ask(produce("t", &["c"])), Reply::Stored(1));
    assert!(times(&mut bench) >= before);
}

#[test]
fn an_append_the_store_has_no_room_for_is_not_taken_for_an_older_one() {
    // Found by the simulator: the refusal of the newest append overtakes the answers of older ones.
    let first = ["1", "2", "3", "4"];
    let mut refused = 0;
    for jobs in 0..40 {
        let mut bench = Bench::with(|config| {
            config.segment_bytes = 200;
            config.store.tail_cache_bytes = 0;
            config.store.open_copies_max = 1;
            config.store.queue_max = 2;
        });
        assert_eq!(bench.ask(create("t")), Reply::Created);
        for value in first {
            assert_eq!(bench.ask(produce("t", &[value])), Reply::Stored(1));
        }
        // To read the first segment, the active one is closed; it is opened again when these arrive.
        bench.send(Request::Fetch(fetch("t")));
        bench.run_jobs(jobs);
        let values = ["a", "b", "c", "d"];
        let ids: Vec<_> = values.iter().map(|value| bench.send(produce("t", &[value]))).collect();
        bench.settle();
        let replies: Vec<_> = ids.into_iter().map(|id| bench.reply(id).unwrap()).collect();
        refused += replies.iter().filter(|reply| **reply == failed(Reason::Overloaded)).count();
        let stored = values.iter().zip(&replies).filter(|(_, reply)| **reply == Reply::Stored(1));
        let expected: Vec<&str> = first.into_iter().chain(stored.map(|(value, _)| *value)).collect();
        assert_eq!(bench.page(fetch("t")).values, expected, "after {jobs} jobs: {replies:?}");
        bench.restart();
        assert_eq!(bench.page(fetch("t")).values, expected, "after {jobs} jobs: {replies:?}");
        assert_eq!(bench.ask(produce("t", &["last"])), Reply::Stored(1));
    }
    assert!(refused > 0, "none of these found the store full");
}
