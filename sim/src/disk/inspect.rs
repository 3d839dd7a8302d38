//! What oracles and tests may look at; nothing here changes the disk.

use std::collections::BTreeMap;

use super::names::{Node, Side};
use super::{Counts, SimDisk};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A directory.
    Dir,
    /// A file of so many bytes.
    File(u64),
}

impl SimDisk {
    /// Every name, `dir/name` for those one level down.
    #[must_use]
    pub fn list(&self, side: Side) -> BTreeMap<String, Found> {
        let found = |node| match node {
            Node::Dir(_) => Found::Dir,
            Node::File(no) => {
                let file = self.machine.files.get(&no).expect("a named file is never swept");
                let bytes = if side == Side::View { file.view() } else { file.platter() };
                Found::File(u64::try_from(bytes.len()).expect("a length fits"))
            }
        };
        self.machine.names.walk(side).into_iter().map(|(name, node)| (name, found(node))).collect()
    }

    /// The bytes of a file, by `name` or `dir/name`; `None` when that side has no such file.
    #[must_use]
    pub fn bytes(&self, path: &str, side: Side) -> Option<&[u8]> {
        let file = self.machine.files.get(&self.machine.names.find(path, side)?)?;
        Some(if side == Side::View { file.view() } else { file.platter() })
    }

    /// Files the process has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.machine.open_files()
    }

    /// How often the disk did what, since it was made.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.machine.counts
    }

    /// A digest of every step and its result so far: two runs that differ anywhere differ here.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.machine.trace.digest()
    }

    /// Starts to keep one line of text for each step.
    pub fn record_trace(&mut self) {
        self.machine.trace.record_lines();
    }

    /// The lines kept since the last call.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.machine.trace.take_lines()
    }
}
