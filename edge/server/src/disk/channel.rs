//! The real disk behind the [`Disk`] trait, for whoever wants to wait for completions: tests, benchmarks and
//! tools that work through a data directory on their own.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use storage::disk::{Completion, Disk, Job};

use super::{Options, RealDisk, Snapshot};

/// A [`RealDisk`] whose completions wait in a channel.
#[derive(Debug)]
pub struct ChannelDisk {
    disk: RealDisk,
    completions: Receiver<Completion>,
    outstanding: usize,
}

impl ChannelDisk {
    /// Opens and locks a data directory.
    ///
    /// # Errors
    /// As [`RealDisk::open`].
    pub fn open(root: &Path, options: &Options) -> io::Result<Self> {
        // At most as many completions wait as jobs were submitted, and those are the caller's.
        let (sender, completions) = channel();
        let complete = move |completion| {
            // The receiver is gone only while this disk is being dropped.
            let _ = sender.send(completion);
        };
        Ok(Self { disk: RealDisk::open(root, options, complete)?, completions, outstanding: 0 })
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.disk.counters()
    }
}

impl Disk for ChannelDisk {
    fn submit(&mut self, job: Job) {
        self.outstanding += 1;
        self.disk.submit(job);
    }

    fn wait(&mut self) -> Option<Completion> {
        if self.outstanding == 0 {
            return None;
        }
        let completion = self.completions.recv().expect("the disk lives as long as this");
        self.outstanding -= 1;
        Some(completion)
    }
}
