//! What earlier lives left: files put aside for reuse, and directories of copies that never came to be.
//!
//! A creation writes `copy.meta` aside, renames it and syncs the name before it makes the log, and a removal takes
//! `copy.meta` away when the log is gone for good. So a crash in the middle of either leaves a directory that is
//! empty or holds nothing but `copy.meta.tmp`, an index, or, where a disk kept a later name and lost an earlier one, a log
//! without a byte in it. Nobody was ever told of such a copy, and nothing is lost with its directory. Whatever else
//! is in it makes it somebody's.

use types::SegmentId;

use super::Lookup;
use crate::disk::{self, Dir, Entry, FileId, Name, Output, Path, Step};
use crate::planted::Bug;
use crate::segment::layout;
use crate::store::Store;
use crate::store::desk::Owner;

/// A directory without a `copy.meta`, being looked at.
#[derive(Debug)]
pub(in crate::store) enum Leftover {
    /// It is being listed.
    List,
    /// The log in it, one of these names, is being opened to see whether it is empty.
    Log(Name, Vec<Name>, FileId),
    /// It is being removed.
    Remove,
}

impl Store {
    /// Removes the names of files that an earlier life put aside.
    ///
    /// A crash inside a rename may have left a file under both of its names; used again under one of them it
    /// would change under the other. Its blocks are not worth that risk.
    pub(super) fn forget_recycled(&mut self, entries: Vec<Entry>) {
        let dir = Some(self.desk.recycle_dir());
        let names =
            entries.into_iter().filter(|entry| !entry.is_dir).filter_map(|entry| Name::new(&entry.name));
        for name in names.filter(|name| name.as_str().ends_with(".log")) {
            if self.desk.config.has_bug(Bug::ReuseFoundFiles) {
                self.desk.recycled.push(name);
                continue;
            }
            self.desk.run(Owner::Nobody, vec![Step::Remove(Path { dir: dir.clone(), name })]);
        }
    }

    pub(super) fn look_at_leftover(&mut self, segment: SegmentId) {
        self.inspect(segment, Leftover::List, vec![Step::List(Some(layout::dir(segment)))]);
    }

    fn inspect(&mut self, segment: SegmentId, leftover: Leftover, steps: Vec<Step>) {
        self.start.reading += 1;
        self.desk.run(Owner::Start(Lookup::Leftover(segment, leftover)), steps);
    }

    pub(super) fn leftover(
        &mut self,
        segment: SegmentId,
        leftover: Leftover,
        result: Result<Output, disk::Error>,
    ) {
        match (leftover, result) {
            (Leftover::List, Ok(Output::Entries(entries))) => self.leftover_listed(segment, &entries),
            (Leftover::Log(log, names, file), Ok(Output::Length(0))) => {
                let close = Step::Close(file);
                self.remove_leftover(segment, vec![close], names.into_iter().chain([log]));
            }
            (Leftover::Log(_, _, file), Ok(_) | Err(_)) => {
                self.desk.run(Owner::Nobody, vec![Step::Close(file)]);
                self.foreign(segment.to_string());
            }
            (Leftover::Remove, Ok(_)) => self.start.cleared += 1,
            // What cannot be looked at or removed now is a leftover of the next start.
            (Leftover::List | Leftover::Remove, Ok(_) | Err(_)) => self.foreign(segment.to_string()),
        }
    }

    fn leftover_listed(&mut self, segment: SegmentId, entries: &[Entry]) {
        let (mut names, mut logs) = (Vec::new(), Vec::new());
        for entry in entries {
            match Name::new(&entry.name).filter(|_| !entry.is_dir) {
                Some(name) if is_worthless(name.as_str()) => names.push(name),
                Some(name) if layout::is_log(name.as_str()) => logs.push(name),
                Some(_) | None => return self.foreign(segment.to_string()),
            }
        }
        match logs.pop() {
            None => self.remove_leftover(segment, Vec::new(), names),
            Some(log) if logs.is_empty() => {
                let file = self.desk.new_file();
                let path = Path { dir: dir(segment), name: log.clone() };
                self.inspect(segment, Leftover::Log(log, names, file), vec![Step::Open { file, path }]);
            }
            Some(_) => self.foreign(segment.to_string()),
        }
    }

    fn remove_leftover(
        &mut self,
        segment: SegmentId,
        mut steps: Vec<Step>,
        names: impl IntoIterator<Item = Name>,
    ) {
        steps.extend(names.into_iter().map(|name| Step::Remove(Path { dir: dir(segment), name })));
        steps.extend([Step::RemoveDir(layout::dir(segment)), Step::SyncDir(None)]);
        self.inspect(segment, Leftover::Remove, steps);
    }
}

/// Names of files that are worth nothing by themselves.
fn is_worthless(name: &str) -> bool {
    name == layout::META_ASIDE || layout::is_index(name)
}

fn dir(segment: SegmentId) -> Dir {
    Some(layout::dir(segment))
}
