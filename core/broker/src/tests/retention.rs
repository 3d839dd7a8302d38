//! Sealed segments expire: the oldest, by the bounds that hold, and readers hear of it.

use metadata::cluster::{Policy, Setting};
use types::GroupName;

use super::*;
use crate::upkeep::{Notice as Upkeep, Origin};

const MINUTE: Duration = Duration::from_secs(60);

/// Every record is a segment of its own.
fn bench(change: impl FnOnce(&mut Config)) -> Bench {
    let mut bench = Bench::with(|config| {
        config.segment_bytes = 1;
        config.scrub.every = None;
        change(config);
    });
    assert_eq!(bench.ask(create("t")), Reply::Created);
    bench
}

impl Bench {
    /// Directories of copies; files to be used again have one of their own.
    pub(super) fn kept(&self) -> usize {
        self.log.dirs().iter().filter(|dir| dir.contains("-s")).count()
    }

    /// So many records, one by one.
    fn fill(&mut self, count: usize) {
        for number in 0..count {
            let value: &'static str = ["a", "b", "c", "d", "e", "f", "g", "h"][number % 8];
            assert_eq!(self.ask(produce("t", &[value])), Reply::Stored(1));
        }
    }

    /// The wall clock and the other one go on alike.
    fn age(&mut self, time: Duration) {
        self.wall.0 += u64::try_from(time.as_millis()).unwrap();
        self.pass(time);
    }

    fn upkeep(&self) -> impl Iterator<Item = &Upkeep> {
        self.notices.iter().filter_map(|notice| match notice {
            Notice::Upkeep(notice) => Some(notice),
            _ => None,
        })
    }

    fn expired(&self) -> usize {
        self.upkeep().filter(|notice| matches!(notice, Upkeep::SegmentExpired { .. })).count()
    }

    fn swept(&self) -> usize {
        self.upkeep().filter(|notice| matches!(notice, Upkeep::RetentionSwept { .. })).count()
    }

    /// Offsets stepped over, and by whom: group, origin, whether it counts the reader's own records alone.
    fn skips(&self) -> Vec<(u64, Option<String>, Origin, bool)> {
        let skip = |notice: &Upkeep| match notice {
            Upkeep::Skipped { offsets, group, origin, exact, .. } => {
                Some((*offsets, group.clone(), *origin, *exact))
            }
            _ => None,
        };
        self.upkeep().filter_map(skip).collect()
    }

    fn listed(&self) -> usize {
        self.node
            .core
            .meta
            .all_topics()
            .map(|(vnode, id, _)| {
                vnode.ranges_of(id).map(|(range, _)| vnode.segments_of(range).count()).sum::<usize>()
            })
            .sum()
    }

    fn bind(&mut self, policy: Option<&'static str>) {
        let topic = self.node.topic(&Bytes::from_static(b"t")).unwrap();
        self.decide(&Command::BindTopicPolicy { topic, policy: policy.map(Bytes::from) });
    }

    fn define(&mut self, name: &'static str, policy: Policy) {
        let command = metadata::cluster::Command::DefinePolicy { name: Bytes::from(name), policy };
        self.node.core.propose_cluster(&command, crate::cluster::Then::Forget);
        let actions = std::mem::take(&mut self.node.core.out);
        self.perform(actions);
        self.settle();
    }
}

#[test]
fn old_segments_go_with_their_copies_and_the_active_one_stays() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(300_000));
    bench.fill(3);
    bench.age(4 * MINUTE);
    bench.fill(2);
    assert_eq!((bench.expired(), bench.listed()), (0, 5), "nobody is old yet");
    bench.age(2 * MINUTE);
    assert_eq!((bench.expired(), bench.listed(), bench.kept()), (3, 2, 2));
    assert_eq!(bench.page(fetch("t")).values, ["a", "b"]);
    bench.age(60 * MINUTE);
    assert_eq!((bench.expired(), bench.listed(), bench.kept()), (5, 0, 0));
    assert_eq!(bench.page(fetch("t")).values, [""; 0]);
    assert!(bench.swept() >= 60, "it goes on when there is nothing to do");
}

/// The one that takes records is never too old.
#[test]
fn a_segment_that_takes_records_never_expires() {
    let mut bench = Bench::with(|config| config.retention.age_ms_max = Some(0));
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.age(60 * MINUTE);
    assert_eq!((bench.expired(), bench.page(fetch("t")).values), (0, vec!["a".to_owned()]));
}

/// What everybody has read goes; a group that stands still keeps its records to a bound, and no longer.
#[test]
fn what_every_group_is_past_goes_before_what_one_still_wants() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(300_000));
    let policy = Policy {
        read_age_ms_max: Setting::Value(0),
        unread_age_ms_max: Setting::Value(900_000),
        ..Policy::default()
    };
    assert_eq!(bench.ask(policies::define("read", policy)), Reply::Done);
    assert_eq!(bench.ask(policies::bind("t", Some("read"))), Reply::Done);
    bench.fill(4);
    bench.age(6 * MINUTE);
    assert_eq!(bench.expired(), 0, "nobody has read anything, and it may stay for longer than others");
    let two = bench.page(Fetch { max: 2, ..fetch("t") }).cursor;
    let three = bench.page(Fetch { max: 3, ..fetch("t") }).cursor;
    assert_eq!(bench.ask(commit("t", "fast", &three)), Reply::Committed);
    assert_eq!(bench.ask(commit("t", "slow", &two)), Reply::Committed);
    bench.age(2 * MINUTE);
    assert_eq!((bench.expired(), bench.listed()), (2, 2), "what both are past");
    let slow = Fetch { group: name("slow"), ..fetch("t") };
    assert_eq!(bench.page(slow).values, ["c", "d"]);
    assert_eq!(bench.ask(commit("t", "slow", &three)), Reply::Committed);
    bench.age(2 * MINUTE);
    assert_eq!((bench.expired(), bench.listed()), (3, 1));
    bench.age(7 * MINUTE);
    assert_eq!((bench.expired(), bench.listed()), (4, 0), "the bound for what nobody reads");
}

#[test]
fn a_range_that_holds_too_much_loses_its_oldest() {
    let mut bench = bench(|_| {});
    bench.fill(6);
    bench.age(2 * MINUTE);
    assert_eq!(bench.expired(), 0, "without a bound nothing expires");
    let one = bench.node.core.meta.all_topics().next().map(|(vnode, id, _)| {
        let (range, _) = vnode.ranges_of(id).next().unwrap();
        vnode.segments_of(range).next().unwrap().1.sealed_bytes()
    });
    bench.define("small", Policy { bytes_max: Setting::Value(2 * one.unwrap()), ..Policy::default() });
    bench.bind(Some("small"));
    bench.age(2 * MINUTE);
    assert_eq!((bench.expired(), bench.page(fetch("t")).values.len()), (4, 2), "exactly what fits stays");
    bench.define("small", Policy { bytes_max: Setting::Value(0), ..Policy::default() });
    bench.age(2 * MINUTE);
    assert_eq!((bench.expired(), bench.listed()), (6, 0), "zero is a bound");
}

#[test]
fn a_policy_goes_over_the_defaults_and_one_that_is_not_defined_keeps_everything() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(60_000));
    bench.define("keep", Policy { age_ms_max: Setting::Off, ..Policy::default() });
    bench.bind(Some("keep"));
    bench.fill(2);
    bench.age(10 * MINUTE);
    assert_eq!(bench.expired(), 0, "the rule is off");
    bench.bind(Some("missing"));
    bench.age(10 * MINUTE);
    assert_eq!(bench.expired(), 0, "nobody knows what holds");
    let unresolved: Vec<bool> = bench
        .upkeep()
        .filter_map(|notice| match notice {
            Upkeep::PolicyUnresolved { first, .. } => Some(*first),
            _ => None,
        })
        .collect();
    assert_eq!((unresolved.len(), unresolved.iter().filter(|first| **first).count()), (10, 1));
    bench.define("missing", Policy::default());
    bench.age(2 * MINUTE);
    assert_eq!(bench.expired(), 2, "it inherits");
}

#[test]
fn topics_of_an_undefined_policy_have_a_bound_of_their_own() {
    let mut bench = bench(|config| config.retention.unresolved_age_ms_max = Some(600_000));
    bench.bind(Some("missing"));
    bench.fill(2);
    bench.age(9 * MINUTE);
    assert_eq!(bench.expired(), 0);
    bench.age(3 * MINUTE);
    assert_eq!(bench.expired(), 2);
}

/// A clock that jumps ahead is ahead by its jump, one that falls behind keeps longer.
#[test]
fn a_clock_that_steps_back_expires_nothing() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(120_000));
    bench.fill(2);
    bench.wall.0 -= 3_600_000;
    bench.age(50 * MINUTE);
    assert_eq!(bench.expired(), 0);
    bench.age(15 * MINUTE);
    assert_eq!(bench.expired(), 2);
}

#[test]
fn what_the_metadata_does_not_take_stays_and_is_tried_again() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(0));
    bench.fill(2);
    bench.raft.fail_writes = Some(ErrorKind::Full);
    bench.age(3 * MINUTE);
    assert_eq!((bench.expired(), bench.kept()), (0, 2));
    bench.raft.fail_writes = None;
    bench.restart();
    bench.age(3 * MINUTE);
    assert_eq!(bench.kept(), 0);
}

/// Each skip counts once, whoever reads it how often.
#[test]
fn readers_below_what_is_stored_are_moved_up_and_counted_once() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(120_000));
    bench.fill(3);
    let behind = bench.page(Fetch { max: 1, ..fetch("t") });
    assert_eq!(bench.ask(commit("t", "slow", &behind.cursor)), Reply::Committed);
    bench.age(5 * MINUTE);
    bench.fill(1);
    for _ in 0..3 {
        let slow = Fetch { group: name("slow"), ..fetch("t") };
        assert_eq!(bench.page(slow).values, ["a"]);
        assert_eq!(bench.page(fetch("t")).values, ["a"]);
    }
    let slow = Some("slow".to_owned());
    assert_eq!(bench.skips(), [(2, slow.clone(), Origin::Cursor, true), (3, None, Origin::Start, true)]);
    // More has expired since, and only that counts.
    bench.age(5 * MINUTE);
    bench.fill(1);
    assert_eq!(bench.page(Fetch { group: name("slow"), ..fetch("t") }).values, ["a"]);
    assert_eq!(bench.skips()[2..], [(1, slow, Origin::Cursor, true)]);
}

/// With nothing left of a sealed topic a group still gets to its end, and so does one that reads a split range.
#[test]
fn a_group_reaches_the_end_of_what_is_gone() {
    let mut bench = bench(|config| config.retention.age_ms_max = Some(120_000));
    bench.fill(4);
    assert!(matches!(bench.ask(split(0)), Reply::Split { .. }));
    bench.age(10 * MINUTE);
    assert_eq!(bench.listed(), 0);
    let page = bench.page(Fetch { group: name("late"), ..fetch("t") });
    assert_eq!(page.values, [""; 0]);
    assert_eq!(bench.skips(), [(4, Some("late".to_owned()), Origin::Start, true)]);
    assert_eq!(bench.ask(commit("t", "late", &page.cursor)), Reply::Committed);
    let topic = bench.node.topic(&Bytes::from_static(b"t")).unwrap();
    let group = GroupName::new(b"late").unwrap();
    assert_eq!(bench.node.group_info(&crate::groups::Key { topic, group }).lag, 0);
    let nobody = GroupName::new(b"nobody").unwrap();
    assert_eq!(bench.node.group_info(&crate::groups::Key { topic, group: nobody }).lag, 0);
}
