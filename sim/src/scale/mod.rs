//! A large cluster on perfect disks and links: what many groups and topics cost, and how soon a death is over.
//!
//! Groups are placed as the product places them, and topics are made through the groups' logs; who is alive is told by
//! [`crate::membership::loss`]. What is not here: replacing the members that died with their node, which waits for
//! minutes on purpose, and the copies of all tables that every node keeps, whose size [`tables`] gives.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use consensus::{Action, Config, Host};
use metadata::machine::Version;
use metadata::vnode::{Command, CreateTopic, Vnode};
use placement::place::{Options, place_all};
use placement::rank::Item;
use raft::ProposalId;
use storage::disk::Disk;
use types::keyspace::KeyHash;
use types::{NodeId, RaftIndex, Ring, TopicId, VnodeId};

use crate::disk::{Faults, SimDisk};

/// Ticks after which whatever is waited for must have come.
const TICKS_MAX: u64 = 400;
/// A tick of the product's.
const TICK_SECONDS: f64 = 0.1;
/// Topics asked for in one tick.
const TOPICS_PER_TICK: u64 = 10_000;
/// Members of a group.
const REPLICAS: usize = 3;
/// How much more than its share of groups a node may hold.
const MAX_SKEW: usize = 2;

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Nodes.
    pub nodes: u128,
    /// Vnodes, each a group.
    pub vnodes: u32,
    /// Topics over all of them.
    pub topics: u64,
}

impl Setup {
    /// A hundred nodes, 1,024 vnodes, 100,000 topics.
    #[must_use]
    pub fn usual() -> Self {
        Self { nodes: 100, vnodes: 1024, topics: 100_000 }
    }
}

/// What was seen, in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// From the first start until every group had a leader, seconds.
    pub led: f64,
    /// Groups the node led that died.
    pub orphaned: usize,
    /// From the death until half of those had a leader again that may answer.
    pub half_again: f64,
    /// Until all had.
    pub all_again: f64,
    /// Groups whose leader changed although it lived.
    pub disturbed: usize,
    /// Letters one node sends in a second while nothing happens.
    pub letters: f64,
    /// Their bytes.
    pub bytes: f64,
}

/// A cluster of groups.
struct Groups {
    nodes: BTreeMap<NodeId, (Host, SimDisk)>,
    machines: BTreeMap<(NodeId, VnodeId), Vnode>,
    dead: Option<NodeId>,
    letters: u64,
    bytes: u64,
}

/// Forms the cluster, makes the topics, lets it rest, and ends the node that leads most.
///
/// Panics when what must come does not.
#[must_use]
pub fn measure(setup: Setup) -> Figures {
    let mut groups = Groups::new(setup);
    let ticks = groups
        .wait_until("every group has a leader", |groups| groups.leaders().len() == setup.vnodes as usize);
    let mut figures = Figures { led: ticks as f64 * TICK_SECONDS, ..Figures::default() };
    groups.make_topics(setup);
    let (letters, bytes) = (groups.letters, groups.bytes);
    groups.ticks(100);
    let each = 100.0 * TICK_SECONDS * setup.nodes as f64;
    figures.letters = (groups.letters - letters) as f64 / each;
    figures.bytes = (groups.bytes - bytes) as f64 / each;
    groups.die(setup, &mut figures);
    groups.check(setup);
    figures
}

/// The tables of all vnodes with so many topics, as each node has them.
#[must_use]
pub fn tables(setup: Setup) -> BTreeMap<VnodeId, Vnode> {
    let ring = ring(setup);
    let mut tables: BTreeMap<VnodeId, (u64, Vnode)> = BTreeMap::new();
    for number in 0..setup.topics {
        let (vnode, command) = topic(&ring, number);
        let (index, machine) = tables.entry(vnode).or_insert_with(|| (0, Vnode::new(Version::BUILD)));
        *index += 1;
        machine.apply(RaftIndex(*index), &command);
    }
    tables.into_iter().map(|(vnode, (_, machine))| (vnode, machine)).collect()
}

fn ring(setup: Setup) -> Ring {
    Ring::boot(setup.vnodes).expect("a ring has a vnode")
}

/// The command that makes a topic, and the vnode it is for.
fn topic(ring: &Ring, number: u64) -> (VnodeId, Bytes) {
    let name = Bytes::from(format!("department-{}.events-{number}", number % 97));
    let vnode = ring.route(KeyHash::Xxh32.of(&name)).expect("the ring covers everything");
    let id = TopicId((u128::from(number) << 64) | 1);
    let create = CreateTopic { name, id, keyspace_bits: 16, key_hash: KeyHash::Xxh32.id() };
    (vnode, Command::CreateTopic(create).encode())
}

impl Groups {
    fn new(setup: Setup) -> Self {
        let ids: Vec<NodeId> = (1..=setup.nodes).map(|number| NodeId(number << 64 | number)).collect();
        let node = |(seed, id): (u64, &NodeId)| {
            let host = Host::new(Config::new(*id, seed));
            (*id, (host, SimDisk::new(seed, Faults::none())))
        };
        let mut groups = Self {
            nodes: (1..).zip(&ids).map(node).collect(),
            machines: BTreeMap::new(),
            dead: None,
            letters: 0,
            bytes: 0,
        };
        groups.nodes.values_mut().for_each(|(host, _)| host.start());
        groups.settle();
        let items: Vec<Item> = (0..setup.vnodes).map(|vnode| Item::Vnode(VnodeId(vnode.into()))).collect();
        let placed = place_all(&items, &ids, REPLICAS, Options::default(), Some(MAX_SKEW));
        for (item, founders) in placed.expect("there are nodes") {
            let Item::Vnode(vnode) = item else { continue };
            for founder in &founders {
                let (host, _) = groups.nodes.get_mut(founder).expect("it was placed on one of them");
                host.found_group(vnode, &founders);
            }
        }
        groups.settle();
        groups
    }

    /// Who leads which group and may answer.
    fn leaders(&self) -> BTreeMap<VnodeId, NodeId> {
        let mut leaders = BTreeMap::new();
        for (node, (host, _)) in &self.nodes {
            let led = host.groups().filter(|(_, group)| group.is_ready()).map(|(vnode, _)| (vnode, *node));
            leaders.extend(led);
        }
        leaders
    }

    fn make_topics(&mut self, setup: Setup) {
        let ring = ring(setup);
        let leaders = self.leaders();
        for number in 0..setup.topics {
            let (vnode, command) = topic(&ring, number);
            let (host, _) = self.nodes.get_mut(&leaders[&vnode]).expect("it leads");
            host.propose(vnode, ProposalId(number), command);
            if (number + 1) % TOPICS_PER_TICK == 0 {
                self.ticks(1);
            }
        }
        // Those that follow learn with the next sign of life what is committed.
        self.ticks(5);
        self.check(setup);
    }

    /// Every member that lives has every topic of its group.
    fn check(&self, setup: Setup) {
        let leaders = self.leaders();
        let topics: usize =
            leaders.iter().map(|(vnode, node)| self.machines[&(*node, *vnode)].topic_count()).sum();
        assert_eq!(topics as u64, setup.topics, "every topic is on one group");
        for ((node, vnode), machine) in self.machines.iter().filter(|((node, _), _)| Some(*node) != self.dead)
        {
            let leader = &self.machines[&(leaders[vnode], *vnode)];
            assert_eq!(machine.state_hash(), leader.state_hash(), "{vnode} on {node}");
        }
    }

    /// Ends the node that leads most, and looks until every group has a leader again.
    fn die(&mut self, setup: Setup, figures: &mut Figures) {
        let before = self.leaders();
        let led_by = |node: &NodeId| before.values().filter(|leader| *leader == node).count();
        let victim = *self.nodes.keys().max_by_key(|node| led_by(node)).expect("there are nodes");
        figures.orphaned = led_by(&victim);
        self.nodes.remove(&victim);
        self.dead = Some(victim);
        let mut half = None;
        let all = setup.vnodes as usize;
        let missing = figures.orphaned;
        let mut ticks = 0;
        let again = self.wait_until("every group has a leader again", |groups| {
            ticks += 1;
            let led = groups.leaders().len();
            if led + missing / 2 >= all {
                half.get_or_insert(ticks);
            }
            led == all
        });
        figures.half_again = half.unwrap_or(again) as f64 * TICK_SECONDS;
        figures.all_again = again as f64 * TICK_SECONDS;
        let now = self.leaders();
        let lived = before.iter().filter(|(_, leader)| **leader != victim);
        figures.disturbed = lived.filter(|(vnode, leader)| now.get(vnode) != Some(leader)).count();
        self.ticks(5);
    }

    /// Gives how many ticks it took.
    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> u64 {
        for ticks in 1..=TICKS_MAX {
            self.ticks(1);
            if is_so(self) {
                return ticks;
            }
        }
        panic!("it never comes that {what}");
    }

    /// Lets time pass, and everything arrive that is sent.
    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.nodes.values_mut().for_each(|(host, _)| host.tick());
            self.settle();
        }
    }

    fn settle(&mut self) {
        let mut busy: BTreeSet<NodeId> = self.nodes.keys().copied().collect();
        while !busy.is_empty() {
            let mut mail = Vec::new();
            for id in std::mem::take(&mut busy) {
                let Some((host, disk)) = self.nodes.get_mut(&id) else { continue };
                work(id, host, disk, &mut self.machines);
                mail.extend(host.take_mail().map(|(to, letters)| (id, to, letters)));
            }
            for (from, to, letters) in mail {
                self.letters += letters.len() as u64;
                self.bytes += letters.iter().map(|(_, letter)| 8 + letter.len() as u64).sum::<u64>();
                let Some((host, _)) = self.nodes.get_mut(&to) else { continue };
                busy.insert(to);
                for (group, letter) in letters {
                    assert!(host.receive(from, group, letter), "what a node says is understood");
                }
            }
        }
    }
}

/// Does everything a host asks for.
fn work(id: NodeId, host: &mut Host, disk: &mut SimDisk, machines: &mut BTreeMap<(NodeId, VnodeId), Vnode>) {
    loop {
        while let Some(action) = host.next_action() {
            match action {
                Action::Disk(job) => disk.submit(job),
                Action::Found { group, .. } => {
                    machines.insert((id, group), Vnode::new(Version::BUILD));
                    host.begin(group);
                }
                Action::Apply { group, entry, .. } => {
                    let machine = machines.get_mut(&(id, group)).expect("it was found");
                    machine.apply(entry.index, &entry.data);
                }
                Action::TakeSnapshot { group, order } => host.not_saved(group, &order),
                _ => {}
            }
        }
        match disk.wait() {
            Some(completion) => host.complete(completion),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_over_soon_and_disturbs_nobody_else() {
        let setup = Setup { nodes: 9, vnodes: 40, topics: 300 };
        let figures = measure(setup);
        assert!(figures.orphaned > 0 && figures.disturbed == 0, "{figures:?}");
        // Between one and two election timeouts, and again for those whose votes were split.
        assert!(figures.all_again >= 0.9 && figures.all_again < 8.0, "{figures:?}");
        assert_eq!(measure(setup), figures, "the same again");
        let tables = tables(setup);
        assert_eq!(tables.values().map(Vnode::topic_count).sum::<usize>(), 300);
    }
}
