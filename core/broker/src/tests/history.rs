//! Exact positions over any history of splits and merges (P-38, INV-10, INV-42), against a model of lists.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// This many records with random keys, some without one.
    Produce(Vec<Option<u8>>),
    /// The n-th active range is split.
    Split(usize),
    /// The n-th active range is merged with its buddy, if that is active.
    Merge(usize),
    /// One of the readers takes a page of at most so many records, and commits it if it is a group.
    Read { reader: usize, max: u32 },
    /// The process ends.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(prop::option::weighted(0.9, 0_u8..12), 1..8).prop_map(Step::Produce),
        2 => (0_usize..32).prop_map(Step::Split),
        2 => (0_usize..32).prop_map(Step::Merge),
        4 => (0_usize..3, 1_u32..12).prop_map(|(reader, max)| Step::Read { reader, max }),
        1 => Just(Step::Restart),
    ]
}

/// A reader and what it has been given, in order.
#[derive(Default)]
struct Reader {
    cursor: Option<Bytes>,
    given: Vec<String>,
}

struct World {
    bench: Bench,
    produced: Vec<String>,
    readers: [Reader; 3],
}

impl World {
    fn new() -> Self {
        let mut bench = Bench::with(|config| config.segment_bytes = 400);
        let create = Request::CreateTopic { topic: name("t"), keyspace_bits: 4 };
        assert_eq!(bench.ask(create), Reply::Created);
        Self { bench, produced: Vec::new(), readers: Default::default() }
    }

    /// Number and slice of the active ranges, by slice.
    fn active(&mut self) -> Vec<(u64, u64, u64)> {
        let request = Admin::DescribeTopic { topic: name("t"), from_range: 0, max: 1000 };
        let Reply::Topic(_, ranges, false) = self.bench.ask(Request::Admin(request)) else { panic!() };
        let active = ranges.into_iter().filter(|range| range.state == crate::RangeState::Active);
        let mut active: Vec<_> = active.map(|range| (range.key_start, range.key_end, range.range)).collect();
        active.sort_unstable();
        active.into_iter().map(|(start, end, range)| (range, start, end)).collect()
    }

    fn produce(&mut self, keys: &[Option<u8>]) {
        let mut out = BytesMut::new();
        for key in keys {
            let value =
                format!("{}:{}", key.map_or("-".to_owned(), |key| key.to_string()), self.produced.len());
            let key = key.map(|key| Bytes::copy_from_slice(&[key]));
            Record { key, value: value.clone().into(), timestamp: 0, headers: Vec::new() }.encode(&mut out);
            self.produced.push(value);
        }
        let count = u32::try_from(keys.len()).unwrap();
        let records = out.freeze();
        let crc = crc32fast::hash(&records);
        let reply =
            self.bench.ask(Request::Produce(Produce { topic: name("t"), records, count, crc, stamp: None }));
        assert_eq!(reply, Reply::Stored(count));
    }

    /// Readers 0 and 1 carry cursors, 2 is a group that commits every page. Gives how many records came.
    fn read(&mut self, reader: usize, max: u32) -> usize {
        let request = match reader {
            2 => Fetch { group: name("g"), max, ..fetch("t") },
            _ => Fetch { cursor: self.readers[reader].cursor.clone(), max, ..fetch("t") },
        };
        let page = self.bench.page(request);
        if reader == 2 {
            assert_eq!(self.bench.ask(commit("t", "g", &page.cursor)), Reply::Committed);
        }
        let came = page.values.len();
        self.readers[reader].cursor = Some(page.cursor);
        self.readers[reader].given.extend(page.values);
        came
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Produce(keys) => self.produce(keys),
            Step::Split(nth) => {
                let active = self.active();
                let (range, start, end) = active[nth % active.len()];
                let reply = self.bench.ask(split(range));
                match end - start {
                    1 => assert_eq!(reply, failed(Reason::CannotSplit)),
                    _ => assert!(matches!(reply, Reply::Split { .. }), "{reply:?}"),
                }
            }
            Step::Merge(nth) => {
                let active = self.active();
                let (range, start, end) = active[nth % active.len()];
                let size = end - start;
                let buddy =
                    active.iter().find(|(_, other, end)| *other == start ^ size && end - other == size);
                if let Some((buddy, ..)) = buddy {
                    let reply = self.bench.ask(merge(range, *buddy));
                    assert!(matches!(reply, Reply::Merged { .. }), "{reply:?}");
                }
            }
            Step::Read { reader, max } => {
                self.read(*reader, *max);
            }
            Step::Restart => self.bench.restart(),
        }
    }

    /// Every reader reads on to the end: then it was given every record once, and each key's in order.
    fn finish(mut self) {
        for reader in 0..3 {
            while self.read(reader, 7) > 0 {}
            let given = std::mem::take(&mut self.readers[reader].given);
            assert_eq!(by_key(&given), by_key(&self.produced), "reader {reader}");
        }
    }
}

/// Each key's records in order; those without one, in any order.
fn by_key(values: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for value in values {
        let (key, _) = value.split_once(':').unwrap();
        keys.entry(key.to_owned()).or_default().push(value.clone());
    }
    if let Some(keyless) = keys.get_mut("-") {
        keyless.sort();
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_reader_is_given_every_record_once_and_in_the_order_of_its_key(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.finish();
    }
}
