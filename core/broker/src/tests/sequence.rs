//! What is read is what was appended: every record, byte for byte, from every place (P-25, P-26).

use proptest::prelude::*;
use types::cursor::{Cursor, Tile};
use types::record::Header;
use types::{KeySpan, Offset, RangeSeq};

use super::*;

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn record() -> impl Strategy<Value = Record> {
    let header = (bytes(8), bytes(8)).prop_map(|(name, value)| Header { name, value });
    let headers = prop::collection::vec(header, 0..=3);
    (prop::option::of(bytes(16)), bytes(64), 0..2_000_000_000_000_u64, headers)
        .prop_map(|(key, value, timestamp, headers)| Record { key, value, timestamp, headers })
}

/// Requests of some records each.
fn requests(most: usize) -> impl Strategy<Value = Vec<Vec<Record>>> {
    let split = |(records, lens): (Vec<Record>, Vec<usize>)| {
        let (mut left, mut lens) = (&records[..], lens.into_iter().cycle());
        let mut requests = Vec::new();
        while !left.is_empty() {
            let (request, rest) = left.split_at(lens.next().unwrap_or(1).min(left.len()));
            requests.push(request.to_vec());
            left = rest;
        }
        requests
    };
    let lens = prop::collection::vec(1_usize..6, 1..8);
    (prop::collection::vec(record(), 1..=most), lens).prop_map(split)
}

fn encode<'a>(records: impl IntoIterator<Item = &'a Record>) -> Bytes {
    let mut out = BytesMut::new();
    records.into_iter().for_each(|record| record.encode(&mut out));
    out.freeze()
}

/// A node with the requests stored, in small segments or one, that has everything in memory or nothing.
fn stored(requests: &[Vec<Record>], segment_bytes: u64, restarted: bool) -> Bench {
    let mut bench = Bench::with(|config| config.segment_bytes = segment_bytes);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    for request in requests {
        let (records, count) = (encode(request), u32::try_from(request.len()).unwrap());
        let crc = crc32fast::hash(&records);
        let produce = Request::Produce(Produce { topic: name("t"), records, count, crc, stamp: None });
        assert_eq!(bench.ask(produce), Reply::Stored(count));
    }
    if restarted {
        bench.restart();
    }
    bench
}

/// Reads from a cursor to the end: the bytes of each page one after another, and where each page ended.
fn read_all(bench: &mut Bench, mut cursor: Option<Bytes>, max: u32) -> (Vec<u8>, Vec<u64>) {
    let (mut read, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        let reply = bench.ask(Request::Fetch(Fetch { cursor, max, ..fetch("t") }));
        let Reply::Fetched(fetched) = reply else { panic!("{reply:?}") };
        let decoded = Cursor::decode(&fetched.cursor).unwrap();
        assert_eq!(decoded.tiles.len(), 1);
        ends.push(decoded.tiles[0].next.0);
        cursor = Some(fetched.cursor);
        if fetched.count == 0 {
            return (read, ends);
        }
        fetched.runs.iter().for_each(|run| read.extend_from_slice(&run.records));
    }
    panic!("there is no end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// P-25: append, sync, read gives the whole sequence, with consecutive offsets and the records as they were.
    #[test]
    fn everything_appended_is_read_as_it_was(
        requests in requests(50),
        segment_bytes in prop_oneof![Just(200_u64), Just(1 << 20)],
        restarted in any::<bool>(),
        max in prop_oneof![Just(1_u32), Just(7), Just(1000)],
    ) {
        let mut bench = stored(&requests, segment_bytes, restarted);
        let (read, ends) = read_all(&mut bench, None, max);
        prop_assert_eq!(&read[..], &encode(requests.iter().flatten())[..]);
        let count = requests.iter().flatten().count() as u64;
        let max = u64::from(max);
        let mut expected: Vec<u64> = (1..=count.div_ceil(max)).map(|page| (page * max).min(count)).collect();
        expected.push(count);
        prop_assert_eq!(ends, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// P-26: reading from every committed offset gives exactly what follows, and its end gives nothing.
    #[test]
    fn from_every_offset_exactly_the_rest_is_read(
        requests in requests(30),
        segment_bytes in prop_oneof![Just(200_u64), Just(1 << 20)],
        restarted in any::<bool>(),
    ) {
        let mut bench = stored(&requests, segment_bytes, restarted);
        let Reply::Fetched(page) = bench.ask(Request::Fetch(fetch("t"))) else { panic!() };
        let topic = Cursor::decode(&page.cursor).unwrap().topic;
        let records: Vec<&Record> = requests.iter().flatten().collect();
        for from in 0..=records.len() {
            let span = KeySpan::new(0, 1 << 16).unwrap();
            let tiles = vec![Tile { range: RangeSeq(0), span, next: Offset(from as u64) }];
            let cursor = Cursor { topic, member: None, tiles }.encode();
            let (read, _) = read_all(&mut bench, Some(cursor), 1000);
            prop_assert_eq!(&read[..], &encode(records[from..].iter().copied())[..], "from {}", from);
        }
    }
}
