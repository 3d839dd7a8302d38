//! Records are taken and given wherever a client is connected, whichever node has them.

use types::{RangeId, RangeSeq, SegmentId};

use super::*;

/// The topic's ranges that have an active segment, with their primaries, as a node has them in its tables.
fn primaries(cluster: &Cluster, node: usize, topic: &str) -> Vec<(SegmentId, usize)> {
    let name = TopicName::new(topic.as_bytes()).unwrap();
    let meta = &cluster.nodes[node].node.core.meta;
    let Some((id, _)) = meta.topic_by_name(&name) else { return Vec::new() };
    let active =
        meta.of(id).segments().filter(|(segment, listed)| segment.range.topic == id && listed.is_active());
    active.map(|(segment, listed)| (segment, usize::try_from(listed.replicas[0].0 - 1).unwrap())).collect()
}

/// The primary of a topic's only range, once all know it.
pub(super) fn primary(cluster: &mut Cluster, topic: &str) -> usize {
    let nodes = cluster.nodes.len();
    cluster.until("everybody knows the segment", |cluster| {
        (0..nodes).all(|node| primaries(cluster, node, topic).len() == 1)
    });
    primaries(cluster, 0, topic)[0].1
}

fn values(reply: Reply) -> Vec<String> {
    let Reply::Fetched(fetched) = reply else { panic!("{reply:?}") };
    Page::of(fetched).values
}

fn all_of(cluster: &mut Cluster, node: usize, topic: &'static str) -> Vec<String> {
    values(cluster.ask(node, Request::Fetch(Fetch { max: 1000, ..fetch(topic) })))
}

/// Three nodes with a topic `t` that one of them takes the records of, and another node.
fn begun() -> (Cluster, usize, usize) {
    begun_with(3)
}

/// The same with so many copies of each segment.
fn begun_with(copies: usize) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::of(3);
    for node in &mut cluster.nodes {
        node.config.segment_replicas = copies;
        node.node.core.config.segment_replicas = copies;
    }
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    assert_eq!(cluster.ask(0, produce("t", &["first"])), Reply::Stored(1));
    let primary = primary(&mut cluster, "t");
    (cluster, primary, (primary + 1) % 3)
}

/// Does what nobody can ask for, and performs what comes of it.
fn within(bench: &mut Bench, what: impl FnOnce(&mut crate::Node)) {
    what(&mut bench.node);
    let actions = std::mem::take(&mut bench.node.core.out);
    bench.perform(actions);
    bench.step(Event::Timer);
}

#[test]
fn any_node_takes_records_and_any_gives_them() {
    let (mut cluster, ..) = begun();
    for (node, value) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(cluster.ask(node, produce("t", &[value, "x"])), Reply::Stored(2));
        // At once: whoever asks is given what was acknowledged before.
        for reader in 0..3 {
            let read = all_of(&mut cluster, reader, "t");
            assert_eq!(read.len(), 1 + 2 * (node + 1), "node {reader} after {value}");
        }
    }
    for reader in 0..3 {
        assert_eq!(all_of(&mut cluster, reader, "t"), ["first", "a", "x", "b", "x", "c", "x"]);
    }
    assert_eq!(primaries(&cluster, 0, "t").len(), 1, "one node takes them all");
}

#[test]
fn pipelined_records_of_one_client_keep_their_order() {
    let (mut cluster, _, other) = begun();
    let count = 3 * types::limits::OUTLET_PARTS_MAX;
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let asked: Vec<RequestId> =
        numbers.iter().map(|number| cluster.nodes[other].send(produce("t", &[number]))).collect();
    cluster.pass(Duration::from_millis(100));
    for id in asked {
        assert_eq!(cluster.nodes[other].reply(id), Some(Reply::Stored(1)));
    }
    assert_eq!(all_of(&mut cluster, other, "t")[1..], numbers);
    assert!(cluster.nodes[other].node.outlets.is_empty());
}

#[test]
fn a_long_poll_hears_of_records_of_another_node() {
    let (mut cluster, primary, other) = begun();
    let cursor = match cluster.ask(other, Request::Fetch(fetch("t"))) {
        Reply::Fetched(fetched) => fetched.cursor,
        reply => panic!("{reply:?}"),
    };
    let poll = Request::Fetch(Fetch { cursor: Some(cursor), wait_ms: 30_000, ..fetch("t") });
    let waits = cluster.nodes[other].send(poll.clone());
    cluster.pass(Duration::from_secs(25));
    assert_eq!(cluster.nodes[other].reply(waits), None, "there is nothing yet, and time left");
    assert_eq!(cluster.ask(primary, produce("t", &["late"])), Reply::Stored(1));
    cluster.pump();
    assert_eq!(values(cluster.nodes[other].reply(waits).expect("it was told")), ["late"]);
    // Nothing more comes: it is answered when its time is up.
    let waits = cluster.nodes[(other + 1) % 3].send(Request::Fetch(Fetch {
        wait_ms: 1_000,
        topic: name("t"),
        cursor: None,
        group: None,
        member: None,
        max: 0,
        form: Form::Records,
    }));
    cluster.pass(Duration::from_millis(200));
    assert_eq!(values(cluster.nodes[(other + 1) % 3].reply(waits).unwrap()), ["first", "late"]);
}

#[test]
fn a_topic_without_a_segment_is_waited_for_anywhere() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    let poll = || Request::Fetch(Fetch { wait_ms: 30_000, ..fetch("t") });
    let waits: Vec<RequestId> = (0..3).map(|node| cluster.nodes[node].send(poll())).collect();
    cluster.pass(Duration::from_millis(200));
    assert_eq!(cluster.ask(1, produce("t", &["a"])), Reply::Stored(1));
    cluster.pass(Duration::from_millis(500));
    for (node, id) in waits.into_iter().enumerate() {
        assert_eq!(values(cluster.nodes[node].reply(id).expect("it was told")), ["a"], "node {node}");
    }
}

#[test]
fn a_stream_pushes_records_of_another_node_and_outlives_its_restart() {
    let (mut cluster, primary, other) = begun();
    let who = Membership { topic: name("t"), group: name("g"), member: None };
    let subscribe = Request::Subscribe(crate::event::Subscribe { who, window: 100, max: 10 });
    let stream = cluster.nodes[other].send(subscribe);
    cluster.pass(Duration::from_millis(100));
    let pushed = |cluster: &mut Cluster| {
        let pushes: Vec<_> = cluster.nodes[other].pushes.drain(..).collect();
        cluster.nodes[other].step(Event::Pushed { stream });
        pushes.into_iter().flat_map(|(_, fetched)| Page::of(fetched).values).collect::<Vec<_>>()
    };
    assert_eq!(pushed(&mut cluster), ["first"]);
    assert_eq!(cluster.ask(primary, produce("t", &["second"])), Reply::Stored(1));
    cluster.pass(Duration::from_millis(100));
    assert_eq!(pushed(&mut cluster), ["second"]);
    cluster.restart(primary);
    cluster.until("it serves again", |cluster| cluster.nodes[primary].ready);
    assert_eq!(cluster.ask(other, produce("t", &["third"])), Reply::Stored(1));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(pushed(&mut cluster), ["third"]);
    assert!(cluster.nodes[other].ended.is_empty());
}

#[test]
fn a_group_goes_on_at_another_node() {
    let (mut cluster, primary, other) = begun();
    let third = 3 - primary - other;
    assert_eq!(cluster.ask(primary, produce("t", &["second"])), Reply::Stored(1));
    let of_group = || Request::Fetch(Fetch { group: name("g"), max: 1, ..fetch("t") });
    let Reply::Fetched(fetched) = cluster.ask(other, of_group()) else { panic!("it is there") };
    assert_eq!(cluster.ask(other, commit("t", "g", &fetched.cursor)), Reply::Committed);
    assert_eq!(Page::of(fetched).values, ["first"]);
    cluster.pass(Duration::from_millis(500));
    assert_eq!(values(cluster.ask(third, of_group())), ["second"]);
}

#[test]
fn times_are_found_where_the_records_are() {
    let (mut cluster, _, other) = begun();
    cluster.pass(Duration::from_secs(2));
    let later = cluster.nodes[other].wall;
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.ask(other, produce("t", &["second"])), Reply::Stored(1));
    for node in 0..3 {
        let mut from = |at_ms: u64| {
            let seek = Request::Admin(Admin::SeekTime { topic: name("t"), at_ms });
            let Reply::Sought(cursor) = cluster.ask(node, seek) else { panic!("it is found") };
            values(cluster.ask(node, Request::Fetch(Fetch { cursor: Some(cursor), ..fetch("t") })))
        };
        assert_eq!(from(0), ["first", "second"]);
        assert_eq!(from(later.0), ["second"], "node {node}");
        assert!(from(u64::MAX).is_empty());
    }
}

#[test]
fn what_a_node_holds_that_is_away_is_honestly_missing_and_comes_back() {
    let (mut cluster, primary, other) = begun_with(1);
    cluster.cut_off(primary);
    cluster.until("others lead", |cluster| {
        (0..3).any(|node| node != primary && cluster.nodes[node].node.core.meta.leads(VNODE))
    });
    // Nobody is told that there is nothing, and nothing is taken that nobody holds.
    assert_eq!(cluster.ask(other, Request::Fetch(fetch("t"))), failed(Reason::Unavailable));
    let waits = Request::Fetch(Fetch { wait_ms: 2_000, ..fetch("t") });
    assert_eq!(cluster.ask(other, waits), failed(Reason::Unavailable));
    let began = cluster.nodes[other].now;
    assert_eq!(cluster.ask(other, produce("t", &["lost"])), failed(Reason::Unavailable));
    assert!(cluster.nodes[other].now >= began.plus(Duration::from_secs(10)), "it might have come back");
    let waits = cluster.nodes[other].send(Request::Fetch(Fetch { wait_ms: 30_000, ..fetch("t") }));
    let stored = cluster.nodes[other].send(produce("t", &["second"]));
    cluster.pass(Duration::from_secs(1));
    cluster.connect_again(primary);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.nodes[other].reply(stored), Some(Reply::Stored(1)));
    let Some(reply) = cluster.nodes[other].reply(waits) else { panic!("it is there again") };
    assert_eq!(values(reply)[0], "first");
    assert_eq!(all_of(&mut cluster, other, "t"), ["first", "second"]);
}

#[test]
fn an_answer_that_is_lost_is_told_as_unknown_and_nothing_is_sent_twice() {
    let (mut cluster, primary, other) = begun();
    let asked = cluster.nodes[other].send(produce("t", &["maybe"]));
    // It arrives there, and the answer does not arrive here.
    for action in std::mem::take(&mut cluster.nodes[other].outgoing) {
        cluster.post(other, action);
    }
    while let Some((to, from, event)) = cluster.mail.pop_front() {
        if to == primary {
            cluster.nodes[to].step(Event::Peer(from, event));
        }
    }
    cluster.nodes[primary].settle();
    cluster.nodes[primary].outgoing.clear();
    cluster.cut(primary, other);
    cluster.pump();
    assert_eq!(cluster.nodes[other].reply(asked), Some(failed(Reason::Timeout)));
    cluster.connect(primary, other);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(all_of(&mut cluster, other, "t"), ["first", "maybe"]);
    assert!(cluster.nodes[other].node.outlets.is_empty());
}

#[test]
fn records_follow_a_split_of_another_nodes_range() {
    let (mut cluster, primary, other) = begun();
    let third = 3 - primary - other;
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    let pass = |cluster: &mut Cluster, node: usize, value: &str| {
        let records: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), value)).collect();
        assert_eq!(cluster.ask(node, produce_keyed("t", &records)), Reply::Stored(40));
    };
    pass(&mut cluster, other, "0");
    assert_eq!(cluster.ask(third, split(0)), Reply::Split { left: 1, right: 2 });
    pass(&mut cluster, other, "1");
    pass(&mut cluster, primary, "2");
    assert!(matches!(cluster.ask(other, merge(1, 2)), Reply::Merged { .. }));
    pass(&mut cluster, third, "3");
    cluster.pass(Duration::from_secs(1));
    for node in 0..3 {
        let read = all_of(&mut cluster, node, "t");
        assert_eq!(read.len(), 1 + 4 * 40, "node {node}");
        let mut of_keys = read[1..].to_vec();
        of_keys.dedup();
        assert_eq!(of_keys.first().map(String::as_str), Some("0"));
        assert_eq!(of_keys.last().map(String::as_str), Some("3"));
    }
}

/// Every range of a wide topic may be another node's.
#[test]
fn a_reader_of_many_ranges_reads_those_of_all_nodes() {
    let (mut cluster, ..) = begun();
    for (node, range) in [0, 1, 2, 3, 4, 5, 6].into_iter().enumerate() {
        assert!(matches!(cluster.ask(node % 3, split(range)), Reply::Split { .. }), "{range}");
    }
    let keys: Vec<String> = (0..200).map(|key| format!("k{key}")).collect();
    let records: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    for node in 0..3 {
        assert_eq!(cluster.ask(node, produce_keyed("t", &records)), Reply::Stored(200));
    }
    let holders: BTreeSet<usize> = primaries(&cluster, 0, "t").into_iter().map(|(_, node)| node).collect();
    assert!(holders.len() > 1, "the ranges lie on several nodes: {holders:?}");
    for node in 0..3 {
        assert_eq!(all_of(&mut cluster, node, "t").len(), 601);
    }
}

#[test]
fn a_copy_that_is_short_and_alone_is_no_damage() {
    let (mut cluster, primary, _) = begun_with(3);
    let (segment, _) = primaries(&cluster, 0, "t")[0];
    let listed = cluster.nodes[primary].node.core.meta.of(segment.range.topic).segment(segment).unwrap();
    let holders: Vec<usize> =
        listed.replicas.iter().map(|node| usize::try_from(node.0 - 1).unwrap()).collect();
    // Of the followers the one that is asked before the other.
    let (short, other) = (holders[1], holders[2]);
    cluster.cut_off(short);
    assert_eq!(cluster.ask(primary, produce("t", &["second"])), Reply::Stored(1));
    within(&mut cluster.nodes[primary], |node| {
        node.drain(segment.range, crate::action::Cause::Age);
        node.drained(segment.range);
    });
    // It hears of the end, and has no time to be given what it lacks.
    cluster.connect(short, other);
    cluster.until("it hears of the end", |cluster| primaries(cluster, short, "t").is_empty());
    cluster.cut(short, other);
    assert_eq!(all_of(&mut cluster, short, "t"), ["first"]);
    let Reply::Fetched(fetched) = cluster.ask(short, Request::Fetch(fetch("t"))) else { panic!() };
    let rest = Fetch { cursor: Some(fetched.cursor), ..fetch("t") };
    assert_eq!(cluster.ask(short, Request::Fetch(rest)), Reply::Failed(Reason::Unavailable));
    let told = |notice: &Notice| matches!(notice, Notice::ReadFailed { .. });
    assert!(!cluster.nodes[short].notices.iter().any(told), "{:?}", cluster.nodes[short].notices);
    cluster.connect_again(short);
    cluster.until("it is whole", |cluster| cluster.nodes[short].node.core.liveness.is_up(id(primary)));
    assert_eq!(all_of(&mut cluster, short, "t"), ["first", "second"]);
}

#[test]
fn a_node_that_was_primary_reads_on_from_the_one_that_is() {
    let (mut cluster, primary, other) = begun_with(1);
    let waits = |cluster: &mut Cluster, node: usize| {
        let Reply::Fetched(fetched) = cluster.ask(node, Request::Fetch(fetch("t"))) else { panic!() };
        let poll = Fetch { cursor: Some(fetched.cursor), wait_ms: 30_000, ..fetch("t") };
        cluster.nodes[node].send(Request::Fetch(poll))
    };
    let parked = waits(&mut cluster, primary);
    // Its next segment is another's: that one opens it first.
    let range = primaries(&cluster, 0, "t")[0].0.range;
    assert_eq!(range, RangeId { topic: range.topic, seq: RangeSeq(0) });
    within(&mut cluster.nodes[primary], |node| {
        node.drain(range, crate::action::Cause::Age);
        node.drained(range);
    });
    cluster.until("it ended", |cluster| (0..3).all(|node| primaries(cluster, node, "t").is_empty()));
    within(&mut cluster.nodes[other], |node| {
        node.know_range(range);
        node.open_next(range);
    });
    cluster.until("another is primary", |cluster| {
        (0..3).all(|node| primaries(cluster, node, "t").first().is_some_and(|(_, node)| *node == other))
    });
    assert_eq!(cluster.ask(primary, produce("t", &["second"])), Reply::Stored(1));
    cluster.pass(Duration::from_millis(500));
    let reply = cluster.nodes[primary].reply(parked).expect("it was told");
    assert_eq!(values(reply), ["second"]);
    for node in 0..3 {
        assert_eq!(all_of(&mut cluster, node, "t"), ["first", "second"]);
    }
}

#[test]
fn the_children_of_a_range_wait_for_its_node_and_not_for_ever() {
    let (mut cluster, primary, other) = begun_with(1);
    cluster.cut_off(primary);
    cluster.until("others lead", |cluster| {
        (0..3).any(|node| node != primary && cluster.nodes[node].node.core.meta.leads(VNODE))
    });
    assert_eq!(cluster.ask(other, split(0)), Reply::Split { left: 1, right: 2 });
    let began = cluster.nodes[other].now;
    assert_eq!(cluster.ask(other, produce("t", &["b"])), failed(Reason::Unavailable));
    assert!(cluster.nodes[other].now >= began.plus(Duration::from_secs(10)));
    let waits = cluster.nodes[other].send(produce("t", &["c"]));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.nodes[other].reply(waits), None);
    cluster.connect_again(primary);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.nodes[other].reply(waits), Some(Reply::Stored(1)));
    assert_eq!(all_of(&mut cluster, other, "t"), ["first", "c"]);
}

/// What a burst of small requests costs: a message to the node that takes them, one to each that follows it, and an
/// answer to each of those.
#[test]
fn a_burst_of_small_requests_is_one_message_on_each_way() {
    let (mut cluster, primary, other) = begun();
    let asked: Vec<RequestId> = (0..5).map(|_| cluster.nodes[other].gather(produce("t", &["a"]))).collect();
    cluster.nodes[other].step(Event::Timer);
    cluster.posted.clear();
    cluster.nodes[other].step(Event::Timer);
    cluster.pump();
    for id in asked {
        assert_eq!(cluster.nodes[other].reply(id), Some(Reply::Stored(1)));
    }
    let kind = |message: &peer::Message| match message {
        peer::Message::Append(append) => Some(("parts", append.parts.len())),
        peer::Message::AppendReply(reply) => Some(("outcomes", reply.0.len())),
        peer::Message::Copy(of) => match &of.request {
            peer::message::copy::Request::Append { frames, .. } => Some(("frames", frames.len())),
            _ => None,
        },
        peer::Message::CopyReply(peer::message::copy::Reply::Appended { .. }) => Some(("ends", 1)),
        _ => None,
    };
    let mut kinds: Vec<_> = cluster.posted.iter().filter_map(kind).collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [("ends", 1), ("ends", 1), ("frames", 5), ("frames", 5), ("outcomes", 5), ("parts", 5)]
    );
    assert_eq!(all_of(&mut cluster, primary, "t").len(), 6);
}

/// A primary that refuses one part and takes a later one, which it does not do of itself.
#[test]
fn each_part_is_told_its_own_outcome() {
    use peer::message::part::{AppendReply, Outcome, Refusal};
    let (mut cluster, _, other) = begun();
    let parts = [["a"].as_slice(), &["b", "b"], &["c", "c", "c"], &["d", "d", "d", "d"]];
    let asked: Vec<RequestId> =
        parts.iter().map(|values| cluster.nodes[other].send(produce("t", values))).collect();
    let mut asks = VecDeque::new();
    // The first opens the window; the others go together.
    let mut take = |cluster: &mut Cluster| {
        for action in std::mem::take(&mut cluster.nodes[other].outgoing) {
            if let Action::Ask { to, ask, message: peer::Message::Append(append), .. } = action {
                asks.push_back((to, ask, append.parts.iter().map(|part| part.count).collect::<Vec<_>>()));
            }
        }
        std::mem::take(&mut asks)
    };
    let answer = |cluster: &mut Cluster, (to, ask, _): &(NodeId, AskId, Vec<u32>), outcomes: &[Outcome]| {
        let (to, ask) = (*to, *ask);
        let message = peer::Message::AppendReply(AppendReply(outcomes.to_vec()));
        cluster.nodes[other].step(Event::Peer(to, PeerEvent::Answered { ask, message }));
    };
    let first = take(&mut cluster);
    assert_eq!(first.len(), 1);
    answer(&mut cluster, &first[0], &[Outcome::Stored { count: 1 }]);
    let rest = take(&mut cluster);
    assert!(rest.len() == 1 && rest[0].2 == [2, 3, 4], "what can go goes together: {rest:?}");
    let refused = Outcome::NotStored(Refusal::NoSuchTopic);
    let outcomes = [refused, Outcome::Stored { count: 3 }, Outcome::Stored { count: 4 }];
    answer(&mut cluster, &rest[0], &outcomes);
    let told: Vec<_> = asked.iter().map(|id| cluster.nodes[other].reply(*id)).collect();
    let stored = |count| Some(Reply::Stored(count));
    assert_eq!(told, [stored(1), Some(failed(Reason::Unavailable)), stored(3), stored(4)]);
    assert!(cluster.nodes[other].node.outlets.is_empty());
}

/// A node that hears of nothing for a while must not take what it has not heard of for wrong.
#[test]
fn a_cursor_of_another_node_is_good_here_once_the_tables_are() {
    let (mut cluster, primary, other) = begun();
    let third = 3 - primary - other;
    assert!(matches!(cluster.ask(other, split(0)), Reply::Split { .. }));
    assert_eq!(cluster.ask(other, produce_keyed("t", &[("a", "1"), ("b", "2")])), Reply::Stored(2));
    // A cursor in the new ranges.
    let Reply::Fetched(fetched) = cluster.ask(other, Request::Fetch(fetch("t"))) else { panic!() };
    let cursor = Some(fetched.cursor);
    // As if the split had not come there yet.
    let known = |cluster: &Cluster| cluster.nodes[third].node.may_lag();
    assert!(known(&cluster));
    let unknown = types::cursor::Cursor::decode(cursor.as_ref().unwrap()).unwrap();
    let mut tiles = unknown.tiles.clone();
    tiles[0].range = RangeSeq(77);
    let forged = types::cursor::Cursor { tiles, ..unknown };
    let wrong = Request::Fetch(Fetch { cursor: Some(forged.encode()), ..fetch("t") });
    assert_eq!(cluster.ask(third, wrong), failed(Reason::InvalidCursor));
    let wrong = commit("t", "g", &forged.encode());
    assert_eq!(cluster.ask(third, wrong), failed(Reason::InvalidCursor));
    let right = Request::Fetch(Fetch { cursor: cursor.clone(), ..fetch("t") });
    assert!(values(cluster.ask(third, right)).is_empty());
    // Without anybody to ask nothing is said about it.
    cluster.cut_off(third);
    let wrong = Request::Fetch(Fetch { cursor: Some(forged.encode()), ..fetch("t") });
    assert_eq!(cluster.ask(third, wrong), failed(Reason::Unavailable));
    let nowhere = Request::Fetch(Fetch { group: name("g"), ..fetch("nowhere") });
    assert_eq!(cluster.ask(third, nowhere.clone()), failed(Reason::Unavailable));
    cluster.connect_again(third);
    assert!(values(cluster.ask(third, nowhere)).is_empty());
}

#[test]
fn a_reader_that_is_sent_to_a_node_that_lags_behind_loses_no_place() {
    let (mut cluster, primary, other) = begun();
    let third = 3 - primary - other;
    assert_eq!(cluster.ask(other, create("late")), Reply::Created);
    assert_eq!(cluster.ask(other, produce("late", &["a", "b"])), Reply::Stored(2));
    let page = Request::Fetch(Fetch { max: 1, ..fetch("late") });
    let Reply::Fetched(fetched) = cluster.ask(other, page) else { panic!() };
    // Whether or not it has heard of the topic.
    let more = Request::Fetch(Fetch { cursor: Some(fetched.cursor), ..fetch("late") });
    assert_eq!(values(cluster.ask(third, more)), ["b"]);
}
