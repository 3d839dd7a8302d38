//! Named situations that random weather seldom makes: three nodes, and one thing that goes wrong for long.

use std::collections::BTreeSet;
use std::time::Duration;

use broker::witness::CLUSTER_GROUP;
use broker::{CallId, Event, PeerEvent};
use peer::Message;
use peer::message::ReadIndexReply;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use types::{NodeId, Term};

use super::client::Op;
use super::world::{Setup, World};
use super::{Failure, Options, Summary, tell};
use crate::disk::{Found, Side};
use crate::invariants::{Violation, ensure};

/// What a partial partition came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Partial {
    /// Time it lasted, microseconds.
    pub lasted: u64,
    /// Time of it in which a node led that could have something recorded, microseconds.
    pub served: u64,
    /// By how many the term grew.
    pub terms: u64,
    /// Changes acknowledged meanwhile.
    pub acknowledged: u64,
}

const STEP: u64 = 100_000;

fn three(seed: u64, options: Options) -> World {
    let setup = Setup {
        vnodes: 1,
        vnode_replicas: 3,
        replace_after: Duration::from_secs(300),
        snapshot_entries: 1000,
        log_file_bytes: 256 * 1024,
        nodes_max: 3,
    };
    let rng = SmallRng::seed_from_u64(seed);
    let chaos = SmallRng::seed_from_u64(!seed);
    let mut world = World::with(seed, options, setup, rng, chaos, 3);
    world.is_story = true;
    world
}

impl World {
    /// All nodes run, and every group has its members.
    fn settle_down(&mut self) -> Result<[NodeId; 3], Violation> {
        self.boot_all();
        self.wait(Self::is_settled)?;
        let ids = self.ids();
        ids.try_into().map_err(|ids| Violation::new("STORY", format!("there are to be three: {ids:?}")))
    }

    fn cut_links(&mut self, a: NodeId, b: NodeId) {
        self.network.links.cut.insert((a, b));
        self.network.links.cut.insert((b, a));
        self.notice_cuts();
    }

    /// A leader that the quorum it leads can hear.
    fn is_served(&self) -> bool {
        self.leader(CLUSTER_GROUP).is_some_and(|(id, _)| {
            let others = self.nodes.keys().filter(|other| **other != id);
            let heard = others.filter(|other| !self.network.links.cut.contains(&(id, **other)));
            heard.count() >= 1
        })
    }
}

/// Two of three nodes do not hear each other for two minutes; both hear the third. `leads` says whether the third led
/// before.
pub fn partial_partition(seed: u64, third_leads: bool, options: Options) -> Result<Partial, Failure> {
    let mut world = three(seed, options);
    let mut partial = Partial::default();
    tell(&mut world, |world| {
        let ids = world.settle_down()?;
        let (leader, _) =
            world.leader(CLUSTER_GROUP).ok_or_else(|| Violation::new("STORY", "nobody leads"))?;
        let others: Vec<NodeId> = ids.into_iter().filter(|id| *id != leader).collect();
        let (a, b) = if third_leads { (others[0], others[1]) } else { (leader, others[0]) };
        let before = world.views.last_term(CLUSTER_GROUP);
        let acknowledged = world.summary.acknowledged;
        let began = world.now;
        world.cut_links(a, b);
        let mut tick = 0;
        while world.now < began + 120_000_000 {
            let until = world.now + STEP;
            world.run_until(until)?;
            partial.served += if world.is_served() { STEP } else { 0 };
            tick += 1;
            if tick % 10 == 0 {
                let id = ids[(tick / 10) % 3];
                let number = world.number();
                world.request(id, Op::CreateUser(format!("u{number}")))?;
            }
        }
        partial.lasted = world.now - began;
        partial.terms = terms(before, world.views.last_term(CLUSTER_GROUP));
        partial.acknowledged = world.summary.acknowledged - acknowledged;
        world.heal()
    })?;
    Ok(partial)
}

fn terms(before: Term, after: Term) -> u64 {
    after.0.saturating_sub(before.0)
}

/// The leader is cut off from both others for a minute: it acknowledges nothing and says to nobody that he is up to
/// date, and the others go on without it.
pub fn isolated_leader(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    tell(&mut world, |world| {
        let ids = world.settle_down()?;
        let (leader, _) =
            world.leader(CLUSTER_GROUP).ok_or_else(|| Violation::new("STORY", "nobody leads"))?;
        let others: Vec<NodeId> = ids.into_iter().filter(|id| *id != leader).collect();
        others.iter().for_each(|other| world.cut_links(leader, *other));
        let began = world.now;
        let mut number = 0;
        while world.now < began + 60_000_000 {
            let until = world.now + 500_000;
            world.run_until(until)?;
            number += 1;
            let acknowledged = world.summary.acknowledged;
            let name = format!("lonely{number}");
            world.request(leader, Op::CreateUser(name.clone()))?;
            // What an other asks that it believes to be connected to.
            let message = Message::ReadIndex { vnode: CLUSTER_GROUP };
            let call = CallId(1 << 40 | number);
            world.step(leader, Event::Peer(others[0], PeerEvent::Asked { call, message }))?;
            let until = world.now + 100_000;
            world.run_until(until)?;
            ensure(world.summary.acknowledged == acknowledged, "ISOLATION", || {
                format!("{leader} acknowledges what nobody else has heard of")
            })?;
        }
        let ready = world
            .overheard
            .iter()
            .find(|(_, message)| matches!(message, Message::ReadIndexReply(ReadIndexReply::Ready(_))));
        ensure(ready.is_none(), "ISOLATION", || format!("{leader} lets somebody read: {ready:?}"))?;
        let acknowledged = world.summary.acknowledged;
        world.request(others[0], Op::CreateUser("after".to_owned()))?;
        let until = world.now + 10_000_000;
        world.run_until(until)?;
        ensure(world.summary.acknowledged > acknowledged, "LIVENESS", || {
            format!("two of three take no changes: {}", world.describe())
        })?;
        world.heal()
    })
}

/// Every node loses power at once, and they start one after another: the first alone serves nothing, two do.
pub fn everything_off(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    tell(&mut world, |world| {
        let mut ids = world.settle_down()?;
        for number in 0..20 {
            world.request(ids[0], Op::Create(format!("t{number}")))?;
        }
        let until = world.now + 300_000;
        world.run_until(until)?;
        ids.iter().for_each(|id| world.end(*id, true));
        ids.rotate_left(usize::try_from(seed % 3).unwrap_or(0));
        let until = world.now + 5_000_000;
        world.run_until(until)?;
        world.boot(ids[0])?;
        let until = world.now + 30_000_000;
        world.run_until(until)?;
        ensure(!world.process(ids[0]).ready, "READY", || format!("node {} serves alone", ids[0]))?;
        world.boot(ids[1])?;
        let deadline = world.now + 20_000_000;
        while !(world.process(ids[0]).ready && world.process(ids[1]).ready) {
            ensure(world.now < deadline, "LIVENESS", || {
                format!("two of three do not serve: {}", world.describe())
            })?;
            let until = world.now + STEP;
            world.run_until(until)?;
        }
        world.boot(ids[2])?;
        world.heal()
    })
}

/// A node is away for an hour in which much happens, and comes back.
pub fn an_hour_away(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    world.setup.snapshot_entries = 10;
    tell(&mut world, |world| {
        let ids = world.settle_down()?;
        let away = ids[usize::try_from(seed % 3).unwrap_or(0)];
        let here = ids.into_iter().find(|id| *id != away).unwrap_or(away);
        world.end(away, true);
        for number in 0..60 {
            let until = world.now + 60_000_000;
            world.run_until(until)?;
            world.request(here, Op::Create(format!("t{number}")))?;
            world.request(here, Op::CreateUser(format!("u{number}")))?;
        }
        world.boot(away)?;
        world.heal()
    })
}

/// A follower's snapshots are damaged while it is off, or gone: with one other it elects nobody, for it has forgotten
/// what it had; nothing on its other volume is removed; and once the third is back it is a member again.
pub fn snapshots_lost(seed: u64, are_gone: bool, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    world.setup.snapshot_entries = 10;
    tell(&mut world, |world| {
        let ids = world.settle_down()?;
        let (leader, _) =
            world.leader(CLUSTER_GROUP).ok_or_else(|| Violation::new("STORY", "nobody leads"))?;
        let others: Vec<NodeId> = ids.into_iter().filter(|id| *id != leader).collect();
        let (hurt, third) = (others[0], others[1]);
        for number in 0..30 {
            let topic = format!("t{number}");
            world.request(hurt, Op::Create(topic.clone()))?;
            world.request(hurt, Op::CreateUser(format!("u{number}")))?;
            let until = world.now + 300_000;
            world.run_until(until)?;
            world.request(hurt, Op::Produce(topic))?;
        }
        let until = world.now + 3_000_000;
        world.run_until(until)?;
        let copies = |world: &World| -> BTreeSet<String> {
            let found = world.nodes[&hurt].disks[0].list(Side::View).into_iter();
            found.filter(|(_, found)| matches!(found, Found::Dir)).map(|(name, _)| name).collect()
        };
        world.end(hurt, false);
        let held = copies(world);
        ensure(!held.is_empty(), "STORY", || format!("{hurt} has no copies"))?;
        let damaged = world.damage_snapshots(hurt, are_gone);
        ensure(damaged > 0, "STORY", || format!("{hurt} has no snapshots"))?;
        world.end(third, true);
        world.operator.faulty.insert(hurt, world.nodes[&hurt].life + 1);
        world.boot(hurt)?;
        let began = world.now;
        while world.now < began + 30_000_000 {
            let until = world.now + STEP;
            world.run_until(until)?;
            // Until whoever led has noticed that nobody follows.
            let led = world.now > began + 8_000_000 && world.leader(CLUSTER_GROUP).is_some();
            ensure(!led, "DISCLOSURE", || format!("{hurt} votes without its history: {}", world.describe()))?;
            let left = copies(world);
            ensure(held.is_subset(&left), "P-37", || format!("{hurt} removes {held:?}: {left:?}"))?;
        }
        world.boot(third)?;
        // The same process is given new replicas.
        world.wait(World::is_settled)?;
        world.heal()
    })
}

impl World {
    /// Gives how many there were.
    fn damage_snapshots(&mut self, id: NodeId, are_gone: bool) -> usize {
        let disk = &mut self.node(id).disks[1];
        let files = disk.list(Side::View).into_iter().filter_map(|(path, found)| match found {
            Found::File(bytes) if path.contains("snap") => Some((path, bytes)),
            Found::File(_) | Found::Dir => None,
        });
        let files: Vec<(String, u64)> = files.collect();
        for (path, bytes) in &files {
            if are_gone {
                disk.uproot(path);
            } else {
                disk.corrupt(path, bytes - 1, &[1]);
            }
        }
        files.len()
    }
}

/// The ring gets more vnodes and fewer, and whoever leads the cluster's group loses power again and again meanwhile: at
/// another moment of the change each time (P-34).
pub fn interrupted_ring(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    tell(&mut world, |world| {
        let ids = world.settle_down()?;
        for number in 0..12 {
            world.request(ids[number % 3], Op::Create(format!("t{number}")))?;
        }
        for (at, to) in (0..).zip([3_u32, 1, 2]) {
            for round in 0..6 {
                let Some((leader, _)) = world.leader(CLUSTER_GROUP) else {
                    let until = world.now + STEP;
                    world.run_until(until)?;
                    continue;
                };
                world.request(leader, Op::Reshard(to))?;
                let moment = (seed * 7_919 + at * 30_011 + round * 15_013) % 90_000;
                let until = world.now + 1_000 + moment;
                world.run_until(until)?;
                world.end(leader, true);
                let until = world.now + 3_000_000;
                world.run_until(until)?;
                world.boot(leader)?;
                let until = world.now + 2_000_000;
                world.run_until(until)?;
            }
            world.until_ring_has(to)?;
        }
        world.heal()
    })
}

impl World {
    /// People ask until the ring has so many vnodes.
    fn until_ring_has(&mut self, vnodes: u32) -> Result<(), Violation> {
        let deadline = self.now + 120_000_000;
        loop {
            ensure(self.now < deadline, "LIVENESS", || {
                format!("the ring does not get {vnodes} vnodes: {}", self.describe())
            })?;
            if let Some((leader, _)) = self.leader(CLUSTER_GROUP) {
                let tables = self.process(leader).node.cluster_tables();
                let is_there = tables.topology().is_some_and(|topology| {
                    topology.pending.is_none() && topology.ring.len() == vnodes as usize
                });
                if is_there {
                    return Ok(());
                }
                self.request(leader, Op::Reshard(vnodes))?;
            }
            let until = self.now + 5 * STEP;
            self.run_until(until)?;
        }
    }
}
