//! Retention and the search for orphans, where segments have copies on several nodes.

use super::*;
use crate::upkeep::Notice as Upkeep;

/// Three nodes on which every record is a segment of its own, and nothing is kept for longer than `age`.
fn expiring(age: Duration) -> Cluster {
    let age = u64::try_from(age.as_millis()).unwrap();
    let change = move |config: &mut Config| {
        config.segment_bytes = 1;
        config.retention.every = Duration::from_secs(1);
        config.retention.age_ms_max = Some(age);
        config.orphan_sweep.every = Duration::from_secs(1);
        config.orphan_sweep.min_age = Duration::from_secs(2);
    };
    let mut cluster = Cluster::new_with(change);
    for at in 1..3 {
        cluster.nodes.push(Bench::begun(|config| {
            describe(config, at);
            config.formation = Formation::Joins;
            change(config);
        }));
        (0..at).for_each(|other| cluster.connect(other, at));
    }
    cluster.until("every node serves", |cluster| cluster.nodes.iter().all(|node| node.ready));
    cluster.until("the groups have grown", |cluster| {
        [CLUSTER, VNODE].iter().all(|group| cluster.voters(*group) == 3)
    });
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster
}

impl Cluster {
    /// Sealed segments of a topic that a node lists.
    fn sealed(&self, node: usize) -> usize {
        self.segments(node, "t").iter().filter(|(_, listed)| !listed.is_active()).count()
    }

    /// Copies on all nodes.
    fn copies(&self) -> usize {
        self.nodes.iter().map(|node| node.node.core.copies().count()).sum()
    }

    fn told(&self, node: usize, what: impl Fn(&Upkeep) -> bool) -> usize {
        let is_it = |notice: &&Notice| matches!(notice, Notice::Upkeep(notice) if what(notice));
        self.nodes[node].notices.iter().filter(is_it).count()
    }
}

#[test]
fn what_expires_goes_on_every_node() {
    let mut cluster = expiring(Duration::from_secs(20));
    for value in ["a", "b", "c"] {
        assert_eq!(cluster.ask(0, produce("t", &[value])), Reply::Stored(1));
    }
    cluster.until("all are sealed", |cluster| cluster.sealed(0) == 3);
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.sealed(0) == 3 && cluster.copies() >= 3, "nobody is old yet");
    cluster.until("all have expired", |cluster| (0..3).all(|node| cluster.sealed(node) == 0));
    cluster.until("no copy is left", |cluster| cluster.copies() == 0);
    let expired = |notice: &Upkeep| matches!(notice, Upkeep::SegmentExpired { .. });
    let told: usize = (0..3).map(|node| cluster.told(node, expired)).sum();
    assert_eq!(told, 3, "once, by the leader of its vnode");
}

/// Whoever leads must know that the policies it has are the ones that hold.
#[test]
fn a_leader_that_is_cut_off_lets_nothing_expire_and_sweeps_what_it_missed() {
    let mut cluster = expiring(Duration::from_secs(30));
    for value in ["a", "b", "c"] {
        assert_eq!(cluster.ask(0, produce("t", &[value])), Reply::Stored(1));
    }
    cluster.until("all are sealed and whole", |cluster| cluster.sealed(0) == 3 && cluster.copies() == 9);
    let leader = cluster.leader(VNODE).unwrap();
    cluster.cut_off(leader);
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    cluster
        .until("the others let them expire", |cluster| others.iter().all(|node| cluster.sealed(*node) == 0));
    assert_eq!(cluster.sealed(leader), 3, "who is cut off decides nothing");
    let copies = cluster.nodes[leader].node.core.copies().count();
    assert_eq!(copies, 3, "and removes nothing");
    // So much happens meanwhile that it is given tables, not entries.
    for _ in 0..25 {
        assert_eq!(cluster.ask(others[0], create("t")), Reply::Failed(Reason::AlreadyExists));
    }
    cluster.connect_again(leader);
    cluster.until("it has swept what nobody lists", |cluster| cluster.copies() == 0);
}
