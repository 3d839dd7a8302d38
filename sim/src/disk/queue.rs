//! Which step runs next: jobs in order, reading jobs at any moment, several jobs under one sync, and in any order
//! those that reach nothing in common.
//!
//! Owns the outstanding jobs. Does not know what a step does: the machine runs them.
//!
//! Invariant: ordered jobs complete in the order they were submitted, and only after a sync that started
//! after their last write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::Rng;
use rand::rngs::SmallRng;
use storage::disk::{Completion, Error, FileId, Job, JobId, Output, Place, Step};

use super::machine::{Failure, Machine};

/// Jobs side by side: each step looks at all of them.
const ABREAST_MAX: usize = 32;

/// One step, or a part of a write.
#[derive(Clone, Debug)]
struct Piece {
    /// Its place in the job as submitted.
    index: usize,
    step: Step,
    /// The rest of a write whose first part ran before.
    continued: bool,
}

/// A job and how far it is.
#[derive(Clone, Debug)]
struct Running {
    id: JobId,
    /// What it reaches, when others may run beside it.
    reach: Option<BTreeSet<Place>>,
    left: VecDeque<Piece>,
    /// Output of the last step that ran, or the failure that ended the job.
    result: Result<Output, Error>,
}

impl Running {
    fn new(job: Job) -> Self {
        assert!(!job.steps.is_empty(), "a job has at least one step");
        let reach = job.reach();
        let pieces = job.steps.into_iter().enumerate();
        let left = pieces.map(|(index, step)| Piece { index, step, continued: false }).collect();
        Self { id: job.id, reach, left, result: Ok(Output::Done) }
    }

    fn is_over(&self) -> bool {
        self.left.is_empty() || self.result.is_err()
    }

    fn record(&mut self, index: usize, result: Result<Output, Failure>) {
        self.result =
            result.map_err(|failure| Error { kind: failure.kind, step: index, detail: failure.detail });
    }

    /// Writes, zeroings and truncations first, then syncs: such jobs can share syncs.
    fn can_share(&self) -> bool {
        let writes = self.left.iter().take_while(|piece| is_write(&piece.step)).count();
        self.left.iter().skip(writes).all(|piece| matches!(piece.step, Step::Sync(_)))
    }

    fn completion(self) -> Completion {
        Completion { job: self.id, result: self.result }
    }
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write { .. } | Step::Zero { .. } | Step::Truncate { .. })
}

/// The files still to be synced, and what the syncs so far gave.
#[derive(Clone, Debug, Default)]
struct Syncs {
    left: VecDeque<FileId>,
    results: BTreeMap<FileId, Result<Output, Failure>>,
}

/// How the jobs of a group run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// They write, then share their syncs.
    Shared,
    /// One alone, or several side by side.
    Abreast,
}

/// The jobs now running: several only when they share their syncs or run side by side.
#[derive(Clone, Debug)]
struct Group {
    jobs: Vec<Running>,
    manner: Manner,
    /// Jobs before this one are through with their writes.
    written: usize,
    /// Once all writes are through.
    syncs: Option<Syncs>,
}

/// All outstanding jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Running>,
    running: Option<Group>,
    readers: Vec<Running>,
    done: VecDeque<Completion>,
}

impl Queue {
    pub(crate) fn submit(&mut self, job: Job) {
        let reading = job.steps.iter().all(Step::is_reading);
        let job = Running::new(job);
        if reading { self.readers.push(job) } else { self.waiting.push_back(job) }
    }

    pub(crate) fn ready(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// Jobs not completed, or whose completion nobody has taken.
    pub(crate) fn outstanding(&self) -> usize {
        let running = self.running.as_ref().map_or(0, |group| group.jobs.len());
        self.waiting.len() + running + self.readers.len() + self.done.len()
    }

    /// Runs one step of one job; false when there is none to run.
    pub(crate) fn step(&mut self, rng: &mut SmallRng, machine: &mut Machine) -> bool {
        let ordered = self.running.is_some() || !self.waiting.is_empty();
        match (ordered, self.readers.is_empty()) {
            (false, true) => return false,
            (true, true) => self.step_ordered(rng, machine),
            (false, false) => self.step_reader(rng, machine),
            (true, false) if rng.random_bool(0.5) => self.step_reader(rng, machine),
            (true, false) => self.step_ordered(rng, machine),
        }
        true
    }

    fn step_reader(&mut self, rng: &mut SmallRng, machine: &mut Machine) {
        let at = rng.random_range(0..self.readers.len());
        let reader = &mut self.readers[at];
        let piece = reader.left.pop_front().expect("a job that is over left the list");
        let result = machine.run(reader.id, &piece.step, false);
        reader.record(piece.index, result);
        if reader.is_over() {
            self.done.push_back(self.readers.swap_remove(at).completion());
        }
    }

    fn step_ordered(&mut self, rng: &mut SmallRng, machine: &mut Machine) {
        let watched = !self.readers.is_empty();
        if self.running.is_none() {
            self.running = self.gather(rng);
        }
        let Some(group) = &mut self.running else { return };
        if group.step(rng, watched, machine) {
            let group = self.running.take().expect("it just ran");
            self.done.extend(group.jobs.into_iter().map(Running::completion));
        }
    }

    /// Takes the next job, with some of those behind it when they can share its syncs or run beside it.
    fn gather(&mut self, rng: &mut SmallRng) -> Option<Group> {
        let able = self.waiting.iter().take_while(|job| job.can_share()).count();
        let beside = self.waiting.iter().take(ABREAST_MAX);
        let beside = beside.take_while(|job| job.reach.is_some() && !job.can_share()).count();
        let (most, manner) = if able > 0 { (able, Manner::Shared) } else { (beside, Manner::Abreast) };
        let take = match most {
            0 | 1 => 1,
            // Mostly all that waits, as the real disk does; else any number, as if the rest came later.
            most if rng.random_bool(0.5) => most,
            most => rng.random_range(1..=most),
        };
        let jobs: Vec<_> = self.waiting.drain(..take.min(self.waiting.len())).collect();
        (!jobs.is_empty()).then_some(Group { jobs, manner, written: 0, syncs: None })
    }
}

impl Group {
    /// Runs one step; true when every job of the group is over.
    fn step(&mut self, rng: &mut SmallRng, watched: bool, machine: &mut Machine) -> bool {
        match self.manner {
            Manner::Shared => self.step_shared(rng, watched, machine),
            Manner::Abreast => self.step_abreast(rng, watched, machine),
        }
    }

    /// Any job of which no earlier one that is under way reaches the same.
    fn step_abreast(&mut self, rng: &mut SmallRng, watched: bool, machine: &mut Machine) -> bool {
        let mut held: BTreeSet<&Place> = BTreeSet::new();
        let mut free = Vec::new();
        for (at, job) in self.jobs.iter().enumerate().filter(|(_, job)| !job.is_over()) {
            let reach = job.reach.iter().flatten();
            if reach.clone().all(|place| !held.contains(place)) {
                free.push(at);
            }
            held.extend(reach);
        }
        let at = free[rng.random_range(0..free.len())];
        run_next(&mut self.jobs[at], rng, watched, machine);
        self.jobs.iter().all(Running::is_over)
    }

    fn step_shared(&mut self, rng: &mut SmallRng, watched: bool, machine: &mut Machine) -> bool {
        if self.syncs.is_none() {
            while let Some(job) = self.jobs.get_mut(self.written) {
                if job.result.is_ok() && job.left.front().is_some_and(|piece| is_write(&piece.step)) {
                    run_next(job, rng, watched, machine);
                    return false;
                }
                check_syncs(job, machine);
                self.written += 1;
            }
            self.syncs = Some(Syncs { left: self.files_to_sync(), results: BTreeMap::new() });
        }
        let Syncs { left, results } = self.syncs.as_mut().expect("set above");
        if let Some(file) = left.pop_front() {
            let asker = self.jobs.iter().find(|job| wants(job, file)).expect("some job asked for this sync");
            results.insert(file, machine.run(asker.id, &Step::Sync(file), true));
        }
        if left.is_empty() {
            let results = std::mem::take(results);
            self.jobs.iter_mut().for_each(|job| finish(job, &results));
            return true;
        }
        false
    }

    fn files_to_sync(&self) -> VecDeque<FileId> {
        let mut files = VecDeque::new();
        for job in self.jobs.iter().filter(|job| job.result.is_ok()) {
            for piece in &job.left {
                if let Some(file) = sync_of(piece).filter(|file| !files.contains(file)) {
                    files.push_back(file);
                }
            }
        }
        files
    }
}

fn wants(job: &Running, file: FileId) -> bool {
    job.result.is_ok() && job.left.iter().any(|piece| sync_of(piece) == Some(file))
}

fn run_next(job: &mut Running, rng: &mut SmallRng, watched: bool, machine: &mut Machine) {
    let mut piece = job.left.pop_front().expect("a job that is over does not run");
    if watched
        && rng.random_bool(0.25)
        && let Some(rest) = split(&mut piece, rng)
    {
        job.left.push_front(rest);
    }
    let result = machine.run(job.id, &piece.step, piece.continued);
    job.record(piece.index, result);
}

/// Cuts a write in two, so that a reader can look in between.
fn split(piece: &mut Piece, rng: &mut SmallRng) -> Option<Piece> {
    let Step::Write { file, at, data } = &mut piece.step else { return None };
    let joined: bytes::Bytes = data.concat().into();
    if joined.len() < 2 {
        return None;
    }
    let cut = rng.random_range(1..joined.len());
    let rest_at = at.checked_add(u64::try_from(cut).expect("a length fits"))?;
    let rest = Step::Write { file: *file, at: rest_at, data: vec![joined.slice(cut..)] };
    *data = vec![joined.slice(..cut)];
    Some(Piece { index: piece.index, step: rest, continued: true })
}

fn sync_of(piece: &Piece) -> Option<FileId> {
    if let Step::Sync(file) = piece.step { Some(file) } else { None }
}

/// Fails a job that is through with its writes and wants to sync what takes no syncs.
///
/// Asked before a later job of the group can poison the file: this job's own bytes are in place, so a sync
/// that succeeds tells the truth about them.
fn check_syncs(job: &mut Running, machine: &Machine) {
    let refused = job.left.iter().find_map(|piece| {
        let refused = machine.check_writable(sync_of(piece)?).err()?;
        Some((piece.index, refused))
    });
    if let (Ok(_), Some((index, failure))) = (&job.result, refused) {
        job.record(index, Err(failure));
    }
}

/// Gives a job what the shared syncs gave.
fn finish(job: &mut Running, results: &BTreeMap<FileId, Result<Output, Failure>>) {
    while job.result.is_ok() {
        let Some(piece) = job.left.pop_front() else { break };
        let result = sync_of(&piece).and_then(|file| results.get(&file));
        job.record(piece.index, result.expect("every sync left over was run").clone());
    }
}
