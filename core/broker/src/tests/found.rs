//! Bugs that seeds of the simulator have found, told as short stories, and what they stand for.

use types::cursor::{Cursor, Tile};
use types::{KeySpan, Offset, RangeSeq};

use super::ranges::keys_apart;
use super::*;
use crate::event::{StreamAck, Subscribe};

const HOUR_MS: u64 = 3_600_000;

impl Bench {
    /// The wall clock moves on.
    fn tick(&mut self) -> u64 {
        self.wall = WallTime(self.wall.0 + 1000);
        self.wall.0
    }

    /// Only the metadata's disk works.
    pub(super) fn settle_metadata(&mut self) {
        while let Some(completion) = self.raft.run_one() {
            self.step(Event::Disk(Volume::Raft, completion));
        }
    }

    /// When the records of a page were appended.
    fn times(&mut self) -> Vec<u64> {
        match self.ask(Request::Fetch(fetch("t"))) {
            Reply::Fetched(fetched) => fetched.runs.iter().map(|run| run.append_time.0).collect(),
            reply => panic!("{reply:?}"),
        }
    }

    fn sought(&mut self, at_ms: u64) -> Bytes {
        match self.ask(Request::Admin(Admin::SeekTime { topic: name("t"), at_ms })) {
            Reply::Sought(cursor) => cursor,
            reply => panic!("{reply:?}"),
        }
    }
}

/// Two ranges became one; what is for the low keys began late in theirs. Gives a cursor from that time on.
fn merged() -> (Bench, Bytes) {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    assert_eq!(bench.ask(produce_keyed("t", &[(&high, "early")])), Reply::Stored(1));
    let at = bench.tick();
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "late")])), Reply::Stored(1));
    assert_eq!(bench.ask(merge(1, 2)), Reply::Merged { child: 3 });
    bench.tick();
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "last"), (&high, "last")])), Reply::Stored(2));
    let cursor = bench.sought(at);
    (bench, cursor)
}

/// A search for a time may leave the one side of a merge in the merged range and the other before it. The reader
/// waited for the former to be drained, which it was long ago, and never came past the latter.
#[test]
fn a_side_of_a_merge_that_is_past_it_is_not_waited_for() {
    let (mut bench, cursor) = merged();
    let page = bench.page(Fetch { cursor: Some(cursor), ..fetch("t") });
    let mut values = page.values.clone();
    values.sort();
    assert_eq!(values, ["last", "last", "late"]);
    assert_eq!(bench.page(Fetch { cursor: Some(page.cursor), ..fetch("t") }).values, [""; 0]);
}

/// A range that one part of a reader stands in was not counted for another part that is still to come there.
#[test]
fn lag_counts_what_every_part_of_a_position_is_still_to_read() {
    let (mut bench, cursor) = merged();
    let topic = Cursor::decode(&cursor).unwrap().topic;
    let half = |start, end, range, next| Tile {
        range: RangeSeq(range),
        span: KeySpan::new(start, end).unwrap(),
        next: Offset(next),
    };
    // The high half has read the merged range, the low half has not begun its own.
    let tiles = vec![half(0, 1 << 15, 1, 0), half(1 << 15, 1 << 16, 3, 2)];
    let cursor = Cursor { topic, member: None, tiles }.encode();
    assert_eq!(bench.ask(commit("t", "g", &cursor)), Reply::Committed);
    let group = bench.ask(Request::Admin(Admin::DescribeGroup { topic: name("t"), group: name("g") }));
    let Reply::Group(info) = group else { panic!("{group:?}") };
    assert!(info.lag >= 2 && !info.lag_exact, "{info:?}");
    assert_eq!(bench.page(Fetch { group: name("g"), ..fetch("t") }).values, ["late", "last"]);
}

/// A range was split while its segment was being made, and making it failed: its children waited for the end of a
/// segment that nobody ended.
#[test]
fn the_children_of_what_could_not_be_made_are_not_left_waiting() {
    let mut bench = Bench::with_topic();
    bench.log.refused = Some("r0-s0");
    let waiting = bench.send(produce("t", &["a"]));
    let parted = bench.send(split(0));
    bench.settle();
    assert_eq!(bench.reply(parted), Some(Reply::Split { left: 1, right: 2 }));
    assert!(bench.reply(waiting).is_some(), "answered, whatever became of it");
    bench.log.refused = None;
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    assert_eq!(bench.node.gauges().blocked_ranges, 0);
}

/// INV-52. A parent whose segment cannot be ended holds back its own keys, and nothing else in the topic.
#[test]
fn a_range_that_cannot_end_holds_back_its_own_keys_only() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "0"), (&high, "0")])), Reply::Stored(2));
    bench.log.refused = Some("r1-s0/copy.meta");
    assert_eq!(bench.ask(split(1)), Reply::Split { left: 3, right: 4 });
    for _ in 0..3 {
        assert_eq!(bench.ask(produce_keyed("t", &[(&low, "1")])), failed(Reason::Storage));
        assert_eq!(bench.ask(produce_keyed("t", &[(&high, "1")])), Reply::Stored(1));
        let page = bench.page(fetch("t"));
        assert!(page.values.contains(&"0".to_owned()), "{page:?}");
    }
    bench.log.refused = None;
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "2"), (&high, "2")])), Reply::Stored(2));
    assert_eq!(bench.page(fetch("t")).values.len(), 7);
}

/// A child took its time from when its parent's segment was opened, while that was all the node knew after a start:
/// with a clock that had stepped back, a key's records were not in the order of their times, and a search lied.
#[test]
fn a_childs_records_are_not_earlier_than_its_parents() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    for _ in 0..3 {
        assert_eq!(bench.ask(produce_keyed("t", &[(&low, "0"), (&high, "0")])), Reply::Stored(2));
        bench.tick();
    }
    bench.wall = WallTime(bench.wall.0 - HOUR_MS);
    bench.restart_for(0);
    while !bench.ready {
        assert_eq!(bench.run_jobs(1), 0, "the start goes on");
    }
    let parted = bench.send(split(0));
    let later = bench.send(produce_keyed("t", &[(&low, "1"), (&high, "1")]));
    bench.settle();
    assert_eq!(bench.reply(parted), Some(Reply::Split { left: 1, right: 2 }));
    assert_eq!(bench.reply(later), Some(Reply::Stored(2)));
    let times = bench.times();
    assert!(times.is_sorted(), "{times:?}");
}

/// The same of a range that a clock which had stepped back registered a segment for, and no more.
#[test]
fn a_segment_that_was_only_registered_sets_no_time_back() {
    let mut bench = Bench::with(|config| config.segment_bytes = 1);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.wall = WallTime(bench.wall.0 - HOUR_MS);
    bench.send(produce("t", &["lost"]));
    bench.settle_metadata();
    bench.restart();
    assert_eq!(bench.ask(produce("t", &["b"])), Reply::Stored(1));
    bench.restart();
    assert_eq!(bench.ask(produce("t", &["c"])), Reply::Stored(1));
    let times = bench.times();
    assert!(times.is_sorted() && times.len() == 3, "{times:?}");
}

/// Cursors that were pushed to a member moved whatever they spoke of, although others had taken it over.
#[test]
fn a_members_stream_stamps_its_cursors() {
    let mut bench = Bench::with_topic();
    bench.ask(produce("t", &["0"]));
    bench.send(Request::Subscribe(Subscribe { who: member("g", "m"), window: 0, max: 0 }));
    bench.settle();
    let (_, pushed) = bench.pushes.remove(0);
    let stamp = Cursor::decode(&pushed.cursor).unwrap().member.unwrap();
    let fetched = bench.page(Fetch { group: name("g"), member: name("m"), ..fetch("t") });
    assert_eq!(Some(stamp), Cursor::decode(&fetched.cursor).unwrap().member);
}

/// A stream on a name that no topic can have could not be acknowledged, and so not be kept alive.
#[test]
fn a_stream_on_an_impossible_name_takes_its_own_acknowledgements() {
    for topic in [name("a/b"), None] {
        let mut bench = Bench::new();
        let who = Membership { topic, group: name("g"), member: None };
        let stream = bench.send(Request::Subscribe(Subscribe { who: who.clone(), window: 0, max: 0 }));
        assert_eq!(bench.reply(stream), Some(Reply::Subscribed));
        assert_eq!(bench.ask(Request::StreamAck(StreamAck { who, cursor: None, count: 0 })), Reply::Acked);
    }
}

/// A group that lost its last member began again at the wall clock, which may be behind the assignments it had
/// given out since: a cursor from before passed for one of the new assignment.
#[test]
fn an_assignment_is_never_numbered_twice() {
    let mut bench = Bench::with_topic();
    let mut latest = 0;
    for round in 0..5 {
        for who in ["a", "b", "c"] {
            let page = bench.page(Fetch { group: name("g"), member: name(who), ..fetch("t") });
            let stamp = Cursor::decode(&page.cursor).unwrap().member.unwrap();
            assert!(stamp.generation.0 > latest || who != "a", "round {round}: {stamp:?}, {latest}");
            latest = latest.max(stamp.generation.0);
        }
        for who in ["a", "b", "c"] {
            assert_eq!(bench.ask(Request::LeaveGroup(member("g", who))), Reply::Left);
        }
    }
}

/// Two members, of whom one has nothing to read and has to look through its range's parent on the disk to know;
/// its request, and the name of the other.
pub(super) fn two_members() -> (Bench, RequestId, &'static str) {
    let mut bench = Bench::with_topic();
    let (_, high) = keys_apart();
    assert_eq!(bench.ask(produce_keyed("t", &[(&high, "0")])), Reply::Stored(1));
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    // Nothing is in memory.
    bench.restart();
    let has_high = |bench: &mut Bench, who| {
        let page = bench.page(Fetch { group: name("g"), member: name(who), ..fetch("t") });
        Cursor::decode(&page.cursor).unwrap().tiles.iter().any(|tile| tile.span.start() > 0)
    };
    let names = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];
    for who in names {
        has_high(&mut bench, who);
    }
    let high = names.into_iter().find(|who| has_high(&mut bench, who)).unwrap();
    let low = names.into_iter().find(|who| *who != high && !has_high(&mut bench, who)).unwrap();
    for who in names.into_iter().filter(|who| *who != low && *who != high) {
        bench.ask(Request::LeaveGroup(member("g", who)));
    }
    let request = Fetch { group: name("g"), member: name(low), wait_ms: 9000, ..fetch("t") };
    let waiting = bench.send(Request::Fetch(request));
    (bench, waiting, high)
}

/// A member was given more while it read, found nothing in what it had, and went to wait for that alone.
#[test]
fn a_member_that_goes_to_wait_looks_at_its_new_share_first() {
    let (mut bench, waiting, other) = two_members();
    let left = bench.send(Request::LeaveGroup(member("g", other)));
    bench.settle();
    assert_eq!(bench.reply(left), Some(Reply::Left));
    let Some(Reply::Fetched(fetched)) = bench.reply(waiting) else { panic!("it waits for what is there") };
    assert_eq!(Page::of(fetched).values, ["0"]);
}

/// A connection closed while something was read for it, and what was read came to wait for nobody: it held a place
/// among those that wait, and its member for alive.
#[test]
fn what_is_read_for_a_closed_connection_does_not_come_to_wait() {
    let (mut bench, waiting, _) = two_members();
    bench.step(Event::Gone(ConnectionId(1)));
    bench.settle();
    assert_eq!((bench.reply(waiting), bench.node.gauges().parked), (None, 0));
    bench.pass(Duration::from_secs(45));
    assert_eq!(bench.node.gauges().groups, (0, 0));
}

/// A reader stood at the ends of two ranges, and both were on their way to one. Only the side that got records was
/// looked at, and it waited for the other, which nobody had moved on when its segment had ended.
#[test]
fn a_reader_leaves_a_range_when_its_segment_has_ended() {
    let mut bench = Bench::with_topic();
    let (low, high) = keys_apart();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    assert_eq!(bench.ask(produce_keyed("t", &[(&low, "0"), (&high, "0")])), Reply::Stored(2));
    let page = bench.page(fetch("t"));
    assert_eq!(page.values, ["0", "0"]);
    let parked = bench.send(Request::Fetch(Fetch { cursor: Some(page.cursor), wait_ms: 9000, ..fetch("t") }));
    for (request, made) in [
        (split(1), Reply::Split { left: 3, right: 4 }),
        (merge(3, 4), Reply::Merged { child: 5 }),
        (merge(5, 2), Reply::Merged { child: 6 }),
        (split(6), Reply::Split { left: 7, right: 8 }),
    ] {
        let asked = bench.send(request);
        bench.settle_metadata();
        assert_eq!(bench.reply(asked), Some(made));
    }
    bench.settle();
    assert_eq!(bench.reply(parked), None);
    assert_eq!(bench.ask(produce_keyed("t", &[(&high, "1")])), Reply::Stored(1));
    let Some(Reply::Fetched(fetched)) = bench.reply(parked) else { panic!("it waits for what is there") };
    assert_eq!(Page::of(fetched).values, ["1"]);
}

/// Found by the simulator: a search for a time was cut to where a segment begins whose end was not known yet.
#[test]
fn a_time_is_found_in_what_an_earlier_process_left() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["earlier"])), Reply::Stored(1));
    bench.wall = WallTime(bench.wall.0 + 1_000);
    let at_ms = bench.wall.0;
    bench.step(Event::Timer);
    assert_eq!(bench.ask(produce("t", &["later"])), Reply::Stored(1));
    // With each number of jobs done before, the segment is another bit nearer to its end.
    for jobs in 0..40 {
        bench.restart_for(jobs);
        let id = bench.send(Request::Admin(Admin::SeekTime { topic: name("t"), at_ms }));
        bench.settle();
        match bench.reply(id).expect("answered once the disks are done") {
            Reply::Sought(cursor) => {
                let page = bench.page(Fetch { cursor: Some(cursor), ..fetch("t") });
                assert_eq!(page.values, ["later"], "after {jobs} jobs");
            }
            reply => assert_eq!(reply, failed(Reason::Unavailable), "after {jobs} jobs"),
        }
    }
}
