//! The real disk against the contract, and what only it can show: locks, links, shared syncs.

use std::path::Path;

use malachi_server::disk::{ChannelDisk, Options};
use storage::disk::{Completion, Disk, Entry, ErrorKind, FileId, Job, JobId, Name, Output, Step};
use tempfile::TempDir;

/// A disk and the directory it lies in.
struct TestDisk {
    /// `None` only while it is opened again.
    disk: Option<ChannelDisk>,
    root: TempDir,
}

fn open(root: &Path) -> ChannelDisk {
    ChannelDisk::open(root, &Options::default()).expect("a temporary directory can be opened")
}

impl TestDisk {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        Self { disk: Some(open(root.path())), root }
    }

    fn reopen(mut self) -> Self {
        // Dropped first: it holds the lock.
        drop(self.disk.take());
        self.disk = Some(open(self.root.path()));
        self
    }

    fn disk(&mut self) -> &mut ChannelDisk {
        self.disk.as_mut().expect("open unless being opened again")
    }
}

impl Disk for TestDisk {
    fn submit(&mut self, job: Job) {
        self.disk().submit(job);
    }

    fn wait(&mut self) -> Option<Completion> {
        self.disk().wait()
    }
}

storage::disk_conformance!(TestDisk::new(), TestDisk::reopen);

fn first_error(root: &Path) -> std::io::Error {
    ChannelDisk::open(root, &Options::default()).expect_err("this cannot be opened")
}

fn run(disk: &mut impl Disk, steps: Vec<Step>) -> Result<Output, ErrorKind> {
    disk.submit(Job { id: JobId(1), steps });
    disk.wait().expect("one job is outstanding").result.map_err(|error| error.kind)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("test names are names")
}

#[test]
fn a_directory_belongs_to_one_disk_at_a_time() {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let disk = open(root.path());
    let error = first_error(root.path());
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains(&root.path().display().to_string()), "{error}");
    drop(disk);
    let mut disk = open(root.path());
    assert_eq!(run(&mut disk, vec![Step::List(None)]), Ok(Output::Entries(vec![])), "the lock is not shown");
}

#[test]
fn a_missing_directory_is_made_with_those_above_it() {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let deep = root.path().join("a/b/c");
    drop(open(&deep));
    assert!(deep.is_dir());
    drop(open(&deep));
}

#[test]
fn what_is_no_directory_is_named() {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let file = root.path().join("file");
    std::fs::write(&file, b"kept").expect("a file can be written");
    for wrong in [file.clone(), file.join("below")] {
        let error = first_error(&wrong);
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
    std::fs::create_dir(root.path().join("odd")).expect("a directory can be made");
    std::fs::create_dir(root.path().join("odd/lock")).expect("a directory can be made");
    let error = first_error(&root.path().join("odd"));
    assert!(error.to_string().contains("odd/lock"), "{error}");
}

/// Nothing inside the data directory leads out of it, and nothing but regular files is opened.
#[test]
fn links_and_devices_are_refused() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().expect("a temporary directory can be made");
    std::fs::write(outside.path().join("secret"), b"secret").expect("a file can be written");
    let mut disk = TestDisk::new();
    let root = disk.root.path().to_owned();
    symlink(outside.path().join("secret"), root.join("link")).expect("a link can be made");
    symlink(outside.path(), root.join("dir")).expect("a link can be made");
    symlink(outside.path().join("new"), root.join("dangling")).expect("a link can be made");
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), rustix::fs::Mode::RWXU)
        .expect("a pipe can be made");
    let path = |dir: Option<&str>, file: &str| storage::disk::Path { dir: dir.map(name), name: name(file) };
    let file = FileId(1);
    for path in [path(None, "link"), path(Some("dir"), "secret"), path(None, "dangling"), path(None, "fifo")]
    {
        assert_eq!(run(&mut disk, vec![Step::Open { file, path }]), Err(ErrorKind::Other));
    }
    let into = Step::Create { file, path: path(Some("dir"), "new") };
    assert_eq!(run(&mut disk, vec![into]), Err(ErrorKind::Other));
    let over = Step::Create { file, path: path(None, "dangling") };
    assert_eq!(run(&mut disk, vec![over]), Err(ErrorKind::Exists));
    assert_eq!(run(&mut disk, vec![Step::List(Some(name("dir")))]), Err(ErrorKind::Other));
    assert_eq!(run(&mut disk, vec![Step::SyncDir(Some(name("dir")))]), Err(ErrorKind::Other));
    assert!(!outside.path().join("new").exists());
}

#[test]
fn a_file_id_in_use_is_not_given_away() {
    let mut disk = TestDisk::new();
    let create =
        |text| Step::Create { file: FileId(1), path: storage::disk::Path { dir: None, name: name(text) } };
    assert_eq!(run(&mut disk, vec![create("a")]), Ok(Output::Done));
    assert_eq!(run(&mut disk, vec![create("b")]), Err(ErrorKind::Other));
    let entries = vec![Entry { name: "a".to_owned(), is_dir: false }];
    assert_eq!(run(&mut disk, vec![Step::List(None)]), Ok(Output::Entries(entries)));
}
