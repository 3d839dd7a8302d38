//! The data directory itself: found or made, and locked.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The file that is locked while a process uses the directory. Left in place when it ends: removing it would
/// let two processes lock two files of the same name.
pub(super) const LOCK_NAME: &str = "lock";

/// An open and locked data directory.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// Unlocked by the kernel when it is closed, whatever ends the process.
    _lock: OwnedFd,
}

/// Opens the directory, makes it if it is missing, and locks it.
pub(super) fn open(path: &Path) -> io::Result<Root> {
    make(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| explain(path, "cannot open the data directory", errno.into()))?;
    let lock = lock(path, &fd)?;
    Ok(Root { path: path.to_owned(), fd, _lock: lock })
}

fn lock(path: &Path, root: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::openat(root, LOCK_NAME, flags, Mode::from_raw_mode(0o600)).map_err(|errno| {
        explain(&path.join(LOCK_NAME), "cannot open the lock of the data directory", errno.into())
    })?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => {
            let message = format!("the data directory {} is in use by another process", path.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
        }
        Err(errno) => Err(explain(path, "cannot lock the data directory", errno.into())),
    }
}

/// Makes a directory and those above it, each durable before the next.
fn make(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => {
            let message = format!("the data directory {} is not a directory", path.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(explain(path, "cannot look at the data directory", error)),
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    make(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        // Another process made it meanwhile; the lock decides who uses it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(explain(path, "cannot make the data directory", error)),
    }
    std::fs::File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| explain(parent, "cannot sync the directory above the data directory", error))
}

fn explain(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}
