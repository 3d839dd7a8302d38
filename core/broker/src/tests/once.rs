//! Producers that repeat themselves: everything is stored once, whatever happened in between.

use types::{ProducerEpoch, ProducerId, Stamp, limits};

use super::ranges::keys_apart;
use super::*;

/// A producer, and what its requests are numbered.
#[derive(Clone, Copy)]
struct Producer {
    stamp: Stamp,
}

impl Producer {
    fn new(bench: &mut Bench) -> Self {
        let Reply::Producer { id, now } = bench.ask(Request::NewProducer { topic: name("t") }) else {
            panic!("it is told who it is");
        };
        let (epoch, first, settled, born) = (ProducerEpoch(0), 0, 0, now);
        Self { stamp: Stamp { producer: id, epoch, first, settled, born } }
    }

    /// A request of its own, numbered as said.
    fn request(&self, first: u32, request: Request) -> Request {
        let Request::Produce(produce) = request else { unreachable!() };
        Request::Produce(Produce { stamp: Some(Stamp { first, ..self.stamp }), ..produce })
    }

    fn send(&self, first: u32, values: &[&str]) -> Request {
        self.request(first, produce("t", values))
    }
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values
}

fn all(bench: &mut Bench) -> Vec<String> {
    let page = bench.page(Fetch { max: 1000, ..fetch("t") });
    sorted(page.values)
}

#[test]
fn producers_have_names_of_their_own_and_need_the_right() {
    let mut bench = Bench::with_topic();
    let (a, b) = (Producer::new(&mut bench), Producer::new(&mut bench));
    assert!(a.stamp.producer != b.stamp.producer && a.stamp.producer != ProducerId(0));
    assert_eq!(a.stamp.born, bench.wall);
    let ask = |topic| Request::NewProducer { topic: name(topic) };
    assert_eq!(bench.ask_as(NOBODY, ask("t")), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(ask("unknown")), failed(Reason::NoSuchTopic));
}

#[test]
fn a_repetition_is_answered_like_the_first_and_not_before_it() {
    let mut bench = Bench::with_topic();
    let producer = Producer::new(&mut bench);
    assert_eq!(bench.ask(producer.send(0, &["a", "b"])), Reply::Stored(2));
    assert_eq!(bench.ask(producer.send(0, &["a", "b"])), Reply::Stored(2));
    let first = bench.send(producer.send(2, &["c"]));
    let again = bench.send(producer.send(2, &["c"]));
    assert_eq!((bench.reply(first), bench.reply(again)), (None, None));
    bench.settle();
    assert_eq!((bench.reply(first), bench.reply(again)), (Some(Reply::Stored(1)), Some(Reply::Stored(1))));
    assert_eq!(all(&mut bench), ["a", "b", "c"]);
}

#[test]
fn a_restart_forgets_nobody() {
    let mut bench = Bench::with_topic();
    let producer = Producer::new(&mut bench);
    for (at, value) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(bench.ask(producer.send(u32::try_from(at).unwrap(), &[value])), Reply::Stored(1));
    }
    // Its answer is lost with the process; the record is not.
    bench.send(producer.send(3, &["d"]));
    bench.run_jobs(1);
    bench.restart();
    for (at, value) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        assert_eq!(bench.ask(producer.send(u32::try_from(at).unwrap(), &[value])), Reply::Stored(1));
    }
    assert_eq!(all(&mut bench), ["a", "b", "c", "d", "e"]);
}

#[test]
fn full_segments_and_restarts_among_them_forget_nobody() {
    let mut bench = Bench::with(|config| config.segment_bytes = 300);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let producer = Producer::new(&mut bench);
    let values: Vec<String> = (0..30).map(|n| format!("v{n:02}")).collect();
    for round in 0..3 {
        for (at, value) in values.iter().enumerate() {
            let first = u32::try_from(at).unwrap();
            assert_eq!(bench.ask(producer.send(first, &[value])), Reply::Stored(1), "{round} {value}");
        }
        bench.restart();
    }
    assert_eq!(all(&mut bench), values);
}

#[test]
fn a_request_is_divided_again_after_splits_and_merges_and_stored_once() {
    let (low, high) = keys_apart();
    let records = [(&*low, "a"), (&*high, "b"), (&*low, "c")];
    for restarts in [false, true] {
        let mut bench = Bench::with_topic();
        let producer = Producer::new(&mut bench);
        let mixed = |first| producer.request(first, produce_keyed("t", &records));
        assert_eq!(bench.ask(mixed(0)), Reply::Stored(3));
        assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
        assert_eq!(bench.ask(mixed(0)), Reply::Stored(3), "both children know");
        assert_eq!(bench.ask(mixed(3)), Reply::Stored(3));
        // One half of a request is stored in one of two ranges; then they become one.
        let half = producer.request(6, produce_keyed("t", &[(&low, "half")]));
        assert_eq!(bench.ask(half), Reply::Stored(1));
        if restarts {
            bench.restart();
        }
        assert_eq!(bench.ask(merge(1, 2)), Reply::Merged { child: 3 });
        let whole = || producer.request(6, produce_keyed("t", &[(&low, "half"), (&high, "other")]));
        assert_eq!(bench.ask(whole()), Reply::Stored(2), "what was lacking is added");
        assert_eq!(bench.ask(whole()), Reply::Stored(2));
        assert_eq!(bench.ask(mixed(0)), Reply::Stored(3));
        assert_eq!(bench.ask(mixed(3)), Reply::Stored(3));
        if restarts {
            bench.restart();
        }
        assert_eq!(bench.ask(split(3)), Reply::Split { left: 4, right: 5 });
        for request in [whole(), mixed(0), mixed(3), whole()] {
            assert!(matches!(bench.ask(request), Reply::Stored(2 | 3)));
        }
        assert_eq!(all(&mut bench), ["a", "a", "b", "b", "c", "c", "half", "other"]);
    }
}

/// Each part waits for a range of its own when the two become one: neither may be taken for a repetition of the other.
#[test]
fn a_request_whose_ranges_merge_while_it_waits_is_stored_whole_or_refused() {
    let (low, high) = keys_apart();
    let mut bench = Bench::with_topic();
    let producer = Producer::new(&mut bench);
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    let merged = bench.send(merge(1, 2));
    let mixed = || producer.request(0, produce_keyed("t", &[(&low, "a"), (&high, "b")]));
    let waits = bench.send(mixed());
    bench.settle();
    assert_eq!(bench.reply(merged), Some(Reply::Merged { child: 3 }));
    assert_eq!(bench.reply(waits), Some(failed(Reason::Unavailable)));
    assert_eq!(bench.ask(mixed()), Reply::Stored(2), "placed as a whole");
    assert_eq!(all(&mut bench), ["a", "b"]);
}

#[test]
fn records_without_a_key_go_where_they_went_before() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    let producer = Producer::new(&mut bench);
    let values: Vec<String> = (0..20).map(|n| format!("v{n:02}")).collect();
    for change in [merge(1, 2), split(3), merge(4, 5)] {
        for (at, value) in values.iter().enumerate() {
            let first = u32::try_from(at).unwrap();
            assert_eq!(bench.ask(producer.send(first, &[value])), Reply::Stored(1));
        }
        bench.ask(change);
    }
    assert_eq!(all(&mut bench), values);
}

#[test]
fn what_an_append_that_failed_has_left_is_not_taken_for_stored() {
    let mut bench = Bench::with_topic();
    let producer = Producer::new(&mut bench);
    assert_eq!(bench.ask(producer.send(0, &["a"])), Reply::Stored(1));
    bench.log.fail_writes = Some(ErrorKind::Full);
    let (first, again) = (bench.send(producer.send(1, &["b"])), bench.send(producer.send(1, &["b"])));
    bench.settle();
    assert_eq!(bench.reply(first), Some(failed(Reason::Storage)));
    assert_eq!(bench.reply(again), Some(failed(Reason::Storage)), "what it repeats failed");
    bench.log.fail_writes = None;
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.ask(producer.send(1, &["b"])), Reply::Stored(1));
    assert_eq!(bench.ask(producer.send(1, &["b"])), Reply::Stored(1));
    assert_eq!(all(&mut bench), ["a", "b"]);
}

#[test]
fn what_is_not_remembered_is_refused_by_name_and_what_is_new_is_not() {
    let mut bench = Bench::with_topic();
    let producer = Producer::new(&mut bench);
    assert_eq!(bench.ask(producer.send(0, &["a"])), Reply::Stored(1));
    let settled = Producer { stamp: Stamp { settled: 1, ..producer.stamp } };
    assert_eq!(bench.ask(settled.send(1, &["b"])), Reply::Stored(1));
    assert_eq!(bench.ask(producer.send(0, &["a"])), failed(Reason::ProducerForgotten));
    let later = Producer { stamp: Stamp { epoch: ProducerEpoch(1), ..producer.stamp } };
    assert_eq!(bench.ask(later.send(0, &["c"])), Reply::Stored(1));
    assert_eq!(bench.ask(producer.send(2, &["d"])), failed(Reason::ProducerFenced));

    // Everybody falls silent for longer than anybody is remembered.
    bench.wall = WallTime(bench.wall.0 + 2 * limits::PRODUCER_IDLE_MS);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.ask(later.send(0, &["c"])), failed(Reason::ProducerForgotten));
    let born = Producer { stamp: Stamp { born: bench.wall, ..later.stamp } };
    assert_eq!(bench.ask(born.send(1, &["e"])), Reply::Stored(1));
    let ahead = WallTime(bench.wall.0 + limits::PRODUCER_AHEAD_MS + 1);
    let early = Producer { stamp: Stamp { born: ahead, ..later.stamp } };
    assert_eq!(bench.ask(early.send(2, &["f"])), failed(Reason::Unavailable), "its clock is not this one's");
    assert_eq!(all(&mut bench), ["a", "b", "c", "e"]);
}

#[test]
fn history_that_expired_is_not_known_and_said_not_to_be() {
    let mut bench = Bench::with(|config| config.segment_bytes = 200);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let producer = Producer::new(&mut bench);
    for at in 0..10 {
        assert_eq!(bench.ask(producer.send(at, &["value"])), Reply::Stored(1));
    }
    let topic = bench.node.topic(&Bytes::from_static(b"t")).unwrap();
    let oldest: Vec<_> =
        bench.node.core.meta.of(topic).segments().map(|(segment, _)| segment).take(3).collect();
    bench.restart();
    for segment in oldest {
        bench.decide(&Command::DeleteSegment { segment });
    }
    assert_eq!(bench.ask(producer.send(9, &["value"])), Reply::Stored(1), "it is there");
    assert_eq!(bench.ask(producer.send(0, &["value"])), failed(Reason::ProducerForgotten));
    let born = Producer { stamp: Stamp { born: WallTime(bench.wall.0 + 1), ..producer.stamp } };
    assert_eq!(bench.ask(born.send(10, &["new"])), Reply::Stored(1));
}
