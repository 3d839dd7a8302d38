//! Segments end without their primary, and their copies become whole by themselves.

use membership::Status;
use metadata::vnode::Segment;
use storage::store::{self, State};
use types::SegmentId;
use wire::request::NodeChange;

use super::operator::change;
use super::*;

impl Cluster {
    /// The segments of a topic, as a node knows them.
    pub(super) fn segments(&self, node: usize, topic: &'static str) -> Vec<(SegmentId, Segment)> {
        let meta = &self.nodes[node].node.core.meta;
        let name = TopicName::new(topic.as_bytes()).unwrap();
        let Some((id, _)) = meta.topic_by_name(&name) else { return Vec::new() };
        let tables = meta.of(id);
        let of_topic = tables.segments().filter(|(segment, _)| segment.range.topic == id);
        of_topic.map(|(segment, listed)| (segment, listed.clone())).collect()
    }

    /// Where a node's copy of a segment stands.
    pub(super) fn extent(&self, node: usize, segment: SegmentId) -> Option<store::Extent> {
        match self.nodes[node].node.core.copy(segment) {
            Some(store::Status::Here(extent)) => Some(extent),
            _ => None,
        }
    }

    pub(super) fn is_whole(&self, node: usize, (segment, listed): &(SegmentId, Segment)) -> bool {
        self.extent(node, *segment).is_some_and(|extent| {
            extent.state == State::Sealed
                && Some(extent.end) == listed.end()
                && extent.bytes == listed.sealed_bytes()
        })
    }

    /// Whether every ended segment of a topic lies on `count` nodes, each of which holds all of it.
    pub(super) fn is_healed(&self, asked: usize, topic: &'static str, count: usize) -> bool {
        let ended: Vec<_> =
            self.segments(asked, topic).into_iter().filter(|(_, listed)| !listed.is_active()).collect();
        !ended.is_empty()
            && ended.iter().all(|segment| {
                let replicas = &segment.1.replicas;
                replicas.len() == count && replicas.iter().all(|node| self.is_whole(at(*node), segment))
            })
    }

    /// Everything a new reader of a topic is given.
    pub(super) fn read_all(&mut self, node: usize, topic: &'static str) -> Vec<String> {
        let (mut values, mut cursor) = (Vec::new(), None);
        loop {
            let request = Fetch { cursor: cursor.clone(), ..fetch(topic) };
            let Reply::Fetched(fetched) = self.ask(node, Request::Fetch(request)) else {
                panic!("it is there")
            };
            let page = Page::of(fetched);
            if page.values.is_empty() {
                return values;
            }
            values.extend(page.values);
            cursor = Some(page.cursor);
        }
    }
}

pub(super) fn at(node: NodeId) -> usize {
    usize::try_from(node.0 - 1).unwrap()
}

pub(super) fn seen(cluster: &mut Cluster, node: usize, status: Status) {
    let incarnation = cluster.nodes[node].config.own.incarnation;
    for other in (0..cluster.nodes.len()).filter(|other| *other != node) {
        cluster.nodes[other].step(Event::Peer(id(node), PeerEvent::Seen { incarnation, status }));
    }
}

/// A topic with one ended segment that holds two records, which every node that shall has.
fn with_ended(count: usize, copies: usize) -> Cluster {
    let mut cluster = Cluster::of(count);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    for value in ["a", "b"] {
        assert_eq!(cluster.ask(0, produce("t", &[value])), Reply::Stored(1));
    }
    let split = Request::Admin(Admin::SplitRange { topic: name("t"), range: 0 });
    assert!(matches!(cluster.ask(0, split), Reply::Split { .. }));
    cluster.until("it ended and is whole", |cluster| cluster.is_healed(0, "t", copies));
    cluster
}

#[test]
fn an_ended_segment_comes_to_lie_on_as_many_nodes_as_it_shall() {
    let mut cluster = with_ended(4, 3);
    for node in 0..4 {
        assert_eq!(cluster.read_all(node, "t"), ["a", "b"]);
    }
}

#[test]
fn a_copy_that_somebody_removed_is_made_again() {
    let mut cluster = with_ended(3, 3);
    let (segment, _) = cluster.segments(0, "t")[0].clone();
    for node in 0..3 {
        cluster.nodes[node].log.wipe();
        cluster.restart(node);
        cluster.until("it is whole again", |cluster| cluster.is_healed((node + 1) % 3, "t", 3));
        assert!(cluster.extent(node, segment).is_some());
    }
    assert_eq!(cluster.read_all(0, "t"), ["a", "b"]);
}

/// Its log is open, so appends go on; nothing that has to be recorded beside it can be.
#[test]
fn a_copy_removed_under_a_node_that_runs_is_made_again_once_its_segment_ends() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    cluster.pass(Duration::from_secs(1));
    let (_, listed) = cluster.segments(0, "t")[0].clone();
    let poor = at(listed.replicas[1]);
    cluster.nodes[poor].log.wipe();
    assert_eq!(cluster.ask(0, produce("t", &["b"])), Reply::Stored(1));
    let split = Request::Admin(Admin::SplitRange { topic: name("t"), range: 0 });
    assert!(matches!(cluster.ask(0, split), Reply::Split { .. }));
    cluster.until("it is whole again", |cluster| cluster.is_healed(0, "t", 3));
    assert_eq!(cluster.nodes[poor].kept(), 1, "there is a directory again");
    assert_eq!(cluster.read_all(poor, "t"), ["a", "b"]);
}

/// Retention and seeking by time rest on it.
#[test]
fn append_times_do_not_go_back_behind_a_primary_whose_clock_was_ahead() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    cluster.pass(Duration::from_secs(1));
    let primary = at(cluster.segments(0, "t")[0].1.replicas[0]);
    cluster.nodes[primary].wall.0 += 3_600_000;
    assert_eq!(cluster.ask(primary, produce("t", &["b"])), Reply::Stored(1));
    cluster.pass(Duration::from_secs(1));
    cluster.cut_off(primary);
    cluster.pump();
    let other = (primary + 1) % 3;
    assert_eq!(cluster.ask(other, produce("t", &["c"])), Reply::Stored(1));
    let Reply::Fetched(fetched) = cluster.ask(other, Request::Fetch(Fetch { max: 1000, ..fetch("t") }))
    else {
        panic!("it is there")
    };
    let times: Vec<u64> = fetched.runs.iter().map(|run| run.append_time.0).collect();
    assert!(times.len() == 3 && times.is_sorted(), "{times:?}");
}

#[test]
fn a_copy_out_of_service_because_of_damage_is_made_anew_from_a_whole_one() {
    let mut cluster = with_ended(3, 3);
    let (segment, _) = cluster.segments(0, "t")[0].clone();
    for node in 0..3 {
        cluster.nodes[node].latch(segment, store::FailReason::Other);
        cluster.until("it is out of service", |cluster| {
            cluster.extent(node, segment).is_some_and(|extent| matches!(extent.state, State::Latched(_)))
        });
        cluster.until("it is whole again", |cluster| cluster.is_healed(0, "t", 3));
    }
    assert_eq!(cluster.read_all(1, "t"), ["a", "b"]);
}

/// Its directory is in the way of the copy that is to come.
#[test]
fn a_copy_that_cannot_even_be_read_is_made_anew() {
    let mut cluster = with_ended(3, 3);
    let (segment, _) = cluster.segments(0, "t")[0].clone();
    for node in 0..3 {
        cluster.nodes[node].log.flip("copy.meta", 20);
        cluster.restart(node);
        let status = |cluster: &Cluster| cluster.nodes[node].node.core.copy(segment);
        assert_eq!(status(&cluster), Some(store::Status::Unreadable));
        cluster.until("it is whole again", |cluster| cluster.is_healed((node + 1) % 3, "t", 3));
        cluster.restart(node);
        cluster.until("it is whole after another start", |cluster| cluster.is_healed(node, "t", 3));
    }
    assert_eq!(cluster.read_all(0, "t"), ["a", "b"]);
}

/// What nobody else has is never removed.
#[test]
fn damage_everywhere_is_kept() {
    let mut cluster = with_ended(3, 3);
    let (segment, _) = cluster.segments(0, "t")[0].clone();
    for node in 0..3 {
        cluster.nodes[node].latch(segment, store::FailReason::Other);
    }
    cluster.pass(Duration::from_secs(30));
    for node in 0..3 {
        let extent = cluster.extent(node, segment).expect("it is kept");
        assert_eq!((extent.end, extent.state), (types::Offset(2), State::Latched(store::FailReason::Other)));
    }
}

#[test]
fn a_copy_on_a_device_that_fails_goes_to_another_node() {
    let mut cluster = with_ended(4, 3);
    let (segment, listed) = cluster.segments(0, "t")[0].clone();
    let broken = at(listed.replicas[0]);
    let spare = (0..4).find(|node| !listed.replicas.contains(&id(*node))).unwrap();
    cluster.nodes[broken].latch(segment, store::FailReason::Eio);
    cluster.until("another holds it", |cluster| {
        cluster.segments(0, "t")[0].1.replicas.contains(&id(spare)) && cluster.is_healed(0, "t", 3)
    });
    cluster.until("the broken one is gone", |cluster| cluster.extent(broken, segment).is_none());
}

/// The disk was full, say, and has room again.
#[test]
fn a_copy_on_a_device_that_failed_is_made_anew_where_no_other_node_can_take_it() {
    let mut cluster = with_ended(3, 3);
    let (segment, _) = cluster.segments(0, "t")[0].clone();
    for node in 0..3 {
        cluster.nodes[node].latch(segment, store::FailReason::Enospc);
        cluster.until("it is out of service", |cluster| {
            cluster.extent(node, segment).is_some_and(|extent| matches!(extent.state, State::Latched(_)))
        });
        cluster.until("it is whole again", |cluster| cluster.is_healed(0, "t", 3));
    }
    assert_eq!(cluster.read_all(1, "t"), ["a", "b"]);
}

#[test]
fn what_a_dead_node_held_is_held_by_another_after_a_while() {
    let mut cluster = with_ended(4, 3);
    for node in &mut cluster.nodes {
        node.node.core.config.replace_after = Duration::from_secs(20);
    }
    let (_, listed) = cluster.segments(0, "t")[0].clone();
    let gone = at(listed.replicas[1]);
    let other = (0..4).find(|node| *node != gone).unwrap();
    cluster.cut_off(gone);
    cluster.pass(Duration::from_secs(10));
    assert!(
        cluster.segments(other, "t")[0].1.replicas.contains(&id(gone)),
        "a restart is to be over by then"
    );
    seen(&mut cluster, gone, Status::Down);
    let is_held = |cluster: &Cluster| cluster.segments(other, "t")[0].1.replicas.contains(&id(gone));
    cluster.until("another holds it", |cluster| cluster.is_healed(other, "t", 3) && !is_held(cluster));
    // What it still has when it comes back nobody needs.
    let (segment, _) = cluster.segments(other, "t")[0].clone();
    assert!(cluster.extent(gone, segment).is_some());
    cluster.connect_again(gone);
    seen(&mut cluster, gone, Status::Alive);
    cluster.until("its copy is gone", |cluster| cluster.extent(gone, segment).is_none());
    assert!(cluster.is_healed(other, "t", 3));
}

/// Damage that nobody has come across yet is found before the copy goes that could mend it.
#[test]
fn a_copy_is_not_let_go_while_one_that_stays_is_damaged_unseen() {
    let mut cluster = with_ended(3, 3);
    let (segment, listed) = cluster.segments(0, "t")[0].clone();
    let (leaving, harmed) = (at(listed.replicas[0]), at(listed.replicas[1]));
    cluster.nodes[harmed].log.flip(".log", 100);
    assert!(matches!(cluster.ask(harmed, change(leaving, NodeChange::Drain, false)), Reply::NodeChanged(_)));
    cluster.until("it holds nothing", |cluster| cluster.nodes[leaving].node.core.copies().next().is_none());
    let mended = crate::healing::Notice::Mended { segment, node: id(harmed) };
    let is_told = |node: &Bench| node.notices.contains(&Notice::Healing(mended.clone()));
    assert!(cluster.nodes.iter().any(is_told));
    assert_eq!(cluster.read_all(harmed, "t"), ["a", "b"]);
}

#[test]
fn a_node_that_is_drained_holds_nothing_and_can_be_removed() {
    let mut cluster = with_ended(4, 3);
    let (_, listed) = cluster.segments(0, "t")[0].clone();
    let leaving = at(listed.replicas[0]);
    let asked = (leaving + 1) % 4;
    assert!(matches!(cluster.ask(asked, change(leaving, NodeChange::Drain, false)), Reply::NodeChanged(_)));
    cluster.until("its copies are elsewhere", |cluster| {
        cluster.is_healed(asked, "t", 3)
            && cluster.segments(asked, "t").iter().all(|(_, listed)| !listed.replicas.contains(&id(leaving)))
    });
    cluster.until("it holds nothing", |cluster| cluster.nodes[leaving].node.core.copies().next().is_none());
    for _ in 0..600 {
        if matches!(cluster.ask(asked, change(leaving, NodeChange::Remove, false)), Reply::NodeChanged(_)) {
            assert_eq!(cluster.read_all(asked, "t"), ["a", "b"]);
            return;
        }
        cluster.pass(Duration::from_millis(100));
    }
    panic!("it cannot be removed");
}

/// Three nodes and a topic whose active segment lies on all of them.
fn with_active() -> (Cluster, usize) {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    assert_eq!(cluster.ask(0, produce("t", &["0"])), Reply::Stored(1));
    cluster.until("it is registered", |cluster| (0..3).all(|node| !cluster.segments(node, "t").is_empty()));
    let primary = at(cluster.segments(0, "t")[0].1.replicas[0]);
    (cluster, primary)
}

#[test]
fn a_segment_whose_primary_is_gone_ends_and_the_range_goes_on_elsewhere() {
    let (mut cluster, primary) = with_active();
    let mut stored = vec!["0".to_owned()];
    for round in 1..4 {
        let value = format!("{round}");
        assert_eq!(cluster.ask(primary, produce("t", &[value.as_str()])), Reply::Stored(1));
        stored.push(value);
    }
    cluster.cut_off(primary);
    let other = (primary + 1) % 3;
    let started = cluster.nodes[other].now;
    cluster.until("it ended", |cluster| cluster.segments(other, "t").iter().any(|(_, s)| !s.is_active()));
    let took = cluster.nodes[other].now.since(started);
    assert!(took < Duration::from_secs(12), "{took:?}: a new leader, where it led, and little more");
    assert_eq!(cluster.ask(other, produce("t", &["after"])), Reply::Stored(1));
    stored.push("after".to_owned());
    assert_eq!(cluster.read_all(other, "t"), stored);
    cluster.connect_again(primary);
    cluster.until("the segment is whole everywhere", |cluster| cluster.is_healed(other, "t", 3));
    assert_eq!(cluster.ask(primary, produce("t", &["back"])), Reply::Stored(1));
    stored.push("back".to_owned());
    assert_eq!(cluster.read_all(primary, "t"), stored);
}

#[test]
fn a_primary_that_restarts_ends_what_it_had() {
    let (mut cluster, primary) = with_active();
    for round in 1..4 {
        let value = format!("{round}");
        assert_eq!(cluster.ask(primary, produce("t", &[value.as_str()])), Reply::Stored(1));
        cluster.restart(primary);
        cluster.until("it serves", |cluster| cluster.nodes[primary].ready);
    }
    cluster.until("nothing is active", |cluster| {
        cluster.segments(primary, "t").iter().all(|(_, listed)| !listed.is_active())
    });
    cluster.until("all are whole", |cluster| cluster.is_healed(primary, "t", 3));
    assert_eq!(cluster.read_all(primary, "t"), ["0", "1", "2", "3"]);
}

/// Its end and its removal may be heard of in one breath.
#[test]
fn a_primary_that_was_away_goes_on_when_its_empty_segment_ended_and_was_deleted() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    // The segment is registered, and no copy of it takes anything.
    cluster.nodes.iter_mut().for_each(|node| node.log.hold = true);
    cluster.nodes[0].send(produce("t", &["lost"]));
    cluster.until("it is registered", |cluster| (0..3).all(|node| !cluster.segments(node, "t").is_empty()));
    let (segment, listed) = cluster.segments(0, "t")[0].clone();
    let primary = at(listed.replicas[0]);
    let other = (primary + 1) % 3;
    cluster.cut_off(primary);
    cluster.nodes.iter_mut().for_each(|node| node.log.hold = false);
    cluster.until("it ended with nothing in it", |cluster| {
        cluster.segments(other, "t").iter().all(|(listed, _)| *listed != segment)
    });
    cluster.pass(Duration::from_secs(30));
    assert!(cluster.segments(primary, "t")[0].1.is_active(), "it has not heard of it");
    cluster.connect_again(primary);
    cluster.until("it has heard of it", |cluster| {
        cluster.segments(primary, "t").iter().all(|(listed, _)| *listed != segment)
    });
    for node in 0..3 {
        assert_eq!(cluster.ask(node, produce("t", &["a"])), Reply::Stored(1), "{node}");
    }
}

/// What the others acknowledge nothing of is in nobody's way.
#[test]
fn one_of_three_is_not_enough_to_end_a_segment() {
    let (mut cluster, primary) = with_active();
    let [one, other] = [(primary + 1) % 3, (primary + 2) % 3];
    cluster.cut_off(primary);
    cluster.cut(one, other);
    cluster.pass(Duration::from_secs(30));
    for node in 0..3 {
        assert!(cluster.segments(node, "t").iter().all(|(_, listed)| listed.is_active()), "{node}");
    }
    cluster.connect(one, other);
    cluster.until("it ended", |cluster| cluster.segments(one, "t").iter().any(|(_, s)| !s.is_active()));
}

/// Whoever wants to write waits no longer than this.
#[test]
fn the_end_comes_soon_after_the_connection_is_lost() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader(VNODE).unwrap();
    // The primary of one of some topics is not who leads the vnode.
    let topics = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
    let other = (leader + 1) % 3;
    for topic in topics {
        assert_eq!(cluster.ask(other, create(topic)), Reply::Created);
        assert_eq!(cluster.ask(other, produce(topic, &["a"])), Reply::Stored(1));
    }
    let primary_of = |cluster: &Cluster, topic| at(cluster.segments(leader, topic)[0].1.replicas[0]);
    let topic = topics.into_iter().find(|topic| primary_of(&cluster, topic) != leader).unwrap();
    let primary = primary_of(&cluster, topic);
    let third = (0..3).find(|node| *node != primary && *node != leader).unwrap();
    cluster.cut_off(primary);
    // What is on its way when the connection goes has an outcome nobody knows.
    cluster.pump();
    let (asked, before) = (cluster.nodes[third].send(produce(topic, &["b"])), cluster.nodes[third].now);
    let reply = loop {
        cluster.pass(Duration::from_millis(20));
        if let Some(reply) = cluster.nodes[third].reply(asked) {
            break reply;
        }
    };
    assert_eq!(reply, Reply::Stored(1));
    let took = cluster.nodes[third].now.since(before);
    assert!(took <= Duration::from_millis(500), "{took:?}");
    assert_eq!(cluster.read_all(third, topic), ["a", "b"]);
}
