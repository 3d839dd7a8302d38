//! What a job reaches: by this alone a disk knows which jobs cannot tell in what order they ran.
//!
//! Owns the rule of "side by side" in the contract, for every disk. Does not run anything.

use std::collections::BTreeSet;

use super::{Dir, FileId, Job, Name, Step};

/// Something that two jobs side by side do not share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A directory below the data directory: its name and the names in it.
    Dir(Name),
    /// An open file, by its number.
    File(FileId),
}

impl Job {
    /// What the job works on, when it may run beside others; `None` when it must run alone.
    ///
    /// Alone runs what works on names in the data directory itself, and what changes a file that it did not open:
    /// such a file may be open under another number too, which the steps do not say. The sync of the data directory
    /// itself is no place: it takes nothing away from anybody.
    #[must_use]
    pub fn reach(&self) -> Option<BTreeSet<Place>> {
        let (mut reach, mut opened) = (BTreeSet::new(), BTreeSet::new());
        for step in &self.steps {
            match step {
                Step::SyncDir(None) => {}
                Step::CreateDir(name) | Step::RemoveDir(name) => {
                    reach.insert(Place::Dir(name.clone()));
                }
                Step::SyncDir(dir) | Step::List(dir) => {
                    reach.insert(below(dir)?);
                }
                Step::Open { file, path } | Step::Create { file, path } => {
                    opened.insert(*file);
                    reach.extend([below(&path.dir)?, Place::File(*file)]);
                }
                Step::Rename { from, to } => reach.extend([below(&from.dir)?, below(&to.dir)?]),
                Step::Remove(path) => {
                    reach.insert(below(&path.dir)?);
                }
                Step::Close(file) | Step::Read { file, .. } => {
                    reach.insert(Place::File(*file));
                }
                Step::Write { file, .. }
                | Step::Zero { file, .. }
                | Step::Sync(file)
                | Step::Truncate { file, .. } => {
                    opened.contains(file).then_some(())?;
                }
            }
        }
        Some(reach)
    }
}

fn below(dir: &Dir) -> Option<Place> {
    dir.clone().map(Place::Dir)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{JobId, Path};
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn reach(steps: Vec<Step>) -> Option<Vec<Place>> {
        Job { id: JobId(0), steps }.reach().map(|reach| reach.into_iter().collect())
    }

    fn at(dir: Option<&str>) -> Path {
        Path { dir: dir.map(name), name: name("f") }
    }

    #[test]
    fn what_a_job_makes_itself_is_its_own() {
        let file = FileId(7);
        let steps = vec![
            Step::CreateDir(name("d")),
            Step::Create { file, path: at(Some("d")) },
            Step::Write { file, at: 0, data: Vec::new() },
            Step::Sync(file),
            Step::Close(file),
            Step::Rename { from: at(Some("e")), to: at(Some("d")) },
            Step::SyncDir(Some(name("d"))),
            Step::SyncDir(None),
        ];
        let expected = [Place::Dir(name("d")), Place::Dir(name("e")), Place::File(file)];
        assert_eq!(reach(steps).unwrap(), expected);
    }

    #[test]
    fn what_others_may_see_under_another_name_runs_alone() {
        let file = FileId(7);
        for steps in [
            vec![Step::Write { file, at: 0, data: Vec::new() }],
            vec![Step::Truncate { file, len: 0 }],
            vec![Step::Sync(file), Step::Open { file, path: at(Some("d")) }],
            vec![Step::Open { file, path: at(None) }],
            vec![Step::Remove(at(None))],
            vec![Step::SyncDir(None), Step::List(None)],
            vec![Step::Rename { from: at(None), to: at(Some("d")) }],
        ] {
            assert_eq!(reach(steps.clone()), None, "{steps:?}");
        }
        assert_eq!(reach(vec![Step::Close(file)]), Some(vec![Place::File(file)]));
    }
}
