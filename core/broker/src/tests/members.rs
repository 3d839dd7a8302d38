//! A member's long polls and streams, and everything that can happen to them: each is answered once, or never when
//! nobody is there to hear it.

use super::found::two_members;
use super::*;
use crate::event::{StreamAck, Subscribe};

impl Bench {
    /// Sends on a connection of its own.
    fn on(&mut self, connection: u64, request: Request) -> RequestId {
        self.next += 1;
        let id = RequestId { connection: ConnectionId(connection), number: self.next };
        let session = self.session(&name_of(Permissions { admin: true, ..Permissions::default() }));
        self.step(Event::Request { id, session, request });
        self.settle();
        id
    }

    fn gone(&mut self, connection: u64) {
        self.step(Event::Gone(ConnectionId(connection)));
        self.settle();
    }

    /// The one answer to a fetch.
    fn only_page(&mut self, id: RequestId) -> Page {
        let answers = self.replies.iter().filter(|(of, _)| *of == id).count();
        assert_eq!(answers, 1, "exactly one answer");
        match self.reply(id) {
            Some(Reply::Fetched(fetched)) => Page::of(fetched),
            reply => panic!("{reply:?}"),
        }
    }

    fn is_answered(&self, id: RequestId) -> bool {
        self.replies.iter().any(|(of, _)| *of == id)
    }

    fn members(&self) -> usize {
        self.node.gauges().groups.1
    }
}

fn waits(who: &'static str) -> Request {
    Request::Fetch(Fetch { group: name("g"), member: name(who), wait_ms: 9000, ..fetch("t") })
}

fn leaves(who: &'static str) -> Request {
    Request::LeaveGroup(member("g", who))
}

fn delete() -> Request {
    Request::Admin(Admin::DeleteTopic { topic: name("t") })
}

fn subscribes(who: &'static str) -> Request {
    Request::Subscribe(Subscribe { who: member("g", who), window: 100, max: 10 })
}

/// A topic whose one record is on the disk only, and a member's fetch that waits for the disk.
fn reading() -> (Bench, RequestId) {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["0"])), Reply::Stored(1));
    bench.restart();
    bench.log.hold_reads = true;
    let id = bench.on(1, waits("m"));
    assert!(!bench.is_answered(id));
    (bench, id)
}

impl Bench {
    fn disk_goes_on(&mut self) {
        self.log.hold_reads = false;
        self.settle();
    }
}

#[test]
fn one_member_waits_on_two_connections_and_both_are_answered() {
    let mut bench = Bench::with_topic();
    let (first, second) = (bench.on(1, waits("m")), bench.on(2, waits("m")));
    assert_eq!((bench.node.gauges().parked, bench.members()), (2, 1));
    bench.on(3, produce("t", &["0"]));
    assert_eq!(bench.only_page(first), bench.only_page(second));
    bench.pass(Duration::from_secs(60));
    assert!(!bench.is_answered(first) && !bench.is_answered(second));
    assert_eq!((bench.node.gauges().parked, bench.members()), (0, 0));
}

#[test]
fn a_connection_that_closes_takes_its_own_long_poll_only() {
    let mut bench = Bench::with_topic();
    let (first, second) = (bench.on(1, waits("m")), bench.on(2, waits("m")));
    bench.gone(1);
    assert_eq!((bench.node.gauges().parked, bench.members()), (1, 1));
    bench.on(3, produce("t", &["0"]));
    assert_eq!(bench.only_page(second).values, ["0"]);
    assert!(!bench.is_answered(first));
}

#[test]
fn whoever_leaves_is_answered_at_once_and_does_not_come_back() {
    for others in [false, true] {
        let mut bench = Bench::with_topic();
        if others {
            bench.on(4, waits("other"));
        }
        let (first, second) = (bench.on(1, waits("m")), bench.on(2, waits("m")));
        let left = bench.on(3, leaves("m"));
        assert_eq!(bench.reply(left), Some(Reply::Left));
        assert_eq!(bench.only_page(first).values, [""; 0]);
        assert_eq!(bench.only_page(second).values, [""; 0]);
        assert_eq!((bench.node.gauges().parked, bench.members()), (others.into(), others.into()));
    }
}

#[test]
fn a_long_poll_outlives_its_topic_and_hears_of_the_next() {
    let mut bench = Bench::with_topic();
    let id = bench.on(1, waits("m"));
    let deleted = bench.on(2, delete());
    assert_eq!(bench.reply(deleted), Some(Reply::Done));
    assert_eq!((bench.is_answered(id), bench.members()), (false, 0));
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!((bench.is_answered(id), bench.members()), (false, 1));
    bench.on(3, produce("t", &["new"]));
    assert_eq!(bench.only_page(id).values, ["new"]);
}

#[test]
fn what_is_read_for_whoever_left_is_answered_and_brings_nobody_back() {
    let (mut bench, id) = reading();
    bench.on(2, leaves("m"));
    assert!(!bench.is_answered(id));
    bench.disk_goes_on();
    assert_eq!(bench.only_page(id).values, ["0"]);
    assert_eq!(bench.members(), 0);
    // The same when what was read is somebody else's.
    let (mut bench, id, high) = two_members();
    let names = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];
    bench.log.hold_reads = true;
    for who in names.into_iter().filter(|who| *who != high) {
        bench.on(2, leaves(who));
    }
    assert_eq!((bench.is_answered(id), bench.members()), (false, 1));
    bench.disk_goes_on();
    assert_eq!(bench.only_page(id).values, [""; 0]);
    assert_eq!((bench.node.gauges().parked, bench.members()), (0, 1));
}

#[test]
fn a_slow_disk_does_not_cost_a_member_its_answer() {
    let (mut bench, id) = reading();
    bench.pass(Duration::from_secs(60));
    assert_eq!((bench.is_answered(id), bench.members()), (false, 0), "taken for gone");
    bench.disk_goes_on();
    assert_eq!(bench.only_page(id).values, ["0"]);
}

#[test]
fn a_topic_removed_under_a_read_is_answered_once() {
    let (mut bench, id) = reading();
    bench.on(2, delete());
    bench.disk_goes_on();
    // With the record that was there, or without: the topic is gone either way.
    assert!(bench.only_page(id).values.len() <= 1);
    bench.pass(Duration::from_secs(60));
    assert!(!bench.is_answered(id));
    assert_eq!((bench.node.gauges().parked, bench.members()), (0, 0));
}

/// A client whose connection broke subscribed again under its name before the node had heard of the end of the first
/// connection. That took the member out, whose new stream was left without a share for as long as it was open.
#[test]
fn a_stream_that_came_back_keeps_its_member_when_the_old_connection_ends() {
    let mut bench = Bench::with_topic();
    bench.on(9, waits("other"));
    bench.on(1, subscribes("m"));
    bench.on(2, subscribes("m"));
    bench.gone(1);
    assert_eq!(bench.members(), 2);
    let left = bench.on(9, leaves("other"));
    assert_eq!(bench.reply(left), Some(Reply::Left));
    bench.on(3, produce("t", &["0"]));
    assert_eq!(bench.pushes.len(), 1);
    bench.gone(2);
    assert_eq!(bench.members(), 0);
}

/// The same for a member that somebody takes out by name while its stream is open.
#[test]
fn a_member_stays_as_long_as_its_stream_is_open() {
    let mut bench = Bench::with_topic();
    bench.on(1, subscribes("m"));
    bench.on(9, waits("other"));
    for request in [leaves("m"), leaves("other")] {
        let left = bench.on(2, request);
        assert_eq!(bench.reply(left), Some(Reply::Left));
    }
    assert_eq!(bench.members(), 1);
    bench.pass(Duration::from_secs(60));
    bench.on(3, produce("t", &["0"]));
    assert_eq!(bench.pushes.len(), 1);
}

#[test]
fn an_acknowledgement_on_its_way_is_answered_once_whatever_ends() {
    for ended in [delete(), leaves("m")] {
        let mut bench = Bench::with_topic();
        bench.on(1, subscribes("m"));
        bench.on(2, produce("t", &["0"]));
        let cursor = Page::of(bench.pushes.remove(0).1).cursor;
        let ack = StreamAck { who: member("g", "m"), cursor: Some(cursor), count: 1 };
        bench.next += 1;
        let id = RequestId { connection: ConnectionId(1), number: bench.next };
        let session = bench.session(&name_of(Permissions { admin: true, ..Permissions::default() }));
        bench.step(Event::Request { id, session, request: Request::StreamAck(ack) });
        assert!(!bench.is_answered(id), "its positions are on their way");
        bench.on(3, ended);
        assert_eq!(bench.replies.iter().filter(|(of, _)| *of == id).count(), 1);
    }
}
