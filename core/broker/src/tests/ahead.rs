//! Readers of many ranges: what is read at one time, and that it changes no answer.

use super::*;

/// Keys that reach every one of the ranges.
const KEYS: u64 = 300;

/// A topic of 16 ranges with two batches in each.
fn wide(change: impl FnOnce(&mut Config)) -> Bench {
    let mut bench = Bench::with(change);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    for range in 0..15 {
        assert!(matches!(bench.ask(split(range)), Reply::Split { .. }));
    }
    for round in 0..2 {
        let records: Vec<(String, String)> =
            (0..KEYS).map(|key| (format!("k{key}"), format!("k{key} {round}"))).collect();
        let records: Vec<(&str, &str)> = records.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert!(matches!(bench.ask(produce_keyed("t", &records)), Reply::Stored(_)));
    }
    bench
}

fn everything() -> Fetch {
    Fetch { max: 1000, ..fetch("t") }
}

/// Does the reads that wait, and says how many they were, until none comes any more.
fn read_in_rounds(bench: &mut Bench) -> Vec<usize> {
    let mut rounds = Vec::new();
    loop {
        bench.log.hold_reads = true;
        bench.settle();
        bench.log.hold_reads = false;
        let waiting = bench.log.jobs.len();
        if waiting == 0 {
            return rounds;
        }
        rounds.push(waiting);
        bench.run_jobs(waiting);
    }
}

#[test]
fn ranges_with_little_in_them_are_read_together() {
    let mut cached = wide(|_| {});
    let mut bench = wide(|config| config.store.tail_cache_bytes = 0);
    let id = bench.send(Request::Fetch(everything()));
    // From the beginning of the topic: the reader comes down to the ranges as it goes.
    assert_eq!(read_in_rounds(&mut bench), [1, 2, 8, 5]);
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("it was read") };
    let page = Page::of(fetched);
    assert_eq!(page.values.len() as u64, 2 * KEYS);
    assert_eq!(page, cached.page(everything()), "in the same order as without a disk");
}

#[test]
fn a_range_that_fills_the_reader_is_read_alone() {
    let mut bench = wide(|config| config.store.tail_cache_bytes = 0);
    let id = bench.send(Request::Fetch(Fetch { max: 5, ..everything() }));
    assert_eq!(read_in_rounds(&mut bench), [1]);
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("it was read") };
    assert_eq!(fetched.count, 5);
}

#[test]
fn readers_that_come_to_what_is_being_read_ahead_wait_for_it() {
    let mut bench = wide(|config| config.store.tail_cache_bytes = 0);
    let ids: Vec<RequestId> = (0..3).map(|_| bench.send(Request::Fetch(everything()))).collect();
    let reads: usize = read_in_rounds(&mut bench).into_iter().sum();
    for id in ids {
        let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("it was read") };
        assert_eq!(u64::from(fetched.count), 2 * KEYS);
    }
    assert!((16..40).contains(&reads), "{reads} reads");
}

#[test]
fn what_could_not_be_read_ahead_is_read_again() {
    let mut bench = wide(|config| config.store.tail_cache_bytes = 0);
    let id = bench.send(Request::Fetch(everything()));
    bench.log.hold_reads = true;
    bench.settle();
    bench.log.hold_reads = false;
    // The first range is read; those of the second round, one of them ahead, are not.
    bench.run_jobs(1);
    bench.log.fail_reads = Some(ErrorKind::Io);
    bench.settle();
    bench.log.fail_reads = None;
    let Some(Reply::Fetched(fetched)) = bench.reply(id) else { panic!("one range was read") };
    let first = Page::of(fetched);
    let second = bench.page(Fetch { cursor: Some(first.cursor), ..everything() });
    assert!(!first.values.is_empty() && !second.values.is_empty());
    let mut values: Vec<String> = first.values.into_iter().chain(second.values).collect();
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len() as u64, 2 * KEYS);
}
