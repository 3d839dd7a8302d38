//! Making a copy and removing it.
//!
//! A directory is ours once it holds a `copy.meta` that names its segment. Creation writes that file first and
//! syncs every name; removal takes it away last. A crash between the two leaves nothing that could be mistaken
//! for a copy, and nothing that was not ours is ever touched.

use types::WallTime;

use super::log::{Log, Mark};
use super::{Copy, Task};
use crate::disk::{self, ErrorKind, FileId, Name, Output, Path, Step};
use crate::format::meta::Meta;
use crate::planted::Bug;
use crate::segment::index::Sparse;
use crate::segment::layout;
use crate::store::desk::{Desk, Owner};
use crate::store::{Error, Reply, RequestId};

/// A copy being created.
#[derive(Debug)]
pub(super) struct Create {
    request: RequestId,
    file: FileId,
    recycled: Option<Name>,
    stage: Making,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Making {
    /// It has not begun: too many files are open. The copy is expected to fill, or not.
    Waits { expect_full: bool },
    /// Everything in one job, the directory included.
    All,
    /// The directory exists: is it empty?
    Look,
    /// Everything but the directory.
    Files,
}

/// A copy being removed.
#[derive(Debug)]
pub(super) struct Delete {
    /// `None` when a start finishes what an earlier life began.
    request: Option<RequestId>,
    stage: Removing,
}

#[derive(Debug)]
enum Removing {
    /// The intent is being recorded.
    Mark,
    /// The log is being removed, or put aside for reuse.
    Log(Option<Name>),
    /// The file that explains the directory is being removed.
    Meta,
    /// The directory is being removed.
    Dir,
}

impl Copy {
    /// Makes the copy that `meta` says from nothing.
    pub(in crate::store) fn create(
        desk: &mut Desk,
        request: RequestId,
        meta: Meta,
        expect_full: bool,
    ) -> Self {
        let mut copy = Self::new(Meta { born: desk.journal.born(), ..meta });
        let stage = Making::Waits { expect_full };
        let task = Create { request, file: desk.new_file(), recycled: None, stage };
        copy.task = Some(Box::new(Task::Create(task)));
        if desk.may_open() {
            copy.begin_creation(desk);
        } else {
            copy.want_open(desk);
        }
        copy
    }

    /// Begins the creation, if it has been waiting.
    pub(super) fn begin_creation(&mut self, desk: &mut Desk) {
        let Some(Task::Create(Create { stage: Making::Waits { expect_full }, request, file, .. })) =
            self.task.as_deref()
        else {
            return;
        };
        let recycled = if *expect_full { desk.take_file() } else { None };
        let task = Create { request: *request, file: *file, recycled, stage: Making::All };
        desk.opening += 1;
        self.make(desk, task);
    }

    fn make(&mut self, desk: &mut Desk, task: Create) {
        let segment = self.meta.segment;
        let dir = layout::dir(segment);
        let log = layout::log(segment, self.meta.base);
        let mut steps = Vec::new();
        if task.stage == Making::All {
            steps.push(Step::CreateDir(dir.clone()));
        } else {
            desk.run(Owner::Nobody, vec![Step::Remove(layout::meta_aside(segment))]);
            // The failed attempt may have been for another base.
            let failed = desk.half_created.get(&segment).copied();
            for base in failed.into_iter().chain([self.meta.base]) {
                desk.run(Owner::Nobody, vec![Step::Remove(layout::log(segment, base))]);
            }
        }
        steps.extend(self.meta_steps(desk));
        match &task.recycled {
            Some(name) => {
                let from = Path { dir: Some(desk.recycle_dir()), name: name.clone() };
                steps.push(Step::Rename { from, to: log.clone() });
                steps.push(Step::SyncDir(Some(desk.recycle_dir())));
            }
            None => steps.push(Step::Create { file: task.file, path: log.clone() }),
        }
        if !desk.config.has_bug(Bug::SkipDirSync) {
            steps.push(Step::SyncDir(Some(dir)));
            steps.push(Step::SyncDir(None));
        }
        if task.recycled.is_some() {
            steps.push(Step::Open { file: task.file, path: log });
        }
        self.task = Some(Box::new(Task::Create(task)));
        desk.run(Owner::Task(segment), steps);
    }

    pub(super) fn create_done(&mut self, desk: &mut Desk, task: Create, result: Result<Output, disk::Error>) {
        let segment = self.meta.segment;
        match (task.stage, result) {
            (Making::All | Making::Files, Ok(output)) => self.created(desk, &task, &output),
            (Making::All, Err(error)) if error.kind == ErrorKind::Exists && error.step == 0 => {
                if desk.half_created.contains_key(&segment) {
                    return self.make(desk, Create { stage: Making::Files, ..task });
                }
                self.task = Some(Box::new(Task::Create(Create { stage: Making::Look, ..task })));
                desk.run(Owner::Task(segment), vec![Step::List(Some(layout::dir(segment)))]);
            }
            (Making::Look, Ok(Output::Entries(entries))) => {
                // An earlier life may have crashed between the directory and its `copy.meta`.
                if entries.iter().all(|entry| entry.name == layout::META_ASIDE && !entry.is_dir) {
                    return self.make(desk, Create { stage: Making::Files, ..task });
                }
                self.not_created(desk, &task, Error::Exists);
            }
            (Making::Waits { .. }, Ok(_)) => unreachable!("nothing was asked of the disk"),
            (Making::Look, Ok(Output::Done | Output::Length(_) | Output::Data(_))) => {
                self.not_created(desk, &task, Error::Exists);
            }
            (Making::Waits { .. } | Making::All | Making::Look | Making::Files, Err(error)) => {
                if task.stage != Making::Look {
                    desk.half_created.insert(segment, self.meta.base);
                }
                self.not_created(desk, &task, Error::Storage(error));
            }
        }
    }

    fn created(&mut self, desk: &mut Desk, task: &Create, output: &Output) {
        let segment = self.meta.segment;
        let allocated = match output {
            Output::Length(len) => *len,
            Output::Done | Output::Data(_) | Output::Entries(_) => 0,
        };
        desk.half_created.remove(&segment);
        self.aside_clean = true;
        let mark = Mark { end: self.meta.base, position: 0 };
        let path = layout::log(segment, self.meta.base);
        let mut log = Log::new(path, mark, Sparse::default(), allocated, WallTime::default());
        log.set_file(desk, segment, task.file);
        self.log = Some(Box::new(log));
        desk.reply(task.request, Reply::Created);
    }

    fn not_created(&mut self, desk: &mut Desk, task: &Create, error: Error) {
        desk.run(Owner::Nobody, vec![Step::Close(task.file)]);
        self.gone = true;
        desk.reply(task.request, Reply::Failed(error));
    }

    pub(super) fn start_delete(&mut self, desk: &mut Desk, request: RequestId) {
        self.delete(desk, Some(request));
    }

    /// Removes the copy, for a request or to finish what an earlier life began.
    pub(in crate::store) fn delete(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        self.meta.deleting = true;
        self.task = Some(Box::new(Task::Delete(Delete { request, stage: Removing::Mark })));
        self.replace_meta(desk, Owner::Task(self.meta.segment));
    }

    pub(super) fn delete_done(&mut self, desk: &mut Desk, task: Delete, result: Result<Output, disk::Error>) {
        let request = task.request;
        match (task.stage, result) {
            // On a full volume the intent cannot be recorded, and space is what removal gives back.
            (Removing::Mark, Ok(_) | Err(_)) => self.remove_log(desk, request),
            (Removing::Log(recycled), Ok(_)) => {
                desk.recycled.extend(recycled);
                self.remove_meta(desk, request);
            }
            (Removing::Log(Some(_)), Err(error))
                if error.kind == ErrorKind::NotFound && desk.config.has_bug(Bug::ForgetFailedRename) =>
            {
                self.remove_meta(desk, request);
            }
            // Whatever kept the file from being put aside, it can still be removed.
            (Removing::Log(Some(_)), Err(_)) => self.unlink_log(desk, request),
            (Removing::Log(None), Err(error)) if error.kind == ErrorKind::NotFound => {
                self.remove_meta(desk, request)
            }
            (Removing::Meta, Ok(_)) => self.remove_dir(desk, request),
            (Removing::Meta, Err(error)) if error.kind == ErrorKind::NotFound => {
                self.remove_dir(desk, request)
            }
            (Removing::Dir, Ok(_)) => self.deleted(desk, request),
            // Somebody else's files keep the directory, which nothing explains any more.
            (Removing::Dir, Err(error))
                if matches!(error.kind, ErrorKind::NotEmpty | ErrorKind::NotFound) =>
            {
                self.deleted(desk, request);
            }
            (Removing::Log(None) | Removing::Meta | Removing::Dir, Err(error)) => {
                self.aside_clean = false;
                if let Some(request) = request {
                    desk.reply(request, Reply::Failed(Error::Storage(error)));
                }
            }
        }
    }

    fn remove_log(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        let segment = self.meta.segment;
        let allocated = self.log.as_ref().map_or(self.meta.durable_position, |log| log.allocated);
        let sound = self.meta.latched.is_none() && self.log.as_ref().is_none_or(|log| log.stopped.is_none());
        if let Some(mut log) = self.log.take() {
            log.close(desk);
        }
        desk.journal.forget(segment);
        desk.run(Owner::Nobody, vec![Step::Remove(layout::index(segment, self.meta.base))]);
        let room = desk.recycled.len() < desk.config.recycled_files_max;
        if !sound || !room || allocated < desk.config.recycled_bytes_min {
            return self.unlink_log(desk, request);
        }
        let (dir, name) = (desk.recycle_dir(), desk.new_recycled());
        desk.run(Owner::Nobody, vec![Step::CreateDir(dir.clone()), Step::SyncDir(None)]);
        let to = Path { dir: Some(dir.clone()), name: name.clone() };
        let from = layout::log(segment, self.meta.base);
        // Only once both names are settled is the file surely in one place: see `start` for a crash in between.
        let source = Step::SyncDir(Some(layout::dir(segment)));
        let steps = vec![Step::Rename { from, to }, source, Step::SyncDir(Some(dir))];
        self.removing(desk, request, Removing::Log(Some(name)), steps);
    }

    fn unlink_log(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        let log = layout::log(self.meta.segment, self.meta.base);
        self.removing(desk, request, Removing::Log(None), vec![Step::Remove(log)]);
    }

    fn remove_meta(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        let segment = self.meta.segment;
        let dir = Some(layout::dir(segment));
        desk.run(Owner::Nobody, vec![Step::Remove(layout::meta_aside(segment))]);
        // The log is gone for good before the file that explains it: a crash leaves a removal to finish, never
        // bytes that nothing explains.
        let steps = vec![Step::SyncDir(dir.clone()), Step::Remove(layout::meta(segment)), Step::SyncDir(dir)];
        self.removing(desk, request, Removing::Meta, steps);
    }

    fn remove_dir(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        let steps = vec![Step::RemoveDir(layout::dir(self.meta.segment)), Step::SyncDir(None)];
        self.removing(desk, request, Removing::Dir, steps);
    }

    fn removing(&mut self, desk: &mut Desk, request: Option<RequestId>, stage: Removing, steps: Vec<Step>) {
        self.task = Some(Box::new(Task::Delete(Delete { request, stage })));
        desk.run(Owner::Task(self.meta.segment), steps);
    }

    fn deleted(&mut self, desk: &mut Desk, request: Option<RequestId>) {
        self.gone = true;
        desk.unrecorded.remove(&self.meta.segment);
        if let Some(request) = request {
            desk.reply(request, Reply::Deleted);
        }
    }
}
