//! The raw side: what the same bytes cost by plain system calls on the same directory.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// Bytes written by one call while a file is prepared.
const CHUNK: usize = 1024 * 1024;

/// A file with every block written, so that writing to it again changes neither its length nor its blocks.
#[derive(Debug)]
pub(crate) struct RawFile {
    file: File,
    path: PathBuf,
    at: u64,
    len: u64,
}

impl RawFile {
    /// Makes a file of `len` bytes, written and synced.
    pub(crate) fn new(path: &Path, len: u64) -> io::Result<Self> {
        let raw = Self::unsynced(path, len)?;
        raw.file.sync_all()?;
        Ok(raw)
    }

    /// The same without the sync: many files are synced at once by [`sync_all_of`].
    pub(crate) fn unsynced(path: &Path, len: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let chunk = vec![0xA5; CHUNK];
        let mut at = 0;
        while at < len {
            let size = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
            file.write_all_at(&chunk[..size], at)?;
            at += size as u64;
        }
        Ok(Self { file, path: path.to_owned(), at: 0, len })
    }

    /// Writes slices back to back behind the last write, from the start again at the end; not durable yet.
    pub(crate) fn write(&mut self, slices: &[Bytes]) -> io::Result<()> {
        let len = slices.iter().map(Bytes::len).sum::<usize>();
        if self.at + len as u64 > self.len {
            self.at = 0;
        }
        let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        if rustix::io::pwritev(&self.file, &slices, self.at)? != len {
            return Err(io::Error::other("a short write"));
        }
        self.at += len as u64;
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes it.
    pub(crate) fn remove(self) -> io::Result<()> {
        std::fs::remove_file(self.path)
    }
}

/// Makes everything on the file system `dir` lies on durable.
pub(crate) fn sync_all_of(dir: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(dir)?).map_err(io::Error::from)
}
