//! The metadata goes on to a version this build does not have.

use metadata::machine::Version;

use super::*;
use crate::event::Subscribe;

fn upgrade() -> Command {
    Command::Upgrade { to: Version(Version::BUILD.0 + 1) }
}

#[test]
fn a_node_that_cannot_follow_serves_nobody_and_tells_once() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let cursor = bench.page(fetch("t")).cursor;
    let waiting = bench.send(Request::Fetch(Fetch { cursor: Some(cursor), wait_ms: 9000, ..fetch("t") }));
    let who = Membership { topic: name("t"), group: name("g"), member: None };
    let stream = bench.send(Request::Subscribe(Subscribe { who, window: 0, max: 0 }));
    bench.settle();
    assert_eq!(bench.reply(stream), Some(Reply::Subscribed));
    assert_eq!(bench.reply(waiting), None);

    bench.decide(&upgrade());
    assert!(bench.suspended && bench.stop.is_none());
    assert_eq!(bench.reply(waiting), Some(failed(Reason::Unavailable)));
    assert_eq!(bench.ended, [(stream, Reason::Unavailable)]);
    for request in [create("u"), produce("t", &["b"]), Request::Fetch(fetch("t"))] {
        assert_eq!(bench.ask(request), failed(Reason::Unavailable));
    }
    // Old segments and failed endings are left alone, and nobody is woken for them again and again.
    bench.pass(Duration::from_secs(100));
    let told = bench.notices.iter().filter(|notice| matches!(notice, Notice::LeftBehind { .. })).count();
    assert_eq!((told, bench.node.gauges().open_segments), (1, 1));
}

/// There is nothing such a node could serve: the process says so and ends, and a later build starts instead.
#[test]
fn a_start_over_such_metadata_is_refused_and_changes_nothing() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    bench.decide(&upgrade());
    let copies = bench.log.dirs().len();
    for _ in 0..2 {
        bench.stop = None;
        bench.restart();
        assert!(!bench.ready);
        let Some(Stop::LaterFormat { volume: Volume::Raft, detail }) = &bench.stop else {
            panic!("{:?}", bench.stop)
        };
        assert!(detail.contains("version 2"), "{detail}");
        assert_eq!(bench.log.dirs().len(), copies);
    }
}
