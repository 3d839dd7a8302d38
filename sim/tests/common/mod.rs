//! What the tests of the simulator share: one place through which the disk's tests talk to it, and what is done with
//! seeds.

#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

pub mod seeds;

use bytes::Bytes;
use malachi_sim::disk::{Side, SimDisk};
use storage::disk::{Disk, Error, FileId, Job, JobId, Name, Output, Path, Step};

/// A disk and the numbers given out so far.
pub struct Run {
    pub disk: SimDisk,
    jobs: u64,
    files: u64,
}

impl Run {
    pub fn new(disk: SimDisk) -> Self {
        Self { disk, jobs: 0, files: 100 }
    }

    pub fn submit(&mut self, steps: Vec<Step>) -> JobId {
        self.jobs += 1;
        self.disk.submit(Job { id: JobId(self.jobs), steps });
        JobId(self.jobs)
    }

    pub fn run(&mut self, steps: Vec<Step>) -> Result<Output, Error> {
        let id = self.submit(steps);
        let completion = self.disk.wait().expect("a job is outstanding");
        assert_eq!(completion.job, id);
        completion.result
    }

    #[track_caller]
    pub fn done(&mut self, steps: Vec<Step>) {
        assert_eq!(self.run(steps), Ok(Output::Done));
    }

    pub fn file(&mut self) -> FileId {
        self.files += 1;
        FileId(self.files)
    }

    #[track_caller]
    pub fn create(&mut self, path: &Path, content: &[u8]) -> FileId {
        let file = self.file();
        self.done(vec![Step::Create { file, path: path.clone() }, write(file, 0, content)]);
        file
    }

    #[track_caller]
    pub fn open(&mut self, path: &Path) -> FileId {
        let file = self.file();
        let opened = self.run(vec![Step::Open { file, path: path.clone() }]);
        assert!(matches!(opened, Ok(Output::Length(_))), "{opened:?}");
        file
    }

    #[track_caller]
    pub fn read(&mut self, file: FileId) -> Bytes {
        match self.run(vec![Step::Read { file, at: 0, len: 1 << 20 }]) {
            Ok(Output::Data(data)) => data,
            other => panic!("a read gave {other:?}"),
        }
    }

    /// Every name, with spaces between.
    pub fn names(&self) -> String {
        self.disk.list(Side::View).into_keys().collect::<Vec<_>>().join(" ")
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("test names are names")
}

pub fn top(text: &str) -> Path {
    Path { dir: None, name: name(text) }
}

pub fn below(dir: &str, text: &str) -> Path {
    Path { dir: Some(name(dir)), name: name(text) }
}

pub fn write(file: FileId, at: u64, content: &[u8]) -> Step {
    Step::Write { file, at, data: vec![Bytes::copy_from_slice(content)] }
}
