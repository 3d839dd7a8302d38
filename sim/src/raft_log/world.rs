//! One disk, one log after another, and the judge of every answer.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use storage::disk::{Disk, ErrorKind};
use storage::raft_log::{Action, Config, Error, RaftLog, Reply, SnapshotMark, StartError, Status};
use storage::store::RequestId;
use types::VnodeId;

use super::model::{Change, Groups, State, snapshot_data};
use super::{Options, Summary, workload};
use crate::disk::{Chance, Class, Faults, Found, Injection, NODE_BYTES, NameLoss, Side, SimDisk};

/// Disk steps after which work that should have ended is called a livelock.
const STEPS_MAX: usize = 200_000;

pub(super) struct World {
    options: Options,
    disk: SimDisk,
    log: RaftLog,
    pub(super) groups: Groups,
    requests: u64,
    tags: u64,
    /// Which group a request is of.
    asked: BTreeMap<u64, VnodeId>,
    loads: BTreeMap<u64, VnodeId>,
    opening: Opening,
    /// A bit was flipped in this run, so damage may be reported, and remains.
    rotten: bool,
    /// A bit was flipped since the last successful start.
    flipped: bool,
    /// Faults were ordered in this life, so requests may fail.
    faulty: bool,
    seed: u64,
    pub(super) summary: Summary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Opening {
    Running,
    Started,
    Failed(StartError),
}

type Judged = Result<(), String>;

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut disk = SimDisk::new(seed, Faults::none());
        if options.verbose {
            disk.record_trace();
        }
        Self {
            options,
            disk,
            log: RaftLog::new(Config::default()),
            groups: Groups::new(),
            requests: 0,
            tags: 0,
            asked: BTreeMap::new(),
            loads: BTreeMap::new(),
            opening: Opening::Running,
            rotten: false,
            flipped: false,
            faulty: false,
            seed,
            summary: Summary::default(),
        }
    }

    /// One process life: start, whatever happens; judge what is found; work; end badly.
    pub(super) fn live(&mut self, rng: &mut SmallRng) -> Judged {
        self.start(rng)?;
        self.judge_groups()?;
        self.order_faults(rng);
        for _ in 0..rng.random_range(0..120) {
            workload::ask(self, rng);
            if rng.random_bool(0.7) {
                self.run(rng.random_range(0..12))?;
            }
        }
        if rng.random_bool(0.3) {
            self.settle()?;
        }
        self.end(rng);
        Ok(())
    }

    /// After the last life nothing is wrong with the disk: every group that can be vouched for goes on, damaged
    /// ones begin anew, and the log does not keep what nobody needs.
    pub(super) fn heal(&mut self, rng: &mut SmallRng) -> Judged {
        self.start(rng)?;
        self.judge_groups()?;
        self.calm();
        let mut out = Vec::new();
        self.log.every_group_is_listed(&mut out);
        self.handle(out)?;
        let groups: Vec<VnodeId> = self.groups.keys().copied().collect();
        for group in groups {
            if self.groups[&group].damaged {
                self.change(group, Change::Forget);
                self.settle()?;
            }
        }
        for _ in 0..60 {
            workload::ask(self, rng);
        }
        self.settle()?;
        let waiting = self.groups.values().any(|known| !known.waiting.is_empty() || known.saving.is_some());
        if waiting {
            return Err("a healthy disk is idle and requests still wait".to_owned());
        }
        self.end(rng);
        self.start(rng)?;
        self.judge_groups()?;
        self.check_room()
    }

    /// What is live is small and was written again while it was: the log has given old files back.
    fn check_room(&mut self) -> Judged {
        let live: usize = self.log.groups().map(|(_, view)| view.bytes + 150).sum();
        let bytes: u64 =
            self.disk.list(Side::View).keys().filter(|name| name.ends_with(".wal")).count() as u64;
        let allowed = 8 + 4 * live as u64 / self.config().file_bytes;
        if bytes > allowed && !self.rotten {
            return Err(format!("{bytes} log files for {live} live bytes"));
        }
        Ok(())
    }

    fn config(&self) -> Config {
        let shape = self.seed % 3;
        Config {
            file_bytes: [1024, 3000, 16 * 1024][usize::try_from(shape).expect("below three")],
            files_max: 3,
            move_bytes_max: 1500,
            seed: self.seed ^ self.summary.cycles,
            planted: self.options.planted,
        }
    }

    /// Opens the log. Power may go again and again while it does, and the disk may fail a few times.
    fn start(&mut self, rng: &mut SmallRng) -> Judged {
        for attempt in 0.. {
            self.summary.cycles += 1;
            let bad = attempt < 3 && rng.random_bool(0.35);
            if bad && rng.random_bool(0.3) {
                self.order_faults(rng);
            }
            self.log = RaftLog::new(self.config());
            self.opening = Opening::Running;
            let mut out = Vec::new();
            self.log.start(&mut out);
            self.handle(out)?;
            if bad {
                self.run(rng.random_range(0..60))?;
            } else {
                self.run_until(|world| world.opening != Opening::Running)?;
            }
            match self.opening.clone() {
                Opening::Started if !bad => break,
                Opening::Failed(StartError::Disk(_)) if self.faulty => {}
                Opening::Failed(error) => return Err(format!("the log does not open: {error}")),
                Opening::Running | Opening::Started => {}
            }
            self.end_without_flips(rng);
        }
        self.calm();
        Ok(())
    }

    /// Compares every group with what it may be.
    fn judge_groups(&mut self) -> Judged {
        let listed: Vec<_> = self.log.groups().collect();
        for (group, view) in listed {
            let known = self.groups.entry(group).or_default();
            if view.status == Status::Damaged {
                if !self.rotten {
                    return Err(format!("group {group} is called damaged and no bit was flipped"));
                }
                known.give_up();
                self.summary.damaged += 1;
                continue;
            }
            let shown = State::shown(&self.log, group, &view);
            known.settle(shown, self.flipped).map_err(|why| format!("group {group} {why}"))?;
        }
        for (group, known) in &mut self.groups {
            if self.log.group(*group).is_some() {
                continue;
            }
            let outcome = known.clone().settle(State::default(), self.flipped);
            match outcome {
                Ok(()) => known.settle(State::default(), self.flipped)?,
                Err(_) if self.log.unlisted_groups_possible() && self.rotten => {
                    known.give_up();
                }
                Err(why) => return Err(format!("group {group} is gone: {why}")),
            }
        }
        self.flipped = false;
        self.asked.clear();
        self.loads.clear();
        let snapshots: Vec<_> = self.log.groups().filter(|(_, view)| view.snapshot.index.0 > 0).collect();
        for (group, _) in snapshots {
            self.load(group);
        }
        // Recovery ended with a mark: from here on nothing may be lost silently.
        self.settle()
    }

    pub(super) fn change(&mut self, group: VnodeId, change: Change) {
        self.requests += 1;
        let id = self.requests;
        let mut out = Vec::new();
        let known = self.groups.entry(group).or_default();
        if matches!(change, Change::Forget) && known.saving.is_some() {
            known.save_before.get_or_insert(id);
        }
        known.waiting.push((id, change.clone()));
        self.asked.insert(id, group);
        match change {
            Change::Append(append) => self.log.append(RequestId(id), group, append, &mut out),
            Change::Forget => self.log.forget(RequestId(id), group, &mut out),
            Change::Snapshot(_) => unreachable!("snapshots are saved"),
        }
        self.later(out);
    }

    pub(super) fn save(&mut self, group: VnodeId, mark: SnapshotMark) {
        self.requests += 1;
        let id = self.requests;
        self.groups.entry(group).or_default().saving = Some((id, mark));
        self.asked.insert(id, group);
        let mut out = Vec::new();
        self.log.save_snapshot(RequestId(id), group, mark, snapshot_data(group, mark), &mut out);
        self.later(out);
    }

    pub(super) fn load(&mut self, group: VnodeId) {
        self.requests += 1;
        let id = self.requests;
        self.loads.insert(id, group);
        let mut out = Vec::new();
        self.log.load_snapshot(RequestId(id), group, &mut out);
        self.later(out);
    }

    pub(super) fn mark(&mut self) {
        let mut out = Vec::new();
        self.log.mark(&mut out);
        self.later(out);
    }

    pub(super) fn next_tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// Bytes of a log file, from where a record may begin.
    pub(super) fn stolen_bytes(&self, rng: &mut SmallRng) -> Vec<u8> {
        let logs: Vec<String> =
            self.disk.list(Side::View).into_keys().filter(|name| name.ends_with(".wal")).collect();
        if logs.is_empty() {
            return Vec::new();
        }
        let name = &logs[rng.random_range(0..logs.len())];
        let bytes = self.disk.bytes(name, Side::View).unwrap_or_default();
        let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"RL")).collect();
        if starts.is_empty() {
            return Vec::new();
        }
        let from = starts[rng.random_range(0..starts.len())];
        bytes[from..(from + 200).min(bytes.len())].to_vec()
    }

    /// For callers that cannot fail: the verdict comes with the next run of the disk.
    fn later(&mut self, out: Vec<Action>) {
        if let Err(why) = self.handle(out) {
            self.summary.violation.get_or_insert(why);
        }
    }

    fn handle(&mut self, out: Vec<Action>) -> Judged {
        let acknowledges = |action: &Action| match action {
            Action::Reply(_, reply) => {
                matches!(reply, Reply::Appended | Reply::Forgotten | Reply::SnapshotSaved)
            }
            Action::Disk(_) | Action::Started { .. } | Action::StartFailed(_) | Action::Notice(_) => false,
        };
        if out.iter().any(acknowledges) {
            self.groups.values_mut().for_each(|known| known.testify());
        }
        for action in out {
            match action {
                Action::Disk(job) => self.disk.submit(job),
                Action::Reply(id, reply) => self.judge_reply(id.0, reply)?,
                Action::Started { .. } => self.opening = Opening::Started,
                Action::StartFailed(error) => self.opening = Opening::Failed(error),
                Action::Notice(notice) => self.note(|| format!("{notice:?}")),
            }
        }
        Ok(())
    }

    fn note(&self, words: impl FnOnce() -> String) {
        if self.options.verbose {
            #[expect(clippy::print_stderr, reason = "asked for by a person who replays a seed")]
            {
                eprintln!("{}", words());
            }
        }
    }

    fn judge_reply(&mut self, id: u64, reply: Reply) -> Judged {
        self.summary.replies += 1;
        self.note(|| format!("reply {id}: {reply:?}"));
        if let Some(group) = self.loads.remove(&id) {
            return self.judge_load(group, reply);
        }
        let Some(group) = self.asked.remove(&id) else {
            return Err(format!("request {id} was answered twice, or never asked"));
        };
        let known = self.groups.entry(group).or_default();
        let failed = match reply {
            Reply::Appended | Reply::SnapshotSaved => return known.acknowledge(id),
            Reply::Forgotten => {
                known.damaged = false;
                return known.acknowledge(id);
            }
            Reply::Snapshot { .. } => return Err(format!("request {id} did not ask for a snapshot")),
            Reply::Failed(error) => error,
        };
        match failed {
            // Whether it took effect is not known; nothing later will until the next start, unless it was only
            // the snapshot's own file that failed.
            Error::Storage(_) if self.faulty => Ok(()),
            Error::NoSuchGroup if known.save_before.is_some() => {
                known.refuse(id);
                Ok(())
            }
            Error::Stale => {
                known.refuse(id);
                Ok(())
            }
            // Also of a group that was never used, while records of such a group may be lost.
            Error::Damaged if known.damaged || self.log.unlisted_groups_possible() => {
                known.refuse(id);
                known.damaged = true;
                Ok(())
            }
            Error::Damaged
            | Error::Impossible(_)
            | Error::NotStarted
            | Error::NoSuchGroup
            | Error::NoSnapshot
            | Error::Storage(_) => {
                Err(format!("request {id} of group {group} was refused without a reason: {failed}"))
            }
        }
    }

    fn judge_load(&mut self, group: VnodeId, reply: Reply) -> Judged {
        match reply {
            Reply::Snapshot { mark, data } if data == snapshot_data(group, mark) => Ok(()),
            Reply::Snapshot { mark, .. } => Err(format!("group {group}: other bytes in {mark:?}")),
            Reply::Failed(Error::NoSnapshot | Error::NoSuchGroup) => Ok(()),
            Reply::Failed(Error::Storage(_)) if self.faulty => Ok(()),
            Reply::Failed(Error::Damaged) if self.rotten => {
                self.groups.entry(group).or_default().damaged = true;
                Ok(())
            }
            other @ (Reply::Appended | Reply::SnapshotSaved | Reply::Forgotten | Reply::Failed(_)) => {
                Err(format!("group {group}: a snapshot could not be loaded: {other:?}"))
            }
        }
    }

    /// Runs so many steps of the disk.
    fn run(&mut self, steps: usize) -> Judged {
        for _ in 0..steps {
            if self.disk.step().is_none() {
                break;
            }
            self.take_ready()?;
        }
        self.take_ready()
    }

    fn take_ready(&mut self) -> Judged {
        while let Some(completion) = self.disk.ready() {
            let mut out = Vec::new();
            self.log.complete(completion, &mut out);
            self.handle(out)?;
        }
        match self.summary.violation.take() {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Judged {
        for _ in 0..STEPS_MAX {
            self.take_ready()?;
            if done(self) {
                return Ok(());
            }
            if self.disk.step().is_none() && self.disk.outstanding() == 0 {
                return if done(self) { Ok(()) } else { Err("the log stopped working".to_owned()) };
            }
        }
        Err("the log never comes to rest".to_owned())
    }

    /// Runs until nothing is left to do.
    fn settle(&mut self) -> Judged {
        self.run_until(|world| world.disk.outstanding() == 0)
    }

    fn order_faults(&mut self, rng: &mut SmallRng) {
        if rng.random_bool(0.75) {
            return;
        }
        self.faulty = true;
        let names = if rng.random_bool(0.5) { NameLoss::Independent } else { NameLoss::Prefix };
        self.disk.faults_mut().names = names;
        match rng.random_range(0..4) {
            0 => {
                let room = rng.random_range(0..8000);
                self.disk.faults_mut().capacity_bytes = Some(self.used_bytes() + room);
            }
            1 => self.disk.faults_mut().write_error = Chance::one_in(60),
            _ => {
                let classes =
                    [Class::Write, Class::Sync, Class::SyncDir, Class::Name, Class::Open, Class::Read];
                let class = classes[rng.random_range(0..classes.len())];
                let mut injection = Injection::next(class, ErrorKind::Io);
                injection.skip = rng.random_range(0..20);
                self.disk.inject(injection);
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        let bytes = |found: &Found| match found {
            Found::Dir => 0,
            Found::File(bytes) => *bytes,
        };
        self.disk.list(Side::View).values().map(|found| bytes(found) + NODE_BYTES).sum()
    }

    /// The disk is healthy again.
    fn calm(&mut self) {
        self.disk.clear_injections();
        let names = self.disk.faults_mut().names;
        *self.disk.faults_mut() = Faults { names, ..Faults::none() };
        self.faulty = false;
    }

    /// Ends the process, most times with the power, and sometimes lets a bit rot.
    fn end(&mut self, rng: &mut SmallRng) {
        self.end_without_flips(rng);
        if self.options.rot
            && rng.random_bool(0.25)
            && let Some(flip) = self.disk.flip_random_durable(|_| true)
        {
            self.summary.flips += 1;
            self.note(|| format!("{flip:?}"));
            (self.flipped, self.rotten) = (true, true);
        }
    }

    fn end_without_flips(&mut self, rng: &mut SmallRng) {
        if rng.random_bool(0.8) {
            self.disk.crash()
        } else {
            self.disk.kill()
        }
        self.calm();
    }

    /// What happened, as one number.
    pub(super) fn digest(&self) -> u64 {
        self.disk.trace_hash() ^ self.summary.replies.rotate_left(32)
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.disk.take_trace()
    }
}

/// The generator of the workload: another stream than the disk's.
pub(super) fn workload_rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed.rotate_left(23) ^ 0x7261_6674)
}
