//! The small Disk trait: all that storage asks of the world, and all that it may rely on.
//!
//! A [`Job`] is a list of steps run in order; the first failure stops it, and the job is answered by one
//! [`Completion`]. There is one `Disk` for each data directory. The rules below are the contract that the
//! real disk, the simulated one and every caller share; the suite in `conformance` checks them.
//!
//! **Order.** Jobs take effect, and are completed, in the order they were submitted. A job made of reading
//! steps only ([`Step::is_reading`]) is outside that order: it runs at any moment between its submission and
//! its completion, beside other jobs, and sees each earlier *completed* job whole. A file is read only after
//! the job that opened it has completed.
//!
//! **Durability.** A completed [`Step::Sync`] makes durable every write, zeroing, truncation and length of
//! that file that took effect before the sync *started*. A completed [`Step::SyncDir`] does the same for the
//! names in one directory: files and directories created, renamed or removed in it. Nothing else is durable:
//! on power loss each write that is not synced is kept, torn at any byte or sector, or lost, independently
//! of all others and out of order, and so is each unsynced name, rename and truncation.
//!
//! **Sharing.** A disk may run the writes, zeroings and truncations of several waiting jobs first and then sync each
//! file once. It completes a job only after a sync that started after the last of them in the job.
//!
//! **Side by side.** Of waiting jobs that follow each other and none of which must run alone ([`Job::reach`]), a disk
//! may run those that reach nothing in common in any order, step by step, and sync once what several of them want
//! synced. Each sync starts after the steps before it in its job; the jobs are completed in the order of submission.
//!
//! **Failure.** When a write, zeroing, truncation or sync of a file fails, the file is *poisoned*: the state
//! of everything since its last completed sync is unknown, and every later step on that [`FileId`] other than
//! [`Step::Close`] and [`Step::Read`] fails with [`ErrorKind::Poisoned`], a sync too: a failed sync is never
//! retried into success. Opening the file again under a new id gives what the disk really holds.
//!
//! **Paths** are relative to the data directory, at most one directory deep, and built only from [`Name`]s,
//! so that nothing a client or a peer sends can name a file outside.

#[cfg(feature = "conformance")]
pub mod conformance;
mod reach;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use reach::Place;

/// Runs jobs against one data directory.
pub trait Disk {
    /// Takes a job. Never blocks on the work itself.
    fn submit(&mut self, job: Job);

    /// The next completion, waiting for it (or making it happen); `None` when no job is outstanding.
    fn wait(&mut self) -> Option<Completion>;
}

/// Chosen by the submitter, echoed in the completion; never reused within one process lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// An open file, numbered by whoever opens it; never reused within one process lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// One component of a path: 1 to 255 bytes of `a-z 0-9 . -`, not starting with a dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name, if it is one a layout may use. Anything else found on a disk is foreign.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-');
        let fits = (1..=255).contains(&name.len()) && !name.starts_with('.');
        (fits && name.as_bytes().iter().all(allowed)).then(|| Self(name.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A directory: the data directory itself (`None`) or one directly below it.
pub type Dir = Option<Name>;

/// A file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Where the file lies.
    pub dir: Dir,
    /// Its name there.
    pub name: Name,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dir {
            None => f.write_str(self.name.as_str()),
            Some(dir) => write!(f, "{}/{}", dir.as_str(), self.name.as_str()),
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Steps run in order until one fails.
#[derive(Clone, Debug)]
pub struct Job {
    /// Echoed in the completion.
    pub id: JobId,
    /// At least one.
    pub steps: Vec<Step>,
}

/// One thing a disk can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory. Fails with [`ErrorKind::Exists`].
    CreateDir(Name),
    /// Removes an empty directory. Fails with [`ErrorKind::NotEmpty`] or [`ErrorKind::NotFound`].
    RemoveDir(Name),
    /// Makes the names in a directory durable.
    SyncDir(Dir),
    /// Opens an existing file for reading and writing; gives [`Output::Length`].
    Open {
        /// The number later steps use.
        file: FileId,
        /// Which file.
        path: Path,
    },
    /// Makes a new, empty file and opens it. Fails with [`ErrorKind::Exists`].
    Create {
        /// The number later steps use.
        file: FileId,
        /// Which file.
        path: Path,
    },
    /// Closes a file. Never fails; closing an unknown id does nothing.
    Close(FileId),
    /// Writes the slices back to back from `at`. Extends the file when it reaches past its end.
    Write {
        /// Which open file.
        file: FileId,
        /// First byte written.
        at: u64,
        /// Written in this order without being joined.
        data: Vec<Bytes>,
    },
    /// Writes zero bytes over `[at, at + len)`: real blocks, not a hole.
    Zero {
        /// Which open file.
        file: FileId,
        /// First byte.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Makes the file's contents and length durable.
    Sync(FileId),
    /// Sets the file's length; growing gives zero bytes.
    Truncate {
        /// Which open file.
        file: FileId,
        /// The new length.
        len: u64,
    },
    /// Renames a file, replacing a file of the target name; open ids stay valid.
    Rename {
        /// Present name.
        from: Path,
        /// New name.
        to: Path,
    },
    /// Removes a file's name. Fails with [`ErrorKind::NotFound`].
    Remove(Path),
    /// Reads `[at, at + len)`, less at the end of the file; gives [`Output::Data`].
    Read {
        /// Which open file.
        file: FileId,
        /// First byte.
        at: u64,
        /// Most bytes to read.
        len: usize,
    },
    /// Lists a directory, in no order; gives [`Output::Entries`].
    List(Dir),
}

impl Step {
    /// Whether the step changes nothing, so that a job of only such steps is outside the order of jobs.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        match self {
            Self::Read { .. } | Self::List(_) => true,
            Self::CreateDir(_)
            | Self::RemoveDir(_)
            | Self::SyncDir(_)
            | Self::Open { .. }
            | Self::Create { .. }
            | Self::Close(_)
            | Self::Write { .. }
            | Self::Zero { .. }
            | Self::Sync(_)
            | Self::Truncate { .. }
            | Self::Rename { .. }
            | Self::Remove(_) => false,
        }
    }
}

/// What a job gave.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Which job.
    pub job: JobId,
    /// The output of its last step, or the failure that stopped it.
    pub result: Result<Output, Error>,
}

/// What a step gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing but success.
    Done,
    /// Bytes in the file just opened.
    Length(u64),
    /// Bytes read; shorter than asked for only at the end of the file.
    Data(Bytes),
    /// What a directory holds.
    Entries(Vec<Entry>),
}

/// One name in a directory, as the disk spells it: not necessarily a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// As found; bytes that are not UTF-8 are shown lossily (no name of ours has any).
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Why a job stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} in step {step}: {detail}")]
pub struct Error {
    /// What happened.
    pub kind: ErrorKind,
    /// Which step of the job, from 0. Earlier steps took effect, later ones did not.
    pub step: usize,
    /// The path or file, the place in it and the operating system's own words, for people.
    pub detail: String,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// No space or quota left (`ENOSPC`, `EDQUOT`).
    Full,
    /// The volume is read-only (`EROFS`).
    ReadOnly,
    /// The device failed (`EIO`).
    Io,
    /// No such file or directory.
    NotFound,
    /// The name is taken.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The file failed before and takes no more writes under this id.
    Poisoned,
    /// The file is not open.
    NotOpen,
    /// Anything else: permissions, descriptors, a file where a directory should be.
    Other,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no space left",
            Self::ReadOnly => "read-only volume",
            Self::Io => "device error",
            Self::NotFound => "not found",
            Self::Exists => "already exists",
            Self::NotEmpty => "directory not empty",
            Self::Poisoned => "file failed before",
            Self::NotOpen => "file not open",
            Self::Other => "operation failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for bad in ["", ".", "..", ".hidden", "a/b", "a\\b", "A", "a b", "a\0", &"x".repeat(256)] {
            assert_eq!(Name::new(bad), None, "{bad:?}");
        }
        for good in ["a", "copy.meta", "00-r1-s2", "a..b"] {
            assert!(Name::new(good).is_some(), "{good:?}");
        }
    }
}
