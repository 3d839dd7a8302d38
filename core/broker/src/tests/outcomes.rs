//! Consumers that do not behave: what becomes of each, and how it is explained. The table is in `docs/groups.md`.

use wire::request::{MoveGroup, Subject};

use super::*;
use crate::event::{OfCluster, StreamAck, Subscribe};

/// Six records, one by one.
fn six() -> Bench {
    let mut bench = Bench::with_topic();
    for value in ["0", "1", "2", "3", "4", "5"] {
        assert_eq!(bench.ask(produce("t", &[value])), Reply::Stored(1));
    }
    bench
}

fn as_member(who: &'static str) -> Fetch {
    Fetch { group: name("g"), member: name(who), ..fetch("t") }
}

impl Bench {
    fn group_cause(&mut self) -> String {
        let subject = Subject::Group { topic: name("t"), group: name("g") };
        let reply = self.ask(Request::Cluster(OfCluster::Explain(subject)));
        let Reply::Explained(told) = reply else { panic!("{reply:?}") };
        String::from_utf8_lossy(&told.cause).into_owned()
    }

    fn lag(&mut self) -> u64 {
        let describe = Request::Admin(Admin::DescribeGroup { topic: name("t"), group: name("g") });
        let Reply::Group(info) = self.ask(describe) else { panic!("no group") };
        info.lag
    }

    fn moved(&mut self, moves: MoveGroup) -> Reply {
        self.ask(Request::Admin(Admin::MoveGroup(moves)))
    }

    fn cursor_at(&mut self, at_ms: u64) -> Bytes {
        let reply = self.ask(Request::Admin(Admin::SeekTime { topic: name("t"), at_ms }));
        let Reply::Sought(cursor) = reply else { panic!("{reply:?}") };
        cursor
    }
}

fn to(cursor: Option<Bytes>, like: Option<Bytes>) -> MoveGroup {
    MoveGroup { topic: name("t"), group: name("g"), cursor, like, force: false, dry_run: false }
}

#[test]
fn a_stream_that_never_acknowledges_gets_its_window_and_no_more() {
    let mut bench = six();
    let stream = bench.send(Request::Subscribe(Subscribe { who: member("g", "m"), window: 2, max: 2 }));
    bench.settle();
    assert_eq!(bench.pushes.len(), 1);
    bench.step(Event::Pushed { stream });
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.pushes.len(), 1, "nothing is queued for it");
    assert_eq!((bench.group_cause().as_str(), bench.lag()), ("no_credit", 6));
    // Whoever is there when it goes begins where the group committed.
    bench.step(Event::Gone(stream.connection));
    assert_eq!(bench.page(as_member("other")).values, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_member_that_fetches_and_never_commits_is_given_the_same_again() {
    let mut bench = six();
    let first = bench.page(as_member("m"));
    assert_eq!(bench.page(as_member("m")), first);
    assert_eq!((bench.group_cause().as_str(), bench.lag()), ("not_committing", 6));
}

#[test]
fn an_acknowledgement_without_reading_counts_as_read() {
    let mut bench = six();
    let stream = bench.send(Request::Subscribe(Subscribe { who: member("g", "m"), window: 2, max: 2 }));
    bench.settle();
    bench.step(Event::Pushed { stream });
    let (end, who) = (bench.cursor_at(u64::MAX), member("g", "m"));
    // More than it was given, of records it never saw: the window is empty, and the group is at the end.
    let ack = StreamAck { who, cursor: Some(end), count: 1000 };
    let id = RequestId { connection: stream.connection, number: u64::MAX };
    let session = bench.session(&name_of(Permissions { admin: true, ..Permissions::default() }));
    bench.step(Event::Request { id, session, request: Request::StreamAck(ack) });
    bench.settle();
    assert_eq!(bench.lag(), 0);
    assert_eq!(bench.group_cause(), "caught_up");
}

#[test]
fn a_member_that_vanishes_loses_its_share_when_its_session_is_over() {
    let mut bench = six();
    bench.page(as_member("m"));
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.group_cause(), "members_silent");
    bench.pass(Duration::from_secs(12));
    assert_eq!(bench.node.gauges().groups, (0, 0));
    assert_eq!(bench.page(as_member("other")).values.len(), 6, "the session and one look at it");
}

#[test]
fn an_older_cursor_moves_a_group_back_and_its_records_come_again() {
    let mut bench = six();
    let beginning = bench.page(Fetch { group: name("g"), max: 2, ..fetch("t") });
    let later = bench.page(Fetch { cursor: Some(beginning.cursor.clone()), ..fetch("t") });
    assert_eq!(bench.ask(commit("t", "g", &later.cursor)), Reply::Committed);
    assert_eq!(bench.lag(), 0);
    assert_eq!(bench.ask(commit("t", "g", &beginning.cursor)), Reply::Committed);
    assert_eq!(bench.lag(), 4);
    assert_eq!(bench.page(Fetch { group: name("g"), ..fetch("t") }).values, ["2", "3", "4", "5"]);
}

#[test]
fn a_group_is_put_at_the_start_the_end_and_where_another_is() {
    let mut bench = six();
    let (start, end) = (bench.cursor_at(0), bench.cursor_at(u64::MAX));
    let dry = MoveGroup { dry_run: true, ..to(Some(end.clone()), None) };
    assert_eq!(bench.moved(dry), Reply::GroupMoved { lag_before: 6, lag_after: 0 });
    assert_eq!(bench.lag(), 6, "nothing has changed");
    assert_eq!(bench.moved(to(Some(end), None)), Reply::GroupMoved { lag_before: 6, lag_after: 0 });
    assert_eq!((bench.lag(), bench.group_cause()), (0, "caught_up".to_owned()));
    let two = bench.page(Fetch { group: name("like"), max: 2, ..fetch("t") });
    assert_eq!(bench.ask(commit("t", "like", &two.cursor)), Reply::Committed);
    assert_eq!(bench.moved(to(None, name("like"))), Reply::GroupMoved { lag_before: 0, lag_after: 4 });
    assert_eq!(bench.page(Fetch { group: name("g"), ..fetch("t") }).values, ["2", "3", "4", "5"]);
    assert_eq!(bench.moved(to(Some(start), None)), Reply::GroupMoved { lag_before: 4, lag_after: 6 });
    assert_eq!(bench.moved(to(None, name("nobody"))), failed(Reason::NoSuchGroup));
    assert_eq!(bench.moved(to(None, None)), failed(Reason::InvalidCursor));
}

#[test]
fn a_group_with_members_is_left_alone_unless_forced() {
    let mut bench = six();
    let page = bench.page(as_member("m"));
    let end = bench.cursor_at(u64::MAX);
    assert_eq!(bench.moved(to(Some(page.cursor), None)), failed(Reason::InvalidCursor), "issued to a member");
    assert_eq!(bench.moved(to(Some(end.clone()), None)), failed(Reason::GroupActive));
    let delete = |force| Request::Admin(Admin::DeleteGroup { topic: name("t"), group: name("g"), force });
    assert_eq!(bench.ask(delete(false)), failed(Reason::GroupActive));
    assert_eq!(bench.ask(delete(true)), failed(Reason::NoSuchGroup), "it never committed");
    let forced = MoveGroup { force: true, ..to(Some(end), None) };
    assert_eq!(bench.moved(forced), Reply::GroupMoved { lag_before: 6, lag_after: 0 });
    assert_eq!(bench.page(as_member("m")).values, [""; 0], "it goes on where the group was put");
    assert_eq!(bench.ask(Request::LeaveGroup(member("g", "m"))), Reply::Left);
    assert_eq!(bench.ask(delete(false)), Reply::Done);
    assert_eq!(bench.ask(delete(false)), failed(Reason::NoSuchGroup));
    assert_eq!((bench.lag(), bench.group_cause()), (6, "unknown".to_owned()));
    assert_eq!(bench.ask_as(NOBODY, delete(false)), failed(Reason::PermissionDenied));
}
