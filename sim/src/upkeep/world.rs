//! Time, disks, the process, and everything it does handed to the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::upkeep::Notice as Upkeep;
use broker::{
    Action, Actions, ConnectionId, Event, Node, Notice, Permissions, Reply, Request, RequestId, SeedUser,
    Volume,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::Disk;
use storage::segment::layout;
use types::{Instant, NodeId, SegmentId, VnodeId, WallTime};

use super::judge::{Judge, bounds_of};
use super::rules::read_by_all;
use super::workload::Readers;
use super::{Options, Summary};
use crate::disk::{Chance, Class, Faults, Found, Injection, NameLoss, Side, SimDisk};
use crate::invariants::{Violation, ensure};
use crate::outcome;

/// Everybody's name.
const USER: &str = "admin";
/// The one vnode.
const VNODE: VnodeId = VnodeId(0);
/// Steps of the node after which work that should have ended is a livelock.
const STEPS_MAX: u64 = 400_000;
/// The wall clock at the beginning.
const WALL_MS: u64 = 1_700_000_000_000;

pub(super) struct World {
    pub(super) options: Options,
    pub(super) rng: SmallRng,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    /// What the wall clock is ahead, milliseconds.
    pub(super) skew_ms: i64,
    pub(super) disks: [SimDisk; 2],
    pub(super) config: broker::Config,
    node: Option<Node>,
    clock: u64,
    pub(super) ready: bool,
    stopped: bool,
    wake_at: Option<u64>,
    /// How far the tables were when they were judged last.
    seen: (u64, u64),
    number: u64,
    replies: BTreeMap<RequestId, Reply>,
    pub(super) judge: Judge,
    pub(super) readers: Readers,
    /// Offsets that the node counted as skipped since somebody asked.
    pub(super) counted: u64,
    /// Faults were ordered in this lifetime.
    pub(super) faulty: bool,
    steps: u64,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x7570_6b65_6570);
        let mut faults = Faults::none();
        if rng.random_bool(0.3) {
            faults.names = NameLoss::Prefix;
        }
        let disks = [SimDisk::new(seed, faults.clone()), SimDisk::new(!seed, faults)];
        Self {
            options,
            config: config(seed, options, &mut rng),
            rng,
            now: 1,
            skew_ms: 0,
            disks,
            node: None,
            clock: 0,
            ready: false,
            stopped: false,
            wake_at: None,
            seen: (0, 0),
            number: 0,
            replies: BTreeMap::new(),
            judge: Judge::default(),
            readers: Readers::default(),
            counted: 0,
            faulty: false,
            steps: 0,
            summary: Summary::default(),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let disks = self.disks[0].trace_hash() ^ self.disks[1].trace_hash().rotate_left(1);
        Summary { trace: disks, micros: self.now, ..self.summary }
    }

    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        outcome::say(self.options.verbose, self.now, line);
    }

    /// The part with faults.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        for _ in 0..self.rng.random_range(1..6) {
            self.start()?;
            self.order_faults();
            for _ in 0..self.rng.random_range(0..80) {
                self.work()?;
                if self.rng.random_bool(0.8) {
                    let steps = self.rng.random_range(0..60);
                    self.run(steps)?;
                }
                if self.rng.random_bool(0.3) {
                    let millis = self.rng.random_range(0..4000);
                    self.pass(Duration::from_millis(millis))?;
                }
                if self.rng.random_bool(0.03) {
                    self.skew_ms = self.rng.random_range(-20_000..20_000);
                }
                if self.stopped {
                    break;
                }
            }
            self.end();
        }
        Ok(())
    }

    /// The part without: what has to go is gone, what rotted is found, and nothing else is missing.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.say(|| "== HEAL".to_owned());
        self.calm();
        self.start()?;
        ensure(self.ready, "START", || "a node over healthy disks does not serve".to_owned())?;
        // Longer than every age and every pass, copies to verify included.
        let copies = self.judge.listed.len() as u32 + 1;
        self.pass(Duration::from_secs(60) + self.config.scrub.every.unwrap_or_default() * copies)?;
        self.read_everything()?;
        let Some(node) = &self.node else { return Ok(()) };
        let damaged: BTreeSet<SegmentId> = node.damaged().collect();
        let unlisted = node.gauges().unlisted_copies;
        crate::invariants::p_37::gone(unlisted)?;
        let here = self.directories();
        for (segment, listed) in &self.judge.listed {
            ensure(listed.is_active() || here.contains(segment), "INV-36", || {
                format!("{segment} is listed, and no copy of it is left")
            })?;
        }
        self.liveness(&damaged)
    }

    /// Whatever must have happened by now.
    fn liveness(&mut self, damaged: &BTreeSet<SegmentId>) -> Result<(), Violation> {
        let Some(node) = &self.node else { return Ok(()) };
        let Some(vnode) = node.vnode_tables(VNODE) else { return Ok(()) };
        for (topic, _) in vnode.topics() {
            let Some(bounds) = bounds_of(&self.config, node.cluster_tables(), vnode, topic) else { continue };
            let read = read_by_all(vnode, topic);
            for (range, _) in vnode.ranges_of(topic) {
                let segments: Vec<_> = vnode.segments_of(range).map(|(_, segment)| segment.clone()).collect();
                // A sweep ago at the latest.
                let then = self.wall_ms().saturating_sub(2 * millis(self.config.retention.every));
                ensure(!bounds.allow(&segments, read, then), "LIVENESS", || {
                    format!("{range} holds more than {bounds:?} allow, and nothing expires")
                })?;
            }
        }
        let scrubs = self.config.scrub.every.is_some();
        for segment in self.judge.rotten.iter().filter(|_| scrubs) {
            let sealed = self.judge.listed.get(segment).is_some_and(|listed| !listed.is_active());
            let known = damaged.contains(segment) || self.judge.told.contains(segment);
            ensure(!sealed || known, "LIVENESS", || {
                format!("{segment} has rotted, and nobody has found it")
            })?;
            self.summary.found += u64::from(sealed);
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Violation> {
        let mut config = self.config.clone();
        config.seed = self.rng.random();
        config.store.seed = self.rng.random();
        config.raft_log.seed = self.rng.random();
        self.clock = self.rng.random_range(0..1 << 40);
        self.node = Some(Node::new(config));
        (self.ready, self.stopped, self.wake_at) = (false, false, None);
        self.say(|| format!("== start of lifetime {}", self.summary.lives));
        self.step(Event::Start)?;
        self.settle()
    }

    fn end(&mut self) {
        let power = self.rng.random_bool(0.6);
        self.say(|| (if power { "== POWER LOSS" } else { "== KILL" }).to_owned());
        for disk in &mut self.disks {
            if power {
                disk.crash();
            } else {
                disk.kill();
            }
        }
        self.node = None;
        self.replies.clear();
        self.judge.life_ended();
        self.readers.life_ended();
        self.calm();
        self.summary.lives += 1;
        self.now += self.rng.random_range(0..2_000_000);
        if self.rng.random_bool(0.4) {
            self.rot();
        }
    }

    /// Flips a bit in a sealed copy, where nobody looks.
    fn rot(&mut self) {
        let sealed: BTreeSet<String> = self
            .judge
            .listed
            .iter()
            .filter(|(_, segment)| !segment.is_active() && segment.sealed_bytes() > 0)
            .map(|(id, _)| id.to_string())
            .collect();
        let bytes_of: BTreeMap<String, u64> =
            self.judge.listed.iter().map(|(id, segment)| (id.to_string(), segment.sealed_bytes())).collect();
        let names: Vec<String> = self.disks[0].list(Side::View).into_keys().collect();
        let logs = names.iter().filter(|name| name.ends_with(".log"));
        let logs: Vec<&String> =
            logs.filter(|name| name.split_once('/').is_some_and(|(dir, _)| sealed.contains(dir))).collect();
        if logs.is_empty() {
            return;
        }
        let name = logs[self.rng.random_range(0..logs.len())].clone();
        let Some((dir, _)) = name.split_once('/') else { return };
        let at = self.rng.random_range(0..bytes_of[dir]);
        // The local trailer of a frame may say anything: only what is checked is rot.
        if self.disks[0].corrupt(&name, at, &[1 << self.rng.random_range(0..8)])
            && let Some(segment) = layout::parse_dir(dir)
        {
            self.say(|| format!("   rot in {name} at {at}"));
            self.judge.rotten.insert(segment);
        }
    }

    fn order_faults(&mut self) {
        if self.rng.random_bool(0.5) {
            return;
        }
        self.faulty = true;
        let volume = self.rng.random_range(0..2);
        let rare = Chance::one_in([10, 40, 200][self.rng.random_range(0..3)]);
        match self.rng.random_range(0..6) {
            0 => self.disks[volume].faults_mut().read_error = rare,
            1 => self.disks[volume].faults_mut().write_error = rare,
            2 => self.disks[volume].faults_mut().sync_error = rare,
            3 => self.disks[volume].faults_mut().name_error = rare,
            4 => {
                let faults = self.disks[1].faults_mut();
                (faults.slow, faults.slow_max) = (Chance::one_in(3), Duration::from_secs(3));
            }
            _ => {
                let class = [Class::Sync, Class::Name, Class::Write][self.rng.random_range(0..3)];
                let skip = self.rng.random_range(0..60);
                let kind = storage::disk::ErrorKind::Io;
                self.disks[volume].inject(Injection { class, path: None, skip, times: 5, kind });
            }
        }
    }

    fn calm(&mut self) {
        self.faulty = false;
        for disk in &mut self.disks {
            disk.clear_injections();
            let names = disk.faults_mut().names;
            *disk.faults_mut() = Faults { names, ..Faults::none() };
        }
    }

    /// What the wall clock shows, milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        (WALL_MS + self.now / 1000).saturating_add_signed(self.skew_ms)
    }

    /// Sends; the reply may come later, or never.
    pub(super) fn send(&mut self, request: Request) -> Result<RequestId, Violation> {
        self.number += 1;
        let id = RequestId { connection: ConnectionId(1), number: self.number };
        let session = self.node.as_ref().map(|node| node.session(USER));
        let Some(session) = session else { return Ok(id) };
        self.step(Event::Request { id, session, request })?;
        Ok(id)
    }

    pub(super) fn take_reply(&mut self, id: RequestId) -> Option<Reply> {
        self.replies.remove(&id)
    }

    /// Proposes to the cluster's tables, or binds a topic.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Node, &mut Actions)) -> Result<(), Violation> {
        let mut actions = Actions::new();
        if let Some(node) = self.node.as_mut().filter(|_| self.ready) {
            change(node, &mut actions);
        }
        self.perform(actions)?;
        self.step(Event::Timer)
    }

    pub(super) fn tables<T>(&self, read: impl FnOnce(&metadata::vnode::Vnode) -> T) -> Option<T> {
        self.node.as_ref().filter(|_| self.ready)?.vnode_tables(VNODE).map(read)
    }

    fn step(&mut self, event: Event) -> Result<(), Violation> {
        self.steps += 1;
        ensure(self.steps < STEPS_MAX, "LIVELOCK", || "far more happens than there is to do".to_owned())?;
        let wall = self.wall_ms();
        self.judge.wall_max = self.judge.wall_max.max(wall);
        let Some(node) = self.node.as_mut().filter(|_| !self.stopped) else { return Ok(()) };
        let (now, mut actions) = (Instant(self.clock + self.now), Actions::new());
        node.step(now, Event::Wall(WallTime(wall)), &mut actions);
        self.look(&mut actions)?;
        let Some(node) = self.node.as_mut() else { return Ok(()) };
        node.step(now, event, &mut actions);
        self.look(&mut actions)?;
        let Some(node) = self.node.as_mut() else { return Ok(()) };
        node.flush(&mut actions);
        self.look(&mut actions)
    }

    /// Judges the tables, if they are others now, then what the node wants done.
    fn look(&mut self, actions: &mut Actions) -> Result<(), Violation> {
        let begins = actions.iter().any(|action| matches!(action, Action::Ready));
        self.ready |= begins;
        if let Some(node) = self.node.as_ref().filter(|_| self.ready)
            && let Some(vnode) = node.vnode_tables(VNODE)
        {
            let (config, cluster) = (&self.config, node.cluster_tables());
            let seen = (vnode.applied().0, cluster.applied().0);
            if begins || std::mem::replace(&mut self.seen, seen) != seen {
                self.judge.tables(vnode, self.now, |topic| bounds_of(config, cluster, vnode, topic))?;
            }
        }
        if begins {
            let here = self.directories();
            self.judge.directories(&here, self.now);
        }
        self.perform(std::mem::take(actions))
    }

    fn perform(&mut self, actions: Actions) -> Result<(), Violation> {
        for action in actions {
            match action {
                Action::Disk(Volume::Log, job) => {
                    if let Some(node) = self.node.as_ref().filter(|_| self.ready) {
                        let expiring: BTreeSet<SegmentId> = node.expiring().collect();
                        self.judge.job(&job, |segment| expiring.contains(&segment))?;
                    }
                    self.disks[0].submit(job);
                }
                Action::Disk(Volume::Raft, job) => self.disks[1].submit(job),
                Action::Reply { id, reply } => drop(self.replies.insert(id, reply)),
                Action::WakeAt(at) => self.wake_at = Some(at.0.saturating_sub(self.clock).max(self.now)),
                Action::Notice(notice) => self.noticed(&notice)?,
                Action::Stop(stop) => {
                    self.stopped = true;
                    self.say(|| format!("   STOP {stop}"));
                    ensure(self.faulty, "START", || {
                        format!("no fault was ordered, and the node stops: {stop}")
                    })?;
                }
                Action::Ready | Action::Seeded { .. } => {}
                other => return Err(Violation::new("ANSWER", format!("nobody asked for {other:?}"))),
            }
        }
        Ok(())
    }

    fn noticed(&mut self, notice: &Notice) -> Result<(), Violation> {
        self.say(|| format!("   {notice:?}"));
        match notice {
            Notice::Upkeep(Upkeep::OrphanRemoved { segment }) => {
                self.summary.orphans += 1;
                self.judge.swept(*segment, self.now, &self.config.orphan_sweep)?;
            }
            Notice::SegmentOpened { segment, .. } => {
                self.judge.made.insert(*segment);
            }
            Notice::Upkeep(Upkeep::SegmentExpired { .. }) => self.summary.expired += 1,
            Notice::Upkeep(Upkeep::Skipped { offsets, .. }) => self.counted += offsets,
            Notice::Upkeep(Upkeep::Scrubbed { .. }) => self.summary.verified += 1,
            Notice::Upkeep(Upkeep::CopyDamaged { segment, detail, .. }) => {
                let rotten = self.judge.rotten.contains(segment);
                ensure(rotten || self.faulty, "INV-27", || {
                    format!("nothing happened to {segment}, and it is called damaged: {detail}")
                })?;
                self.judge.told.insert(*segment);
            }
            Notice::Store(storage::store::Notice::Latched { segment, .. }) => {
                self.judge.told.insert(*segment);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn directories(&self) -> BTreeSet<SegmentId> {
        let dirs = self.disks[0].list(Side::View).into_iter().filter(|(_, found)| *found == Found::Dir);
        dirs.filter_map(|(name, _)| layout::parse_dir(&name)).collect()
    }

    /// Lets the disks do so many steps; less when they have nothing to do.
    pub(super) fn run(&mut self, steps: u32) -> Result<(), Violation> {
        for _ in 0..steps {
            let first = usize::from(self.rng.random_bool(0.5));
            let took = self.disks[first].step().or_else(|| self.disks[1 - first].step());
            let Some(took) = took else { return Ok(()) };
            self.now += u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.complete()?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Violation> {
        for (volume, disk) in [Volume::Log, Volume::Raft].into_iter().zip(0..2) {
            while let Some(done) = self.disks[disk].ready() {
                self.step(Event::Disk(volume, done))?;
            }
        }
        self.tick()
    }

    /// The node's timer, when it is due.
    fn tick(&mut self) -> Result<(), Violation> {
        while let Some(at) = self.wake_at.filter(|at| *at <= self.now) {
            self.wake_at = None;
            self.now = self.now.max(at);
            self.step(Event::Timer)?;
        }
        Ok(())
    }

    /// Until the disks have nothing to do.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        while self.disks.iter().any(|disk| disk.outstanding() > 0) {
            self.run(1)?;
        }
        Ok(())
    }

    /// Time passes.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Violation> {
        let until = self.now + u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        loop {
            self.settle()?;
            match self.wake_at {
                Some(at) if at <= until && !self.stopped => {
                    self.now = self.now.max(at);
                    self.tick()?;
                }
                Some(_) | None => break,
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A node that rolls, expires, sweeps and verifies all the time.
fn config(seed: u64, options: Options, rng: &mut SmallRng) -> broker::Config {
    let mut config = broker::Config::new(NodeId(u128::from(seed) + 1), 0);
    config.segment_bytes = [100, 300, 1000][rng.random_range(0..3)];
    config.segment_age = rng.random_bool(0.3).then(|| Duration::from_secs(rng.random_range(1..8)));
    config.snapshot_entries = [10, 100_000][rng.random_range(0..2)];
    config.store.tail_cache_bytes = [0, 500][rng.random_range(0..2)];
    config.store.open_copies_max = rng.random_range(1..5);
    config.store.preallocate_bytes = (0, 0);
    config.store.recycled_files_max = rng.random_range(0..3);
    config.store.recycled_bytes_min = 100;
    (config.store.spare_files_max, config.store.spare_bytes, config.store.spare_piece_bytes) = (1, 600, 1000);
    config.store.journal_bytes = [0, 6000][rng.random_range(0..2)];
    config.raft_log.file_bytes = 16_384;
    config.retention.every = Duration::from_millis([200, 1000, 4000][rng.random_range(0..3)]);
    config.retention.age_ms_max = rng.random_bool(0.4).then(|| [0, 1000, 10_000][rng.random_range(0..3)]);
    config.retention.bytes_max = rng.random_bool(0.4).then(|| [0, 300, 2000][rng.random_range(0..3)]);
    config.retention.unresolved_age_ms_max = rng.random_bool(0.3).then_some(15_000);
    config.retention.skips_max = [1, 10_000][rng.random_range(0..2)];
    config.orphan_sweep.every = Duration::from_millis([300, 2000][rng.random_range(0..2)]);
    config.orphan_sweep.min_age = Duration::from_millis([0, 500, 5000][rng.random_range(0..3)]);
    config.orphan_sweep.sightings = rng.random_range(1..4);
    config.orphan_sweep.removals_max = [1, 50][rng.random_range(0..2)];
    config.scrub.every =
        rng.random_bool(0.8).then(|| Duration::from_millis([200, 1000][rng.random_range(0..2)]));
    config.scrub.copies_per_pass = rng.random_range(1..3);
    config.scrub.bytes_per_second = [1 << 20, 2000][rng.random_range(0..2)];
    config.seed_users = vec![SeedUser {
        name: USER.into(),
        hash: "$sim$".into(),
        permissions: Permissions { admin: true, produce: true, consume: true },
    }];
    config.bug = options.bug;
    config
}
