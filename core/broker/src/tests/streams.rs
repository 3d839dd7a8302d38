//! Push streams: credit, one push at a time, acknowledgements, ends.

use super::*;
use crate::event::{StreamAck, Subscribe};

impl Bench {
    fn subscribe(&mut self, who: Membership, window: u32, max: u32) -> RequestId {
        let id = self.send(Request::Subscribe(Subscribe { who, window, max }));
        self.settle();
        assert_eq!(self.reply(id), Some(Reply::Subscribed));
        id
    }

    fn pushed(&mut self) -> Option<Page> {
        if self.pushes.is_empty() { None } else { Some(Page::of(self.pushes.remove(0).1)) }
    }

    fn written(&mut self, stream: RequestId) {
        self.step(Event::Pushed { stream });
        self.settle();
    }

    fn ack(&mut self, who: Membership, cursor: Option<&Bytes>, count: u32) -> Reply {
        self.ask(Request::StreamAck(StreamAck { who, cursor: cursor.cloned(), count }))
    }
}

fn alone() -> Membership {
    Membership { topic: name("t"), group: name("g"), member: None }
}

#[test]
fn records_go_out_as_far_as_the_credit_reaches_and_one_push_at_a_time() {
    let mut bench = Bench::with_topic();
    bench.ask(produce("t", &["0", "1", "2", "3", "4"]));
    let stream = bench.subscribe(alone(), 4, 3);
    let first = bench.pushed().unwrap();
    assert_eq!(first.values, ["0", "1", "2"]);
    assert_eq!(bench.pushed(), None, "the first is not written yet");
    bench.written(stream);
    let second = bench.pushed().unwrap();
    assert_eq!(second.values, ["3"]);
    bench.written(stream);
    assert_eq!(bench.pushed(), None, "out of credit");
    assert_eq!(bench.ack(alone(), Some(&first.cursor), 3), Reply::Acked);
    assert_eq!(bench.pushed().unwrap().values, ["4"]);
    bench.written(stream);
    bench.ask(produce("t", &["5"]));
    assert_eq!(bench.pushed().unwrap().values, ["5"]);
    // What was not acknowledged comes again to whoever reads the group next.
    assert_eq!(bench.page(Fetch { group: name("g"), ..fetch("t") }).values, ["3", "4", "5"]);
}

#[test]
fn an_acknowledgement_that_is_not_the_streams_returns_nothing() {
    let mut bench = Bench::with_topic();
    bench.ask(produce("t", &["0", "1"]));
    assert_eq!(bench.ack(alone(), None, 1), failed(Reason::UnknownApiKey), "no stream");
    let stream = bench.subscribe(alone(), 1, 1);
    let push = bench.pushed().unwrap();
    bench.written(stream);
    let other = Membership { group: name("h"), ..alone() };
    assert_eq!(bench.ack(other, Some(&push.cursor), 1), failed(Reason::UnexpectedFrame));
    let bad = Bytes::from_static(b"nonsense");
    assert_eq!(bench.ack(alone(), Some(&bad), 1), failed(Reason::InvalidCursor));
    assert_eq!(bench.pushed(), None, "no credit came back");
    assert_eq!(bench.ack(alone(), None, 1), Reply::Acked);
    assert_eq!(bench.pushed().unwrap().values, ["1"], "a null cursor returns credit");
}

#[test]
fn a_stream_waits_for_its_topic_and_ends_with_it() {
    let mut bench = Bench::new();
    let stream = bench.subscribe(alone(), 0, 0);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    bench.ask(produce("t", &["0"]));
    assert_eq!(bench.pushed().unwrap().values, ["0"]);
    assert_eq!(bench.ask(Request::Admin(Admin::DeleteTopic { topic: name("t") })), Reply::Done);
    assert_eq!(bench.ended, [(stream, Reason::NoSuchTopic)]);
    assert_eq!(bench.node.gauges().streams, 0);
    let nobody = bench.ask_as(NOBODY, Request::Subscribe(Subscribe { who: alone(), window: 0, max: 0 }));
    assert_eq!(nobody, failed(Reason::PermissionDenied));
    let null = Membership { group: None, ..alone() };
    let reply = bench.ask(Request::Subscribe(Subscribe { who: null, window: 0, max: 0 }));
    assert_eq!(reply, failed(Reason::InvalidGroup));
}

#[test]
fn a_closed_connection_ends_its_stream_and_takes_its_member_out() {
    let mut bench = Bench::with_topic();
    bench.subscribe(member("g", "m"), 10, 10);
    assert_eq!(bench.node.gauges().groups, (1, 1));
    bench.pass(Duration::from_secs(120));
    assert_eq!(bench.node.gauges().groups, (1, 1), "an open stream is alive");
    bench.step(Event::Gone(ConnectionId(1)));
    assert_eq!((bench.node.gauges().groups, bench.node.gauges().streams), ((0, 0), 0));
    assert_eq!(bench.node.gauges().parked, 0);
}

#[test]
fn a_stream_goes_on_through_splits_and_merges_without_a_gap_or_a_repeat() {
    let mut bench = Bench::with_topic();
    let stream = bench.subscribe(alone(), 10_000, 1000);
    let mut got = Vec::new();
    let mut expected = Vec::new();
    let mut whole = 0;
    for round in 0..10 {
        let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
        let value = round.to_string();
        let records: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, &*value)).collect();
        bench.ask(produce_keyed("t", &records));
        expected.extend(std::iter::repeat_n(round.to_string(), 8));
        let Reply::Split { left, right } = bench.ask(split(whole)) else { panic!() };
        bench.ask(produce_keyed("t", &records));
        expected.extend(std::iter::repeat_n(round.to_string(), 8));
        let Reply::Merged { child } = bench.ask(merge(left, right)) else { panic!() };
        whole = child;
        while let Some(page) = bench.pushed() {
            got.extend(page.values);
            bench.written(stream);
        }
    }
    assert_eq!(got, expected);
}
