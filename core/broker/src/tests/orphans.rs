//! Copies that no topic lists go, and nothing else does.

use super::*;
use crate::Sweep;

fn delete(topic: &'static str) -> Request {
    Request::Admin(Admin::DeleteTopic { topic: name(topic) })
}

impl Bench {
    /// Directories of copies.
    fn copies(&self) -> usize {
        self.log.dirs().len()
    }

    fn found(&self) -> Vec<(usize, bool)> {
        let found = |notice: &Notice| match notice {
            Notice::OrphansFound { copies, removing, .. } => Some((*copies, *removing)),
            _ => None,
        };
        self.notices.iter().filter_map(found).collect()
    }
}

/// Topic `t` was removed, and the process ended before its copy was; `u` stays.
fn left(change: impl FnOnce(&mut Config)) -> Bench {
    let mut bench = Bench::with(|config| {
        config.orphan_sweep.sightings = 1;
        config.orphan_sweep.min_age = Duration::ZERO;
        change(config);
    });
    for topic in ["t", "u"] {
        assert_eq!(bench.ask(create(topic)), Reply::Created);
        assert_eq!(bench.ask(produce(topic, &["a"])), Reply::Stored(1));
    }
    let deleted = bench.send(delete("t"));
    bench.settle_metadata();
    assert_eq!(bench.reply(deleted), Some(Reply::Done));
    assert_eq!(bench.copies(), 2);
    bench.notices.clear();
    bench.restart();
    assert!(bench.ready);
    bench
}

#[test]
fn what_a_crash_left_behind_a_removal_goes_at_the_next_start() {
    let mut bench = left(|_| {});
    assert_eq!((bench.found(), bench.copies()), (vec![(1, true)], 1));
    assert_eq!(bench.node.gauges().unlisted_copies, 0);
    assert_eq!(bench.page(fetch("u")).values, ["a"]);
    bench.notices.clear();
    bench.restart();
    assert_eq!(bench.found(), []);
    assert_eq!(bench.page(fetch("u")).values, ["a"]);
}

#[test]
fn an_operator_can_have_them_only_told_of_or_not_looked_for() {
    let bench = left(|config| config.orphans = Sweep::Report);
    assert_eq!((bench.found(), bench.copies()), (vec![(1, false)], 2));
    assert_eq!(bench.node.gauges().unlisted_copies, 1);
    let bench = left(|config| config.orphans = Sweep::Off);
    assert_eq!((bench.found(), bench.copies()), (vec![], 2));
}

#[test]
fn what_nobody_lists_is_looked_at_more_than_once_before_it_goes() {
    let mut bench = left(|config| config.orphan_sweep = crate::upkeep::OrphanSweep::default());
    assert_eq!((bench.found(), bench.copies()), (vec![(1, true)], 2), "it was only just seen");
    bench.pass(Duration::from_secs(599));
    assert_eq!(
        (bench.found(), bench.copies()),
        (vec![(1, true)], 2),
        "seen often enough, for too short a time"
    );
    bench.pass(Duration::from_secs(2));
    assert_eq!((bench.found(), bench.copies()), (vec![(1, true)], 1));
    let removed = |n: &&Notice| matches!(n, Notice::Upkeep(crate::upkeep::Notice::OrphanRemoved { .. }));
    assert_eq!(bench.notices.iter().filter(removed).count(), 1);
    assert_eq!(bench.page(fetch("u")).values, ["a"]);
}

#[test]
fn nothing_goes_while_the_tables_cannot_be_confirmed() {
    let mut bench = left(|config| config.orphan_sweep.sightings = 2);
    bench.raft.fail_writes = Some(ErrorKind::Full);
    // The log stops, and nobody can say any more what was decided.
    bench.send(create("v"));
    bench.settle();
    bench.pass(Duration::from_secs(3600));
    assert_eq!(bench.copies(), 2);
    let skipped = |n: &&Notice| matches!(n, Notice::Upkeep(crate::upkeep::Notice::OrphanSweepSkipped { .. }));
    assert_eq!(bench.notices.iter().filter(skipped).count(), 1, "told once");
}

#[test]
fn a_removal_that_fails_is_tried_again_and_told_once() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.log.keep_names = true;
    assert_eq!(bench.ask(delete("t")), Reply::Done);
    bench.pass(Duration::from_millis(500));
    let told = |bench: &Bench| bench.notices.iter().filter(|n| matches!(n, Notice::CopyLeft { .. })).count();
    assert!(bench.copies() == 1 && bench.node.gauges().unlisted_copies == 1);
    assert_eq!(told(&bench), 1);
    bench.log.keep_names = false;
    bench.pass(Duration::from_secs(5));
    assert_eq!((bench.copies(), bench.node.gauges().unlisted_copies), (0, 0));
}

/// Somebody put an older raft directory back: what it does not know was acknowledged all the same.
#[test]
fn metadata_that_is_older_than_a_copy_serves_nobody_and_removes_nothing() {
    let mut bench = Bench::with_topic();
    let older = bench.raft.clone();
    assert_eq!(bench.ask(create("later")), Reply::Created);
    for topic in ["t", "later"] {
        assert_eq!(bench.ask(produce(topic, &["a"])), Reply::Stored(1));
    }
    let newer = std::mem::replace(&mut bench.raft, older);
    for _ in 0..2 {
        bench.restart();
        assert!(!bench.ready);
        let stop = bench.stop.take();
        assert!(matches!(stop, Some(Stop::Outdated { copies: 1, .. })), "{stop:?}");
        assert_eq!((bench.found(), bench.copies()), (vec![], 2));
    }
    bench.raft = newer;
    bench.restart();
    for topic in ["t", "later"] {
        assert_eq!(bench.page(fetch(topic)).values, ["a"]);
    }
}

#[test]
fn a_copy_that_does_not_say_whose_it_is_stays() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let deleted = bench.send(delete("t"));
    bench.settle_metadata();
    assert_eq!(bench.reply(deleted), Some(Reply::Done));
    bench.log.flip("copy.meta", 9);
    bench.restart();
    bench.pass(Duration::from_secs(5));
    assert!(bench.ready);
    assert_eq!((bench.found(), bench.copies()), (vec![], 1));
}

/// Many at once do not swamp the store.
#[test]
fn a_large_topic_is_removed_a_few_copies_at_a_time() {
    let mut bench = Bench::with(|config| config.segment_bytes = 1);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    for _ in 0..200 {
        assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    }
    let copies = bench.copies();
    assert!(copies >= 200);
    let deleted = bench.send(delete("t"));
    bench.settle_metadata();
    assert_eq!(bench.reply(deleted), Some(Reply::Done));
    assert!(bench.log.jobs.len() <= 64, "{} jobs at once", bench.log.jobs.len());
    bench.settle();
    assert_eq!(bench.copies(), 0);
}
