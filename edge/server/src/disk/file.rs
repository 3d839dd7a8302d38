//! One open file: positional reads, writes and syncs, all or an error.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::Advice;
use rustix::io::Errno;
use storage::disk::{ErrorKind, Path};

use super::counters::Counters;
use super::failure::Failure;

/// Slices one call takes (`IOV_MAX` on Linux).
const SLICES_MAX: usize = 1024;

/// Places in a file are signed in system calls.
const FILE_END_MAX: u64 = i64::MAX as u64;

/// What zeroing writes from, again and again.
static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];

/// An open file. Only the storage thread writes to it; readers share it.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) path: Path,
    /// The volume is read-only; the file was opened so that it can still be read.
    pub(super) read_only: bool,
    poisoned: AtomicBool,
}

/// How far a write came before it failed.
pub(super) struct Unwritten {
    /// Bytes in place.
    pub(super) done: u64,
    pub(super) failure: Failure,
}

impl OpenFile {
    pub(super) fn new(fd: OwnedFd, path: Path, read_only: bool) -> Self {
        Self { fd, path, read_only, poisoned: AtomicBool::new(false) }
    }

    /// Takes no more writes and syncs. Cached pages that did not reach the device are dropped, as far as the
    /// kernel does that, so that a later opening reads what the device holds.
    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
        // Advice only: when it fails, the file is still poisoned here, which is what safety rests on.
        let _ = rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed);
    }

    /// Whether the file takes writes and syncs.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(Failure::new(ErrorKind::Poisoned, format!("{}: failed before", self.path)));
        }
        Ok(())
    }

    /// Whether bytes may lie at `[at, at + len)`.
    pub(super) fn check_extent(&self, at: u64, len: u64) -> Result<(), Failure> {
        if self.read_only {
            return Err(Failure::new(
                ErrorKind::ReadOnly,
                format!("{} at {at}: read-only volume", self.path),
            ));
        }
        if at.checked_add(len).is_none_or(|end| end > FILE_END_MAX) {
            return Err(Failure::new(ErrorKind::Other, format!("{} at {at}: file too large", self.path)));
        }
        Ok(())
    }

    /// Writes slices back to back; none of them is empty.
    pub(super) fn write(&self, at: u64, slices: &[Bytes], counters: &Counters) -> Result<(), Unwritten> {
        let mut slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        self.write_slices(at, &mut slices, counters)
    }

    /// Writes real zeros, so that later writes there change neither the length nor the allocation.
    pub(super) fn zero(&self, at: u64, len: u64, counters: &Counters) -> Result<(), Unwritten> {
        let mut done = 0;
        while done < len {
            let slices_full = ((len - done) / ZEROS.len() as u64).min(64);
            let mut slices: Vec<_> = (0..slices_full).map(|_| IoSlice::new(&ZEROS)).collect();
            if slices.is_empty() {
                let rest = usize::try_from(len - done).expect("less than one buffer");
                slices.push(IoSlice::new(&ZEROS[..rest]));
            }
            let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
            self.write_slices(at + done, &mut slices, counters)
                .map_err(|unwritten| Unwritten { done: done + unwritten.done, ..unwritten })?;
            done += bytes;
        }
        Ok(())
    }

    fn write_slices(
        &self,
        at: u64,
        slices: &mut [IoSlice<'_>],
        counters: &Counters,
    ) -> Result<(), Unwritten> {
        let (mut left, mut done) = (slices, 0);
        while !left.is_empty() {
            let call = &left[..left.len().min(SLICES_MAX)];
            let errno = match rustix::io::pwritev(&self.fd, call, at + done) {
                Ok(0) => Errno::IO,
                Ok(bytes) => {
                    counters.wrote(bytes);
                    done += bytes as u64;
                    IoSlice::advance_slices(&mut left, bytes);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => errno,
            };
            let what = format_args!("{} at {}", self.path, at + done).to_string();
            return Err(Unwritten { done, failure: Failure::from_errno(what, errno) });
        }
        Ok(())
    }

    /// Makes contents and length durable. Linux persists with `fdatasync` all of a file's metadata that is
    /// needed to read its contents back, and the length is.
    pub(super) fn sync(&self, counters: &Counters) -> Result<(), Failure> {
        if self.read_only {
            // Nothing was written through this file, so nothing can be missing.
            return Ok(());
        }
        let started = std::time::Instant::now();
        let result = rustix::fs::fdatasync(&self.fd);
        counters.synced(started.elapsed());
        result.map_err(|errno| Failure::from_errno(format_args!("sync of {}", self.path), errno))
    }

    pub(super) fn truncate(&self, len: u64) -> Result<(), Failure> {
        self.check_extent(len, 0)?;
        rustix::fs::ftruncate(&self.fd, len)
            .map_err(|errno| Failure::from_errno(format_args!("truncation of {} to {len}", self.path), errno))
    }

    pub(super) fn length(&self) -> Result<u64, Failure> {
        let stat = rustix::fs::fstat(&self.fd)
            .map_err(|errno| Failure::from_errno(format_args!("length of {}", self.path), errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Reads `[at, at + len)`, less only at the end of the file.
    pub(super) fn read(&self, at: u64, len: usize, counters: &Counters) -> Result<Bytes, Failure> {
        // The length bounds what is allocated, whatever was asked for.
        let available = usize::try_from(self.length()?.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = len.min(available);
        let mut content = Vec::with_capacity(len);
        while content.len() < len {
            let place = at + content.len() as u64;
            // The vector may have more room than asked for; what is read beyond `len` is cut off below.
            match rustix::io::pread(&self.fd, rustix::buffer::spare_capacity(&mut content), place) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Failure::from_errno(format_args!("{} at {place}", self.path), errno));
                }
            }
        }
        content.truncate(len);
        counters.read(content.len());
        Ok(content.into())
    }
}
