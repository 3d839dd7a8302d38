//! Sealed copies are verified in turn, and what is found is told and kept.

use types::SegmentId;

use super::*;
use crate::upkeep::{Notice as Upkeep, Scrubbed};

const MINUTE: Duration = Duration::from_secs(60);

/// Every record is a segment of its own.
fn bench(segments: usize, change: impl FnOnce(&mut Config)) -> Bench {
    let mut bench = Bench::with(|config| {
        config.segment_bytes = 1;
        change(config);
    });
    assert_eq!(bench.ask(create("t")), Reply::Created);
    for _ in 0..segments {
        assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    }
    bench
}

impl Bench {
    /// What was verified, in order.
    fn verified(&self) -> Vec<(SegmentId, Scrubbed)> {
        let verified = |notice: &Notice| match notice {
            Notice::Upkeep(Upkeep::Scrubbed { segment, result }) => Some((*segment, *result)),
            _ => None,
        };
        self.notices.iter().filter_map(verified).collect()
    }

    fn damaged(&self) -> usize {
        let damaged =
            |notice: &&Notice| matches!(notice, Notice::Upkeep(Upkeep::CopyDamaged { alone: true, .. }));
        self.notices.iter().filter(damaged).count()
    }
}

#[test]
fn every_sealed_copy_has_its_turn_before_any_has_another() {
    let mut bench = bench(3, |_| {});
    bench.pass(6 * MINUTE);
    let verified = bench.verified();
    let seqs: Vec<u64> = verified.iter().map(|(segment, _)| segment.seq.0).collect();
    assert_eq!(seqs, [0, 1, 2, 0, 1, 2]);
    assert!(verified.iter().all(|(_, result)| *result == Scrubbed::Verified));
}

#[test]
fn a_scrub_reads_no_more_than_it_may_and_can_be_off() {
    let mut slow = bench(8, |config| {
        config.scrub.copies_per_pass = 100;
        config.scrub.bytes_per_second = 1;
    });
    slow.pass(3 * MINUTE);
    let count = slow.verified().len();
    assert!((1..=3).contains(&count), "{count} copies of about a hundred bytes in two minutes");
    let mut off = bench(3, |config| config.scrub.every = None);
    off.pass(60 * MINUTE);
    assert_eq!(off.verified(), []);
}

#[test]
fn damage_is_counted_each_time_told_once_and_deletes_nothing() {
    let mut bench = bench(2, |_| {});
    bench.log.flip(".log", 20);
    bench.pass(5 * MINUTE);
    let results: Vec<Scrubbed> = bench.verified().into_iter().map(|(_, result)| result).collect();
    use Scrubbed::{Unrepairable, Verified};
    assert_eq!(results, [Unrepairable, Verified, Unrepairable, Verified, Unrepairable]);
    assert_eq!((bench.damaged(), bench.node.scrub.damaged().count()), (1, 1));
    assert_eq!(bench.kept(), 2);
}

/// Intact checksums are not enough: whole records may be missing at the end.
#[test]
fn a_copy_that_holds_less_than_was_recorded_is_not_whole() {
    let mut bench = bench(2, |_| {});
    let (segment, _) = bench.node.core.copies().next().unwrap();
    let report = |records, bytes| Ok(storage::store::Report { records, bytes, damage: None });
    let listed = bench.node.core.meta.of(segment.range.topic).segment(segment).unwrap();
    let bytes = listed.sealed_bytes();
    for (records, bytes) in [(0, 0), (1, bytes - 1), (2, bytes)] {
        bench.node.scrubbed(segment, report(records, bytes));
        assert!(bench.node.scrub.finding(segment).is_some(), "{records} records in {bytes}");
    }
    bench.node.scrubbed(segment, report(1, bytes));
    assert_eq!(bench.node.scrub.finding(segment), None);
    let actions = std::mem::take(&mut bench.node.core.out);
    bench.perform(actions);
    let results: Vec<Scrubbed> = bench.verified().into_iter().map(|(_, result)| result).collect();
    use Scrubbed::{Repaired, Unrepairable};
    assert_eq!(results, [Unrepairable, Unrepairable, Unrepairable, Repaired]);
    assert_eq!(bench.damaged(), 1);
}

/// A failed read is the best reason to look.
#[test]
fn what_a_read_failed_on_is_looked_at_first() {
    let mut bench = bench(3, |config| {
        config.scrub.every = None;
        config.store.tail_cache_bytes = 0;
    });
    bench.log.fail_reads = Some(ErrorKind::Io);
    assert_eq!(bench.ask(Request::Fetch(fetch("t"))), failed(Reason::Storage));
    bench.log.fail_reads = None;
    bench.pass(MINUTE);
    let verified = bench.verified();
    assert_eq!(verified.len(), 1, "{verified:?}");
    assert_eq!(verified[0].0.seq.0, 0);
}
