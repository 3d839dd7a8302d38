//! Changes of the ring carried out in memory, with everything that can come in between: holders that stop behind any
//! command, others that go on or turn round, commands of an earlier holder that arrive late or twice, and clients that
//! create, change and delete topics all the time. C-3, C-4, C-5.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use malachi_metadata::cluster::{self, AcquireLease, AddNode, ChangeRing, Cluster, NodesRevision, RingAct};
use malachi_metadata::ring_change::{Direction, Next, next};
use malachi_metadata::vnode::{Command, CreateTopic, Refusal, Reply, Vnode};
use proptest::prelude::*;
use types::keyspace::KeyHash;
use types::{FenceToken, NodeId, TopicId, TopicName, VnodeId, WallTime};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// A holder of the lease, which may have lost it without knowing.
#[derive(Clone, Copy, Debug)]
struct Holder {
    fence: FenceToken,
    direction: Direction,
}

/// Something that was sent.
#[derive(Clone, Debug)]
enum Sent {
    Vnode(VnodeId, Command),
    Ring(ChangeRing),
}

struct World {
    cluster: Cluster,
    vnodes: BTreeMap<VnodeId, Vnode>,
    holder: Holder,
    now: u64,
    turn: usize,
    drawn: u128,
    /// What exists as far as clients know, with the number of active ranges.
    topics: BTreeMap<&'static str, (TopicId, usize)>,
    sent: Vec<Sent>,
}

fn apply(vnode: &mut Vnode, command: &Command) -> Reply {
    vnode.apply(vnode.applied().next(), &command.encode())
}

fn hash(name: &str) -> u32 {
    KeyHash::Xxh32.of(name.as_bytes())
}

fn topic_name(name: &str) -> TopicName {
    TopicName::new(name.as_bytes()).unwrap()
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            cluster: Cluster::default(),
            vnodes: BTreeMap::from([(VnodeId(0), Vnode::default())]),
            holder: Holder { fence: FenceToken::ZERO, direction: Direction::Forward },
            now: 0,
            turn: 0,
            drawn: 0,
            topics: BTreeMap::new(),
            sent: Vec::new(),
        };
        for (node, name) in NODES.into_iter().zip(["one", "two"]) {
            let (name, peer) = (Bytes::from_static(name.as_bytes()), Bytes::from_static(b"h:1"));
            let expected = NodesRevision(world.cluster.nodes_revision().0);
            world.cluster(&cluster::Command::AddNode(AddNode { node, name, peer, expected }));
        }
        world.cluster(&cluster::Command::SeedRing { placements: vec![vec![NODES[0]]] });
        world.take_over(Direction::Forward);
        world
    }

    fn cluster(&mut self, command: &cluster::Command) -> cluster::Reply {
        self.cluster.apply(self.cluster.applied().next(), &command.encode())
    }

    /// Another node gets the lease, and sees fit to go on or to turn round.
    fn take_over(&mut self, direction: Direction) {
        (self.now, self.turn) = (self.now + 10, 1 - self.turn);
        let (candidate, at) = (NODES[self.turn], WallTime(self.now));
        let over = Some(self.cluster.lease().renewal());
        let acquire = AcquireLease { candidate, duration_ms: 10, at, over };
        let reply = self.cluster(&cluster::Command::AcquireLease(acquire));
        let cluster::Reply::LeaseGranted(fence) = reply else { panic!("{reply:?}") };
        self.holder = Holder { fence, direction };
    }

    /// Begins a change when none is under way, under a fence of its own.
    fn begin(&mut self, act: RingAct) {
        if self.cluster.topology().unwrap().pending.is_none() {
            self.take_over(Direction::Forward);
            let (expected, fence) = (self.cluster.topology().unwrap().version, self.holder.fence);
            self.cluster(&cluster::Command::ChangeRing(ChangeRing { expected, fence, act }));
        }
    }

    /// What a holder does next, and whether there is anything.
    fn step(&mut self, holder: Holder, commands_max: usize) -> bool {
        let topology = self.cluster.topology().unwrap().clone();
        let Some(next) = next(&topology, holder.fence, holder.direction, |vnode| self.vnodes.get(&vnode))
        else {
            return false;
        };
        match next {
            Next::Form { vnode, nodes } => {
                assert!(!nodes.is_empty());
                assert!(self.vnodes.insert(vnode, Vnode::default()).is_none());
            }
            Next::Run { vnode, commands } => {
                assert!(!commands.is_empty());
                for (i, command) in commands.into_iter().enumerate() {
                    // What it stops in front of is on its way and may arrive at any time, or never.
                    if i < commands_max {
                        self.send(Sent::Vnode(vnode, command), holder.fence == self.holder.fence);
                    } else {
                        self.sent.push(Sent::Vnode(vnode, command));
                    }
                }
            }
            Next::End(change) => {
                if commands_max > 0 {
                    self.send(Sent::Ring(change), holder.fence == self.holder.fence);
                } else {
                    self.sent.push(Sent::Ring(change));
                }
            }
            next @ (Next::Read(_) | Next::Stuck(_)) => panic!("{next:?}"),
        }
        true
    }

    fn send(&mut self, sent: Sent, is_current: bool) {
        let refused = self.arrive(&sent);
        assert!(!is_current || !refused, "refused: {sent:?}");
        self.sent.push(sent);
    }

    /// Whether it is refused.
    fn arrive(&mut self, sent: &Sent) -> bool {
        let refused = match sent {
            Sent::Vnode(vnode, command) => {
                let Some(vnode) = self.vnodes.get_mut(vnode) else { return true };
                matches!(apply(vnode, command), Reply::Refused(_))
            }
            Sent::Ring(change) => {
                let reply = self.cluster(&cluster::Command::ChangeRing(change.clone()));
                self.dissolve();
                matches!(reply, cluster::Reply::Refused(_))
            }
        };
        self.check();
        refused
    }

    /// At rest the group of a vnode that is not on the ring is taken apart; there is nothing in it.
    fn dissolve(&mut self) {
        let topology = self.cluster.topology().unwrap();
        if topology.pending.is_none() {
            self.vnodes.retain(|id, vnode| {
                let stays = topology.ring.token(*id).is_some();
                assert!(stays || vnode.topic_count() == 0);
                stays
            });
        }
    }

    fn owner(&mut self, name: &str) -> &mut Vnode {
        let vnode = self.cluster.topology().unwrap().ring.route(hash(name)).unwrap();
        self.vnodes.get_mut(&vnode).unwrap()
    }

    /// A client's command goes where the ring leads; while the topic moves it is refused and told to come again.
    fn client(&mut self, name: &'static str, what: u8) {
        self.drawn += 1;
        let id = TopicId(self.drawn);
        let known = self.topics.get(name).copied();
        let command = match (known, what) {
            (None, _) => {
                let name = Bytes::from_static(name.as_bytes());
                Command::CreateTopic(CreateTopic { name, id, keyspace_bits: 8, key_hash: 1 })
            }
            (Some((topic, _)), 0) => Command::DeleteTopic { topic },
            (Some((topic, _)), _) => {
                let vnode = self.owner(name);
                // Gone to the new vnode already: nothing to be seen at the old one.
                let Some((range, _)) = vnode.active_ranges_of(topic).next() else { return };
                Command::SplitRange { range }
            }
        };
        let reply = apply(self.owner(name), &command);
        if let Reply::TopicCreated { .. } = reply {
            assert!(self.topics.insert(name, (id, 1)).is_none());
        } else if let Reply::TopicDeleted { .. } = reply {
            assert!(self.topics.remove(name).is_some());
        } else if let Reply::RangeSplit { .. } = reply {
            self.topics.get_mut(name).unwrap().1 += 1;
        } else if reply == Reply::Refused(Refusal::NoSuchTopic) {
            // An id says nothing of where its topic belongs: whoever has the name asks the arc.
            assert!(!self.owner(name).owns(&topic_name(name)));
        } else {
            let retried = [Refusal::NotOwner, Refusal::Migrating, Refusal::CannotSplit].map(Reply::Refused);
            assert!(retried.contains(&reply), "{command:?}: {reply:?}");
        }
        self.check();
    }

    /// C-3: every topic is somewhere, in its latest state, and where it is twice it is the same; nothing else is
    /// anywhere; and at most one vnode takes commands for a name.
    fn check(&self) {
        for name in NAMES {
            let topic_name = topic_name(name);
            let homes: Vec<&Vnode> =
                self.vnodes.values().filter(|vnode| vnode.topic_by_name(&topic_name).is_some()).collect();
            let known = self.topics.get(name);
            assert_eq!(known.is_some(), !homes.is_empty(), "{name}");
            assert!(homes.len() <= 2, "{name}");
            for home in &homes {
                let (id, _) = home.topic_by_name(&topic_name).unwrap();
                assert_eq!(known, Some(&(id, home.active_ranges_of(id).count())), "{name}");
            }
            let told =
                self.vnodes.values().filter(|vnode| vnode.ring_version() > 0 && vnode.owns(&topic_name));
            assert!(told.count() <= 1, "{name}");
        }
    }

    /// C-4 and C-5.
    fn check_at_rest(&self) {
        let topology = self.cluster.topology().unwrap();
        assert_eq!(topology.pending, None);
        for name in NAMES {
            let (topic_name, home) = (topic_name(name), topology.ring.route(hash(name)).unwrap());
            for (id, vnode) in &self.vnodes {
                let is_home = *id == home;
                assert_eq!(
                    vnode.topic_by_name(&topic_name).is_some(),
                    is_home && self.topics.contains_key(name)
                );
                // A vnode that was never told anything may not be on the ring at all.
                let is_told = topology.version > 0 && (vnode.ring_version() > 0 || is_home);
                assert!(!is_told || vnode.owns(&topic_name) == is_home, "{name} on {id}");
                assert_eq!(vnode.migrating().count(), 0);
            }
        }
    }

    /// Whoever holds the lease finishes what there is.
    fn finish(&mut self) {
        for _ in 0..500 {
            if !self.step(self.holder, usize::MAX) {
                return self.check_at_rest();
            }
        }
        panic!("the change does not end");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Client(usize, u8),
    Split(u32),
    Merge(usize),
    /// The holder works, and stops behind so many commands of a batch.
    Work(usize),
    /// Another node takes over and goes on, or turns round.
    TakeOver(bool),
    /// An earlier holder wakes up.
    Wake(prop::sample::Index),
    /// Something that was sent arrives, or arrives once more.
    Again(prop::sample::Index),
    /// Of what was sent last, the one so far from the end arrives.
    Late(usize),
    Finish,
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..NAMES.len(), 0..4_u8).prop_map(|(name, what)| Step::Client(name, what)),
        3 => any::<u32>().prop_map(Step::Split),
        3 => (0..6_usize).prop_map(Step::Merge),
        14 => (0..4_usize).prop_map(Step::Work),
        2 => prop::bool::weighted(0.35).prop_map(Step::TakeOver),
        3 => any::<prop::sample::Index>().prop_map(Step::Wake),
        4 => any::<prop::sample::Index>().prop_map(Step::Again),
        4 => (0..4_usize).prop_map(Step::Late),
        1 => Just(Step::Finish),
    ]
}

fn live(steps: &[Step]) -> World {
    let mut world = World::new();
    let mut earlier: Vec<Holder> = Vec::new();
    for step in steps {
        let holder = world.holder;
        match step {
            Step::Client(name, what) => world.client(NAMES[*name], *what),
            Step::Split(token) => {
                world.begin(RingAct::BeginSplit { token: *token, nodes: vec![NODES[1]] });
            }
            Step::Merge(at) => {
                let ring = &world.cluster.topology().unwrap().ring;
                let (vnode, _) = ring.iter().nth(at % ring.len()).unwrap();
                world.begin(RingAct::BeginMerge { vnode });
            }
            Step::Work(commands_max) => {
                world.step(world.holder, *commands_max);
            }
            Step::TakeOver(turns) => {
                world.take_over(if *turns { Direction::Back } else { Direction::Forward });
            }
            Step::Wake(at) if !earlier.is_empty() => {
                world.step(earlier[at.index(earlier.len())], 1);
            }
            Step::Again(at) if !world.sent.is_empty() => {
                let sent = world.sent[at.index(world.sent.len())].clone();
                world.arrive(&sent);
            }
            Step::Late(back) if *back < world.sent.len() => {
                let sent = world.sent[world.sent.len() - 1 - back].clone();
                world.arrive(&sent);
            }
            Step::Wake(_) | Step::Again(_) | Step::Late(_) => {}
            Step::Finish => world.finish(),
        }
        if world.holder.fence != holder.fence {
            earlier.push(holder);
        }
        world.check();
    }
    world.finish();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_change_may_be_interrupted_anywhere(steps in prop::collection::vec(a_step(), 1..160)) {
        live(&steps);
    }
}

/// Every topic there can be, and a change stopped behind each of its commands in turn, then finished by another
/// node in either direction.
#[test]
fn every_point_of_a_change_is_a_point_to_stop_at() {
    for merges in [false, true] {
        for direction in [Direction::Forward, Direction::Back] {
            let mut points = 0;
            for stop in 0.. {
                let mut world = World::new();
                NAMES.iter().for_each(|name| world.client(name, 1));
                if merges {
                    world.begin(RingAct::BeginSplit { token: 1 << 31, nodes: vec![NODES[1]] });
                    world.finish();
                    world.begin(RingAct::BeginMerge { vnode: VnodeId(0) });
                } else {
                    world.begin(RingAct::BeginSplit { token: 1 << 31, nodes: vec![NODES[1]] });
                }
                let before = world.cluster.topology().unwrap().clone();
                let mut is_over = false;
                for _ in 0..stop {
                    is_over = !world.step(world.holder, 1);
                }
                NAMES.iter().for_each(|name| world.client(name, 1));
                world.take_over(direction);
                world.finish();
                NAMES.iter().for_each(|name| world.client(name, 1));
                world.check_at_rest();
                let after = world.cluster.topology().unwrap();
                let has_advanced = after.ring == before.ring_after();
                let was_ended = is_over || world.cluster.topology().unwrap().version > before.version;
                assert!(was_ended && (has_advanced || after.ring == before.ring));
                assert!(direction == Direction::Back || has_advanced);
                if is_over {
                    points = stop;
                    break;
                }
                assert!(direction == Direction::Forward || !has_advanced || stop > 5);
            }
            assert!(points > 10, "{points} points to stop at");
        }
    }
}

/// The move of a topic that was deleted behind it does not bring it back.
#[test]
fn what_was_deleted_after_the_change_stays_deleted() {
    let mut world = World::new();
    NAMES.iter().for_each(|name| world.client(name, 1));
    world.begin(RingAct::BeginSplit { token: 1 << 31, nodes: vec![NODES[1]] });
    world.finish();
    NAMES.iter().for_each(|name| world.client(name, 0));
    assert!(world.topics.is_empty());
    let sent = world.sent.clone();
    assert!(sent.iter().any(|sent| matches!(sent, Sent::Vnode(_, Command::InsertTopic { .. }))));
    for sent in sent {
        world.arrive(&sent);
    }
    world.check_at_rest();
}
