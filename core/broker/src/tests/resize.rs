//! Ranges that split and merge by what they take, on a node that is told nothing but records.

use wire::request::Subject;

use super::ranges::keys_apart;
use super::*;
use crate::event::OfCluster;
use crate::upkeep::{Limit, Notice as Upkeep};

/// Ten records a second are much here.
fn bench() -> Bench {
    let mut bench = Bench::with(|config| {
        config.resize.records_per_second = 10;
        config.resize.split_after = Duration::from_secs(20);
        config.resize.merge_after = Duration::from_secs(60);
    });
    assert_eq!(bench.ask(create("t")), Reply::Created);
    bench
}

impl Bench {
    /// So many records a second for so long, of these keys in turn.
    fn load(&mut self, seconds: u64, records: usize, keys: &[&str]) {
        for second in 0..seconds as usize {
            for record in 0..records {
                let key = keys[(second * records + record) % keys.len()];
                assert_eq!(self.ask(produce_keyed("t", &[(key, "v")])), Reply::Stored(1));
            }
            self.pass(Duration::from_secs(1));
        }
    }

    /// What was changed and refused by itself.
    fn resized(&mut self) -> Vec<Upkeep> {
        let notices = std::mem::take(&mut self.notices);
        let upkeep = notices.into_iter().filter_map(|notice| match notice {
            Notice::Upkeep(notice) => Some(notice),
            _ => None,
        });
        upkeep
            .filter(|notice| {
                matches!(
                    notice,
                    Upkeep::RangeSplit { .. }
                        | Upkeep::RangesMerged { .. }
                        | Upkeep::RangeLimited { .. }
                        | Upkeep::ResizeRefused { .. }
                )
            })
            .collect()
    }

    fn explained(&mut self, range: u64) -> (String, Vec<(String, String)>) {
        let subject = Subject::Range { topic: name("t"), range };
        let reply = self.ask(Request::Cluster(OfCluster::Explain(subject)));
        let Reply::Explained(told) = reply else { panic!("{reply:?}") };
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let facts = told.facts.iter().map(|(name, value)| (text(name), text(value))).collect();
        (text(&told.cause), facts)
    }

    fn values(&mut self) -> Vec<String> {
        let mut values = self.page(fetch("t")).values;
        values.sort();
        values
    }
}

#[test]
fn a_range_that_takes_much_is_split_and_its_halves_are_merged_once_they_are_quiet() {
    let mut bench = bench();
    let (low, high) = keys_apart();
    bench.load(20, 12, &[&low, &high]);
    assert_eq!(bench.resized(), [], "not before it has lasted");
    let (cause, facts) = bench.explained(0);
    assert_eq!(cause, "open");
    assert!(facts.contains(&("takes".into(), "12 records/s, 288 bytes/s".into())), "{facts:?}");
    bench.load(30, 12, &[&low, &high]);
    let split = bench.resized();
    assert!(matches!(&split[..], [Upkeep::RangeSplit { records_per_second: Some(12), .. }]), "{split:?}");
    assert_eq!(bench.explained(0).0, "replaced");
    bench.load(40, 12, &[&low, &high]);
    assert_eq!(bench.resized(), [], "halves of it are nothing much");
    bench.pass(Duration::from_secs(120));
    let merged = bench.resized();
    assert!(matches!(&merged[..], [Upkeep::RangesMerged { .. }]), "{merged:?}");
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "last"), (&high, "last")])), Reply::Stored(2));
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.resized(), []);
    assert!(bench.values().contains(&"v".to_owned()));
}

#[test]
fn one_key_is_not_split_and_explained() {
    let mut bench = bench();
    bench.load(60, 12, &["only"]);
    let limited = bench.resized();
    assert!(
        matches!(&limited[..], [Upkeep::RangeLimited { limit: Limit::OneKey, .. }]),
        "told once: {limited:?}"
    );
    let (cause, facts) = bench.explained(0);
    assert_eq!(cause, "at_limit");
    let split = facts.iter().find(|(name, _)| name == "split").unwrap();
    assert!(split.1.starts_with("120.0 %"), "{split:?}");
}

#[test]
fn keys_of_one_half_are_parted_further_down_at_once() {
    let mut bench = bench();
    let space = types::Keyspace::from_bits(16).unwrap();
    let place = |key: &str| space.position(types::keyspace::KeyHash::Xxh32, key.as_bytes()).0;
    // Both in the first quarter, one in each eighth.
    let find = |eighth: u32| (0..).map(|n| format!("k{n}")).find(|key| place(key) >> 13 == eighth).unwrap();
    let (one, other) = (find(0), find(1));
    bench.load(50, 12, &[&one, &other]);
    let splits = bench.resized();
    assert_eq!(splits.len(), 3, "{splits:?}");
    let spans: Vec<usize> = [2, 4, 5, 6].map(|range| bench.explained(range).1.len()).to_vec();
    assert!(spans.iter().all(|facts| *facts > 0), "the four that are left");
    bench.load(5, 12, &[&one, &other]);
    assert_eq!(bench.explained(5).0, "open");
    assert_eq!(bench.explained(6).0, "open");
}

#[test]
fn what_a_person_split_is_not_merged_and_nothing_happens_when_it_is_off() {
    let mut bench = bench();
    let (low, high) = keys_apart();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    bench.load(1, 2, &[&low, &high]);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.resized(), []);
    assert_eq!(bench.explained(1).0, "open");
    bench.config.resize.on = false;
    bench.restart();
    bench.load(60, 12, &[&low]);
    assert_eq!(bench.resized(), []);
    let (cause, facts) = bench.explained(1);
    assert_eq!(cause, "open");
    assert!(facts.iter().any(|(name, value)| name == "split" && value.contains("MALACHI_AUTO_SPLIT")));
}
