//! Splits, merges, seals and deletes: who is answered what, and what happens to those who wait.

use super::*;

/// A topic of two ranges, 1 and 2, each with a record.
fn two_ranges() -> Bench {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    bench
}

pub(super) fn keys_apart() -> (String, String) {
    let position = |key: &str| {
        types::Keyspace::from_bits(16).unwrap().position(types::keyspace::KeyHash::Xxh32, key.as_bytes())
    };
    let find =
        |low: bool| (0..).map(|n| format!("k{n}")).find(|key| (position(key).0 < 1 << 15) == low).unwrap();
    (find(true), find(false))
}

#[test]
fn a_request_over_two_ranges_is_stored_in_both_and_answered_once() {
    let mut bench = two_ranges();
    let (low, high) = keys_apart();
    let records = [(&*low, "a"), (&*high, "b"), (&*low, "c")];
    assert_eq!(bench.ask(produce_keyed("t", &records)), Reply::Stored(3));
    let mut values = bench.page(fetch("t")).values;
    values.sort();
    assert_eq!(values, ["a", "b", "c"]);
    let described =
        bench.ask(Request::Admin(Admin::DescribeTopic { topic: name("t"), from_range: 0, max: 0 }));
    let Reply::Topic(summary, ranges, false) = described else { panic!("{described:?}") };
    assert_eq!((summary.ranges, summary.active_ranges), (3, 2));
    assert_eq!(ranges.iter().map(|range| range.records).collect::<Vec<_>>(), [0, 2, 1]);
    assert_eq!(ranges[1].parents, [0]);
}

#[test]
fn what_waits_for_a_split_range_goes_to_its_children_in_order() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "0")])), Reply::Stored(1));
    // On its way to the disk, then the split, then more, all before a disk has done anything.
    let first = bench.send(produce_keyed("t", &[(&low, "1"), (&high, "1")]));
    let parted = bench.send(split(0));
    let second = bench.send(produce_keyed("t", &[(&high, "2"), (&low, "2")]));
    bench.settle();
    assert_eq!(bench.reply(first), Some(Reply::Stored(2)));
    assert_eq!(bench.reply(parted), Some(Reply::Split { left: 1, right: 2 }));
    assert_eq!(bench.reply(second), Some(Reply::Stored(2)));
    let third = bench.ask(produce_keyed("t", &[(&low, "3"), (&high, "3")]));
    assert_eq!(third, Reply::Stored(2));
    let page = bench.page(fetch("t"));
    let mut values = page.values;
    values[3..].sort_unstable();
    assert_eq!(values, ["0", "1", "1", "2", "2", "3", "3"]);
    assert_eq!(bench.ask(split(0)), failed(Reason::Sealed));
    assert_eq!(bench.ask(split(9)), failed(Reason::NoSuchRange));
    assert_eq!(bench.ask(merge(1, 9)), failed(Reason::NoSuchRange));
    assert_eq!(bench.ask_as(NOBODY, split(1)), failed(Reason::PermissionDenied));
}

#[test]
fn a_parked_reader_moves_on_to_the_children_and_a_new_one_reads_everything_once() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    bench.ask(produce_keyed("t", &[(&low, "0"), (&high, "0")]));
    let page = bench.page(fetch("t"));
    let parked = bench.send(Request::Fetch(Fetch { cursor: Some(page.cursor), wait_ms: 9000, ..fetch("t") }));
    bench.settle();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    assert_eq!(bench.ask(merge(2, 1)), Reply::Merged { child: 3 });
    assert_eq!(bench.ask(split(3)), Reply::Split { left: 4, right: 5 });
    assert_eq!(bench.reply(parked), None);
    assert_eq!(bench.ask(produce_keyed("t", &[(&high, "1")])), Reply::Stored(1));
    let Some(Reply::Fetched(fetched)) = bench.reply(parked) else { panic!() };
    let page = Page::of(fetched);
    assert_eq!(page.values, ["1"]);
    bench.ask(produce_keyed("t", &[(&low, "2")]));
    assert_eq!(bench.page(Fetch { cursor: Some(page.cursor), ..fetch("t") }).values, ["2"]);
    assert_eq!(bench.page(fetch("t")).values.len(), 4);
}

#[test]
fn a_sealed_topic_takes_nothing_and_stays_readable() {
    let mut bench = two_ranges();
    // One for each range: then both have a segment.
    bench.ask(produce("t", &["a"]));
    bench.ask(produce("t", &["b"]));
    let late = bench.send(produce("t", &["b"]));
    let sealed = bench.send(Request::Admin(Admin::SealTopic { topic: name("t") }));
    bench.settle();
    assert_eq!(bench.reply(late), Some(Reply::Stored(1)));
    assert_eq!(bench.reply(sealed), Some(Reply::Done));
    assert_eq!(bench.ask(produce("t", &["c"])), failed(Reason::Unroutable));
    assert_eq!(bench.page(fetch("t")).values.len(), 3);
    bench.restart();
    assert_eq!(bench.page(fetch("t")).values.len(), 3);
    assert_eq!(bench.ask(Request::Admin(Admin::SealTopic { topic: name("t") })), Reply::Done, "repeated");
    assert_eq!(bench.ask(Request::Admin(Admin::SealTopic { topic: name("u") })), failed(Reason::NoSuchTopic));
}

#[test]
fn a_deleted_topic_leaves_nothing_and_its_successor_shares_nothing() {
    let mut bench = two_ranges();
    bench.ask(produce("t", &["old"]));
    let page = bench.page(fetch("t"));
    assert_eq!(bench.ask(commit("t", "g", &page.cursor)), Reply::Committed);
    let on_its_way = bench.send(produce("t", &["lost"]));
    let parked =
        bench.send(Request::Fetch(Fetch { cursor: Some(page.cursor.clone()), wait_ms: 9000, ..fetch("t") }));
    let deleted = bench.send(Request::Admin(Admin::DeleteTopic { topic: name("t") }));
    bench.settle();
    assert_eq!(bench.reply(deleted), Some(Reply::Done));
    assert!(bench.reply(on_its_way).is_some(), "answered whatever became of it");
    assert!(bench.reply(parked).is_some());
    assert_eq!(bench.ask(produce("t", &["x"])), failed(Reason::NoSuchTopic));
    assert_eq!(bench.node.gauges().produces, (0, 0));
    assert_eq!((bench.node.gauges().ranges, bench.node.gauges().open_segments), (0, 0));
    assert!(!bench.log.has_file("copy.meta"), "every copy was removed");
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.page(fetch("t")).values, [""; 0]);
    let old = Fetch { cursor: Some(page.cursor), ..fetch("t") };
    assert_eq!(bench.ask(Request::Fetch(old)), failed(Reason::InvalidCursor));
    bench.ask(produce("t", &["new"]));
    assert_eq!(bench.page(Fetch { group: name("g"), ..fetch("t") }).values, ["new"]);
}

#[test]
fn a_split_in_the_middle_of_which_the_process_ends_is_gone_on_with() {
    for jobs in 0..40 {
        let mut bench = Bench::with_topic();
        let (low, high) = keys_apart();
        assert_eq!(bench.ask(produce_keyed("t", &[(&low, "0"), (&high, "0")])), Reply::Stored(2));
        bench.send(split(0));
        let later = bench.send(produce_keyed("t", &[(&low, "1"), (&high, "1")]));
        bench.run_jobs(jobs);
        let stored = bench.reply(later) == Some(Reply::Stored(2));
        bench.restart();
        assert_eq!(bench.ask(produce_keyed("t", &[(&low, "2"), (&high, "2")])), Reply::Stored(2), "{jobs}");
        let values = bench.page(fetch("t")).values;
        let count = |value: &str| values.iter().filter(|v| *v == value).count();
        assert_eq!((count("0"), count("2")), (2, 2), "{jobs}: {values:?}");
        assert!(count("1") == 2 || !stored, "{jobs}: {values:?}");
    }
}

#[test]
fn a_cursor_at_a_time_finds_the_first_record_of_every_key_at_or_after_it() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    let mut at = Vec::new();
    for n in 0..6 {
        bench.wall = WallTime(bench.wall.0 + 1000);
        at.push(bench.wall.0);
        let value = n.to_string();
        assert_eq!(bench.ask(produce_keyed("t", &[(&low, &value), (&high, &value)])), Reply::Stored(2));
        match n {
            1 => assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 }),
            3 => assert_eq!(bench.ask(merge(1, 2)), Reply::Merged { child: 3 }),
            _ => {}
        }
    }
    let mut seek = |at_ms| {
        let reply = bench.ask(Request::Admin(Admin::SeekTime { topic: name("t"), at_ms }));
        let Reply::Sought(cursor) = reply else { panic!("{reply:?}") };
        bench.page(Fetch { cursor: Some(cursor), ..fetch("t") }).values.len()
    };
    assert_eq!((seek(0), seek(u64::MAX)), (12, 0));
    for (n, at) in at.iter().enumerate() {
        assert_eq!(seek(*at), 12 - 2 * n, "at the time of {n}");
        assert_eq!(seek(*at + 1), 10 - 2 * n, "after it");
    }
}
