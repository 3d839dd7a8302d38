//! What `commit` answers and what a group's fetch starts from.

use types::limits;

use super::*;

fn of_group(group: &'static str) -> Fetch {
    Fetch { group: name(group), ..fetch("t") }
}

#[test]
fn a_group_goes_on_where_it_committed_and_others_do_not() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a", "b", "c"])), Reply::Stored(3));
    let page = bench.page(Fetch { max: 2, ..of_group("g") });
    assert_eq!(bench.page(Fetch { max: 2, ..of_group("g") }), page, "fetching commits nothing");
    assert_eq!(bench.ask(commit("t", "g", &page.cursor)), Reply::Committed);
    assert_eq!(bench.page(of_group("g")).values, ["c"]);
    assert_eq!(bench.page(of_group("other")).values, ["a", "b", "c"]);
    assert_eq!(bench.page(of_group("")).values, ["a", "b", "c"]);
    bench.restart();
    assert_eq!(bench.page(of_group("g")).values, ["c"]);
    // The cursor wins over the group, a member over the cursor.
    let start = bench.page(Fetch { max: 1, ..fetch("t") }).cursor;
    assert_eq!(bench.page(Fetch { cursor: Some(start.clone()), ..of_group("g") }).values, ["b", "c"]);
    let member = Fetch { cursor: Some(start.clone()), member: name("m"), ..of_group("g") };
    assert_eq!(bench.page(member).values, ["c"]);
    // Backwards is allowed.
    assert_eq!(bench.ask(commit("t", "g", &start)), Reply::Committed);
    assert_eq!(bench.page(of_group("g")).values, ["b", "c"]);
}

#[test]
fn every_refusal_has_its_reason() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(create("other")), Reply::Created);
    let cursor = bench.page(fetch("t")).cursor;
    let foreign = bench.page(fetch("other")).cursor;
    let unborn = bench.page(fetch("unknown")).cursor;
    let with = |group: Option<Bytes>| {
        Request::Commit(Commit { topic: name("t"), group, cursor: Some(cursor.clone()) })
    };
    assert_eq!(bench.ask_as(NOBODY, with(name("g"))), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(with(None)), failed(Reason::InvalidGroup));
    assert_eq!(bench.ask(with(Some(vec![b'g'; 256].into()))), failed(Reason::InvalidGroup));
    assert_eq!(bench.ask(with(Some(vec![b'g'; 255].into()))), Reply::Committed);
    assert_eq!(bench.ask(with(name(""))), Reply::Committed);
    assert_eq!(bench.ask(commit("unknown", "g", &cursor)), failed(Reason::NoSuchTopic));
    assert_eq!(bench.ask(commit("t", "g", &foreign)), failed(Reason::InvalidCursor));
    assert_eq!(bench.ask(commit("t", "g", &Bytes::from_static(b"garbage"))), failed(Reason::InvalidCursor));
    assert_eq!(bench.ask(commit("t", "g", &unborn)), Reply::Committed, "no positions, nothing to change");
    let null = |topic| Request::Commit(Commit { topic: name(topic), group: name("g"), cursor: None });
    assert_eq!(bench.ask(null("t")), Reply::Committed);
    assert_eq!(bench.ask(null("unknown")), failed(Reason::NoSuchTopic));
}

#[test]
fn an_answer_comes_only_after_the_sync_and_many_share_one() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    let cursor = bench.page(fetch("t")).cursor;
    let ids: Vec<_> = (0..500).map(|_| bench.send(commit("t", "g", &cursor))).collect();
    assert!(bench.replies.is_empty());
    let mut jobs = 0;
    while let Some(completion) = bench.raft.run_one() {
        jobs += 1;
        bench.step(Event::Disk(Volume::Raft, completion));
    }
    for id in ids {
        assert_eq!(bench.reply(id), Some(Reply::Committed));
    }
    assert!(jobs <= 4, "{jobs} jobs for 500 commits");
}

#[test]
fn groups_are_bounded_and_known_ones_go_on() {
    let mut bench = Bench::with_topic();
    let cursor = bench.page(fetch("t")).cursor;
    let of = |n: usize, cursor: &Bytes| {
        let group = Some(Bytes::from(n.to_string()));
        Request::Commit(Commit { topic: name("t"), group, cursor: Some(cursor.clone()) })
    };
    let ids: Vec<_> = (0..limits::GROUPS_PER_TOPIC_MAX).map(|n| bench.send(of(n, &cursor))).collect();
    bench.settle();
    assert_eq!(bench.replies.len(), ids.len());
    assert!(bench.replies.drain(..).all(|(_, reply)| reply == Reply::Committed));
    assert_eq!(bench.ask(of(usize::MAX, &cursor)), failed(Reason::TooManyGroups));
    assert_eq!(bench.ask(of(0, &cursor)), Reply::Committed);
}

#[test]
fn a_metadata_log_that_fails_is_told() {
    let mut bench = Bench::with_topic();
    let cursor = bench.page(fetch("t")).cursor;
    bench.raft.fail_writes = Some(ErrorKind::Full);
    assert_eq!(bench.ask(commit("t", "g", &cursor)), failed(Reason::Timeout));
    assert_eq!(bench.ask(commit("t", "g", &cursor)), failed(Reason::Unavailable));
    bench.raft.fail_writes = None;
    bench.restart();
    assert_eq!(bench.ask(commit("t", "g", &cursor)), Reply::Committed);
}
