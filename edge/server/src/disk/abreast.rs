//! Runs jobs that have nothing in common side by side, so that they share the wait for the device.
//!
//! Making a thousand copies is a thousand jobs of four syncs each, one after the other. In rounds, each job goes on
//! until it wants something synced; then all that is wanted is synced at once, and file systems make one commit of
//! their journal of it.
//!
//! ```text
//! waiting: [Create a, Sync a, Rename a, SyncDir x] [Create b, Sync b, Rename b, SyncDir y] [Remove x/c]
//! round 1:  Create a, Create b          then Sync a beside Sync b
//! round 2:  Rename a, Rename b          then SyncDir x beside SyncDir y
//! round 3:                              Remove x/c, which had to wait for the first job
//! ```
//!
//! Invariants
//! - A step runs after all steps before it in its job, and after all jobs before it that reach what it reaches.
//! - A sync starts after the steps before it in every job that waits for it.
//! - A failure ends its own job only; jobs are completed in order, when all have ended.

use std::collections::{BTreeMap, BTreeSet};

use storage::disk::{Completion, Dir, Error, FileId, Job, Output, Place, Step};

use super::failure::Failure;
use super::syncers::{Synced, Target};
use super::volume::Volume;

/// Jobs of one gathering: what arrives behind them waits for the slowest.
const JOBS_MAX: usize = 256;

/// What each of the first of these jobs reaches, up to the first that must run alone.
pub(super) fn gather<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<BTreeSet<Place>> {
    jobs.take(JOBS_MAX).map_while(Job::reach).collect()
}

/// One job and how far it is.
struct Member {
    job: Job,
    reach: BTreeSet<Place>,
    next: usize,
    result: Result<Output, Error>,
}

impl Member {
    fn is_over(&self) -> bool {
        self.result.is_err() || self.next == self.job.steps.len()
    }

    fn take(&mut self, result: Result<Output, Failure>) {
        self.result = result.map_err(|failure| failure.in_step(self.next));
        self.next += 1;
    }

    /// Runs up to the next sync.
    fn go(&mut self, volume: &mut Volume) {
        while !self.is_over() && !is_sync(&self.job.steps[self.next]) {
            let result = volume.run(&self.job.steps[self.next]);
            self.take(result);
        }
    }

    /// The syncs it stands before.
    fn wants(&self) -> impl Iterator<Item = &Step> {
        let wanted = if self.result.is_ok() { &self.job.steps[self.next..] } else { &[] };
        wanted.iter().take_while(|step| is_sync(step))
    }
}

fn is_sync(step: &Step) -> bool {
    matches!(step, Step::Sync(_) | Step::SyncDir(_))
}

/// Runs jobs to their end; `reaches` are theirs, in order.
pub(super) fn run(
    volume: &mut Volume,
    jobs: impl Iterator<Item = Job>,
    reaches: Vec<BTreeSet<Place>>,
    complete: &dyn Fn(Completion),
) {
    let member = |(job, reach)| Member { job, reach, next: 0, result: Ok(Output::Done) };
    let mut members: Vec<Member> = jobs.zip(reaches).map(member).collect();
    // The first that is not over is in nobody's way but its own: each round brings it further.
    while members.iter().any(|member| !member.is_over()) {
        round(volume, &mut members);
    }
    for Member { job, result, .. } in members {
        if result.is_err() {
            volume.shared.counters.failed();
        }
        complete(Completion { job: job.id, result });
    }
}

fn round(volume: &mut Volume, members: &mut [Member]) {
    let mut held: BTreeSet<Place> = BTreeSet::new();
    let mut running = Vec::new();
    for member in members.iter_mut().filter(|member| !member.is_over()) {
        let free = member.reach.is_disjoint(&held);
        if free {
            member.go(volume);
        }
        if !member.is_over() {
            held.extend(member.reach.iter().cloned());
            if free {
                running.push(member);
            }
        }
    }
    let synced = sync(volume, running.iter().flat_map(|member| member.wants()));
    for member in running {
        let results: Vec<Synced> = member.wants().map(|step| synced.of(step).clone()).collect();
        for result in results {
            if member.result.is_ok() {
                member.take(result.map(|()| Output::Done));
            }
        }
    }
}

/// What the syncs of one round gave.
struct Syncs {
    dirs: BTreeMap<Dir, Synced>,
    files: BTreeMap<FileId, Synced>,
}

impl Syncs {
    fn of(&self, step: &Step) -> &Synced {
        let synced = match step {
            Step::SyncDir(dir) => self.dirs.get(dir),
            Step::Sync(file) => self.files.get(file),
            Step::CreateDir(_)
            | Step::RemoveDir(_)
            | Step::Open { .. }
            | Step::Create { .. }
            | Step::Close(_)
            | Step::Write { .. }
            | Step::Zero { .. }
            | Step::Truncate { .. }
            | Step::Rename { .. }
            | Step::Remove(_)
            | Step::Read { .. }
            | Step::List(_) => None,
        };
        synced.expect("everything that was wanted was synced")
    }
}

fn sync<'a>(volume: &mut Volume, wanted: impl Iterator<Item = &'a Step>) -> Syncs {
    let (mut dirs, mut files, mut targets) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for step in wanted {
        if let Step::SyncDir(dir) = step {
            dirs.insert(dir.clone());
        } else if let Step::Sync(id) = step {
            let file = volume.shared.file(*id).and_then(|file| file.check_writable().map(|()| file));
            match file {
                Ok(file) => targets.push((*id, Target::File(file))),
                Err(failure) => drop(files.insert(*id, Err(failure))),
            }
        }
    }
    let (ids, targets): (Vec<FileId>, Vec<Target>) = targets.into_iter().unzip();
    let synced = volume.syncers.sync_all(targets, &volume.shared.counters);
    files.extend(ids.into_iter().zip(synced));
    Syncs { dirs: volume.sync_dirs(dirs), files }
}
