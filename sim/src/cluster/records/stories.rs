//! Named situations that random weather seldom makes, with records: three nodes, three copies, and one that lacks what
//! the other two have.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::segment::layout;
use types::{NodeId, SegmentId};

use super::model::Model;
use super::once::Once;
use super::produce::Producer;
use super::{Records, platter};
use crate::cluster::client::Op;
use crate::cluster::world::{Happening, Setup, World};
use crate::cluster::{Failure, Options, Summary, tell};
use crate::disk::Side;
use crate::invariants::{Violation, ensure};

const STEP: u64 = 20_000;

/// Three nodes, one topic, one client.
fn three(seed: u64, options: Options) -> World {
    let setup = Setup {
        vnodes: 1,
        vnode_replicas: 3,
        snapshot_entries: 1000,
        log_file_bytes: 256 * 1024,
        nodes_max: 3,
        replace_after: Duration::from_secs(300),
    };
    let rng = SmallRng::seed_from_u64(seed);
    let mut world = World::with(seed, options, setup, rng, SmallRng::seed_from_u64(!seed), 3);
    world.is_story = true;
    let mut records = Records::new(seed);
    let mix = records.mix.as_mut().expect("it was just made");
    (mix.factor, mix.segment_bytes, mix.segment_age, mix.audits) = (3, 1 << 20, None, 1);
    let mut rng = SmallRng::seed_from_u64(seed);
    records.topics.truncate(1);
    records.readers.clear();
    records.producers = vec![Producer::new(0, 1, &mut rng)];
    records.model = Model::default();
    // Whoever tells the story counts requests: its client says each once.
    records.once = Once::default();
    world.records = records;
    world
}

impl World {
    /// Lets time pass until something holds.
    fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) -> Result<(), Violation> {
        let deadline = self.now + 30_000_000;
        while !holds(self) {
            ensure(self.now < deadline, "STORY", || format!("{what} never comes: {}", self.describe()))?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    /// So many requests are acknowledged, one after another.
    fn store(&mut self, via: NodeId, requests: usize) -> Result<(), Violation> {
        for _ in 0..requests {
            let before = self.summary.records_acknowledged;
            self.produce_on(via, 0)?;
            self.until("an answer", |world| world.records.producers[0].is_idle())?;
            let last = self.records.producers[0].last.clone();
            let is_more = self.summary.records_acknowledged > before;
            ensure(is_more, "STORY", || format!("a client is told {last}"))?;
        }
        Ok(())
    }

    /// A topic, the segment that takes its records, and its copies, the primary first.
    fn one_segment(&mut self) -> Result<(SegmentId, [NodeId; 3]), Violation> {
        self.boot_all();
        self.wait(Self::is_settled)?;
        let first = self.ids()[0];
        self.request(first, Op::Create("r0".to_owned()))?;
        self.until("the topic", |world| world.tables_of("r0").is_some())?;
        self.until("the topic everywhere", |world| world.is_settled().is_none())?;
        self.store(first, 4)?;
        let tables = self.tables_of("r0").and_then(|tables| {
            let (segment, listed) = tables.segments().find(|(_, listed)| listed.is_active())?;
            Some((segment, listed.replicas.clone().try_into().ok()?))
        });
        tables.ok_or_else(|| Violation::new("STORY", "there is to be a segment with three copies"))
    }
}

/// One follower lags, the other loses its copy's directory while it is stopped, and the primary loses power: before
/// that follower is back, or at some moment while its copy is made anew. Whatever the two say, nothing that was
/// acknowledged may be lost once the primary is back.
pub fn one_lags_one_is_deleted(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    tell(&mut world, |world| {
        let (_, [primary, deleted]) = world.one_lags_one_is_deleted()?;
        if seed.is_multiple_of(2) {
            world.end(primary, true);
            world.boot(deleted)?;
        } else {
            world.boot(deleted)?;
            world.until("the connection", |world| {
                let process = world.nodes[&primary].process.as_ref();
                process.is_some_and(|process| process.up.contains_key(&deleted))
            })?;
            let moment = world.chaos.random_range(0..30_000);
            let until = world.now + moment;
            world.run_until(until)?;
            world.end(primary, true);
        }
        world.calm_network();
        let until = world.now + 15_000_000;
        world.run_until(until)?;
        world.later(1, Happening::Boot(primary));
        world.heal()
    })
}

/// The same, and the primary loses power while the copy that was deleted is there again and lacks what its predecessor
/// held. Beside one that lags it must not be taken for one that never held more.
pub fn one_lags_one_is_made_anew(seed: u64, options: Options) -> Result<Summary, Failure> {
    let mut world = three(seed, options);
    tell(&mut world, |world| {
        let (segment, [primary, deleted]) = world.one_lags_one_is_deleted()?;
        let dir = layout::dir(segment).as_str().to_owned();
        world.boot(deleted)?;
        let deadline = world.now + 20_000_000;
        while !world.is_made_anew(deleted, segment, &dir)? {
            ensure(world.now < deadline, "STORY", || "the copy is never made anew".to_owned())?;
            let until = world.now + 100;
            world.run_until(until)?;
        }
        world.end(primary, true);
        world.calm_network();
        let until = world.now + 15_000_000;
        world.run_until(until)?;
        world.later(1, Happening::Boot(primary));
        world.heal()
    })
}

impl World {
    /// Where both stories begin: one follower of a segment is cut off from its primary while more is stored, and the
    /// other stands still and has lost its copy's directory. Gives the primary and that one.
    fn one_lags_one_is_deleted(&mut self) -> Result<(SegmentId, [NodeId; 2]), Violation> {
        let (segment, [primary, deleted, lags]) = self.one_segment()?;
        for (from, to) in [(primary, lags), (lags, primary)] {
            self.network.links.cut.insert((from, to));
        }
        self.store(primary, 5)?;
        self.end(deleted, true);
        self.node(deleted).disks[0].uproot(layout::dir(segment).as_str());
        self.records.harmed.insert((deleted, segment));
        Ok((segment, [primary, deleted]))
    }

    /// Whether a node's disk has a copy again that would be there after a power cut.
    fn is_made_anew(&self, id: NodeId, segment: SegmentId, dir: &str) -> Result<bool, Violation> {
        let disk = &self.nodes[&id].disks[0];
        let is_named = disk.list(Side::Platter).keys().any(|path| path.starts_with(dir));
        Ok(is_named && platter::held(disk)?.contains_key(&segment))
    }
}
