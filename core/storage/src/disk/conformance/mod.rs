//! One suite for every disk: each sentence of the contract in [`super`] that can be checked without cutting
//! the power.
//!
//! Each case is a public function over a [`Lab`]; [`crate::disk_conformance`] makes a test of every one. The
//! cases know nothing about the disk under test beyond the trait. What power loss leaves is checked where
//! power can be cut: in the tests of the simulated disk.

mod content;
mod names;
mod order;

use bytes::Bytes;

pub use content::*;
pub use names::*;
pub use order::*;

use super::{Completion, Dir, Disk, Entry, Error, ErrorKind, FileId, Job, JobId, Name, Output, Path, Step};

/// Makes one test for each case of the suite.
///
/// `$fresh` gives an empty disk each time it is evaluated; `$reopen` is a closure that ends the process's
/// use of a disk (nothing is outstanding) and opens the same directory again.
#[macro_export]
macro_rules! disk_conformance {
    ($fresh:expr, $reopen:expr) => {
        $crate::disk_conformance! { @each $fresh, $reopen;
            nothing_outstanding_gives_nothing
            jobs_complete_in_order
            later_writes_win
            a_failure_stops_its_job_and_no_other
            the_output_is_that_of_the_last_step
            creating_takes_only_free_names
            opening_takes_only_files
            directories_go_when_empty
            removing_takes_only_files
            renaming_replaces_and_keeps_ids
            renaming_between_directories
            renaming_what_is_not_there
            reads_are_short_only_at_the_end
            writes_extend_and_gaps_are_zero
            slices_are_written_back_to_back
            many_slices_and_many_bytes
            zeroing_overwrites_and_extends
            truncating_cuts_and_grows
            closing_never_fails
            what_is_not_open_fails
            a_failed_file_takes_nothing_more
            a_failed_file_in_shared_syncs
            shared_syncs_over_several_files
            reading_jobs_see_completed_jobs
            reading_jobs_beside_writing_jobs
            mixed_jobs_keep_their_order
            listing_shows_names_and_kinds
            syncing_directories
            reopening_finds_what_was_synced
        }
    };
    (@each $fresh:expr, $reopen:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::disk::conformance::$case(&mut $crate::disk::conformance::Lab::new($fresh, $reopen));
            }
        )*
    };
}

/// A disk under test, and the numbers given out so far.
pub struct Lab<D> {
    disk: Option<D>,
    reopen: Box<dyn FnMut(D) -> D>,
    jobs: u64,
    files: u64,
}

impl<D: Disk> Lab<D> {
    /// An empty disk, and how to open it again.
    pub fn new(fresh: D, reopen: impl FnMut(D) -> D + 'static) -> Self {
        Self { disk: Some(fresh), reopen: Box::new(reopen), jobs: 0, files: 0 }
    }

    fn disk(&mut self) -> &mut D {
        self.disk.as_mut().expect("only reopening takes the disk, and gives it back")
    }

    fn submit(&mut self, steps: Vec<Step>) -> JobId {
        self.jobs += 1;
        let id = JobId(self.jobs);
        self.disk().submit(Job { id, steps });
        id
    }

    #[track_caller]
    fn next(&mut self) -> Completion {
        self.disk().wait().expect("a job is outstanding")
    }

    /// The results of jobs outstanding, which must be exactly these; in order only if they are ordered.
    #[track_caller]
    fn expect(&mut self, ids: &[JobId]) -> Vec<Result<Output, Error>> {
        let mut results = Vec::new();
        for id in ids {
            let completion = self.next();
            assert_eq!(completion.job, *id, "completed out of order");
            results.push(completion.result);
        }
        assert!(self.disk().wait().is_none(), "a job completed twice");
        results
    }

    #[track_caller]
    fn run(&mut self, steps: Vec<Step>) -> Result<Output, Error> {
        let id = self.submit(steps);
        self.expect(&[id]).pop().expect("one job, one result")
    }

    #[track_caller]
    fn done(&mut self, steps: Vec<Step>) {
        assert_eq!(self.run(steps), Ok(Output::Done));
    }

    /// Asserts that a job fails so, in that step.
    #[track_caller]
    fn fails(&mut self, kind: ErrorKind, step: usize, steps: Vec<Step>) {
        let error = self.run(steps).expect_err("the job cannot succeed");
        assert_eq!((error.kind, error.step), (kind, step), "{error}");
        assert!(!error.detail.is_empty(), "an error says where");
    }

    fn file(&mut self) -> FileId {
        self.files += 1;
        FileId(self.files)
    }

    /// A new file with that content.
    #[track_caller]
    fn create(&mut self, path: &Path, content: &[u8]) -> FileId {
        let file = self.file();
        self.done(vec![Step::Create { file, path: path.clone() }, write(file, 0, content)]);
        file
    }

    #[track_caller]
    fn open(&mut self, path: &Path) -> (FileId, u64) {
        let file = self.file();
        match self.run(vec![Step::Open { file, path: path.clone() }]) {
            Ok(Output::Length(length)) => (file, length),
            other => panic!("opening {path} gave {other:?}"),
        }
    }

    #[track_caller]
    fn read(&mut self, file: FileId, at: u64, len: usize) -> Bytes {
        data(self.run(vec![Step::Read { file, at, len }]))
    }

    #[track_caller]
    fn read_all(&mut self, path: &Path) -> Bytes {
        let (file, length) = self.open(path);
        let content = self.read(file, 0, 1 << 26);
        assert_eq!(u64::try_from(content.len()), Ok(length), "length against content");
        self.done(vec![Step::Close(file)]);
        content
    }

    #[track_caller]
    fn list(&mut self, dir: &Dir) -> Vec<Entry> {
        match self.run(vec![Step::List(dir.clone())]) {
            Ok(Output::Entries(mut entries)) => {
                entries.sort();
                entries
            }
            other => panic!("listing gave {other:?}"),
        }
    }

    #[track_caller]
    fn names(&mut self, dir: &Dir) -> Vec<String> {
        self.list(dir).into_iter().map(|entry| entry.name).collect()
    }

    fn reopen(&mut self) {
        let disk = self.disk.take().expect("only reopening takes the disk, and gives it back");
        self.disk = Some((self.reopen)(disk));
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("test names are names")
}

fn top(text: &str) -> Path {
    Path { dir: None, name: name(text) }
}

fn below(dir: &str, text: &str) -> Path {
    Path { dir: Some(name(dir)), name: name(text) }
}

fn write(file: FileId, at: u64, content: &[u8]) -> Step {
    Step::Write { file, at, data: vec![Bytes::copy_from_slice(content)] }
}

#[track_caller]
fn data(result: Result<Output, Error>) -> Bytes {
    match result {
        Ok(Output::Data(data)) => data,
        other => panic!("a read gave {other:?}"),
    }
}
