//! Runs jobs in order, and lets those that write and then sync share the work.
//!
//! ```text
//! waiting:  [W a, S a] [W a, S a] [W b, S b] [W a, S a] [Create c] ...
//!           └────────────── one flush ────────────────┘
//! calls:    pwritev a (three writes joined), pwritev b, fdatasync a beside fdatasync b, four completions
//! ```
//!
//! Invariants
//! - A job succeeds only if its own bytes were written and a sync of each of its files that started after
//!   that succeeded.
//! - Within one file writes happen in the order of the jobs. Writes to different files may change places:
//!   nobody can tell, because nothing is completed in between.
//! - A failed write fails its job and every later one on that file; earlier jobs on it still get their sync,
//!   which tells the truth about their bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use storage::disk::{Completion, Error, FileId, Job, JobId, Output, Step};

use super::abreast;
use super::failure::Failure;
use super::file::OpenFile;
use super::syncers::Target;
use super::volume::Volume;

/// Runs the next job of `waiting`, with all behind it that can share its syncs or run beside it. `waiting` is not
/// empty.
pub(super) fn run_next(volume: &mut Volume, waiting: &mut VecDeque<Job>, complete: &dyn Fn(Completion)) {
    let able = waiting.iter().take_while(|job| can_share(job)).count();
    if able > 0 {
        Flush::new(waiting.drain(..able)).run(volume, complete);
        return;
    }
    let reaches = abreast::gather(waiting.iter());
    if reaches.len() > 1 {
        abreast::run(volume, waiting.drain(..reaches.len()), reaches, complete);
    } else if let Some(job) = waiting.pop_front() {
        complete(run_alone(volume, &job));
    }
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write { .. } | Step::Zero { .. } | Step::Truncate { .. })
}

/// Writes, zeroings and truncations first, then syncs only.
fn can_share(job: &Job) -> bool {
    let syncs = job.steps.iter().skip_while(|step| is_write(step));
    syncs.into_iter().all(|step| matches!(step, Step::Sync(_)))
}

fn run_alone(volume: &mut Volume, job: &Job) -> Completion {
    let mut result = Ok(Output::Done);
    for (index, step) in job.steps.iter().enumerate() {
        result = volume.run(step).map_err(|failure| failure.in_step(index));
        if result.is_err() {
            volume.shared.counters.failed();
            break;
        }
    }
    Completion { job: job.id, result }
}

/// A job of a flush.
struct Member {
    id: JobId,
    steps: Vec<Step>,
    result: Result<(), Error>,
}

impl Member {
    /// The one file all its steps are on, if it writes at all.
    fn only_file(&self) -> Option<FileId> {
        let mut files = self.steps.iter().map(file_of);
        let first = files.next()??;
        (is_write(&self.steps[0]) && files.all(|file| file == Some(first))).then_some(first)
    }

    /// Its syncs, with their places in the job.
    fn syncs(&self) -> impl Iterator<Item = (usize, FileId)> + '_ {
        self.steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| if let Step::Sync(file) = step { Some((index, *file)) } else { None })
    }

    /// The first failure is the job's.
    fn fail(&mut self, step: usize, failure: Failure) {
        if self.result.is_ok() {
            self.result = Err(failure.in_step(step));
        }
    }
}

fn file_of(step: &Step) -> Option<FileId> {
    match step {
        Step::Write { file, .. }
        | Step::Zero { file, .. }
        | Step::Truncate { file, .. }
        | Step::Sync(file) => Some(*file),
        Step::CreateDir(_)
        | Step::RemoveDir(_)
        | Step::SyncDir(_)
        | Step::Open { .. }
        | Step::Create { .. }
        | Step::Close(_)
        | Step::Rename { .. }
        | Step::Remove(_)
        | Step::Read { .. }
        | Step::List(_) => None,
    }
}

/// Writes to one file that lie back to back and are not written yet.
struct Run {
    file: Arc<OpenFile>,
    at: u64,
    end: u64,
    slices: Vec<Bytes>,
    parts: Vec<Part>,
}

/// One step's share of a run.
struct Part {
    member: usize,
    step: usize,
    /// Where in the file it ends.
    end: u64,
}

/// Jobs that share their syncs, in order.
struct Flush {
    members: Vec<Member>,
    runs: BTreeMap<FileId, Run>,
}

impl Flush {
    fn new(jobs: impl Iterator<Item = Job>) -> Self {
        let members = jobs.map(|job| Member { id: job.id, steps: job.steps, result: Ok(()) }).collect();
        Self { members, runs: BTreeMap::new() }
    }

    fn run(mut self, volume: &mut Volume, complete: &dyn Fn(Completion)) {
        for at in 0..self.members.len() {
            match self.members[at].only_file() {
                Some(file) => self.write_joined(volume, at, file),
                None => self.write_apart(volume, at),
            }
        }
        self.write_runs(volume);
        self.sync(volume);
        let counters = &volume.shared.counters;
        counters.flushed(self.members.len());
        for member in self.members {
            if member.result.is_err() {
                counters.failed();
            }
            complete(Completion { job: member.id, result: member.result.map(|()| Output::Done) });
        }
    }

    /// Adds a job's writes to the run of its file.
    fn write_joined(&mut self, volume: &mut Volume, at: usize, file: FileId) {
        let steps = std::mem::take(&mut self.members[at].steps);
        for (index, step) in steps.iter().enumerate() {
            let result = if let Step::Write { at: place, data, .. } = step {
                self.add(volume, file, Part { member: at, step: index, end: *place }, data)
            } else if is_write(step) {
                // Zeroing brings its own buffers, and a truncation none: they join nothing.
                self.write_run(volume, file);
                if self.members[at].result.is_err() { Ok(()) } else { volume.run(step).map(|_| ()) }
            } else {
                // A sync waits for those of the other jobs.
                Ok(())
            };
            if let Err(failure) = result {
                self.members[at].fail(index, failure);
            }
            if self.members[at].result.is_err() {
                break;
            }
        }
        self.members[at].steps = steps;
    }

    /// Puts one write behind the run of its file, or starts a new run with it. `part.end` comes in as the
    /// place of the write.
    fn add(
        &mut self,
        volume: &mut Volume,
        id: FileId,
        mut part: Part,
        data: &[Bytes],
    ) -> Result<(), Failure> {
        let place = part.end;
        if self.runs.get(&id).is_some_and(|run| run.end != place) {
            self.write_run(volume, id);
            if self.members[part.member].result.is_err() {
                return Ok(());
            }
        }
        let file = volume.shared.file(id)?;
        file.check_writable()?;
        let len = data.iter().map(|slice| slice.len() as u64).sum();
        file.check_extent(place, len).inspect_err(|_| file.poison())?;
        let new = || Run { file, at: place, end: place, slices: Vec::new(), parts: Vec::new() };
        let run = self.runs.entry(id).or_insert_with(new);
        run.end += len;
        part.end = run.end;
        run.slices.extend(data.iter().filter(|slice| !slice.is_empty()).cloned());
        run.parts.push(part);
        Ok(())
    }

    /// Runs the writes of a job that has several files, or only syncs: in its place among all the others.
    fn write_apart(&mut self, volume: &mut Volume, at: usize) {
        self.write_runs(volume);
        let member = &mut self.members[at];
        for (index, step) in member.steps.iter().enumerate() {
            let result = if let Step::Sync(file) = step {
                volume.shared.file(*file).and_then(|file| file.check_writable())
            } else {
                volume.run(step).map(|_| ())
            };
            if let Err(failure) = result {
                member.fail(index, failure);
                return;
            }
        }
    }

    fn write_runs(&mut self, volume: &Volume) {
        while let Some((file, _)) = self.runs.first_key_value() {
            let file = *file;
            self.write_run(volume, file);
        }
    }

    /// Writes what is gathered for one file, and fails the jobs whose bytes are not in place.
    fn write_run(&mut self, volume: &Volume, file: FileId) {
        let Some(run) = self.runs.remove(&file) else { return };
        let Err(unwritten) = run.file.write(run.at, &run.slices, &volume.shared.counters) else { return };
        run.file.poison();
        let mut failure = unwritten.failure;
        for part in run.parts.iter().filter(|part| part.end > run.at + unwritten.done) {
            self.members[part.member].fail(part.step, failure);
            failure = run.file.check_writable().expect_err("poisoned above");
        }
    }

    /// Syncs each file once for all jobs whose writes succeeded. A later job of the flush may have poisoned it
    /// since; the bytes of these are in place all the same.
    fn sync(&mut self, volume: &Volume) {
        let written = self.members.iter().filter(|member| member.result.is_ok());
        let wanted: BTreeSet<_> = written.flat_map(Member::syncs).map(|(_, file)| file).collect();
        let (mut ids, mut files, mut results) = (Vec::new(), Vec::new(), BTreeMap::new());
        for id in wanted {
            match volume.shared.file(id) {
                Ok(file) => {
                    ids.push(id);
                    files.push(Target::File(file));
                }
                Err(failure) => drop(results.insert(id, Err(failure))),
            }
        }
        let synced = volume.syncers.sync_all(files, &volume.shared.counters);
        results.extend(ids.into_iter().zip(synced));
        for member in self.members.iter_mut().filter(|member| member.result.is_ok()) {
            let failed = member.syncs().find_map(|(index, file)| {
                let result = results.get(&file).expect("every file wanted has its result");
                result.as_ref().err().map(|failure| (index, failure.clone()))
            });
            if let Some((index, failure)) = failed {
                member.fail(index, failure);
            }
        }
    }
}
