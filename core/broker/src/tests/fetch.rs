//! What `fetch` answers, and when.

use super::*;

fn from(topic: &'static str, cursor: &Bytes) -> Fetch {
    Fetch { cursor: Some(cursor.clone()), ..fetch(topic) }
}

fn waiting(request: Fetch, wait_ms: u32) -> Request {
    Request::Fetch(Fetch { wait_ms, ..request })
}

#[test]
fn pages_follow_one_another_across_batches_and_segments() {
    // A segment holds about three batches.
    let mut bench = Bench::with(|config| config.segment_bytes = 300);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let values: Vec<String> = (0..60).map(|n| format!("value-{n}")).collect();
    for batch in values.chunks(3) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        assert_eq!(bench.ask(produce("t", &batch)), Reply::Stored(3));
    }
    for max in [1, 2, 3, 7, 1000] {
        let mut read = Vec::new();
        let mut page = bench.page(Fetch { max, ..fetch("t") });
        while !page.values.is_empty() {
            assert!(page.values.len() <= max as usize);
            read.append(&mut page.values);
            page = bench.page(Fetch { max, ..from("t", &page.cursor) });
        }
        assert_eq!(read, values, "max {max}");
    }
}

#[test]
fn a_page_holds_what_is_there_up_to_the_default() {
    let mut bench = Bench::with_topic();
    let values: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    let borrowed: Vec<&str> = values.iter().map(String::as_str).collect();
    assert_eq!(bench.ask(produce("t", &borrowed)), Reply::Stored(250));
    let page = bench.page(fetch("t"));
    assert_eq!(page.values, values[..100]);
    let page = bench.page(Fetch { max: u32::MAX, ..from("t", &page.cursor) });
    assert_eq!(page.values, values[100..]);
}

#[test]
fn a_response_stays_below_the_frame_limit_but_never_empty() {
    let mut bench = Bench::with(|config| config.frame_bytes_max = 1300);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let (small, large) = ("s".repeat(300), "l".repeat(1000));
    assert_eq!(bench.ask(produce("t", &[&small, &small, &small, &large, &small])), Reply::Stored(5));
    let mut lengths = Vec::new();
    let mut page = bench.page(fetch("t"));
    while !page.values.is_empty() {
        lengths.push(page.values.iter().map(String::len).collect::<Vec<_>>());
        page = bench.page(from("t", &page.cursor));
    }
    assert_eq!(lengths, [vec![300, 300], vec![300], vec![1000], vec![300]]);
}

#[test]
fn permissions_and_cursors_are_checked() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(create("other")), Reply::Created);
    let producer = Permissions { produce: true, ..NOBODY };
    let request = || Request::Fetch(fetch("t"));
    assert_eq!(bench.ask_as(producer, request()), failed(Reason::PermissionDenied));
    let foreign = bench.page(fetch("other")).cursor;
    for cursor in [foreign.clone(), Bytes::new(), Bytes::from_static(b"c1"), Bytes::from(vec![b'A'; 100_000])]
    {
        assert_eq!(bench.ask(Request::Fetch(from("t", &cursor))), failed(Reason::InvalidCursor));
    }
    let garbage = from("unknown", &Bytes::from_static(b"garbage"));
    assert_eq!(bench.ask(Request::Fetch(garbage)), failed(Reason::InvalidCursor));
    // A member's fetch goes by the group; its cursor is not looked at.
    let member = Fetch { group: name("g"), member: name("m"), ..from("t", &foreign) };
    assert_eq!(bench.page(member).values, [""; 0]);
    // Without a group there is no member.
    let alone = Fetch { member: name("m"), ..from("t", &foreign) };
    assert_eq!(bench.ask(Request::Fetch(alone)), failed(Reason::InvalidCursor));
}

#[test]
fn an_unknown_topic_reads_as_empty_and_its_cursor_starts_the_later_topic() {
    let mut bench = Bench::new();
    let page = bench.page(fetch("t"));
    assert_eq!(page.values, [""; 0]);
    assert_eq!(bench.page(from("t", &page.cursor)), page);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    assert_eq!(bench.page(from("t", &page.cursor)).values, ["a"]);
}

#[test]
fn a_long_poll_wakes_on_a_record_and_not_before_it_is_durable() {
    let mut bench = Bench::with_topic();
    let id = bench.send(waiting(fetch("t"), 5000));
    bench.settle();
    assert_eq!(bench.reply(id), None);
    let stored = bench.send(produce("t", &["a"]));
    assert_eq!(bench.reply(id), None);
    bench.settle();
    assert_eq!(bench.reply(stored), Some(Reply::Stored(1)));
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("woken") };
    assert_eq!(Page::of(fetched).values, ["a"]);
}

#[test]
fn a_long_poll_ends_on_time_with_a_position() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let cursor = bench.page(fetch("t")).cursor;
    let id = bench.send(waiting(from("t", &cursor), 5000));
    bench.pass(Duration::from_millis(4999));
    assert_eq!(bench.reply(id), None);
    bench.pass(Duration::from_millis(1));
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("its time is up") };
    assert_eq!(Page::of(fetched), Page { values: Vec::new(), cursor });
    // Longer than allowed is cut.
    let id = bench.send(waiting(fetch("unknown"), u32::MAX));
    bench.pass(Duration::from_millis(30_000));
    assert!(matches!(bench.reply(id), Some(Reply::Fetched(_))));
}

#[test]
fn a_consumer_may_wait_for_its_topic() {
    let mut bench = Bench::new();
    let id = bench.send(waiting(fetch("t"), 5000));
    let never = bench.send(waiting(fetch("no/name"), 5000));
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.reply(id), None, "there is a topic, but no record: it waits on");
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("woken") };
    assert_eq!(Page::of(fetched).values, ["a"]);
    assert_eq!(bench.reply(never), None);
    bench.pass(Duration::from_secs(5));
    assert!(matches!(bench.reply(never), Some(Reply::Fetched(_))));
}

#[test]
fn a_closed_connection_waits_for_nothing() {
    let mut bench = Bench::with_topic();
    let id = bench.send(waiting(fetch("t"), 5000));
    bench.step(Event::Gone(id.connection));
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.reply(id), None);
}

#[test]
fn one_more_than_may_wait_is_answered_at_once() {
    let mut bench = Bench::with(|config| config.waiters_max = 1);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let first = bench.send(waiting(fetch("t"), 5000));
    let second = bench.send(waiting(fetch("t"), 5000));
    let third = bench.send(waiting(fetch("unknown"), 5000));
    assert_eq!(bench.reply(first), None);
    assert!(matches!(bench.reply(second), Some(Reply::Fetched(_))));
    assert!(matches!(bench.reply(third), Some(Reply::Fetched(_))));
}

#[test]
fn many_who_want_the_same_place_cost_one_read() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    // Nothing is in memory then, so that a read is a job.
    bench.restart();
    let again: Vec<_> = (0..50).map(|_| bench.send(Request::Fetch(fetch("t")))).collect();
    let mut jobs = 0;
    while let Some(completion) = bench.log.run_one() {
        jobs += 1;
        bench.step(Event::Disk(Volume::Log, completion));
    }
    assert!(jobs < 10, "{jobs} jobs for {} readers", again.len());
    for id in again {
        assert!(matches!(bench.reply(id), Some(Reply::Fetched(Fetched { count: 1, .. }))));
    }
}

#[test]
fn a_failed_read_is_never_the_end_of_the_data() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.restart();
    bench.log.fail_reads = Some(ErrorKind::Io);
    assert_eq!(bench.ask(Request::Fetch(fetch("t"))), failed(Reason::Storage));
    bench.log.fail_reads = None;
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.page(fetch("t")).values, ["a"]);
}

#[test]
fn a_read_the_store_has_no_room_for_is_overload_and_no_failure() {
    // Found by the simulator: it was told as a failure of the disk.
    let mut bench = Bench::with(|config| {
        config.store.open_copies_max = 1;
        config.store.queue_max = 1;
        config.store.tail_cache_bytes = 0;
    });
    let values = ["a", "b", "c", "d"];
    for topic in ["t", "u"] {
        assert_eq!(bench.ask(create(topic)), Reply::Created);
        for value in values {
            assert_eq!(bench.ask(produce(topic, &[value])), Reply::Stored(1));
        }
    }
    let mut cursors = vec![None];
    for _ in &values[1..] {
        let before = Fetch { cursor: cursors.last().cloned().flatten(), max: 1, ..fetch("t") };
        cursors.push(Some(bench.page(before).cursor));
    }
    bench.restart();
    // Only one copy is open at a time: this makes sure that it is not the one they want.
    assert_eq!(bench.page(fetch("u")).values, values);
    // Each wants another place, so none of them can share another's read.
    let at = |cursor: &Option<Bytes>| Fetch { cursor: cursor.clone(), max: 1, ..fetch("t") };
    let ids: Vec<_> = cursors.iter().map(|cursor| bench.send(Request::Fetch(at(cursor)))).collect();
    bench.settle();
    let replies: Vec<_> = ids.into_iter().map(|id| bench.reply(id).unwrap()).collect();
    assert!(matches!(replies[0], Reply::Fetched(_)), "{replies:?}");
    assert!(replies.contains(&failed(Reason::Overloaded)), "{replies:?}");
    assert!(!bench.notices.iter().any(|notice| matches!(notice, Notice::ReadFailed { .. })));
    for (cursor, value) in cursors.iter().zip(values) {
        assert_eq!(bench.page(at(cursor)).values, [value]);
    }
}

#[test]
fn a_segment_that_ends_while_it_is_read_is_followed_by_the_next_one() {
    // Whenever the fetch comes, and however late its reads are: the end of the old segment is no failure.
    let mut served = 0;
    for jobs in 0..40 {
        let mut bench = Bench::with(|config| config.store.open_copies_max = 1);
        for topic in ["t", "u"] {
            assert_eq!(bench.ask(create(topic)), Reply::Created);
            assert_eq!(bench.ask(produce(topic, &["a"])), Reply::Stored(1));
        }
        let cursor = bench.page(fetch("t")).cursor;
        bench.restart_for(jobs);
        let id = bench.send(Request::Fetch(from("t", &cursor)));
        let produced = bench.send(produce("t", &["b"]));
        bench.log.hold_reads = true;
        bench.settle();
        bench.log.hold_reads = false;
        bench.settle();
        if bench.reply(produced) == Some(Reply::Stored(1)) {
            served += 1;
            let reply = bench.reply(id);
            assert!(matches!(reply, Some(Reply::Fetched(_))), "after {jobs} jobs: {reply:?}");
        }
        assert!(
            !bench.notices.iter().any(|notice| matches!(notice, Notice::ReadFailed { .. })),
            "{jobs} jobs"
        );
    }
    assert!(served > 20, "{served} of these met a node that serves");
}
