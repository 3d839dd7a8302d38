//! Segments on several nodes: who has what, who is waited for, and what is true after somebody fails in between.

use metadata::vnode::Segment;
use storage::disk::ErrorKind;
use storage::store::{self, State};
use types::{Offset, SegmentId};

use super::healing::at;
use super::*;
use crate::action::Cause;

impl Cluster {
    /// The segment of a topic that takes records, as that node knows it.
    fn active(&self, node: usize, topic: &'static str) -> Option<(SegmentId, Segment)> {
        self.segments(node, topic).into_iter().find(|(_, listed)| listed.is_active())
    }

    /// Where the copies of a segment stand.
    fn ends(&self, (segment, listed): &(SegmentId, Segment)) -> Vec<Option<Offset>> {
        let of = |node: &NodeId| self.extent(at(*node), *segment).map(|extent| extent.end);
        listed.replicas.iter().map(of).collect()
    }

    fn produced(&mut self, node: usize, value: &str) {
        assert_eq!(self.ask(node, produce("t", &[value])), Reply::Stored(1), "{value}");
    }

    /// Lets everything happen that needs no time.
    fn rest(&mut self) {
        self.pass(Duration::from_millis(400));
    }
}

/// So many nodes and a topic `t`, and the node that is primary of its only range, with a record `first` in it.
fn with_primary(count: usize) -> (Cluster, usize) {
    let mut cluster = Cluster::of(count);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..count).all(|node| cluster.knows(node, "t")));
    cluster.produced(0, "first");
    let (_, listed) = cluster.active(0, "t").unwrap();
    (cluster, at(listed.replicas[0]))
}

fn values(count: usize) -> Vec<String> {
    std::iter::once("first".to_owned()).chain((0..count).map(|n| format!("v{n}"))).collect()
}

#[test]
fn a_record_is_on_as_many_nodes_as_it_shall_be() {
    for (count, copies) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let (mut cluster, _) = with_primary(count);
        for n in 0..20 {
            cluster.produced(n % count, &format!("v{n}"));
        }
        cluster.rest();
        let active = cluster.active(0, "t").unwrap();
        assert_eq!(active.1.replicas.len(), copies, "of {count}");
        assert_eq!(cluster.ends(&active), vec![Some(Offset(21)); copies], "of {count}");
        for node in 0..count {
            assert_eq!(cluster.read_all(node, "t"), values(20), "of {count}");
        }
    }
}

#[test]
fn a_follower_that_was_away_is_not_waited_for_and_catches_up() {
    let (mut cluster, primary) = with_primary(3);
    let away = (primary + 1) % 3;
    cluster.cut_off(away);
    for n in 0..30 {
        cluster.produced(primary, &format!("v{n}"));
    }
    let active = cluster.active(primary, "t").unwrap();
    let ends = cluster.ends(&active);
    assert_eq!(ends.iter().filter(|end| **end == Some(Offset(31))).count(), 2, "{ends:?}");
    cluster.connect_again(away);
    cluster.until("it caught up", |cluster| cluster.ends(&active) == vec![Some(Offset(31)); 3]);
    assert_eq!(cluster.active(primary, "t").unwrap().0, active.0, "nothing had to end for it");
    // It counts again: another may be away now.
    cluster.cut_off((primary + 2) % 3);
    cluster.produced(primary, "after");
    assert_eq!(cluster.extent(away, active.0).unwrap().end, Offset(32));
}

/// Others acknowledge in its place, and nobody would be given anything for as long as it lasts.
#[test]
fn a_primary_whose_disk_does_not_get_on_hands_its_segments_to_others() {
    let (mut cluster, slow) = with_primary(3);
    let before = cluster.active(slow, "t").unwrap();
    let other = (slow + 1) % 3;
    cluster.nodes[slow].log.hold = true;
    cluster.produced(other, "v0");
    // Metadata goes on: the disk of the log alone is slow.
    cluster.until("its segment has ended", |cluster| {
        cluster.active(other, "t").is_none_or(|active| active.0 != before.0)
    });
    cluster.produced(other, "v1");
    let (_, listed) = cluster.active(other, "t").unwrap();
    assert_ne!(at(listed.replicas[0]), slow);
    // Nobody is asked in vain here for longer than that lasts: what is asked of other nodes has no deadline.
    cluster.nodes[slow].log.hold = false;
    cluster.until("its copies are whole", |cluster| cluster.is_healed(other, "t", 3));
    assert_eq!(cluster.read_all(other, "t"), values(2));
}

/// Far more than its window, while its disk does nothing.
#[test]
fn a_follower_that_is_slow_gets_what_it_lacks_from_the_primarys_copy() {
    let (mut cluster, primary) = with_primary(3);
    let slow = (primary + 1) % 3;
    let active = cluster.active(primary, "t").unwrap();
    cluster.nodes[slow].log.hold = true;
    let count = 2 * types::limits::REPLICA_WINDOW_BATCHES;
    for n in 0..count {
        cluster.produced(primary, &format!("v{n}"));
    }
    assert!(cluster.extent(slow, active.0).unwrap().end <= Offset(1));
    cluster.nodes[slow].log.hold = false;
    let all = Offset(count as u64 + 1);
    cluster.until("it caught up", |cluster| cluster.ends(&active) == vec![Some(all); 3]);
    cluster.produced(primary, "after");
    cluster.rest();
    assert_eq!(cluster.ends(&active), vec![Some(all.plus(1)); 3]);
}

#[test]
fn a_copy_that_was_removed_is_made_anew_and_counts_once_it_is_whole() {
    let (mut cluster, primary) = with_primary(3);
    for n in 0..10 {
        cluster.produced(primary, &format!("v{n}"));
    }
    let active = cluster.active(primary, "t").unwrap();
    let poor = (primary + 1) % 3;
    cluster.rest();
    cluster.nodes[poor].log.wipe();
    cluster.restart(poor);
    cluster.until("it is whole", |cluster| {
        cluster.extent(poor, active.0).is_some_and(|extent| extent.end == Offset(11) && !extent.rebuilding)
    });
    assert_eq!(cluster.active(primary, "t").unwrap().0, active.0);
    assert_eq!(cluster.read_all(poor, "t"), values(10));
}

#[test]
fn two_copies_need_both_and_go_on_with_one_when_the_other_is_gone() {
    let (mut cluster, primary) = with_primary(2);
    let before = cluster.active(primary, "t").unwrap();
    assert_eq!(before.1.replicas.len(), 2);
    // Metadata of two nodes needs both as well, so that only the way between the copies is long.
    let other = 1 - primary;
    cluster.nodes[other].log.hold = true;
    let waiting = cluster.nodes[primary].send(produce("t", &["v0"]));
    cluster.rest();
    assert_eq!(cluster.nodes[primary].reply(waiting), None, "one copy is not enough");
    cluster.nodes[other].log.hold = false;
    cluster.rest();
    assert_eq!(cluster.nodes[primary].reply(waiting), Some(Reply::Stored(1)));
    assert_eq!(cluster.read_all(other, "t"), values(1));
}

#[test]
fn a_follower_whose_copy_fails_is_replaced_and_nobody_notices() {
    let (mut cluster, primary) = with_primary(4);
    let before = cluster.active(primary, "t").unwrap();
    let failing = at(before.1.replicas[1]);
    cluster.nodes[failing].log.fail_writes = Some(ErrorKind::Full);
    for n in 0..10 {
        cluster.produced(primary, &format!("v{n}"));
    }
    cluster.rest();
    cluster.produced(primary, "v10");
    let after = cluster.active(primary, "t").unwrap();
    assert_ne!(after.0, before.0);
    assert_eq!(after.1.replicas.len(), 3);
    assert!(!after.1.replicas.contains(&id(failing)), "{:?}", after.1.replicas);
    assert_eq!(cluster.read_all(primary, "t"), values(11));
}

#[test]
fn a_follower_that_stays_away_is_replaced_when_there_is_another() {
    let (mut cluster, primary) = with_primary(4);
    let before = cluster.active(primary, "t").unwrap();
    let gone = at(before.1.replicas[1]);
    cluster.cut_off(gone);
    cluster.produced(primary, "v0");
    cluster.pass(Duration::from_secs(5));
    cluster.produced(primary, "v1");
    assert_eq!(cluster.active(primary, "t").unwrap().0, before.0, "it may come back");
    cluster.pass(Duration::from_secs(10));
    cluster.produced(primary, "v2");
    let after = cluster.active(primary, "t").unwrap();
    assert!(after.1.replicas.len() == 3 && !after.1.replicas.contains(&id(gone)), "{:?}", after.1.replicas);
    assert_eq!(cluster.read_all(primary, "t"), values(3));
}

#[test]
fn with_nobody_to_take_its_place_nothing_ends_for_one_that_stays_away() {
    let (mut cluster, primary) = with_primary(3);
    let before = cluster.active(primary, "t").unwrap();
    cluster.cut_off((primary + 1) % 3);
    for n in 0..5 {
        cluster.produced(primary, &format!("v{n}"));
        cluster.pass(Duration::from_secs(6));
    }
    assert_eq!(cluster.active(primary, "t").unwrap(), before);
}

#[test]
fn a_node_that_joins_is_given_copies() {
    let (mut cluster, primary) = with_primary(2);
    assert_eq!(cluster.active(primary, "t").unwrap().1.replicas.len(), 2);
    cluster.join();
    cluster.until("it serves", |cluster| cluster.nodes[2].ready);
    cluster.pass(Duration::from_secs(15));
    cluster.produced(primary, "v0");
    assert_eq!(cluster.active(primary, "t").unwrap().1.replicas.len(), 3);
    assert_eq!(cluster.read_all(2, "t"), values(1));
}

#[test]
fn a_full_segment_ends_on_every_node_at_the_same_place() {
    let (mut cluster, primary) = with_primary(3);
    cluster.nodes[primary].node.core.config.segment_bytes = 1000;
    let value = "x".repeat(200);
    for _ in 0..12 {
        cluster.produced(primary, &value);
    }
    cluster.rest();
    let ended: Vec<_> = cluster.segments(primary, "t").into_iter().filter(|(_, s)| !s.is_active()).collect();
    assert!(ended.len() > 1);
    for segment in &ended {
        assert_eq!(segment.1.replicas.len(), 3);
        for node in 0..3 {
            assert!(cluster.is_whole(node, segment), "{node}: {:?}", cluster.extent(node, segment.0));
        }
    }
    let is_cause = |notice: &Notice| matches!(notice, Notice::SegmentSealed { cause: Cause::Size, .. });
    assert!(cluster.nodes[primary].notices.iter().filter(|notice| is_cause(notice)).count() >= ended.len());
    assert_eq!(cluster.read_all((primary + 1) % 3, "t").len(), 13);
}

#[test]
fn a_primary_whose_disk_fails_loses_nothing_and_answers_what_others_have() {
    let (mut cluster, primary) = with_primary(3);
    for n in 0..5 {
        cluster.produced(primary, &format!("v{n}"));
    }
    cluster.nodes[primary].log.fail_writes = Some(ErrorKind::Io);
    let other = (primary + 1) % 3;
    let asked = cluster.nodes[other].send(produce("t", &["v5"]));
    cluster
        .until("it has an answer", |cluster| cluster.nodes[other].replies.iter().any(|(id, _)| *id == asked));
    let stored = cluster.nodes[other].reply(asked) == Some(Reply::Stored(1));
    cluster.nodes[primary].log.fail_writes = None;
    let all = cluster.read_all(other, "t");
    assert!(all.starts_with(&values(5)), "{all:?}");
    assert!(!stored || all.get(6).map(String::as_str) == Some("v5"), "{all:?}");
}

#[test]
fn a_primary_whose_volume_is_full_leaves_itself_out_until_it_has_room() {
    let (mut cluster, primary) = with_primary(3);
    cluster.produced(primary, "v0");
    cluster.nodes[primary].log.fail_writes = Some(ErrorKind::Full);
    let other = (primary + 1) % 3;
    // Whether the first is stored nobody may know.
    let first = cluster.ask(other, produce("t", &["v1"]));
    assert!(matches!(first, Reply::Stored(1) | Reply::Failed(_)), "{first:?}");
    for n in 2..6 {
        assert_eq!(cluster.ask(other, produce("t", &[format!("v{n}").as_str()])), Reply::Stored(1));
        assert_eq!(cluster.ask(primary, produce("t", &[format!("w{n}").as_str()])), Reply::Stored(1));
    }
    cluster.nodes[primary].log.fail_writes = None;
    cluster.pass(Duration::from_secs(70));
    assert!(cluster.nodes[primary].node.core.able_nodes().contains(&id(primary)), "it has room again");
    let all = cluster.read_all(primary, "t");
    assert!(all.ends_with(&["v5".to_owned(), "w5".to_owned()]) && all.len() >= 9, "{all:?}");
}

/// With two copies one is enough to end the segment, and is not enough to promise anything.
#[test]
fn what_only_one_of_two_copies_has_is_not_acknowledged_when_the_segment_ends_on_it() {
    let (mut cluster, primary) = with_primary(2);
    let other = 1 - primary;
    // The third is not given copies, and makes the metadata go on.
    let third = cluster.join();
    cluster.until("it serves", |cluster| cluster.nodes[third].ready);
    cluster.until("the groups have grown", |cluster| cluster.voters(VNODE) == 3);
    let old = cluster.active(primary, "t").unwrap();
    assert_eq!(old.1.replicas.len(), 2);
    cluster.nodes[other].log.hold = true;
    let asked = cluster.nodes[primary].send(produce("t", &["v0"]));
    cluster.rest();
    assert_eq!(cluster.nodes[primary].reply(asked), None);
    cluster.cut_off(other);
    cluster.until("it ended", |cluster| {
        cluster
            .segments(primary, "t")
            .iter()
            .any(|(segment, listed)| *segment == old.0 && !listed.is_active())
    });
    cluster.rest();
    assert_eq!(cluster.nodes[primary].reply(asked), Some(failed(Reason::NoQuorum)));
    cluster.produced(primary, "v1");
    assert_eq!(cluster.read_all(primary, "t"), ["first", "v0", "v1"], "it may be there all the same");
}

/// What a client was told of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Stored,
    Failed(wire::Effect),
}

/// Records are on their way when a primary goes.
#[derive(Clone, Copy, Debug)]
struct Going {
    count: usize,
    /// Things that are done before.
    steps: usize,
    comes_back: bool,
    /// Followers whose disks do nothing before.
    slow: usize,
    /// The client is the primary's, and the slow ones lose what they had not written.
    at_primary: bool,
}

fn primary_goes(going: Going, change: impl Fn(&mut Config)) {
    let Going { count, steps, comes_back, slow, at_primary } = going;
    let (mut cluster, primary) = with_primary(count);
    cluster.nodes.iter_mut().for_each(|node| change(&mut node.node.core.config));
    let (_, listed) = cluster.active(primary, "t").unwrap();
    let slow: Vec<usize> = listed.replicas.iter().skip(1).take(slow).map(|node| at(*node)).collect();
    slow.iter().for_each(|node| cluster.nodes[*node].log.hold = true);
    let other = (primary + 1) % count;
    let client = if at_primary { primary } else { other };
    let sent: Vec<(String, RequestId)> = (0..12)
        .map(|n| {
            let value = format!("v{n}");
            let id = cluster.nodes[client].send(produce("t", &[&value]));
            (value, id)
        })
        .collect();
    cluster.pump_for(steps);
    if comes_back {
        cluster.restart(primary);
    } else {
        cluster.cut_off(primary);
    }
    slow.iter().for_each(|node| cluster.nodes[*node].log.hold = false);
    if at_primary {
        slow.iter().for_each(|node| cluster.restart(*node));
        cluster.cut_off(primary);
    }
    cluster.until("everything is answered", |cluster| {
        sent.iter().all(|(_, asked)| cluster.nodes[client].replies.iter().any(|(id, _)| id == asked))
    });
    let told: Vec<(String, Told)> = sent
        .into_iter()
        .map(|(value, asked)| {
            let told = match cluster.nodes[client].reply(asked).unwrap() {
                Reply::Stored(1) => Told::Stored,
                Reply::Failed(reason) => Told::Failed(reason.effect()),
                reply => panic!("{reply:?}"),
            };
            (value, told)
        })
        .collect();
    let client = other;
    let mut last = cluster.ask(client, produce("t", &["last"]));
    for _ in 0..20 {
        if last == Reply::Stored(1) {
            break;
        }
        cluster.pass(Duration::from_secs(1));
        last = cluster.ask(client, produce("t", &["last"]));
    }
    assert_eq!(last, Reply::Stored(1), "the range goes on");
    let all = cluster.read_all(client, "t");
    let context = format!("{going:?}: {told:?} {all:?}");
    assert_eq!(all.first().map(String::as_str), Some("first"), "{context}");
    for (value, told) in &told {
        let times = all.iter().filter(|found| *found == value).count();
        let right = match told {
            Told::Stored => times == 1,
            Told::Failed(wire::Effect::Unknown) => times <= 1,
            Told::Failed(wire::Effect::None) => times == 0,
        };
        assert!(right, "{value} is there {times} times, {context}");
    }
    let order: Vec<usize> = all.iter().filter_map(|value| value.strip_prefix('v')?.parse().ok()).collect();
    assert!(order.is_sorted(), "{context}");
    assert!(all.iter().filter(|value| *value == "last").count() >= 1, "{context}");
}

impl Cluster {
    /// Delivers so many things, in the order in which [`Cluster::pump`] does.
    fn pump_for(&mut self, steps: usize) {
        for _ in 0..steps {
            let mut busy = false;
            for from in 0..self.nodes.len() {
                busy |= self.nodes[from].run_jobs(1) == 0;
                for action in std::mem::take(&mut self.nodes[from].outgoing) {
                    self.post(from, action);
                }
            }
            if let Some((to, from, event)) = self.mail.pop_front() {
                self.nodes[to].step(Event::Peer(from, event));
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_missing_wherever_the_primary_goes() {
    for (count, slow) in [(3, 0), (3, 1), (3, 2), (5, 0), (5, 1)] {
        for steps in 0..30 {
            primary_goes(Going { count, steps, comes_back: false, slow, at_primary: false }, |_| {});
        }
    }
}

#[test]
fn nothing_acknowledged_is_missing_when_followers_lose_what_they_had_not_written() {
    for slow in [1, 2] {
        for steps in 0..30 {
            primary_goes(Going { count: 3, steps, comes_back: false, slow, at_primary: true }, |_| {});
        }
    }
}

#[test]
fn nothing_acknowledged_is_missing_wherever_the_primary_starts_again() {
    for (count, slow) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
        for steps in 0..30 {
            primary_goes(Going { count, steps, comes_back: true, slow, at_primary: false }, |_| {});
        }
    }
}

/// Cut off, it goes on by itself for a while; nobody may be told that this is stored.
#[test]
fn a_primary_without_the_others_acknowledges_nothing_and_forgets_what_it_took() {
    let (mut cluster, primary) = with_primary(3);
    let old = cluster.active(primary, "t").unwrap();
    cluster.cut_off(primary);
    let lost = cluster.nodes[primary].send(produce("t", &["lost"]));
    let other = (primary + 1) % 3;
    cluster.until("the others go on", |cluster| {
        cluster.active(other, "t").is_none_or(|(segment, _)| segment != old.0)
    });
    cluster.produced(other, "v0");
    cluster.pass(Duration::from_secs(20));
    let told = cluster.nodes[primary].reply(lost);
    assert!(matches!(told, Some(Reply::Failed(_))), "{told:?}");
    assert!(cluster.extent(primary, old.0).unwrap().end > Offset(1), "its own copy took it");
    cluster.connect_again(primary);
    cluster.until("its copy is as the others are", |cluster| {
        let segment = cluster.segments(other, "t").into_iter().find(|(segment, _)| *segment == old.0);
        segment.is_some_and(|segment| cluster.is_whole(primary, &segment))
    });
    assert_eq!(cluster.read_all(primary, "t"), values(1));
    let sealed = cluster.extent(primary, old.0).unwrap();
    assert_eq!((sealed.end, sealed.state), (Offset(1), State::Sealed));
    assert!(matches!(cluster.nodes[primary].node.core.copy(old.0), Some(store::Status::Here(_))));
}

/// The checks see what they are for: with each of these bugs something that was acknowledged is missing.
#[cfg(feature = "planted")]
#[test]
fn an_acknowledgement_that_is_too_early_is_found_out() {
    use crate::planted::Bug;
    for bug in [Bug::AckUnreplicated, Bug::CountPrimaryTwice] {
        let found = (0..60).any(|steps| {
            let going = Going { count: 3, steps, comes_back: false, slow: 2, at_primary: true };
            std::panic::catch_unwind(|| primary_goes(going, |config| config.bug = Some(bug))).is_err()
        });
        assert!(found, "{bug:?} was not found");
    }
}

#[test]
fn a_node_that_is_avoided_is_better_than_a_single_copy() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    for node in 0..3 {
        let others = (0..3).filter(|other| *other != node).map(id);
        others.for_each(|other| cluster.nodes[node].node.core.avoid(other));
    }
    assert_eq!(cluster.ask(0, produce("t", &["a"])), Reply::Stored(1));
    let meta = &cluster.nodes[0].node.core.meta;
    let (topic, _) = meta.topic_by_name(&TopicName::new(b"t").unwrap()).unwrap();
    let of_topic = meta.of(topic).segments().find(|(segment, _)| segment.range.topic == topic);
    assert_eq!(of_topic.map(|(_, listed)| listed.replicas.len()), Some(2));
}
