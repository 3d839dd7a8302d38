//! Three real processes on three hosts, and what becomes of their cluster while links between them are cut: entirely,
//! one way, for some, and for all.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::time::{Duration, Instant};

use process::hosts::{By, Hosts};
use process::node::{Node, create, runtime, sees, settled};
use process::{Broker, wait_for};
use tokio::runtime::Runtime;

/// How long a node is asked for something that it must not do.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a cluster with a broken link is watched.
const WATCHED: Duration = Duration::from_secs(8);
/// A request that takes longer was not served; on a machine that is busy, one that takes three times as long as the
/// slowest of an undisturbed while.
const PAUSE: Duration = Duration::from_millis(500);
/// How long that while is.
const UNDISTURBED: Duration = Duration::from_secs(3);

/// A cluster of three and the processes that are its nodes.
struct Three {
    brokers: [Option<Broker>; 3],
    nodes: [Node; 3],
    runtime: Runtime,
    hosts: Hosts,
}

impl Three {
    /// `None` where there can be no such hosts.
    fn start(by: By) -> Option<Self> {
        let hosts = Hosts::new(&["a", "b", "c"])?;
        let a = hosts.node(0, by);
        let list = a.entry();
        let nodes = [a, hosts.node(1, by).seeded(&list), hosts.node(2, by).seeded(&list)];
        let brokers = [&nodes[0], &nodes[1], &nodes[2]].map(|node| {
            let mut broker = node.start();
            // Of a host that is cut off.
            broker.expect("peer connection refused");
            Some(broker)
        });
        let three = Self { brokers, nodes, runtime: runtime(), hosts };
        settled(&three.all());
        Some(three)
    }

    fn all(&self) -> [&Node; 3] {
        [&self.nodes[0], &self.nodes[1], &self.nodes[2]]
    }

    /// Who leads the group that has all topics.
    fn vnode_leader(&self) -> usize {
        let mut leader = None;
        wait_for("the vnode to have a leader", || {
            leader = self.all().iter().position(|node| node.leads_vnode(&self.runtime));
            leader.is_some()
        });
        leader.unwrap()
    }

    fn term(&self) -> u64 {
        self.all().map(|node| node.status(&self.runtime).term).into_iter().max().unwrap()
    }

    fn create(&self, at: usize, topic: &str) {
        create(&self.nodes[at], topic, &self.runtime);
    }

    /// Everybody has heard of it.
    fn all_see(&self, topic: &str) {
        for node in self.all() {
            sees(node, topic, &self.runtime);
        }
    }

    /// Whether a node answers that it has made a topic.
    fn makes(&self, at: usize, topic: &str) -> bool {
        self.runtime.block_on(async {
            let Some(admin) = self.nodes[at].admin_within(PATIENCE).await else { return false };
            admin.create_topic(topic, 0).await.is_ok()
        })
    }

    fn knows_a_leader(&self, at: usize) -> bool {
        self.runtime.block_on(async {
            let Some(admin) = self.nodes[at].admin_within(PATIENCE).await else { return false };
            admin.cluster().await.is_ok_and(|status| status.leader.is_some())
        })
    }

    /// How much of a while changes are made without a pause, asking these nodes in turn; the topics are numbered. Says
    /// when which node paused, and for how long.
    fn share_served(&self, nodes: &[usize], name: &str, pause: Duration) -> (f64, String, Vec<String>) {
        let (began, mut paused, mut made) = (Instant::now(), Duration::ZERO, Vec::new());
        let mut pauses = String::new();
        while began.elapsed() < WATCHED {
            let topic = format!("{name}-{}", made.len());
            let (at, asked) = (&self.nodes[nodes[made.len() % nodes.len()]], Instant::now());
            let since = began.elapsed();
            create(at, &topic, &self.runtime);
            let took = asked.elapsed();
            if took > pause {
                paused += took;
                pauses += &format!(" {} after {since:.1?} for {took:.2?}", at.name);
            }
            made.push(topic);
        }
        (1.0 - paused.as_secs_f64() / began.elapsed().as_secs_f64(), pauses, made)
    }

    /// How long a change takes at most while nothing is wrong.
    fn slowest(&self, nodes: &[usize], name: &str) -> Duration {
        let (began, mut slowest) = (Instant::now(), Duration::ZERO);
        for number in 0.. {
            if began.elapsed() > UNDISTURBED {
                break;
            }
            let asked = Instant::now();
            self.create(nodes[number % nodes.len()], &format!("{name}-before-{number}"));
            slowest = slowest.max(asked.elapsed());
        }
        slowest
    }

    /// Cuts what `cut` cuts, between two; whoever is connected to the leader serves all the while, the term hardly
    /// grows, and once it is mended all have all.
    fn serves_while(&self, pair: [usize; 2], name: &str, cut: impl FnOnce(&Hosts)) {
        let (before, leads) = (self.term(), self.vnode_leader());
        let serving: Vec<usize> =
            (0..3).filter(|at| !pair.contains(&leads) || !pair.contains(at) || *at == leads).collect();
        let pause = PAUSE.max(3 * self.slowest(&serving, name));
        cut(&self.hosts);
        let (share, pauses, made) = self.share_served(&serving, name, pause);
        let led = (self.nodes[leads].name, self.nodes[self.vnode_leader()].name);
        let grown = self.term() - before;
        assert!(
            share >= 0.95,
            "{name}: {share:.3} of the time was served; not{pauses}; led by {led:?}, the term grew by {grown}"
        );
        wait_for("both to miss each other", || {
            pair.into_iter().all(|at| self.nodes[at].series("malachi_peers_up") == Some(1))
        });
        let topic = format!("{name}-after");
        self.create(serving[0], &topic);
        self.hosts.mend(pair[0], pair[1]);
        self.reached(pair[0]);
        settled(&self.all());
        self.all_see(&topic);
        for node in self.all() {
            let has = node.topics(&self.runtime);
            assert!(made.iter().all(|topic| has.contains(topic)), "{} lacks some of {made:?}", node.name);
        }
        // A question before a vote keeps whoever misses the leader from ousting one that the others hear.
        let grown = self.term() - before;
        assert!(grown <= 3, "the term grew by {grown}");
    }

    /// Others are connected with it, and it with them.
    fn reached(&self, at: usize) {
        wait_for("the host to be reached again", || {
            let all_up = |node: &Node| node.series("malachi_peers_up") == Some(2);
            all_up(&self.nodes[at]) && self.all().into_iter().all(all_up)
        });
    }
}

fn others(at: usize) -> [usize; 2] {
    [(at + 1) % 3, (at + 2) % 3]
}

#[test]
fn a_leader_that_is_cut_off_does_nothing_and_learns_what_it_missed() {
    let Some(mut three) = Three::start(By::Ipv4) else { return };
    three.create(0, "before");
    three.all_see("before");
    for round in 0..2 {
        let old = three.vnode_leader();
        let [one, other] = others(old);
        if round == 0 {
            // Nothing is said about it: packets are lost.
            three.hosts.cut(old, one);
            three.hosts.cut(old, other);
        } else {
            three.hosts.plug(old, false);
        }
        // It leads as far as it knows, and later knows that it does not. Never does it say that something was done.
        let lost = format!("lost-{round}");
        assert!(!three.makes(old, &lost), "a node without a quorum said that something was done");
        wait_for("the old leader to know of none", || !three.knows_a_leader(old));
        assert!(!three.makes(old, &format!("never-{round}")));
        let made = format!("without-{round}");
        three.create(one, &made);
        sees(&three.nodes[other], &made, &three.runtime);
        assert!(!three.nodes[old].topics(&three.runtime).contains(&made));
        if round == 0 {
            three.hosts.mend(old, one);
            three.hosts.mend(old, other);
        } else {
            three.hosts.plug(old, true);
        }
        three.reached(old);
        three.all_see(&made);
        settled(&three.all());
        // Whatever became of what nobody was told about, it is the same everywhere.
        three.create(old, &format!("after-{round}"));
        three.all_see(&format!("after-{round}"));
        let told = three.all().map(|node| node.topics(&three.runtime));
        assert!(told[0] == told[1] && told[1] == told[2], "{told:?}");
    }
    // A node that was killed comes back to a cluster that went on without it.
    let gone = three.vnode_leader();
    three.brokers[gone].take().unwrap().kill();
    let [one, other] = others(gone);
    three.create(one, "killed");
    sees(&three.nodes[other], "killed", &three.runtime);
    three.brokers[gone] = Some(three.nodes[gone].start());
    three.all_see("killed");
    settled(&three.all());
}

#[test]
fn while_two_do_not_see_each_other_a_leader_serves() {
    let Some(three) = Three::start(By::Ipv6) else { return };
    // Once it is the leader that one of them does not see, once it is not.
    let leads = three.vnode_leader();
    let pair = [leads, others(leads)[0]];
    three.serves_while(pair, "leader", |hosts| hosts.cut(pair[0], pair[1]));
    let pair = others(three.vnode_leader());
    three.serves_while(pair, "others", |hosts| hosts.cut(pair[0], pair[1]));
}

#[test]
fn while_a_link_carries_one_way_alone_a_leader_serves() {
    let Some(three) = Three::start(By::Ipv4) else { return };
    // First the leader is not heard by one, then it does not hear that one.
    let leads = three.vnode_leader();
    let pair = [leads, others(leads)[0]];
    three.serves_while(pair, "unheard", |hosts| hosts.cut_way(pair[0], pair[1]));
    let leads = three.vnode_leader();
    let pair = [leads, others(leads)[1]];
    three.serves_while(pair, "deaf", |hosts| hosts.cut_way(pair[1], pair[0]));
}

#[test]
fn a_host_that_moved_is_found_by_its_name() {
    let Some(three) = Three::start(By::Name) else { return };
    let moved = others(three.vnode_leader())[0];
    three.create(0, "before");
    three.hosts.move_house(moved);
    // Its connections were of a number it does not have any more: whatever gets there takes the new one.
    three.create(moved, "after");
    three.all_see("after");
    three.reached(moved);
    settled(&three.all());
}
